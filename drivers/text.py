"""Clean-up that every vendor's output needs before it is read."""

from __future__ import annotations

import re

MAX_BYTES = 64 * 1024 * 1024  # a log larger than this is not a command's answer
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def clean(output: bytes) -> str | None:
    """Text without byte order mark, ANSI sequences and carriage returns; None when it is binary or too large.

    UTF-8 first; bytes that are not UTF-8 become U+FFFD. UTF-16 is recognised by its byte order mark.
    """
    if len(output) > MAX_BYTES:
        return None
    if output.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = output.decode("utf-16", errors="replace")
    else:
        if b"\x00" in output:
            return None
        text = output.decode("utf-8-sig", errors="replace")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def bus_id(raw: str) -> str:
    """`00000000:0B:00.0` -> `0000:0b:00.0`; a missing domain is 0000, a missing function 0; "" when it is none."""
    match = re.fullmatch(r"(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-7]))?", raw.strip())
    if not match:
        return ""
    domain, bus, device, function = match.groups()
    return f"{(domain or '0000')[-4:]}:{bus}:{device}.{function or '0'}".lower()
