"""What would stop an upgrade is named before anything is changed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab.rehearsal import TOUCHES, Rehearsal, default_spec, rehearsal

pytestmark = [pytest.mark.lab, pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root")]
NODES = ("as-a", "br-a", "mx-a", "nv-a", "nv-b")
ALL = ("@all", "--strategy", "newest")
NO_LIMITS = ("--max-unavailable", "100%", "--max-failures", "100%", "-y")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with rehearsal(tmp_path_factory.mktemp("preflight"), default_spec("127.92.4", NODES)) as one:
        yield one


def lifecycles(site: Rehearsal) -> dict[str, str]:
    return {node["name"]: node["lifecycle"] for node in site.document("node", "list", kind="NodeList")["nodes"]}


@contextmanager
def broken(site: Rehearsal, faults: Mapping[str, str]) -> Iterator[None]:
    """These faults (node -> fault) are switched on. Who mends them looks again: a plan goes by what was seen last."""
    try:
        for name, fault in faults.items():
            site.lab.fault(name, fault)
        yield
    finally:
        for name, fault in faults.items():
            site.lab.fault(name, fault, on=False)
    site.fleet("probe", ",".join(faults), ok=(0, 6))


def refused(site: Rehearsal, *names: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Try to upgrade them; each must end as failed with no effect on it. Node -> what the rollout says of it."""
    before = {name: site.effects(name, TOUCHES) for name in names}
    prior = lifecycles(site)
    rollout = site.document(
        "upgrade", ",".join(names), "--strategy", "newest", *NO_LIMITS, kind="Rollout", ok=(6,), env=env
    )
    nodes = {node["name"]: node for node in rollout["nodes"]}
    assert {name: node["state"] for name, node in nodes.items()} == dict.fromkeys(names, "failed"), nodes
    assert {name: site.effects(name, TOUCHES) for name in names} == before
    with site.store() as store:
        begun = {attempt.phase for name in names for attempt in store.attempts(rollout["id"], name)}
    assert begun <= {"preflight", "cordon", "drain", "stage", "uncordon"}
    assert lifecycles(site) == prior
    for node in nodes.values():
        assert node["owner"]
        assert node["nextAction"]
    return nodes


def test_processes_that_hold_the_devices(site: Rehearsal) -> None:
    faults = {"nv-a": "holders", "mx-a": "holders", "as-a": "occupied", "br-a": "in-use"}
    with broken(site, faults):
        said = refused(site, *faults)
    for name in faults:
        reason = said[name]["reason"]
        assert re.search(r"\bprocess(es)?\b.*\bholds?\b", reason), reason
        assert re.search(r"\b\d{2,}\b", reason), reason  # the process id
    assert said["nv-a"]["reason"].startswith("holders: process ")


def test_missing_headers_and_no_sudo(site: Rehearsal) -> None:
    builders = ("as-a", "br-a", "mx-a", "nv-a")
    with broken(site, {**dict.fromkeys(builders, "headers-missing"), "nv-b": "no-sudo"}):
        said = refused(site, *NODES)
    for name in builders:
        assert said[name]["reason"].startswith("headers-missing: "), said[name]
    assert said["nv-b"]["reason"].startswith("no-sudo: "), said["nv-b"]


def test_a_full_disk_a_changed_key_a_refused_login_and_a_silent_node(site: Rehearsal) -> None:
    with broken(site, {"as-a": "disk-full", "nv-b": "host-key-changed", "mx-a": "ssh-refused"}):
        site.log_in_node("br-a", "mv /root/.ssh/authorized_keys /root/.ssh/away")
        try:
            said = refused(site, "as-a", "br-a", "mx-a", "nv-b")
            report = site.document("probe", "@all", kind="ProbeReport", ok=(6,))
        finally:
            site.log_in_node("br-a", "mv /root/.ssh/away /root/.ssh/authorized_keys")
    assert {row["name"]: row["outcome"] for row in report["nodes"]} == {
        "as-a": "answered", "br-a": "refused", "mx-a": "silent", "nv-a": "answered", "nv-b": "key-changed",
    }  # fmt: skip
    assert said["as-a"]["reason"].startswith("disk-full: "), said["as-a"]
    assert said["nv-b"]["reason"].startswith("key-changed: "), said["nv-b"]
    assert said["br-a"]["reason"].startswith("refused: "), said["br-a"]
    assert said["mx-a"]["reason"].startswith("silent: "), said["mx-a"]
    incidents = [
        row for row in site.document("db", "log", kind="AuditLog")["entries"] if row["what"] == "host-key-changed"
    ]
    assert {row["detail"]["node"] for row in incidents} == {"nv-b"}, incidents


def test_a_missing_artifact_refuses_the_plan(site: Rehearsal, tmp_path: Path) -> None:
    empty = {"FLEET_STATE_DIR": str(tmp_path), "FLEET_DB": f"sqlite:///{site.lab.folder / 'fleet/inventory.db'}"}
    plan = site.document("plan", *ALL, kind="Plan", ok=(5,), env=empty)
    assert set(plan["refusals"]) == set(NODES)
    assert plan["waves"] == []
    ran = site.fleet("upgrade", *ALL, "-y", ok=(5,), env=empty)
    assert "missing artifact" in ran.err
    with site.store() as store:
        assert store.rollouts(unfinished=True) == []


def test_a_damaged_artifact_reaches_no_node(site: Rehearsal) -> None:
    """The file in the store is no longer what was added."""
    name = "br-a"
    listed = site.document("artifact", "list", kind="ArtifactList")["items"]
    stored = {item["name"]: item["sha256"] for item in listed}
    wanted = site.wanted(name, "--strategy", "newest")[name]["driver"][1]
    package = next(item for item in stored if "biren" in item and f"_{wanted}_" in item)
    blob = next(
        p for p in (site.lab.folder / "fleet/artifacts").rglob("*") if p.is_file() and stored[package] in p.name
    )
    content = blob.read_bytes()
    blob.chmod(0o600)
    blob.write_bytes(content.replace(b"sh", b"SH", 1))
    verified = site.fleet("artifact", "verify", ok=(4,))
    assert package in verified.out + verified.err
    said = refused(site, name)
    assert package in said[name]["reason"], said[name]
    assert any(word in said[name]["reason"] for word in ("bad-artifact", "bad-sha256")), said[name]
    blob.write_bytes(content)
    site.fleet("artifact", "verify")


def test_when_all_is_mended_the_upgrade_goes_through(site: Rehearsal) -> None:
    rollout = site.document("upgrade", "br-a", "--strategy", "newest", "-y", kind="Rollout")
    assert [node["state"] for node in rollout["nodes"]] == ["done"]
