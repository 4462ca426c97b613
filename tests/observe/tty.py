"""A pseudo-terminal and what a person sees on it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Callable

from tests.observe.terminal import Terminal

COLUMNS, ROWS = 110, 30
ENTER, FRAME, LEAVE = r"\x1b\[\?1049h\x1b\[\?25l\x1b\[2J", r"\x1b\[\?2026h.*?\x1b\[\?2026l", r"\x1b\[\?25h\x1b\[\?1049l"
PIECE = re.compile(f"{ENTER}|{FRAME}|{LEAVE}", re.DOTALL)


class Tty:
    """Both ends of it. `plain` is what was written outside the screen."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.terminal = Terminal(COLUMNS, ROWS)
        self.resize(COLUMNS, ROWS)
        self.raw = ""
        self.plain = ""
        self.entered = 0

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, wait_s: float = 0.1) -> None:
        """Take what has come."""
        while select.select([self.master], [], [], wait_s)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            self.raw += data.decode()
            wait_s = 0.0
        done = 0
        for match in PIECE.finditer(self.raw):
            self.plain += self.raw[done : match.start()]
            self.terminal.feed(match[0])
            self.entered += match[0].startswith("\x1b[?1049h")
            done = match.end()
        self.raw = self.raw[done:]

    def until(self, seen: Callable[[str], bool], limit_s: float = 30.0) -> str:
        """The text of the screen, as soon as it is as wanted."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            self.read()
            text = "\n".join(self.terminal.lines)
            if seen(text):
                return text
        raise AssertionError("\n".join(self.terminal.lines) + f"\n---\n{self.plain!r}{self.raw!r}")

    def close(self) -> None:
        os.close(self.master)
        os.close(self.slave)
