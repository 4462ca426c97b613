"""How long a rollout takes: the capacity model against sums done by hand, and against its laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.estimate import Estimate, History, Spell, Tally, estimate, estimate_plan, span
from fleet.core.model import Group, Plan, Step
from fleet.core.plan import sealed

STEPS = (Step("preflight"), Step("drain"), Step("install"), Step("reboot"), Step("validate"))
TOOK = {"preflight": 10.0, "drain": 600.0, "install": 900.0, "reboot": 300.0, "validate": 900.0}
EACH = sum(TOOK.values())
HISTORY = History({("acme", phase): Spell(50, s, 2 * s) for phase, s in TOOK.items()})


def plan(waves: list[int], **policy: object) -> Plan:
    names = [tuple(f"n{w}-{i}" for i in range(size)) for w, size in enumerate(waves)]
    whole = tuple(name for wave in names for name in wave)
    group = Group(whole, "acme", "A1", {}, {}, (STEPS,), ((Step("install"), Step("validate")),))
    more = {"chunk": 16, **policy}
    return sealed(Plan("", (group,), tuple(names), {}, dict.fromkeys(whole, "sha256:0"), "sha256:m", more))  # type: ignore[arg-type]  # JSON, as a policy is


def test_waves_follow_one_another_and_runs_go_side_by_side() -> None:
    # The canary alone; then 33 nodes in runs of 16, 16, 1: two at a time, so two rounds.
    found = estimate_plan(plan([1, 33]), HISTORY, parallel=2)
    assert found.seconds == pytest.approx(EACH + 2 * EACH)
    assert found.worst == pytest.approx(2 * 3 * EACH)
    assert found.basis == 50


def test_the_canary_wave_goes_node_by_node() -> None:
    found = estimate_plan(plan([5]), HISTORY, parallel=2)
    assert found.seconds == pytest.approx(3 * EACH)


@pytest.mark.parametrize(
    ("limit", "total", "rounds"), [("4", None, 4), ("10%", 80, 2), ("1", None, 16), ("0%", 80, 16)]
)
def test_the_budget_of_the_fleet_bounds_what_goes_at_once(limit: str, total: int | None, rounds: int) -> None:
    made = plan([0, 16], limits={"fleet": limit}, chunk=4)
    found = estimate_plan(made, HISTORY, parallel=8, total=total)
    assert found.seconds == pytest.approx(rounds * EACH)


def test_each_wave_soaks_before_its_gate() -> None:
    bare, soaked, ungated = (
        estimate_plan(plan([1, 1, 1], soak_s=s, gate=g), HISTORY, parallel=4)
        for s, g in ((0, True), (3600, True), (3600, False))
    )
    assert bare.seconds is not None and soaked.seconds == bare.seconds + 3 * 3600 and ungated.seconds == bare.seconds


def test_a_wave_that_soaks_has_the_rest_of_its_soak_to_go() -> None:
    made = plan([1, 1], soak_s=3600)
    ended, waiting = Tally(0, 0, "done", "forward", 5, 1, since=1000.0), Tally(1, 0, "waiting", "forward", -1, 1)
    found = estimate(made, [ended, waiting], HISTORY, 4, now=1600.0)
    assert found.seconds == pytest.approx(3000 + EACH + 3600)
    assert estimate(made, [ended], HISTORY, 4, now=9e9).seconds == 0.0


def test_what_was_never_seen_is_not_guessed() -> None:
    lacking = History({key: spell for key, spell in HISTORY.spells.items() if key[1] not in ("reboot", "validate")})
    found = estimate_plan(plan([1]), lacking, parallel=4)
    assert found.seconds is None and found.worst is None
    assert str(found) == "unknown: no node has been through reboot, validate yet, so its duration is not known"
    assert found.as_dict()["seconds"] is None and "reboot" in str(found.as_dict()["why"])


def test_another_vendors_step_stands_in_and_a_thin_basis_is_told() -> None:
    history = History.of([("other", phase, seconds) for phase, seconds in TOOK.items()])
    found = estimate_plan(plan([1]), history, parallel=4)
    assert found.seconds == pytest.approx(EACH) and found.basis == 1
    assert str(found) == "about 45 min, from only 1 past step"


def test_what_is_under_way_counts_with_what_is_left_of_it() -> None:
    made = plan([1, 1])
    going = Tally(0, 0, "installing", "forward", 2, 1, since=1000.0)
    waiting = Tally(1, 0, "waiting", "forward", -1, 1)
    found = estimate(made, [going, waiting], HISTORY, 4, now=1300.0)
    left = TOOK["install"] - 300 + TOOK["reboot"] + TOOK["validate"]
    assert found.seconds == pytest.approx(left + EACH)
    late = estimate(made, [going], HISTORY, 4, now=1e9)  # longer than ever: the rest is still to come
    assert late.seconds == pytest.approx(TOOK["reboot"] + TOOK["validate"])


def test_the_way_back_has_steps_of_its_own_and_the_ended_have_none() -> None:
    made = plan([3])
    back = Tally(0, 0, "installing", "back", 0, 1)
    ended = [Tally(0, 0, "done", "forward", 5, 1), Tally(0, 0, "held", "forward", 3, 1)]
    assert estimate(made, [back, *ended], HISTORY, 4, 0.0).seconds == pytest.approx(TOOK["install"] + TOOK["validate"])
    assert estimate(made, ended, History(), 4, 0.0) == Estimate(0.0, 0.0)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=4), st.integers(1, 8), st.integers(1, 32))
def test_more_hands_never_take_longer_and_the_range_is_a_range(waves: list[int], parallel: int, chunk: int) -> None:
    made = plan(waves, chunk=chunk)
    one, more = (estimate_plan(made, HISTORY, p) for p in (parallel, parallel + 1))
    assert one.seconds is not None and one.worst is not None and more.seconds is not None
    assert more.seconds <= one.seconds + 1e-6 <= one.worst + 2e-6
    runs = sum(math.ceil(size / (chunk if number else 1)) for number, size in enumerate(waves))
    assert one.seconds <= runs * EACH + 1e-6
    assert one.seconds >= EACH * sum(bool(size) for size in waves) - 1e-6


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_percentiles_are_durations_that_were_seen(seconds: list[float]) -> None:
    spell = Spell.of(seconds)
    assert spell.p50 in seconds and spell.p90 in seconds and spell.p50 <= spell.p90
    assert sum(s <= spell.p90 for s in seconds) >= 0.9 * len(seconds)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (0.2, "1 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (5400, "1 h 30 min"), (7200, "2 h"),
     (200_000, "2 d 8 h"), (172_800, "2 d")],
)  # fmt: skip
def test_durations_are_said_in_two_units(seconds: float, said: str) -> None:
    assert span(seconds) == said


def test_the_history_knows_each_vendor_and_all() -> None:
    found = History.of([("a", "reboot", 10.0), ("b", "reboot", 30.0)])
    assert (found.spell("a", "reboot"), found.spell("c", "reboot")) == (Spell(1, 10.0, 10.0), Spell(2, 10.0, 30.0))
    assert found.spell("a", "drain") is None
