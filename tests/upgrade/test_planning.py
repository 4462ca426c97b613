"""What a person writes: wishes, baselines, limits."""

from __future__ import annotations

import pytest

from fleet.config import Settings
from fleet.core.drift import Baseline
from fleet.core.errors import BadInput, FleetError, NotFound, UsageError
from fleet.planning import parse_limits, parse_wish, policy_of

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
