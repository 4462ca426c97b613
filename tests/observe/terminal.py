"""A terminal in memory: what a person would see of the characters that a screen writes, and how often it changed."""

from __future__ import annotations

import re
import unicodedata

from fleet.cli.output import width

_SEQUENCE = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])")


class Terminal:
    """Understands what `fleet.cli.live` writes, and refuses anything else. `columns` is where a line would wrap."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns = columns
        self.rows = rows
        self.lines = [""] * rows
        self.at = 0
        self.alternate = False
        self.hidden = False
        self.written = 0

    def feed(self, text: str) -> None:
        """Take characters as the terminal's line discipline gives them."""
        self.written += len(text)
        at = 0
        for match in _SEQUENCE.finditer(text):
            self._print(text[at : match.start()])
            self._obey(match[1], match[2])
            at = match.end()
        self._print(text[at:])

    def _print(self, text: str) -> None:
        if not text:
            return
        assert not any(unicodedata.category(c).startswith("C") for c in text), repr(text)
        assert self.alternate, f"written outside the alternate screen: {text!r}"
        self.lines[self.at] += text
        assert width(self.lines[self.at]) < self.columns, "the line would wrap"

    def _obey(self, numbers: str, letter: str) -> None:
        match letter:
            case "H":
                row, column = map(int, numbers.split(";"))
                assert 1 <= row <= self.rows and column == 1, numbers
                self.at = row - 1
                self.lines[self.at] = ""
            case "J":
                first = 0 if numbers == "2" else self.at
                self.lines[first:] = [""] * (self.rows - first)
            case "K" | "m":
                pass
            case "h" | "l":
                if numbers == "?1049":
                    self.alternate = letter == "h"
                elif numbers == "?25":
                    self.hidden = letter == "l"
                else:
                    assert numbers == "?2026", numbers
            case _:
                raise AssertionError(numbers + letter)
