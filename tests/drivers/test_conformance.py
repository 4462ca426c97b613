"""One suite for every vendor, the test-only one included: what `fleet.core.vendor` asks of an adapter."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drivers
from fleet.core.model import COMPONENTS, OsFacts, Phase, Step
from fleet.core.stages import OURS
from fleet.core.vendor import CAPABILITIES, STATUSES, Capability, Reading, Seen, Severity, Vendor
from fleet.core.version import SCHEMES
from tests.drivers.conformance import CASES, STRANGERS, VENDOR_PATH, VENDORS, Case, folder

NAMES = sorted(VENDORS)
HEADINGS = (
    "Identification", "What is read", "Components", "Upgrade order", "Rollback", "Faults", "Known gaps", "Sources",
)  # fmt: skip
TASKS = ("preflight", "stop", "remove", "install", "firmware", "activate", "verify")
RESULTS = ("pass", "fail", "warn", "skip", "unsupported", "unknown")
# Words that change something; a probe must hold none of them.
CHANGING = re.compile(
    r"(?<![\w-])(rm|mv|cp|tee|dd|kill|reboot|shutdown|rmmod|modprobe|insmod|systemctl (?:start|stop|restart)|"
    r"apt(?:-get)?|yum|dnf|dpkg -i|rpm -[UiFe]|mx-smi -[ruU]|set|reset)(?=\s)|(?<![0-9&])>(?!\s*/dev/null|&)"
)


@pytest.fixture(params=NAMES)
def vendor(request: pytest.FixtureRequest) -> Vendor:
    return VENDORS[str(request.param)]


@pytest.fixture
def case(vendor: Vendor) -> Case:
    return CASES[vendor.name]


def test_every_vendor_has_a_case() -> None:
    assert set(CASES) == set(NAMES)
    assert "acme" in NAMES  # found through vendor_path alone
    assert "acme" not in drivers.vendors()


def test_the_exported_object_is_complete(vendor: Vendor) -> None:
    assert vendor.name == folder(vendor.name, "drivers").name
    assert vendor.title
    assert vendor.pci_vendors and all(re.fullmatch(r"[0-9a-f]{4}", word) for word in vendor.pci_vendors)
    assert vendor.modules
    assert vendor.checks
    assert vendor.faults


def test_no_two_vendors_claim_a_pci_vendor() -> None:
    claimed = [word for one in VENDORS.values() for word in one.pci_vendors]
    assert len(claimed) == len(set(claimed))


def test_capabilities_are_of_the_closed_list(vendor: Vendor) -> None:
    assert set(vendor.capabilities) == set(CAPABILITIES)
    assert set(vendor.capabilities.values()) <= set(get_args(Capability))


def test_components_and_schemes_are_known(vendor: Vendor) -> None:
    assert set(vendor.schemes) <= set(COMPONENTS)
    assert set(vendor.schemes.values()) <= set(SCHEMES)
    assert "driver" in vendor.schemes


def test_probes_only_read_and_have_limits(vendor: Vendor) -> None:
    names = [probe.name for probe in vendor.probes]
    assert len(names) == len(set(names))
    for probe in vendor.probes:
        assert 1 <= probe.timeout_s <= 120, probe.name
        assert not CHANGING.search(probe.command), probe.command
        assert not re.search(r"(?<!\w)exit\b|\bexec ", probe.command), f"{probe.name} would end the whole script"
        assert probe.needs == "" or probe.needs.startswith("/")


def test_what_a_probe_runs_is_understood(vendor: Vendor) -> None:
    """A shell's own refusal of each probe is a status of its own, under the name by which it is read."""
    for probe in vendor.probes:
        reading = vendor.read(probe.read_as or probe.command, "", 0)
        assert reading.status in STATUSES


def test_its_own_table_is_read(vendor: Vendor, case: Case) -> None:
    reading = drivers.read_output(vendor.name, case.tool, case.table.encode(), 0, VENDOR_PATH)
    assert reading.status == "ok", reading.note
    assert len(reading.accelerators) == 1
    assert reading.components["driver"]
    crlf = drivers.read_output(
        vendor.name, case.tool, b"\xef\xbb\xbf" + case.table.replace("\n", "\r\n").encode(), 0, VENDOR_PATH
    )
    assert crlf == reading


@pytest.mark.parametrize("other", NAMES)
def test_another_vendors_table_is_unparsed(vendor: Vendor, case: Case, other: str) -> None:
    if other == vendor.name:
        assert vendor.read(case.tool, case.table, 0).status == "ok"
        return
    _is_empty(vendor.read(case.tool, CASES[other].table, 0))


@pytest.mark.parametrize("text", STRANGERS)
def test_strangers_are_unparsed(vendor: Vendor, case: Case, text: str) -> None:
    _is_empty(vendor.read(case.tool, text, 0))


def _is_empty(reading: Reading) -> None:
    assert reading.status == "unparsed"
    assert (reading.components, reading.accelerators, reading.checks, reading.faults) == ({}, (), (), ())
    assert reading.note


@pytest.mark.parametrize(
    ("text", "rc", "status"),
    [
        ("sh: 1: TOOL: not found\n", 127, "tool-missing"),
        ("sh: 1: TOOL: Permission denied\n", 126, "permission-denied"),
        ("", 0, "unparsed"),
        ("", 124, "failed"),
    ],
)
def test_what_the_shell_says(vendor: Vendor, case: Case, text: str, rc: int, status: str) -> None:
    got = vendor.read(case.tool, text.replace("TOOL", case.tool.split()[0]), rc)
    assert (got.status, got.components, got.accelerators) == (status, {}, ())


