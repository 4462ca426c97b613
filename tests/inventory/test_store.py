"""The inventory, on SQLite and on PostgreSQL: what goes in comes out, and a change is all or nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.core.drift import Baseline
from fleet.core.errors import BadInput, NotFound
from fleet.core.model import Accelerator, ComponentFact, Facts, Hold, Node, OsFacts
from fleet.inventory import Inventory

FULL = Node(
    "gpu001", "10.0.0.1", 2222, "ops", "https://10.1.0.1", "x86_64", "bj", "r07", "l3", "nv1", "sp1",
    {"pool": "gold", "owner": "训练组"}, "in-service", Hold("li", "disk swap", "2030-02-01T00:00:00Z"),
)  # fmt: skip


def facts(name: str = "gpu001", driver: str = "570.1", at: str = "2030-01-01T00:00:00Z") -> Facts:
    return Facts(
        name,
        OsFacts("debian", "12", "6.1.0-31-amd64", "x86_64"),
        "nvidia",
        {"driver": ComponentFact(driver, driver), "toolkit": ComponentFact("12.8.1", None, "12.8")},
        (
            Accelerator("nvidia", "H100-SXM5-80GB", "0000:0b:00.0", "10de:2330", 0, "GPU-a", "S1", "96.0", 81559, "ok"),
            Accelerator("nvidia", "H100-SXM5-80GB", "0000:0c:00.0", index=1),
        ),
        {"nvswitch": True, "superpod": None, "list": [1, 2.5, "x"]},
        {"smi": "ok"},
        ("two cards are missing",),
        ({"code": "79", "severity": "critical"},),
        boot_id="b-1",
        at=at,
    )


def test_a_node_comes_back_as_it_went_in(inventory: Inventory) -> None:
    plain = Node("login1", "login1")
    inventory.add([plain, FULL])
    assert inventory.nodes() == [FULL, plain]
    assert inventory.node("gpu001") == FULL


def test_names_are_in_natural_order(inventory: Inventory) -> None:
    inventory.add([Node(name, name) for name in ("gpu10", "gpu9", "gpu1")])
    assert [node.name for node in inventory.nodes()] == ["gpu1", "gpu9", "gpu10"]
    assert [node.name for node in inventory.nodes(["gpu10", "gpu9", "gpu10"])] == ["gpu9", "gpu10"]
    assert inventory.nodes([]) == []


def test_a_taken_name_adds_nothing(inventory: Inventory) -> None:
    inventory.add([FULL])
    with pytest.raises(BadInput, match="gpu001"):
        inventory.add([Node("new", "new"), Node("gpu001", "x")])
    with pytest.raises(BadInput, match="twice"):
        inventory.add([Node("new", "new"), Node("new", "x")])
    assert inventory.nodes() == [FULL]


def test_put_replaces_the_record_and_leaves_facts_and_keys(inventory: Inventory) -> None:
    inventory.add([FULL])
    inventory.record([facts()])
    inventory.trust("gpu001", "ssh-ed25519 AAAA", "li", "2030-01-01T00:00:00Z")
    bare = Node("gpu001", "10.9.9.9", labels={"other": "x"})
    inventory.put([bare, Node("gpu002", "10.0.0.2")])
    assert inventory.node("gpu001") == bare
    assert len(inventory.nodes()) == 2 and list(inventory.facts()) == ["gpu001"] and "gpu001" in inventory.host_keys()


def test_removing_forgets_all_but_the_log(inventory: Inventory) -> None:
    inventory.add([FULL, Node("gpu002", "10.0.0.2")])
    inventory.record([facts()])
    inventory.trust("gpu001", "ssh-ed25519 AAAA", "li", "2030-01-01T00:00:00Z")
    inventory.audit("li", "node add", "2030-01-01T00:00:00Z", {"nodes": "gpu001"})
    inventory.remove(["gpu001"])
    assert [node.name for node in inventory.nodes()] == ["gpu002"]
    assert inventory.facts() == {} and inventory.host_keys() == {} and inventory.summaries() == []
    inventory.add([FULL])
    assert inventory.history("gpu001") == []
    assert [(entry.who, entry.detail) for entry in inventory.audit_log()] == [("li", {"nodes": "gpu001"})]


def test_labels_hold_and_lifecycle(inventory: Inventory) -> None:
    inventory.add([Node("gpu1", "gpu1", labels={"a": "1", "b": "2"}), Node("gpu2", "gpu2")])
    inventory.label(["gpu1", "gpu2"], {"a": "3", "c": ""}, ["b", "never"])
    inventory.hold(["gpu2"], Hold("li", "why"))
    inventory.set_lifecycle(["gpu2"], "broken")
    assert inventory.node("gpu1").labels == {"a": "3", "c": ""}
    assert inventory.node("gpu2") == Node(
        "gpu2", "gpu2", labels={"a": "3", "c": ""}, lifecycle="broken", hold=Hold("li", "why")
    )
    inventory.release(["gpu1", "gpu2"])
    assert inventory.node("gpu2").hold is None


def test_an_unknown_name_changes_nothing(inventory: Inventory) -> None:
    inventory.add([FULL])
    for act in (
        lambda: inventory.label(["gpu001", "nope"], {"x": "y"}),
        lambda: inventory.hold(["gpu001", "nope"], Hold("a", "b")),
        lambda: inventory.remove(["gpu001", "nope"]),
        lambda: inventory.set_lifecycle(["gpu001", "nope"], "broken"),
        lambda: inventory.record([facts(), facts("nope")]),
        lambda: inventory.trust("nope", "ssh-ed25519 AAAA", "li", ""),
        lambda: inventory.nodes(["nope"]),
    ):
        with pytest.raises(NotFound, match="nope"):
            act()
    assert inventory.nodes() == [FULL] and inventory.facts() == {}


def test_facts_come_back_as_they_were_said(inventory: Inventory) -> None:
    inventory.add([FULL, Node("gpu002", "10.0.0.2")])
    assert inventory.record([facts()], {"sha256:1": b"out\n" * 1000, "sha256:2": bytes(range(256))}) == 1
    assert inventory.facts() == {"gpu001": facts()}
    assert inventory.facts(["gpu002"]) == {}
    assert inventory.raw("sha256:1") == b"out\n" * 1000 and inventory.raw("sha256:2") == bytes(range(256))
    with pytest.raises(NotFound):
        inventory.raw("sha256:3")


def test_history_grows_only_when_the_content_changes(inventory: Inventory) -> None:
    inventory.add([FULL])
    later = replace(facts(at="2030-01-02T00:00:00Z"), boot_id="b-2")
    assert inventory.record([facts()]) == 1
    assert inventory.record([later]) == 0
    assert inventory.facts()["gpu001"] == later  # the time of the last look is kept all the same
    assert inventory.record([facts(driver="580.1", at="2030-01-03T00:00:00Z")]) == 1
    assert inventory.record([facts(at="2030-01-04T00:00:00Z")]) == 1  # back again: a revision of its own
    history = inventory.history("gpu001")
    assert [(r.facts.at[:10], r.facts.current()["driver"]) for r in history] == [
        ("2030-01-01", "570.1"), ("2030-01-03", "580.1"), ("2030-01-04", "570.1"),
    ]  # fmt: skip
    assert history[0].digest == history[2].digest != history[1].digest


def test_a_component_that_is_gone_is_gone_from_the_index(inventory: Inventory) -> None:
    inventory.add([FULL])
    inventory.record([facts()])
    assert inventory.summaries()[0]["components"] == {"driver": "570.1", "toolkit": "12.8.1"}
    assert (inventory.summaries()[0]["model"], inventory.summaries()[0]["count"]) == ("H100-SXM5-80GB", 2)
    inventory.record([replace(facts(), components={"driver": ComponentFact("570.1", "580.1")}, accelerators=())])
    assert inventory.summaries()[0]["components"] == {"driver": "580.1"}
    assert inventory.summaries()[0]["count"] == 0


def test_a_lying_node_with_one_uuid_twice_is_stored(inventory: Inventory) -> None:
    inventory.add([FULL])
    card = Accelerator("nvidia", "H100", uuid="GPU-a")
    lying = replace(facts(), accelerators=(card, card, Accelerator("nvidia", "H100"), Accelerator("nvidia", "H100")))
    inventory.record([lying])
    assert inventory.facts()["gpu001"].accelerators == lying.accelerators


def test_trust_is_replaced_and_withdrawn(inventory: Inventory) -> None:
    inventory.add([FULL])
    inventory.trust("gpu001", "ssh-ed25519 AAAA", "li", "2030-01-01T00:00:00Z")
    inventory.trust("gpu001", "ssh-ed25519 BBBB", "li", "2030-01-02T00:00:00Z")
    assert inventory.host_keys() == {"gpu001": "ssh-ed25519 BBBB"}
    inventory.trust("gpu001", "", "li", "2030-01-03T00:00:00Z")
    assert inventory.host_keys() == {}


def test_baselines(inventory: Inventory) -> None:
    one = Baseline("h100", {"driver": "580.1", "toolkit": "13.*"}, "nvidia", "H100-SXM5-80GB")
    inventory.save_baseline(Baseline("h100", {"driver": "1"}), "li", "2030-01-01T00:00:00Z")
    inventory.save_baseline(one, "li", "2030-01-01T00:00:00Z")
    assert inventory.baselines() == {"h100": one}
    inventory.remove_baseline("h100")
    with pytest.raises(NotFound):
        inventory.remove_baseline("h100")


def test_more_nodes_than_one_statement_can_name(inventory: Inventory) -> None:
    names = [f"gpu{n:05}" for n in range(2500)]
    inventory.add([Node(name, name, labels={"i": str(i % 7)}) for i, name in enumerate(names)])
    assert inventory.record([facts(name) for name in names]) == 2500
    assert inventory.record([facts(name, "570.1" if i else "580.1") for i, name in enumerate(names)]) == 1
    assert len(inventory.facts(names)) == 2500
    inventory.label(names, {"all": "yes"})
    inventory.remove(names[1:])
    assert [(node.name, node.labels) for node in inventory.nodes()] == [("gpu00000", {"all": "yes", "i": "0"})]
