"""Plan, upgrade, rollout, validate, artifact and evidence as a person types them, on a node that does not answer."""

from __future__ import annotations

from dataclasses import replace

from fleet.core.model import ComponentFact
from fleet.inventory import open_inventory
from fleet.inventory.rollouts import Rollouts
from tests.upgrade.person import FACTS, FILES, Person


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