COMMANDS = [(name, probe.read_as or probe.command) for name in NAMES for probe in VENDORS[name].probes]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(COMMANDS), st.binary(max_size=400), st.one_of(st.none(), st.integers(0, 255)))
def test_reading_never_raises(which: tuple[str, str], output: bytes, rc: int | None) -> None:
    reading = drivers.read_output(which[0], which[1], output, rc, VENDOR_PATH)
    assert reading.status in STATUSES
    if reading.status == "unparsed":
        _is_empty(reading)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(NAMES), st.data())
def test_a_damaged_table_never_gains_a_card(name: str, data: st.DataObject) -> None:
    case, table = CASES[name], CASES[name].table
    start = data.draw(st.integers(0, len(table)))
    end = data.draw(st.integers(start, len(table)))
    junk = data.draw(st.text(max_size=5))
    reading = drivers.read_output(
        name, case.tool, (table[:start] + junk + table[end:]).encode(errors="replace"), 0, VENDOR_PATH
    )
    assert len(reading.accelerators) <= 1
    if reading.status == "unparsed":
        _is_empty(reading)


def test_from_nothing_nothing_is_claimed(vendor: Vendor) -> None:
    got = vendor.gather(Seen(OsFacts(), (), {}))
    assert (dict(got.components), got.accelerators, got.problems, got.faults) == ({}, (), (), ())
    failed = {probe.name: Reading(vendor.name, probe.name, "unparsed", note="x") for probe in vendor.probes}
    again = vendor.gather(Seen(OsFacts(), (), failed))
    assert (dict(again.components), again.accelerators) == ({}, ())


CHANGES = [
    {"back": back, "first": first, "reboot": reboot, "kind": kind}
    for back, first in ((False, False), (True, False), (False, True))
    for reboot in ("none", "reload", "reboot", "power_cycle")
    for kind in ("deb", "rpm")
]


@pytest.mark.parametrize("how", CHANGES, ids=lambda how: "-".join(str(value) for value in how.values()))
def test_steps_of_every_change(vendor: Vendor, case: Case, how: dict[str, object]) -> None:
    change = case.change(**how)  # type: ignore[arg-type]
    steps = [step for step in vendor.steps(change) if step.phase not in OURS]
    phases = [step.phase for step in steps]
    assert set(phases) <= set(get_args(Phase))
    assert "preflight" not in phases[1:]
    assert "verify" not in phases[:-1]
    put = {(c.component, c.new) for step in steps for c in step.changes if step.phase in ("install", "firmware")}
    assert {(c.component, c.new) for c in change.changes} <= put
    for step in steps:
        _check_step(vendor, step)
    if "stop" in phases:
        assert phases.index("stop") < phases.index("install")
    if change.reboot in ("reboot", "power_cycle"):
        asked = [step.activation for step in steps if step.phase == "reboot"]
        assert change.reboot in asked or "power_cycle" in asked or not asked  # none: the plan adds it
    assert vendor.steps(change) == vendor.steps(change)


def _check_step(vendor: Vendor, step: Step) -> None:
    assert 0 < step.limit_s <= 7200
    if step.changes and step.phase in ("install", "remove", "firmware"):
        assert step.undo is not None or step.effect == "one_way"
        assert step.undo != "", f"{step.phase} does not say how it is taken back"
    if step.phase in ("install", "firmware") and any(change.new for change in step.changes):
        assert step.artifacts
    named = [vendor.artifact(name) for name in step.artifacts]
    for name, found in zip(step.artifacts, named, strict=True):
        assert found is not None, f"{name} is not recognised"
        assert found.vendor == vendor.name
    known = {found.component: found.version for found in named if found is not None}
    for change in step.changes:
        if step.phase in ("install", "firmware") and change.component in known:
            assert known[change.component] == change.new


def test_nothing_to_do_is_no_step(vendor: Vendor, case: Case) -> None:
    change = case.change()
    nothing = type(change)(change.model, change.count, change.os, change.now, (), "none")
    assert [step for step in vendor.steps(nothing) if step.changes] == []


@pytest.mark.parametrize("name", ["", "README", "linux-image-6.1.deb", "x" * 300, "a/b.run", "vendor_1.0_x86_64.run"])
def test_other_files_are_nobodys(vendor: Vendor, name: str) -> None:
    assert vendor.artifact(name) is None


def test_checks_answer_unknown_from_nothing(vendor: Vendor) -> None:
    names = [check.name for check in vendor.checks]
    assert len(names) == len(set(names))
    for check in vendor.checks:
        item = check.judge({}, 8)
        assert item["name"] == check.name
        assert item["result"] in RESULTS
        assert item["result"] != "pass"
        assert item["detail"]


def test_faults_have_severity_and_action(vendor: Vendor) -> None:
    for code, fault in vendor.faults.items():
        assert fault.code == code
        assert fault.severity in get_args(Severity)
        assert fault.action and fault.text


def test_the_role_has_all_its_task_files(vendor: Vendor) -> None:
    tasks = folder(vendor.name, "playbooks/roles") / "tasks"
    assert [name for name in TASKS if not (tasks / f"{name}.yml").is_file()] == []


def test_the_three_folders_are_there(vendor: Vendor) -> None:
    assert list(folder(vendor.name, "compat_matrix").glob("*.yaml"))
    assert (folder(vendor.name, "drivers") / "emulate/install.json").is_file()


def test_the_readme_has_its_headings(vendor: Vendor) -> None:
    text = (folder(vendor.name, "drivers") / "README.md").read_text()
    assert tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) == HEADINGS
