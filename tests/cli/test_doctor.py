"""`fleet doctor` and `fleet node why`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest

from fleet.cli.waiting import as_dict
from fleet.core.model import Hold, Node
from fleet.core.task import NodeTask
from fleet.inventory.rollouts import Rollout, Stored
from tests.cli.command import Fleet

SCHEMAS = Path(__file__).parents[2] / "docs/schema"
AT = "2031-05-01T08:00:00Z"
NODE = Node("gpu1", "10.0.0.1")


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def valid(document: dict[str, object], kind: str) -> None:
    jsonschema.validate(document, json.loads((SCHEMAS / f"{kind}.json").read_text()))


def rollout(state: str = "running", reason: str = "") -> Rollout:
    return Rollout("r-1", "p-1", "c", state, "", 0, reason, "li", AT, "", ())  # type: ignore[arg-type]  # from a test's text


def test_a_fit_controller(fleet: Fleet, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    done = fleet("doctor", "-o", "json", env={"FLEET_SSH_KEY": str(key)})
    found = json.loads(done.out)
    valid(found, "DoctorReport")
    assert done.code == 0 and found["ok"] and not (fleet.state / "inventory.db").exists()
    assert {c["check"] for c in found["checks"]} == {
        "state folder", "database", "SSH key", "Ansible", "vendors", "matrix"
    }  # fmt: skip
    key.chmod(0o644)
    assert "chmod 600" in fleet("doctor", env={"FLEET_SSH_KEY": str(key)}).err


def test_an_unfit_one_says_everything_at_once(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    broken = {
        "FLEET_STATE_DIR": f"{tmp_path}/file/state",
        "FLEET_SSH_KEY": "/nonexistent",
        "FLEET_VENDOR_PATH": "/none",
    }
    done = fleet("doctor", "-o", "json", env=broken)
    states = {c["check"]: c["state"] for c in json.loads(done.out)["checks"]}
    assert done.code == 4
    assert states["state folder"] == states["database"] == states["SSH key"] == "failed" and states["Ansible"] == "ok"
    assert all(c["hint"] for c in json.loads(done.out)["checks"] if c["state"] != "ok")


def test_why_a_node_waits(fleet: Fleet) -> None:
    fleet("node", "add", "gpu1", "10.0.0.1")
    done = fleet("node", "why", "gpu1", "-o", "json")
    valid(json.loads(done.out), "NodeWhy")
    assert done.code == 0 and json.loads(done.out)["next"] == "fleet node trust gpu1"
    fleet("node", "hold", "gpu1", "--why", "坏内存")
    assert "坏内存" in fleet("node", "why", "gpu1").out
    assert fleet("node", "why", "gpu2").code == 2


def test_why_in_a_rollout() -> None:
    task = NodeTask("gpu1", 0, 1, "rebooting", cursor=5, since=1000.0, limit_s=600, reason="", owner="", next_action="")
    body = as_dict(NODE, (rollout(), Stored(task)), "host:1", True, True, AT, 1100.0)
    valid({"apiVersion": "fleet/v1", "kind": "NodeWhy", **body}, "NodeWhy")
    part = body["rollout"]
    assert (part["state"], part["since"], part["limitS"], part["overdue"]) == (
        "rebooting", "1970-01-01T00:16:40Z", 600, False
    )  # fmt: skip
    assert body["waits"] and body["next"] == "wait: host:1 carries the rollout out"
    late = as_dict(NODE, (rollout(), Stored(task)), "", True, True, AT, 1700.0)
    assert late["rollout"]["overdue"] and late["next"] == "fleet rollout resume r-1"
    failed = NodeTask("gpu1", 0, 1, "failed", reason="dkms failed", owner="operator", next_action="install headers")
    body = as_dict(NODE, (rollout("paused"), Stored(failed)), "", True, True, AT, 1.0)
    assert "dkms failed" in body["summary"] and body["next"] == "install headers"
    over = as_dict(NODE, (rollout("done"), Stored(NodeTask("gpu1", 0, 0, "done"))), "", True, True, AT, 1.0)
    assert not over["waits"] and "done in rollout r-1" in over["summary"]


def test_a_hold_that_is_over_holds_nothing() -> None:
    past = Node("gpu1", "10.0.0.1", hold=Hold("li", "disk", "2031-05-01T07:00:00Z"))
    body = as_dict(past, None, "", True, True, AT, 1.0)
    assert not body["waits"] and not body["hold"]["inForce"]
