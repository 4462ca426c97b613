"""Maintenance windows: when nodes may be taken out of service. `Mon-Fri 22:00-06:00 Asia/Shanghai`, several of them.

A window belongs to the day on which it opens, so one over midnight ends on the next day. Nodes under way when it closes
are finished; none is begun in the margin before it closes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from fleet.core.errors import BadInput
from fleet.core.model import Json

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
YEAR_S = 366 * 86400.0
_SHAPE = re.compile(
    r"(?:(?P<days>[A-Za-z]{3}(?:-[A-Za-z]{3})?(?:,[A-Za-z]{3}(?:-[A-Za-z]{3})?)*)\s+)?"
    r"(?P<start>\d\d:\d\d)-(?P<end>\d\d:\d\d)(?:\s+(?P<zone>[A-Za-z0-9_+/-]+))?"
)


@dataclass(frozen=True)
class Window:
    """Some weekdays (0 = Monday), a start and an end in minutes of the day, and the time zone they are meant in."""

    days: frozenset[int]
    start: int
    end: int
    zone: str = "UTC"

    @classmethod
    def parse(cls, text: str) -> Window:
        """`[DAYS] HH:MM-HH:MM [ZONE]`; BadInput says what is wrong. Without days every day, without a zone UTC."""
        match = _SHAPE.fullmatch(text.strip())
        if match is None:
            raise _bad(text, "it reads: [Mon-Fri,Sun] 22:00-06:00 [Asia/Shanghai]")
        start, end = _minute(text, match["start"]), _minute(text, match["end"])
        if start == end:
            raise _bad(text, "it opens and closes at the same minute")
        zone = match["zone"] or "UTC"
        _zone(text, zone)
        return cls(_days(text, match["days"] or "Mon-Sun"), start, end, zone)

    def closes(self, at: float) -> float | None:
        """When the window that is open at `at` (seconds since the epoch) closes; None = it is shut then."""
        return self.last_begin(at, 0.0)

    def opens(self, at: float) -> float:
        """When it opens next after `at`."""
        return next(opens for opens, _ in self._around(at) if opens > at)

    def last_begin(self, at: float, margin_s: float) -> float | None:
        """Until when something may be begun in the window that is open at `at`; None = it is shut.

        Nothing is in its last `margin_s`, nor in its last half where it is short.
        """
        for opens, shuts in self._around(at):
            if opens <= at < shuts:
                return shuts - min(margin_s, (shuts - opens) / 2)
        return None

    def _around(self, at: float) -> Iterator[tuple[float, float]]:
        """Openings and closings from the day before `at` on, in order, for three weeks.

        Moments, not what the clock on the wall shows: in autumn an hour comes twice, and a window in the hour that is
        left out in spring is an hour later.
        """
        today = datetime.fromtimestamp(at, UTC).astimezone(_zone("", self.zone))
        for ahead in range(-1, 21):
            day = today.replace(hour=0, minute=0, second=0, microsecond=0, fold=0) + timedelta(days=ahead)
            if day.weekday() not in self.days:
                continue
            last = day + timedelta(days=1) if self.end <= self.start else day
            opens = day.replace(hour=self.start // 60, minute=self.start % 60).timestamp()
            shuts = last.replace(hour=self.end // 60, minute=self.end % 60).timestamp()
            if shuts > opens:
                yield opens, shuts


def windows_of(policy: Mapping[str, Json]) -> tuple[tuple[Window, ...], float]:
    """The windows of a plan, and how many seconds before one closes nothing is begun any more."""
    windows, margin = policy.get("windows"), policy.get("window_margin_s")
    parsed = tuple(Window.parse(str(text)) for text in windows) if isinstance(windows, list | tuple) else ()
    return parsed, float(margin) if isinstance(margin, int) else 0.0


def shut(windows: Iterable[Window], now: float, needs_s: float = 0.0) -> str:
    """Why nothing may be begun now, or "" while a window is open for at least `needs_s` more seconds.

    A window that never is that long is good from its opening on: otherwise nothing would ever begin.
    """
    windows = tuple(windows)
    if not windows:
        return ""
    short = False
    for window in windows:
        last = window.last_begin(now, needs_s)
        if last is not None:
            if last >= now:
                return ""
            short = True
    soonest = min(window.opens(now) for window in windows)
    when = datetime.fromtimestamp(soonest, UTC).strftime("%Y-%m-%dT%H:%MZ")
    return f"the window closes too soon; the next opens at {when}" if short else f"no window is open before {when}"


def until_done(windows: Iterable[Window], now: float, work_s: float, margin_s: float = 0.0) -> float:
    """Seconds from `now` until `work_s` seconds of work are done that goes on only while a window is open.

    Nothing is begun in the last `margin_s` of a window, or in its last half where it is short. Infinite where it takes
    more than a year.
    """
    windows = tuple(windows)
    at, left = now, work_s
    while windows and left > 0:
        ends = [end for window in windows if (end := window.last_begin(at, margin_s)) is not None and end > at]
        if not ends:
            at = min(window.opens(at) for window in windows)
            if at - now > YEAR_S:
                return math.inf
            continue
        spent = min(left, max(ends) - at)
        at, left = at + spent, left - spent
    return at - now if windows else work_s


def _bad(text: str, why: str) -> BadInput:
    return BadInput(f"no maintenance window: {text[:80]!r}: {why}", hint="fleet help bad-window", slug="bad-window")


def _minute(text: str, clock: str) -> int:
    hour, minute = int(clock[:2]), int(clock[3:])
    if hour > 23 or minute > 59:
        raise _bad(text, f"{clock} is no time of day")
    return hour * 60 + minute


def _days(text: str, days: str) -> frozenset[int]:
    found: set[int] = set()
    for part in days.split(","):
        names = [name.capitalize() for name in part.split("-")]
        unknown = [name for name in names if name not in DAYS]
        if unknown:
            raise _bad(text, f"{unknown[0]} is no day: {' '.join(DAYS)}")
        first, last = DAYS.index(names[0]), DAYS.index(names[-1])
        found |= {(first + ahead) % 7 for ahead in range((last - first) % 7 + 1)}
    return frozenset(found)


def _zone(text: str, name: str) -> tzinfo:
    """The rules of a time zone: a table of the system's, which is the one thing read here."""
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise _bad(text, f"the time zone {name} is not known here") from None
