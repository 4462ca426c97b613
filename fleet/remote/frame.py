"""Reads the framed answer of a script made by `fleet.remote.script`. Never raises; junk outside frames is ignored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fleet.remote.script import SECTION_BYTES

State = Literal["complete", "skipped", "cut", "gave-up", "truncated"]


@dataclass(frozen=True)
class Frame:
    """One section of an answer.

    `complete`: begun and ended; `skipped`: what it needs is not there; `cut`: more output than a section may have;
    `gave-up`: it did not even die; `truncated`: the answer broke off within it. `rc` is None where it was not seen.
    """

    name: str
    output: bytes = b""
    rc: int | None = None
    seconds: float | None = None
    state: State = "complete"

    def timed_out(self, limit_s: float) -> bool:
        """It was ended by its time limit of `limit_s` seconds."""
        if self.state == "gave-up":
            return True
        late = self.seconds is None or self.seconds >= limit_s * 0.9
        return self.rc in {124, 137, 143} and late


@dataclass(frozen=True)
class Frames:
    """All sections of one answer. `done`: the script came to its last line. `problems` are sentences."""

    sections: Mapping[str, Frame] = field(default_factory=dict)
    done: bool = False
    problems: tuple[str, ...] = ()
    noise: int = 0  # bytes outside of every frame


def parse(stdout: bytes, nonce: str, *, section_bytes: int = SECTION_BYTES) -> Frames:
    """The sections of `stdout` that carry `nonce`. Markers with another nonce are noise like any other text."""
    mark = re.compile(
        rb"\x1eFLEET1 " + re.escape(nonce.encode()) + rb" (begin|end|skip|gave-up|done)(?: ([!-~]{1,80}))?"
        rb"(?: rc=([0-9?]+))?(?: t=([0-9.]*),([0-9.]*))?\r?\n"
    )
    sections: dict[str, Frame] = {}
    problems: list[str] = []
    open_name, open_at, done, noise, position = "", 0, False, 0, 0

    def close(frame: Frame) -> None:
        if frame.name in sections:
            problems.append(f"the section {frame.name!r} came twice")
        else:
            sections[frame.name] = frame

    for match in mark.finditer(stdout):
        verb, name = match[1], (match[2] or b"").decode("ascii")
        if not open_name:
            noise += match.start() - position
        position = match.end()
        if open_name and (verb in (b"begin", b"skip", b"done") or name != open_name):
            close(Frame(open_name, stdout[open_at : match.start()], state="truncated"))
            open_name = ""
        if verb == b"begin":
            open_name, open_at = name, match.end()
        elif verb == b"skip":
            close(Frame(name, state="skipped"))
        elif verb == b"done":
            done = True
        elif not open_name:
            problems.append(f"the section {name!r} ended without a beginning")
        else:
            output = stdout[open_at : match.start()].removesuffix(b"\n")
            rc = int(match[3]) if match[3] and match[3].isdigit() and len(match[3]) < 6 else None
            state: State = "gave-up" if verb == b"gave-up" else "complete"
            if state == "complete" and len(output) >= section_bytes:
                state = "cut"
            close(Frame(open_name, output, rc, _seconds(match[4], match[5]), state))
            open_name = ""
    if open_name:
        close(Frame(open_name, stdout[open_at:], state="truncated"))
    else:
        noise += len(stdout) - position
    return Frames(sections, done, tuple(problems), noise)


def _seconds(start: bytes | None, end: bytes | None) -> float | None:
    try:
        return max(0.0, float(end or b"") - float(start or b""))
    except ValueError:
        return None
