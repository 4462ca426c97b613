"""Maintenance windows: when they are open, over midnight, over a change of the clocks, and what is none."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.errors import BadInput
from fleet.core.window import Window, shut, until_done


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("window", "moment", "closes"),
    [
        ("08:00-17:00", "2031-05-05T08:00", "2031-05-05T17:00"),
        ("08:00-17:00", "2031-05-05T17:00", None),
        ("22:00-06:00", "2031-05-05T23:30", "2031-05-06T06:00"),
        ("22:00-06:00", "2031-05-06T05:59", "2031-05-06T06:00"),
        ("22:00-06:00", "2031-05-06T06:00", None),
        ("Mon-Fri 22:00-06:00", "2031-05-10T03:00", "2031-05-10T06:00"),  # Saturday: Friday's window is open still
        ("Mon-Fri 22:00-06:00", "2031-05-10T23:00", None),
        ("Sat-Mon,Wed 00:00-12:00", "2031-05-11T01:00", "2031-05-11T12:00"),
        ("Sat-Mon,Wed 00:00-12:00", "2031-05-13T01:00", None),
        ("22:00-06:00 Asia/Shanghai", "2031-05-05T14:00", "2031-05-05T22:00"),
        ("01:00-05:00 Europe/Berlin", "2031-03-30T00:30", "2031-03-30T03:00"),  # the night has one hour less
    ],
)
def test_open_and_shut(window: str, moment: str, closes: str | None) -> None:
    assert Window.parse(window).closes(at(moment)) == (at(closes) if closes else None)


def test_why_nothing_begins() -> None:
    night = [Window.parse("Mon-Fri 22:00-06:00")]
    assert shut([], at("2031-05-05T12:00")) == ""
    assert shut(night, at("2031-05-05T23:00"), 3600) == ""
    assert shut(night, at("2031-05-05T12:00")) == "no window is open before 2031-05-05T22:00Z"
    assert (
        shut(night, at("2031-05-06T05:30"), 3600) == "the window closes too soon; the next opens at 2031-05-06T22:00Z"
    )
    assert shut(night, at("2031-05-10T06:00")) == "no window is open before 2031-05-12T22:00Z"
    assert shut([*night, Window.parse("12:00-13:00")], at("2031-05-05T12:10")) == ""
    assert (
        shut([Window.parse("12:00-12:20")], at("2031-05-05T12:05"), 3600) == ""
    )  # never longer: good in its first half
    assert shut([Window.parse("12:00-12:20")], at("2031-05-05T12:15"), 3600) != ""


@given(
    st.integers(0, 6), st.integers(0, 1439), st.integers(1, 1439), st.sampled_from(["UTC", "Asia/Shanghai"]),
    st.floats(1.9e9, 1.95e9),
)  # fmt: skip
def test_it_opens_next_and_is_open_then(day: int, start: int, length: int, zone: str, now: float) -> None:
    window = Window(frozenset({day, (day + 3) % 7}), start, (start + length) % 1440, zone)
    opens = window.opens(now)
    assert now < opens <= now + 7 * 86400 + 86400
    closes = window.closes(opens)
    assert closes is not None and closes - opens == length * 60
    assert window.closes(opens - 1) is None or window.closes(opens - 1) == opens or length > 1380


@pytest.mark.parametrize(
    "text",
    ["", "night", "22:00", "22:00-22:00", "25:00-26:00", "Mo 22:00-06:00", "Mon 22:00-06:00 Mars/Base",
     "22:00-06:00 ../x",
     "Mon-Fri 22:00-06:00 UTC UTC", "周一 22:00-06:00", "22:00-06:60"],
)  # fmt: skip
def test_what_is_no_window(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        Window.parse(text)
    assert caught.value.slug == "bad-window" and repr(text)[1:-1] in caught.value.what


WED_NOON = datetime(2031, 5, 7, 12, tzinfo=UTC).timestamp()
H = 3600.0


@pytest.mark.parametrize(
    ("windows", "work_s", "margin_s", "takes_s"),
    [
        ((), 5 * H, 0, 5 * H),
        (("22:00-02:00",), 0, 0, 0),
        (("22:00-02:00",), 3 * H, 0, 13 * H),  # from 22:00 to 01:00
        (("22:00-02:00",), 4 * H, 0, 14 * H),
        (("22:00-02:00",), 5 * H, 0, 35 * H),  # an hour of the next night
        (("22:00-02:00",), 3 * H, 3600, 13 * H),
        (("22:00-02:00",), 4 * H, 3600, 35 * H),  # nothing begins after 01:00
        (("11:00-14:00",), 1 * H, 0, 1 * H),  # it is open now
        (("11:00-14:00",), 1 * H, 10 * H, 23.5 * H),  # but for its last half; the rest tomorrow
        (("11:00-13:00", "12:30-15:00"), 2.5 * H, 0, 2.5 * H),  # one after the other
        (("Sun 00:00-06:00",), 7 * H, 0, 3.5 * 24 * H + 7 * 24 * H + 1 * H),
        (("Sun 02:00-02:01",), 5000 * H, 600, math.inf),  # more than a year
    ],
)
def test_work_in_windows(windows: tuple[str, ...], work_s: float, margin_s: float, takes_s: float) -> None:
    found = until_done([Window.parse(text) for text in windows], WED_NOON, work_s, margin_s)
    assert found == pytest.approx(takes_s)


ZONES = ["UTC", "Europe/Berlin", "Asia/Shanghai", "America/St_Johns", "Australia/Lord_Howe"]


@given(
    st.integers(0, 1439), st.integers(0, 1439), st.sampled_from(ZONES), st.integers(1_900_000_000, 1_940_000_000),
    st.sampled_from([0.0, 600.0, 7200.0, 1e6]),
)  # fmt: skip
def test_moments_are_in_order_whatever_the_clocks_do(
    start: int, end: int, zone: str, now: int, margin_s: float
) -> None:
    if start == end:
        return
    window = Window(frozenset(range(7)), start, end, zone)
    opens, closes, last = window.opens(now), window.closes(now), window.last_begin(now, margin_s)
    assert opens > now and window.closes(opens) is not None
    assert closes is None or closes > now
    assert (last is None) == (closes is None)
    assert closes is None or last is None or last <= closes
    assert until_done([window], now, 3600.0, margin_s) >= 3600.0


@pytest.mark.parametrize(
    ("text", "now", "opens"),
    [
        # Berlin, 26 October 2031: 02:00 to 03:00 comes twice. 30 March 2031: it does not come at all.
        ("02:30-03:30 Europe/Berlin", "2031-10-26T01:10", "2031-10-27T01:30"),
        ("02:15-02:45 Europe/Berlin", "2031-03-30T00:00", "2031-03-30T01:15"),
    ],
)
def test_the_hour_that_comes_twice_or_never(text: str, now: str, opens: str) -> None:
    window = Window.parse(text)
    assert window.opens(at(now)) > at(now)
    assert window.opens(at(now)) == at(opens)
