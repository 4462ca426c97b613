"""What the programs around a vendor tool say: the shell that could not run it, lsmod, a package's own check."""

from __future__ import annotations

import re

from fleet.core.model import Json
from fleet.core.vendor import Reading, Status, unparsed

_PREFIX = {"sudo", "env", "nice", "exec", "timeout", "-n", "-k", "stdbuf"}
_NUMBER = re.compile(r"\d+(?:\.\d+)?[smh]?")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SHORT = 4096  # a refusal is a line or two; a long text that happens to hold the words is something else

_TEXTS: tuple[tuple[re.Pattern[str], Status], ...] = (
    (re.compile(r"^[^|\n]*: (?:is a directory|command not found)", re.I | re.M), "tool-missing"),
    (re.compile(r"^(?:[\w./-]+: )+(?:line \d+: |\d+: )?[\w./-]+: not found$|^zsh: command not found: ", re.M),
     "tool-missing"),
    (re.compile(r"^(?:[\w./-]+: )+(?:line \d+: |\d+: )?[\w./-]+: No such file or directory$", re.M), "tool-missing"),
    (re.compile(r"^(?:timeout|env|nice|nohup|stdbuf|setsid): .*: No such file or directory$", re.M), "tool-missing"),
    (re.compile(r"permission denied|operation not permitted|a password is required|must be root"
                r"|terminal is required to read|not in the sudoers", re.I), "permission-denied"),
)  # fmt: skip


def words(command: str) -> list[str]:
    """The words of a command without assignments, sudo, timeout and the like; the program without its folder."""
    left = command.split()
    while left and (left[0] in _PREFIX or _ASSIGNMENT.match(left[0]) or _NUMBER.fullmatch(left[0])):
        left.pop(0)
    if left:
        left[0] = left[0].rpartition("/")[2]
    return left


def refusal(text: str, rc: int | None) -> Status | None:
    """The status when the shell, not the tool, answered; None when it did not.

    127 = not found, 126 = found but not to be run (a directory counts as missing), 124 and 137 = stopped by the limit.
    """
    short = text if len(text) <= _SHORT else ""
    if rc == 126 and re.search(r"is a directory", short, re.I):
        return "tool-missing"
    if rc == 126:
        return "permission-denied"
    if rc == 127:
        return "tool-missing"
    if rc in (124, 137):
        return "failed"
    for pattern, status in _TEXTS:
        if pattern.search(short):
            return status
    return None


_LOADED = re.compile(r"(\w+) +(\d+) +(-?\d+)(?: +([\w,-]+))?(?: .*)?")
_ARCHIVE_BAD = re.compile(r"Error in (?:SHA256|MD5|CRC|check)|checksums? .{0,80}different", re.I)


def read_modules(vendor: str, names: tuple[str, ...], command: str, text: str) -> Reading:
    """`lsmod` or /proc/modules: the vendor's loaded modules in `modules`; none of them is driver-not-loaded."""
    found: list[Json] = []
    known = text.lstrip().startswith("Module ")
    for line in text.split("\n"):
        match = _LOADED.fullmatch(line.strip()) if len(line) < 2000 else None
        if match:
            known = True
            if match[1] in names:
                users: list[Json] = [user for user in (match[4] or "").split(",") if user not in ("", "-")]
                found.append({"name": match[1], "refcount": int(match[3]), "used_by": users})
    if not known:
        return unparsed(vendor, command, "no list of modules")
    return Reading(vendor, command, "ok" if found else "driver-not-loaded", more={"modules": found})


def read_archive_check(vendor: str, command: str, text: str) -> Reading:
    """`PACKAGE.run --check`: the archive's own checksums, as the check `archive-integrity`."""
    bad = _ARCHIVE_BAD.search(text) is not None
    if not bad and not ("All good" in text or re.search(r"checksums? (?:are|is) OK", text)):
        return unparsed(vendor, command, "the archive check has no end")
    check: dict[str, Json] = {"name": "archive-integrity", "result": "fail" if bad else "pass"}
    return Reading(vendor, command, "failed" if bad else "ok", checks=(check,))
