"""What a person writes: wishes, baselines, limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.artifact import ArtifactStore
from fleet.config import Settings
from fleet.core.drift import Baseline
from fleet.core.errors import BadInput, FleetError, NotFound, UsageError
from fleet.core.model import Accelerator, ComponentFact, Facts, Node, OsFacts
from fleet.core.policy import PlanPolicy
from fleet.planning import Planner, artifacts, parse_limits, parse_wish, policy_of

KNOWN = {"best": Baseline("best", {"driver": "1"})}


@pytest.mark.parametrize(
    ("texts", "wish"),
    [
        (["driver==580.95.05"], {"driver": "==580.95.05"}),
        (["driver=580.95.05"], {"driver": "==580.95.05"}),
        (["driver==580.95.05,toolkit>=12.8"], {"driver": "==580.95.05", "toolkit": ">=12.8"}),
        (["driver>=570.26,<580,toolkit>=12.8"], {"driver": ">=570.26,<580", "toolkit": ">=12.8"}),
        (["driver in [580.65.06, 580.95.05],nscq==1"], {"driver": "in [580.65.06, 580.95.05]", "nscq": "==1"}),
        (["container-toolkit>=1.17", "driver==1"], {"container_toolkit": ">=1.17", "driver": "==1"}),
        (["best", "driver==2"], {"driver": "==2"}),
    ],
)
def test_wishes(texts: list[str], wish: dict[str, str]) -> None:
    found, named = parse_wish(texts, KNOWN)
    assert found == wish
    assert bool(named) == ("best" in texts)


@pytest.mark.parametrize("text", ["drivr==1", "driver==", "driver>=a b c,<", "best2", "", ",", "<5"])
def test_what_is_no_wish_is_named(text: str) -> None:
    with pytest.raises((BadInput, NotFound)):
        parse_wish([text], KNOWN)


def test_limits() -> None:
    assert parse_limits([], "25%") == {"fleet": "25%"}
    assert parse_limits(["10%", "rack=1", "label:pool=50%"], "25%") == {
        "fleet": "10%",
        "rack": "1",
        "label:pool": "50%",
    }
    for bad in ("room=1", "rack=x", "120%", "rack="):
        with pytest.raises(FleetError):
            parse_limits([bad], "25%")


def test_policy_by_settings() -> None:
    assert policy_of(Settings(channel="lts", min_level="vendor"), "newest").strategy == "newest"
    with pytest.raises(UsageError):
        policy_of(Settings(channel="fast"))


class EverythingIsStored(ArtifactStore):
    """A store in which no package is missing."""

    def has(self, name: str) -> bool:  # noqa: ARG002
        return True


def test_nodes_that_lag_behind_differently_settle_on_one_stack(tmp_path: Path) -> None:
    planner = Planner(Settings(state_dir=str(tmp_path)))
    planner.store = EverythingIsStored(artifacts(planner.settings).folder, planner.store.recognise)
    versions = ["580.178.04", "595.71.05", "595.80", "595.91.07"]
    facts = {}
    for number, version in enumerate(versions):
        driver = ComponentFact(installed=version, loaded=version)
        flavour = ComponentFact(installed="open", loaded="open")
        cards = tuple(Accelerator("nvidia", "L40S", uuid=f"GPU-{number}-{i}") for i in range(4))
        facts[f"n{number}"] = Facts(
            node=f"n{number}", os=OsFacts("ubuntu", "22.04", "6.8.0-87-generic", "x86_64"), vendor="nvidia",
            components={"driver": driver, "driver_flavour": flavour}, accelerators=cards, boot_id="b", at="",
            flags={"nvswitch": False},
        )  # fmt: skip
    nodes = [Node(name, "192.0.2.1", lifecycle="in-service") for name in facts]
    policy = PlanPolicy(wish={}, limits={"fleet": "100%"}, no_return=True)

    def targets(converge: bool) -> set[str]:
        made = planner.plan(nodes, facts, policy, [], "2031-05-01T08:00:00Z", inventory=nodes, converge=converge)
        assert not made.refusals
        assert {name for group in made.groups for name in group.nodes} == set(facts)
        return {group.target["driver"] for group in made.groups}

    assert len(targets(False)) > 1
    assert targets(True) == {"595.91.07"}
