"""Equal nodes are one class."""

from __future__ import annotations

from compat_matrix import node_classes
from fleet.core.model import Accelerator, ComponentFact, Facts, OsFacts, Policy

SYSTEM = OsFacts("ubuntu", "22.04", "6.8.0-87-generic", "x86_64")


def said(name: str, driver: str = "580.95.05", model: str = "L40S", cards: int = 4, **flags: bool) -> Facts:
    parts = {"driver": ComponentFact(driver, driver)}
    found = tuple(Accelerator("nvidia", model, uuid=f"{name}-{i}", index=i) for i in range(cards))
    return Facts(name, SYSTEM, "nvidia", parts, found, flags)


def test_nodes_that_say_the_same_are_one_class() -> None:
    facts = {
        name: said(name, **more)  # type: ignore[arg-type]
        for name, more in {
            "a": {}, "b": {}, "c": {"driver": "570.211.01"}, "d": {"cards": 8}, "e": {"nvswitch": True}, "f": {},
        }.items()
    }  # fmt: skip
    classes, refused = node_classes(facts, Policy(), {"driver": "580.*"})
    assert [names for _, names in classes] == [["a", "b", "f"], ["c"], ["d"], ["e"]]
    assert all(request.wish == {"driver": "580.*"} for request, _ in classes)
    assert refused == {}


def test_what_is_installed_and_not_loaded_yet_is_not_the_current_one() -> None:
    one, other = said("a"), said("b")
    waiting = Facts("b", SYSTEM, "nvidia", {"driver": ComponentFact("595.91.07", "580.95.05")}, other.accelerators)
    (found,), _ = node_classes({"a": one, "b": waiting}, Policy())
    assert found[1] == ["a", "b"] and found[0].current == {"driver": "580.95.05"}


def test_nodes_without_cards_or_with_mixed_ones_are_refused_by_name() -> None:
    mixed = Facts("m", SYSTEM, "nvidia", {}, (Accelerator("nvidia", "L40S"), Accelerator("nvidia", "T4")))
    bare = Facts("n", SYSTEM)
    classes, refused = node_classes({"m": mixed, "n": bare, "o": bare}, Policy())
    assert classes == [] and {name: error.slug for name, error in refused.items()}["m"] == "mixed-models"
    assert set(refused) == {"m", "n", "o"}
