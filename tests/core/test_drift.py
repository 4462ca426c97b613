"""Drift: three values are never merged, unknown is its own answer, fingerprints are stable."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.core.drift import Baseline, Finding, Waiver, choose, compare, waive
from fleet.core.errors import BadInput
from fleet.core.model import Accelerator, ComponentFact, Facts, OsFacts

OS = OsFacts("debian", "12", "6.1.0-31-amd64", "x86_64")


def facts(**components: ComponentFact) -> Facts:
    card = Accelerator("nvidia", "H100-SXM5-80GB", uuid="GPU-0")
    return Facts("gpu1", OS, "nvidia", components, (card,), at="2030-01-01T00:00:00Z")


def results(said: Facts | None, **stack: str) -> list[tuple[str, str, str]]:
    found = compare("gpu1", said, Baseline("b", stack), lambda _: "generic")
    return [(f.component, f.kind, f.result) for f in found]


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        (ComponentFact("580.1", "580.1"), [("installed", "ok"), ("loaded", "ok")]),
        (ComponentFact("570.1", "570.1"), [("installed", "drift"), ("loaded", "ok")]),
        (ComponentFact("580.1", "570.1"), [("installed", "ok"), ("loaded", "drift")]),
        (ComponentFact("570.1", "580.1"), [("installed", "drift"), ("loaded", "drift")]),
        (ComponentFact("580.1", None), [("installed", "ok"), ("loaded", "unknown")]),
        (ComponentFact(None, "580.1"), [("loaded", "ok")]),
        (ComponentFact(None, "570.1"), [("loaded", "drift")]),
        (ComponentFact(None, None, "580.1"), [("installed", "unknown")]),
        (ComponentFact("580.01", "580.1"), [("installed", "ok"), ("loaded", "ok")]),
    ],
)
def test_a_driver(fact: ComponentFact, expected: list[tuple[str, str]]) -> None:
    assert results(facts(driver=fact), driver="580.1") == [("driver", *pair) for pair in expected]


def test_what_was_never_read_is_unknown_not_ok() -> None:
    assert results(None, driver="580.1") == [("", "probe", "unknown")]
    assert results(facts(), driver="580.1") == [("driver", "installed", "unknown")]


def test_what_only_lies_on_disk_needs_no_loaded_value() -> None:
    assert results(facts(toolkit=ComponentFact("12.8")), toolkit="12.*") == [("toolkit", "installed", "ok")]


def test_the_kernel_is_the_one_that_runs() -> None:
    assert results(facts(), kernel=OS.kernel) == [("kernel", "loaded", "ok")]
    assert results(facts(), kernel="6.1.0-32-amd64") == [("kernel", "loaded", "drift")]


def test_text_that_is_no_version_drifts_unless_it_is_the_very_text() -> None:
    assert results(facts(driver_flavour=ComponentFact("open")), driver_flavour="open")[0][2] == "ok"
    assert results(facts(driver_flavour=ComponentFact("proprietary")), driver_flavour="open")[0][2] == "drift"


def test_the_closest_baseline_is_chosen_and_two_equal_ones_are_refused() -> None:
    any_, vendor = Baseline("any", {}), Baseline("vendor", {}, "nvidia")
    model, other = Baseline("model", {}, "nvidia", "H100-SXM5-80GB"), Baseline("other", {}, "ascend")
    assert choose([any_, model, vendor, other], facts()) == model
    assert choose([any_, vendor, other], facts()) == vendor
    assert choose([any_, other], facts()) == any_
    assert choose([other], facts()) is None
    with pytest.raises(BadInput, match="both meant"):
        choose([vendor, replace(vendor, name="two")], facts())


def test_hardware_without_a_baseline_is_unknown() -> None:
    found = compare("gpu1", facts(), Baseline("other", {"driver": "1"}, "ascend"), lambda _: "generic")
    assert [(f.kind, f.result) for f in found] == [("baseline", "unknown")]


def test_a_fingerprint_names_the_difference_and_nothing_else() -> None:
    def only(said: Facts) -> Finding:
        return compare("gpu1", said, Baseline("b", {"driver": "580.1"}), lambda _: "generic")[0]

    first = only(facts(driver=ComponentFact("570.1", "570.1")))
    later = only(replace(facts(driver=ComponentFact("570.1", "570.1")), at="2031-01-01T00:00:00Z", boot_id="x"))
    other = only(facts(driver=ComponentFact("570.2", "570.2")))
    assert first.fingerprint == later.fingerprint != other.fingerprint
    assert len(first.fingerprint) == 16


def test_a_waiver_holds_until_its_day_and_only_for_its_finding() -> None:
    found = compare(
        "gpu1", facts(driver=ComponentFact("570.1", "570.1")), Baseline("b", {"driver": "580.1"}), lambda _: "generic"
    )
    waiver = Waiver(found[0].fingerprint, "li", "waits for firmware", "2030-02-01T00:00:00Z")
    assert [f.result for f in waive(found, [waiver], "2030-01-31T00:00:00Z")] == ["waived", "ok"]
    assert [f.result for f in waive(found, [waiver], "2030-02-01T00:00:00Z")] == ["drift", "ok"]
