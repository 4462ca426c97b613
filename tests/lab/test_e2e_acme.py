"""A vendor that is three folders outside of the product goes through the whole flow; nothing of fleet names it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab.rehearsal import ROOT, Rehearsal, rehearsal

pytestmark = [pytest.mark.lab, pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root")]
ACME = ROOT / "tests/acme"
NODES = ("ac-a", "ac-b")
TARGET = {"driver": "2.0.0", "firmware": "10.2", "toolkit": "3.1"}
BEFORE = {"driver": "1.9.0", "firmware": "10.1", "toolkit": "3.0"}
TO = ("--to", "toolkit==3.1", "--max-unavailable", "100%", "--max-failures", "100%")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    spec = {**yaml.safe_load((ACME / "lab.yaml").read_text()), "network": "127.92.6"}
    with rehearsal(tmp_path_factory.mktemp("acme"), spec, [str(ACME)]) as one:
        yield one


def test_it_is_a_vendor_by_its_folders_alone(site: Rehearsal) -> None:
    listed = site.document("vendor", "list", kind="VendorList")
    assert "acme" in str(listed)
    without = site.document("vendor", "list", kind="VendorList", env={"FLEET_VENDOR_PATH": ""})
    assert "acme" not in str(without)
    flagged = site.fleet("--vendor-path", str(ACME), "vendor", "list", env={"FLEET_VENDOR_PATH": ""})
    assert "acme" in flagged.out
    named = [
        str(file.relative_to(ROOT))
        for folder in ("fleet", "drivers", "compat_matrix", "playbooks", "pxe")
        for file in (ROOT / folder).rglob("*.py")
        if "acme" in file.read_text().lower()
    ]
    assert named == ["fleet/lab/simulated.py"]  # which has a vendor of its own by that name, without any folder


def test_one_is_upgraded_and_one_is_rescued(site: Rehearsal, tmp_path: Path) -> None:
    before = site.current(*NODES)
    for name in NODES:
        assert {c: before[name][c] for c in BEFORE} == BEFORE
    site.lab.fault("ac-b", "validation-fail")
    plan = site.fleet("plan", ",".join(NODES), *TO, "-o", "json")
    file = tmp_path / "plan.json"
    file.write_text(plan.out)
    rollout = site.document("upgrade", str(file), "-y", kind="Rollout", ok=(6,))
    nodes = {node["name"]: node for node in rollout["nodes"]}
    assert {name: node["state"] for name, node in nodes.items()} == {"ac-a": "done", "ac-b": "rolled-back"}, nodes
    assert "cards-ok" in nodes["ac-b"]["reason"]
    site.lab.fault("ac-b", "validation-fail", on=False)

    after = site.current(*NODES)
    assert {c: after["ac-a"][c] for c in TARGET} == TARGET
    assert after["ac-b"] == before["ac-b"]
    assert site.effects("ac-a") == {
        ("install", "driver", "2.0.0"): 1, ("install", "toolkit", "3.1"): 1, ("flash", "firmware", "10.2"): 1,
    }  # fmt: skip
    site.evidence_is_whole(rollout["id"])

    done = site.document("upgrade", "ac-b", *TO, "-y", kind="Rollout")
    assert done["state"] == "done"
    assert {c: site.current("ac-b")["ac-b"][c] for c in TARGET} == TARGET
    assert "nothing to do" in site.fleet("upgrade", ",".join(NODES), *TO, "-y").err
