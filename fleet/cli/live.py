"""The live screen of a rollout: a frame made from a view, and a terminal that only gets the lines that changed.

A frame is pure: a view of the tables, an estimate, a moment and a size give lines. Widths are terminal cells, nothing
is drawn with box characters, and what a node said cannot move the cursor. The terminal shows it on its alternate
screen, so that what stood there before comes back when the screen ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Literal

from fleet.cli.output import printable, width
from fleet.core.estimate import Estimate, Tally, span
from fleet.core.task import ENDS, STATES
from fleet.inventory.history import Standing, View, iso

Style = Literal["", "bold", "bad", "dim"]
_CODES: dict[Style, str] = {"": "", "bold": "\x1b[1m", "bad": "\x1b[31m", "dim": "\x1b[2m"}
BAR = 24  # cells
_MARKS = {"done": "#", "rolled-back": "!", "failed": "!", "held": "-", "waiting": "."}  # any other: under way, `>`
SMALLEST = (40, 8)  # columns and rows below which lines are told instead


@dataclass(frozen=True)
class Line:
    """One line of the screen."""

    text: str
    style: Style = ""


def clip(text: str, cells: int) -> str:
    """At most so many terminal cells, with … where something was cut. Control characters are shown escaped."""
    text = printable(text)
    if width(text) <= cells:
        return text
    out, used = "", 0
    for char in text:
        used += width(char)
        if used > cells - 1:
            break
        out += char
    return out + "…" if cells > 0 else ""


def bar(counts: dict[str, int], cells: int = BAR) -> str:
    """Shares of states as marks: `#` done, `>` under way, `!` failed, `-` held, `.` waiting.

    A state with any node has at least one mark while there is room.
    """
    total = sum(counts.values())
    shares: dict[str, int] = {}
    for state, count in counts.items():
        mark = _MARKS.get(state, ">")
        shares[mark] = shares.get(mark, 0) + count
    order = [mark for mark in "#>!-." if shares.get(mark)]
    if not total or len(order) > cells:
        return "." * cells
    sizes = {mark: max(1, shares[mark] * cells // total) for mark in order}
    while sum(sizes.values()) > cells:
        sizes[max(order, key=lambda m: sizes[m])] -= 1
    if order:
        sizes[max(order, key=lambda m: shares[m])] += cells - sum(sizes.values())
    return "".join(mark * sizes[mark] for mark in order)


def said(counts: dict[str, int]) -> str:
    """`512 done, 12 failed`, in the order of the states."""
    return ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts.get(state)) or "no nodes"


def counted(tallies: Sequence[Tally], wave: int | None = None) -> dict[str, int]:
    """Node state -> how many, of one wave or of all. A node that owes its first step is no longer waiting."""
    counts: dict[str, int] = {}
    for tally in tallies:
        if wave is None or tally.wave == wave:
            counts[tally.state] = counts.get(tally.state, 0) + tally.count
    return counts


def frame(
    view: View, eta: Estimate, driver: str, now: float, columns: int, rows: int, notes: Sequence[str] = ()
) -> list[Line]:
    """The screen of that size, at most `rows` lines of at most `columns` cells. `driver` is empty for nobody."""
    head = view.head
    lines = [Line(f"rollout {head.id}: {head.state}, plan {head.plan[:19]}, begun by {head.who} at {head.at}", "bold")]
    who = f"driven by {driver}" if driver else "nobody drives it"
    if not driver and not head.finished:
        who += f": fleet rollout resume {head.id}"
    if head.request:
        who += f"; {head.request} was asked for"
    lines.append(Line(who, "" if driver or head.finished else "bad"))
    if head.reason:
        lines.append(Line(head.reason, "bad"))
    elif view.waiting:
        lines.append(Line(f"waiting: {view.waiting}", "dim"))
    counts = counted(view.tallies)
    total = sum(counts.values())
    end = "" if eta.seconds is None else iso(now + eta.seconds)
    end = end and f" (until {end[11:16] if eta.seconds and eta.seconds < 12 * 3600 else end[:16]}Z)"
    lines.append(Line(f"{total:,} node{'s' if total != 1 else ''}: {said(counts)}"))
    if not head.finished:
        lines.append(Line(f"left: {eta}{end}", "dim" if eta.seconds is None else ""))
    lines.append(Line(""))
    tail = [Line(note, "dim") for note in notes[-3:]]
    lines += _waves(view.tallies, max(3, (rows - len(lines)) // 3))
    room = rows - len(lines) - len(tail)
    parts = [part for part in (_under_way(view.under_way, now), _troubled(view.troubled)) if part]
    sizes = _shared([len(part) for part in parts], room - len(parts))
    for part, size in zip(parts, sizes, strict=True):
        if size >= 2:
            lines += [Line(""), *part[:size]]
    lines = lines[: rows - len(tail)] + tail
    return [Line(clip(line.text, columns), line.style) for line in lines[:rows]]


def _shared(wanted: Sequence[int], room: int) -> list[int]:
    """Room for each part: all that it wants, or its fair share; what one leaves, another gets."""
    got = [0] * len(wanted)
    left = max(0, room)
    while left and any(g < w for g, w in zip(got, wanted, strict=True)):
        for i, want in enumerate(wanted):
            if left and got[i] < want:
                got[i] += 1
                left -= 1
    return got


def _waves(tallies: Sequence[Tally], room: int) -> list[Line]:
    """A bar for each wave; those that have ended, and those far ahead, folded where there is no room for all."""
    numbers = sorted({tally.wave for tally in tallies})
    over = [n for n in numbers if all(t.state in ENDS for t in tallies if t.wave == n)]
    ahead = [n for n in numbers if all(t.state == "waiting" and t.cursor < 0 for t in tallies if t.wave == n)]
    folded: list[list[int]] = [[n] for n in numbers]
    if len(folded) > room:
        past = [n for n in over if n < min((m for m in numbers if m not in over), default=numbers[-1] + 1)]
        rest = [n for n in numbers if n not in past]
        near = rest[: max(1, room - (1 if past else 0) - 1)]
        far = rest[len(near) :]
        if far and any(n not in ahead for n in far):  # out of order: then none is folded away that moves
            near, far = [n for n in rest if n not in ahead], [n for n in rest if n in ahead]
        folded = [group for group in (past, *([n] for n in near), far) if group]
    out = []
    names = [f"wave {g[0] + 1}" if len(g) == 1 else f"waves {g[0] + 1}-{g[-1] + 1}" for g in folded]
    widest = max(map(len, names), default=0)
    for name, group in zip(names, folded, strict=True):
        counts: dict[str, int] = {}
        for number in group:
            for state, count in counted(tallies, number).items():
                counts[state] = counts.get(state, 0) + count
        ended = sum(counts.get(state, 0) for state in ENDS)
        text = f"{name:<{widest}}  [{bar(counts)}]  {ended:,}/{sum(counts.values()):,}  {said(counts)}"
        out.append(Line(text, "bad" if counts.get("failed") or counts.get("rolled-back") else ""))
    return out[:room]


def _under_way(nodes: Sequence[Standing], now: float) -> list[Line]:
    rows = []
    for node in nodes:
        late = bool(node.limit_s) and now - node.since > node.limit_s
        step = node.phase + ("" if node.direction == "forward" else f" ({node.direction})")
        of = f"{span(now - node.since)} of {span(node.limit_s)}" if node.limit_s else span(now - node.since)
        rows.append((node.node, node.state, step, of + (" OVERDUE" if late else ""), node.reason or ""))
    return _table(("UNDER WAY", "STATE", "STEP", "FOR", "REASON"), rows, [" OVERDUE" in row[3] for row in rows])


def _troubled(nodes: Sequence[Standing]) -> list[Line]:
    rows = [(node.node, node.state, node.reason, node.next_action or "-") for node in nodes]
    bad = [node.state == "failed" for node in nodes]
    return _table(("FAILED OR WAITING FOR A PERSON", "STATE", "REASON", "NEXT"), rows, bad)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], bad: Sequence[bool]) -> list[Line]:
    """A heading and a line for each row; no lines without rows. The column before the last is cut to 60 cells."""
    if not rows:
        return []
    cells = [[clip(cell, 60) if i < len(row) - 1 else printable(cell) for i, cell in enumerate(row)] for row in rows]
    widths = [max(width(row[i]) for row in [header, *cells]) for i in range(len(header))]
    lines = [
        "  ".join(cell + " " * (w - width(cell)) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in [header, *cells]
    ]
    return [Line(lines[0], "dim"), *(Line(text, "bad" if b else "") for text, b in zip(lines[1:], bad, strict=True))]


class Screen:
    """A terminal that shows frames: `with Screen(stream) as screen: screen.draw(lines)`. One thread draws."""

    def __init__(self, stream: IO[str], *, colour: bool = True) -> None:
        self.stream = stream
        self.colour = colour
        self._shown: list[str] = []
        self._size = (0, 0)

    def __enter__(self) -> Screen:
        self.enter()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def enter(self) -> None:
        """Take the terminal's alternate screen."""
        self._shown, self._size = [], (0, 0)
        self._write("\x1b[?1049h\x1b[?25l\x1b[2J")

    def leave(self) -> None:
        """Give the terminal back as it was."""
        self._write("\x1b[?25h\x1b[?1049l")

    def size(self) -> tuple[int, int]:
        """Columns and rows that may be used. The last column stays free: a full line would wait to wrap."""
        found = os.get_terminal_size(self.stream.fileno())
        return found.columns - 1, found.lines

    def draw(self, lines: Sequence[Line]) -> None:
        """Show these lines: only what differs from the last frame is written, in one piece."""
        self._write(self.update(lines, self.size()))

    def update(self, lines: Sequence[Line], size: tuple[int, int]) -> str:
        """The characters that turn the last frame into this one, empty when nothing differs."""
        fresh = [
            f"{_CODES[line.style]}{line.text}\x1b[0m" if self.colour and line.style else line.text for line in lines
        ]
        clear = size != self._size
        parts = list(self._changes(fresh, clear))
        self._shown, self._size = fresh, size
        # Between these two marks a terminal that knows them shows nothing half drawn; others ignore them.
        return "\x1b[?2026h" + "".join(parts) + "\x1b[?2026l" if parts else ""

    def _changes(self, fresh: Sequence[str], clear: bool) -> Iterator[str]:
        if clear:
            yield "\x1b[2J"
        for number, text in enumerate(fresh):
            if clear or number >= len(self._shown) or self._shown[number] != text:
                yield f"\x1b[{number + 1};1H{text}\x1b[K"
        if not clear and len(self._shown) > len(fresh):
            yield f"\x1b[{len(fresh) + 1};1H\x1b[J"

    def _write(self, text: str) -> None:
        if text:
            self.stream.write(text)
            self.stream.flush()


def fits(stream: IO[str], term: str) -> bool:
    """Whether a live screen can be shown there: a terminal that moves its cursor, and not a tiny one."""
    if term in ("", "dumb", "unknown"):
        return False
    try:
        if not stream.isatty():
            return False
        found = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return False
    return found.columns >= SMALLEST[0] and found.lines >= SMALLEST[1]
