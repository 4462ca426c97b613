"""The live screen: what it says, that it fits any terminal, that it writes only what changed."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.cli.live import Line, Screen, bar, clip, counted, fits, frame, said
from fleet.cli.output import width
from fleet.core.estimate import Estimate, Tally
from fleet.core.task import STATES
from fleet.inventory.history import Head, Standing, View
from tests.observe.terminal import Terminal

NOW = 1_900_000_000.0
HEAD = Head("r-1", "sha256:0123456789abcdef", "running", "", "", "li", "2030-03-17T17:00:00Z", "", "h:1:1", NOW + 30)
TALLIES = (
    Tally(0, 0, "done", "forward", 6, 1), Tally(1, 0, "done", "forward", 6, 3), Tally(1, 0, "failed", "back", 2, 1),
    Tally(1, 0, "rebooting", "forward", 3, 2, NOW - 60), Tally(2, 0, "waiting", "forward", -1, 1000),
)  # fmt: skip
GOING = Standing("gpu7", 1, "rebooting", "forward", "reboot", NOW - 1000, 900, "", "", "")
BACK = Standing("gpu8", 1, "installing", "back", "install", NOW - 70, 900, "the tool said no", "", "")
BAD = Standing("gpu9", 1, "failed", "back", "", NOW - 9, 0, "the way back failed too", "operator", "look at gpu9")
VIEW = View(HEAD, TALLIES, (GOING, BACK), (BAD,))
ETA = Estimate(12_000.0, 20_000.0, 50)

SEEN = """\
rollout r-1: running, plan sha256:0123456789ab, begun by li at 2030-03-17T17:00:00Z
driven by controller c1
1,007 nodes: 1,000 waiting, 2 rebooting, 4 done, 1 failed
left: about 3 h 20 min, up to 5 h 33 min (until 21:06Z)

