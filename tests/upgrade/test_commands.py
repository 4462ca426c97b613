"""Plan, upgrade, rollout, validate, artifact and evidence as a person types them, on a node that does not answer."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fleet.core.model import Accelerator, ComponentFact, Facts, Node, OsFacts
from fleet.inventory import open_inventory
from fleet.inventory.rollouts import Rollouts
from tests.cli.command import Fleet
from tests.remote.sshd import make_key, public

SCHEMAS = Path(__file__).parents[2] / "docs/schema"
FILES = (
    "biren-driver_1.6.0_linux-x86_64.run", "biren-driver_1.11.0_linux-x86_64.run",
    "birensupa-sdk_1.6_ubuntu-22.04_linux-x86_64.run", "birensupa-sdk_1.11_ubuntu-22.04_linux-x86_64.run",
)  # fmt: skip
FACTS = Facts(
    "br1", OsFacts("ubuntu", "22.04", "5.15.0-119-generic", "x86_64"), "biren",
    {"driver": ComponentFact("1.6.0", "1.6.0"), "toolkit": ComponentFact("1.6")},
    tuple(Accelerator("biren", "Biren106M", f"0000:0{i}:00.0", "1ee0:0106", i, f"uuid-{i}") for i in range(2)),
    {"package_kind": "deb", "kernel_headers": True}, at="2031-05-01T08:00:00Z", boot_id="b-1",
)  # fmt: skip


class Person:
    """A fleet of two equal nodes that refuse connections, and a third that was never probed."""

    def __init__(self, folder: Path) -> None:
        self.fleet = Fleet(folder)
        self.folder = folder
        key = make_key(folder, "key")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port: int = taken.getsockname()[1]
        self.env = {"FLEET_SSH_KEY": str(key)}
        inventory = open_inventory(self.fleet.url)
        inventory.add([Node(name, "127.0.0.1", port, "root", lifecycle="ready") for name in ("br1", "br2", "br3")])
        inventory.record([FACTS, replace(FACTS, node="br2")])
        for name in ("br1", "br2", "br3"):
            inventory.trust(name, public(key), "tester", "2031-05-01T08:00:00Z")
        inventory.close()

    def __call__(self, *args: str, code: int = 0, **more: str) -> str:
        done = self.fleet(*args, env={**self.env, **more})
        assert done.code == code, f"{args}: {done.code}\n{done.out}\n{done.err}"
        self.err = done.err
        return done.out

    def document(self, kind: str, *args: str, code: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self(*args, "-o", "json", code=code))
        jsonschema.validate(found, json.loads((SCHEMAS / f"{kind}.json").read_text()))
        return found

    def packages(self) -> None:
        for name in FILES:
            (self.folder / name).write_text(f"package {name}")
            self("artifact", "add", name)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def test_the_store(person: Person) -> None:
    person("artifact", "add", "nothing.run", code=2)
    (person.folder / "readme.txt").write_text("x")
    person("artifact", "add", "readme.txt", code=2)
    assert "unrecognised-artifact" in person.err
    person.packages()
    assert {a["name"] for a in person.document("ArtifactList", "artifact", "list")["items"]} == set(FILES)
    assert "biren" in person("artifact", "list")
    person.document("ArtifactReport", "artifact", "verify")
    blob = next(iter((person.fleet.state / "artifacts/blobs").iterdir()))
    blob.write_text("damaged")
    person("artifact", "verify", code=4)
    person("artifact", "add", "--sha256", "0" * 64, FILES[0], code=2)


def test_a_plan_says_what_is_lacking(person: Person) -> None:
    made = person.document("Plan", "plan", "br[1-3]", code=5)
    assert "missing artifact" in made["refusals"]["br1"] and "never probed" in made["refusals"]["br3"]
    person("upgrade", "br[1-3]", "-y", code=5)
    assert "all-refused" in person.err
    person("plan", code=2)
    person("plan", "br1", "--to", "drivr==1", code=2)
    person("plan", "br1", "--max-unavailable", "room=1", code=2)


def test_a_plan_is_shown_with_reasons_steps_and_waves(person: Person) -> None:
    person.packages()
    text = person("plan", "br1,br2")
    for words in ("2 nodes to change", "driver: 1.6.0 -> 1.11.0", "because", "way back", "wave 1 (canaries): br1",
                  "wave 2: br2", "reboot"):  # fmt: skip
        assert words in text, text
    one = person.document("Plan", "plan", "br1,br2")
    assert one == person.document("Plan", "plan", "br1,br2")
    assert "nothing to do" not in text


def test_an_upgrade_is_confirmed_and_a_silent_node_is_left_as_it_was(person: Person) -> None:
    person.packages()
    person("upgrade", "br1", code=2)
    assert "confirmation-needed" in person.err
    row = person.document("Rollout", "upgrade", "br1", "-y", code=6)
    assert (row["state"], row["nodes"][0]["state"]) == ("failed", "failed")
    assert "silent" in row["nodes"][0]["reason"]
    assert "br1 failed: silent" in person.err
    shown = person.document("Rollout", "rollout", "show", row["id"])
    assert [s["phase"] for s in shown["steps"]] == ["preflight"]
    assert "preflight" in person("rollout", "show", row["id"], "--steps", "br1")
    assert "silent" in person("rollout", "show", row["id"])
    assert person.document("RolloutList", "rollout", "list")["items"] == []
    assert person.document("RolloutList", "rollout", "list", "--all")["items"][0]["id"] == row["id"]
    person("rollout", "resume", row["id"], code=2)
    person("rollout", "pause", row["id"], code=2)
    person.document("EvidenceList", "evidence", "list")
    person.document("Evidence", "evidence", "show", row["id"])
    person.document("EvidenceReport", "evidence", "verify")
    file = person.fleet.state / f"evidence/runs/{row['id']}.jsonl"
    file.write_text(file.read_text().replace("preflight", "postflight"))
    person("evidence", "verify", code=4)


def test_a_plan_file_is_carried_out_or_refused_when_edited_or_stale(person: Person) -> None:
    person.packages()
    file = person.folder / "plan.json"
    file.write_text(person("plan", "br1", "-o", "json"))
    edited = person.folder / "edited.json"
    edited.write_text(file.read_text().replace("1.11.0", "1.12.0"))
    person("upgrade", "edited.json", "-y", code=2)
    assert "edited-plan" in person.err
    (person.folder / "bad.json").write_text("{")
    person("upgrade", "bad.json", "-y", code=2)
    person("upgrade", "absent.json", "-y", code=2)
    inventory = open_inventory(person.fleet.url)
    inventory.record([replace(FACTS, components={**FACTS.components, "driver": ComponentFact("1.7.0", "1.7.0")})])
    person("upgrade", "plan.json", "-y", code=7)
    assert "stale-plan" in person.err
    inventory.record([FACTS])
    inventory.close()
    person("upgrade", "plan.json", "-y", code=6)


def test_a_second_upgrade_on_the_same_nodes_is_refused_and_the_same_one_goes_on(person: Person) -> None:
    person.packages()
    made = person.document("Plan", "plan", "br1")
    inventory = open_inventory(person.fleet.url)
    from fleet.core.planfile import load

    store = Rollouts(inventory.database)
    store.create("r-other", load({k: v for k, v in made.items() if k != "apiVersion"}), "asked", (), "li", "now")
    person("upgrade", "br1,br2", "-y", code=7)
    assert "r-other" in person.err and "nodes-locked" in person.err
    person("rollout", "pause", "r-other")
    person("upgrade", "br1", "-y", code=8)
    person("upgrade", "br1", "-y", code=8)
    assert "r-other is paused" in person.err
    person("rollout", "resume", "r-other", code=6)
    assert store.rollout("r-other").state == "failed"
    inventory.close()


def test_abort_ends_a_rollout_that_nobody_drives(person: Person) -> None:
    person.packages()
    made = person.document("Plan", "plan", "br1")
    inventory = open_inventory(person.fleet.url)
    from fleet.core.planfile import load

    store = Rollouts(inventory.database)
    store.create("r-other", load({k: v for k, v in made.items() if k != "apiVersion"}), "asked", (), "li", "now")
    person("rollout", "abort", "r-other", "-y", code=1)
    assert store.rollout("r-other").state == "aborted"
    assert store.tasks("r-other")["br1"].task.state == "held"
    inventory.close()


def test_validating_a_silent_node_is_no_pass(person: Person) -> None:
    report = person.document("ValidationReport", "validate", "br1", code=6)
    assert report["nodes"][0]["verdict"] == "unknown"
    person("validate", "br1", "--suite", "burn", code=2)
    assert "br1" in person("validate", "br1", code=6)
