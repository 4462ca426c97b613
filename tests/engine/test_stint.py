"""One stint: when it ends, how long it waits, and which errors it lives through. No thread, no clock of the host's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleet.core.errors import FleetError
from fleet.engine import Progress
from fleet.engine.stint import Stint
from fleet.inventory.rollouts import Fenced, Lease

LEASE = Lease("r-1", "me", 7)


class Told:
    """A stint whose ticks come to what the test says, at a time that it says."""

    def __init__(self, *answers: Progress | Exception) -> None:
        self.answers = list(answers)
        self.ending = False
        self.now = 1000.0
        self.wound_down: list[bool] = []
        self.stint = Stint(LEASE, self.tick, lambda: self.ending, patience_s=10.0, clock=lambda: self.now)

    def tick(self, rollout: str, lease: Lease, ending: bool) -> Progress:
        assert (rollout, lease) == ("r-1", LEASE)
        self.wound_down.append(ending)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def away(slug: str = "database-unreachable") -> FleetError:
    return FleetError("away", slug=slug)


def test_it_waits_as_long_as_the_tick_says_and_ends_when_it_rests() -> None:
    told = Told(Progress(False), Progress(False, 2.5), Progress(True, 9.0))
    assert [told.stint.step() for _ in range(3)] == [0.0, 2.5, None]


def test_winding_down_ends_when_nothing_is_under_way_and_never_waits() -> None:
    told = Told(Progress(False, 5.0, busy=True), Progress(False, 5.0))
    told.ending = True
    assert [told.stint.step() for _ in range(2)] == [0.0, None]
    assert told.wound_down == [True, True]


@pytest.mark.parametrize("slug", ["database-unreachable", "database-locked"])
def test_a_database_that_is_away_is_waited_for_a_little_longer_each_time(slug: str) -> None:
    told = Told(*(away(slug) for _ in range(7)), Progress(False, 1.0), away(slug))
    assert [told.stint.step() for _ in range(9)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 1.0, 0.2]


def test_patience_ends_and_begins_anew_with_each_answer() -> None:
    told = Told(away(), Progress(False), away(), away(), away())
    told.stint.step()
    told.now += 9
    told.stint.step()
    told.stint.step()
    told.now += 9
    told.stint.step()
    told.now += 1
    with pytest.raises(FleetError):
        told.stint.step()


def _stopped(told: Told) -> None:
    told.ending = True


@pytest.mark.parametrize(
    ("error", "before"),
    [
        (Fenced("another has it"), lambda _: None),
        (FleetError("no", slug="removed"), lambda _: None),
        (ValueError("a fault"), lambda _: None),
        (away(), _stopped),
    ],
)
def test_other_errors_and_an_away_database_at_the_end_are_raised(
    error: Exception, before: Callable[[Told], None]
) -> None:
    told = Told(error)
    before(told)
    with pytest.raises(type(error)):
        told.stint.step()