wave 1  [########################]  1/1  1 done
wave 2  [############>>>>>>>>!!!!]  4/6  2 rebooting, 3 done, 1 failed
wave 3  [........................]  0/1,000  1,000 waiting

UNDER WAY  STATE       STEP            FOR                       REASON
gpu7       rebooting   reboot          17 min of 15 min OVERDUE
gpu8       installing  install (back)  70 s of 15 min            the tool said no

FAILED OR WAITING FOR A PERSON  STATE   REASON                   NEXT
gpu9                            failed  the way back failed too  look at gpu9
Ctrl-C: the running steps end first
"""


def test_a_frame_says_it_all() -> None:
    lines = frame(VIEW, ETA, "controller c1", NOW, 100, 30, ["Ctrl-C: the running steps end first"])
    text = "".join(line.text + "\n" for line in lines)
    assert text == SEEN
    assert [line.text[:4] for line in lines if line.style == "bad"] == ["wave", "gpu7", "gpu9"]


def test_a_paused_rollout_says_why_and_what_to_do() -> None:
    paused = replace(VIEW, head=replace(HEAD, state="paused", reason="3 nodes failed, more than the 2 allowed"))
    lines = frame(paused, Estimate(None, why="the rollout is paused"), "", NOW, 100, 30)
    text = [line.text for line in lines]
    assert "nobody drives it: fleet rollout resume r-1" in text
    assert "3 nodes failed, more than the 2 allowed" in text
    assert "left: unknown: the rollout is paused" in text
    waiting = replace(VIEW, waiting="budget: rack k1: 1 of at most 1 nodes are out (limit 1)")
    assert any(t.text.startswith("waiting: budget: rack k1") for t in frame(waiting, ETA, "x", NOW, 100, 30))
    over = replace(VIEW, head=replace(HEAD, state="done"))
    assert not any(t.text.startswith("left:") or "resume" in t.text for t in frame(over, ETA, "", NOW, 100, 30))


words = st.text(max_size=60)
places = st.builds(
    Tally, st.integers(0, 40), st.just(0), st.sampled_from(STATES), st.just("forward"), st.integers(-1, 5),
    st.integers(1, 5000), st.just(NOW),
)  # fmt: skip
nodes = st.builds(
    Standing, words, st.integers(0, 3), st.sampled_from(STATES), st.sampled_from(["forward", "back"]), words,
    st.floats(0, NOW), st.integers(0, 9000), words, words, words,
)  # fmt: skip


@given(
    st.lists(places, max_size=60), st.lists(nodes, max_size=30), st.lists(nodes, max_size=30), words,
    st.lists(words, max_size=5), st.integers(39, 200), st.integers(8, 60),
)  # fmt: skip
def test_a_frame_fits_every_terminal(
    tallies: list[Tally], going: list[Standing], bad: list[Standing], reason: str, notes: list[str], columns: int,
    rows: int,
) -> None:  # fmt: skip
    view = View(replace(HEAD, reason=reason), tuple(tallies), tuple(going), tuple(bad))
    lines = frame(view, ETA, reason, NOW, columns, rows, notes)
    assert len(lines) <= rows
    assert all(width(line.text) <= columns for line in lines)
    terminal, screen = Terminal(columns + 1, rows), Screen(io.StringIO())
    terminal.feed("\x1b[?1049h" + screen.update(lines, (columns, rows)))
    assert terminal.lines[: len(lines)] == [line.text for line in lines]


@given(st.text(), st.integers(0, 30))
def test_clipping_counts_cells(text: str, cells: int) -> None:
    cut = clip(text, cells)
    assert (width(cut) <= cells and cut.isprintable()) or "\u3000" in cut or "\xa0" in cut


def test_chinese_and_escapes_are_cut_by_cells() -> None:
    assert clip("机架一号的节点", 7) == "机架一…" and clip("\x1b[31mred", 20) == "\\x1b[31mred"


@given(st.dictionaries(st.sampled_from(STATES), st.integers(0, 10_000)), st.integers(6, 60))
def test_a_bar_is_as_long_as_asked_and_hides_nobody(counts: dict[str, int], cells: int) -> None:
    marks = bar(counts, cells)
    assert len(marks) == cells
    assert ("!" in marks) == bool(counts.get("failed") or counts.get("rolled-back"))
    assert ("#" in marks) == bool(counts.get("done"))


def test_only_what_changed_is_written() -> None:
    lines = frame(VIEW, ETA, "controller c1", NOW, 100, 30)
    screen, terminal = Screen(io.StringIO()), Terminal(101, 30)
    terminal.feed("\x1b[?1049h")
    terminal.feed(screen.update(lines, (100, 30)))
    assert screen.update(lines, (100, 30)) == ""
    before = terminal.written
    moved = frame(VIEW, ETA, "controller c1", NOW + 1, 100, 30)
    terminal.feed(screen.update(moved, (100, 30)))
    assert 0 < terminal.written - before < 250
    assert terminal.lines[: len(moved)] == [line.text for line in moved]
    fewer = moved[:5]
    terminal.feed(screen.update(fewer, (100, 30)))
    assert terminal.lines == [line.text for line in fewer] + [""] * 25
    smaller = frame(VIEW, ETA, "controller c1", NOW, 60, 12)  # resized: all of it anew
    small = Terminal(61, 12)
    small.feed("\x1b[?1049h" + screen.update(smaller, (60, 12)))
    assert small.lines[: len(smaller)] == [line.text for line in smaller]


def test_waves_are_folded_where_there_are_many() -> None:
    tallies = [Tally(n, 0, "done", "forward", 6, 10) for n in range(10)]
    tallies += [Tally(10, 0, "installing", "forward", 2, 5), Tally(10, 0, "failed", "back", 2, 1)]
    tallies += [Tally(n, 0, "waiting", "forward", -1, 10) for n in range(11, 30)]
    lines = [line.text for line in frame(replace(VIEW, tallies=tuple(tallies)), ETA, "x", NOW, 100, 24)]
    waves = [line for line in lines if line.startswith("wave")]
    assert waves[0].startswith("waves 1-10 ") and waves[0].endswith("100/100  100 done")
    assert waves[1].startswith("wave 11") and "5 installing" in waves[1]
    assert waves[-1].startswith("waves ") and "-30 " in waves[-1] and waves[-1].endswith("waiting")


def test_without_colour_nothing_is_coloured() -> None:
    assert "\x1b[31m" not in Screen(io.StringIO(), colour=False).update([Line("x", "bad")], (80, 24))
    assert "\x1b[31mx\x1b[0m" in Screen(io.StringIO()).update([Line("x", "bad")], (80, 24))


def test_counts_and_words() -> None:
    assert said(counted(TALLIES)) == "1,000 waiting, 2 rebooting, 4 done, 1 failed" and said({}) == "no nodes"


@pytest.mark.parametrize("term", ["", "dumb", "xterm"])
def test_no_screen_without_a_terminal(term: str) -> None:
    assert not fits(io.StringIO(), term)
