"""Single values as mx-smi prints them, and the words it uses for the state of a card."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

from fleet.core.model import Json
from fleet.core.vendor import Status

ABSENT = frozenset({"", "-", "N/A", "NA", "n/a", "NONE", "None", "none"})

_CONTAINER = "MetaX Sysfs File Unaccessible"  # a container without that device node: nothing is known of the card
_MISMATCH = "Driver And Vbios Compatibility Check Failed"
_NO_DRIVER = "MetaX Kernel Driver Not Found"
_STATE = re.compile(r"(Available|Not\s+Available)(?:\s*\((.*)\)?)?", re.I)
_FOREIGN = re.compile(
    r"nvidia|\bnvml|nvlink|nvswitch|\bdcgm|\bnpu\b|npu-smi|\bdcmi|biren|br-?smi|hygon|\bhy-smi|\brocm|cnmon|cambricon|moffett"
    r"|ixsmi|iluvatar|mthreads|efsmi|enflame|xpu-?smi|kunlun|ppu-smi",
    re.I,
)
_SHORT = 4096  # an error is a line or two
_TAIL = 1 << 20  # of a longer watch only the end matters
_DOCUMENT = re.compile(
    r"^[ \t]*(?:(?:mx|ht)-smi +version:|=+ (?:MetaX|Mars) System|\| +(?:MX|HT)-SMI |\{|GPU#0 |dev +die )", re.M
)
_BLANKS = re.compile(r"[\u00a0\u2002-\u200a\u3000\t]")


def plain(text: str) -> str:
    """Text without the character references and wide blanks of a copy from a web page."""
    if "&" in text:
        text = html.unescape(text)
    return _BLANKS.sub(" ", text)


def tail(text: str) -> str:
    """The text, or of a very long one the end, from the first line there that may begin an answer."""
    if len(text) <= 4 * _TAIL:
        return text
    end = text[-_TAIL:]
    start = _DOCUMENT.search(end)
    return end[start.start() :] if start else ""


def value(raw: str) -> str | None:
    """The text of a cell; None when it says "not available"."""
    text = raw.strip()
    return None if text in ABSENT else text


def number(raw: str) -> int | float | None:
    """`12` -> 12, `38.500` -> 38.5; None for anything else, numbers with leading zeros (codes) included."""
    text = raw.strip()
    if not re.fullmatch(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,18})?", text):
        return None
    return float(text) if "." in text else int(text)


def key(label: str) -> str:
    """A printed label as a key: lower case, every run of other characters is one underscore."""
    return re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")


def version(raw: str) -> str | None:
    """A dotted number; None when it is none."""
    text = raw.strip()
    return text if re.fullmatch(r"v?\d+(?:\.\w+)+", text, re.A) else None


def health(reason: str | None, available: bool) -> str:
    """Health from the GPU state. In a container a card without its device node is not known to be broken."""
    if available:
        return "ok"
    return "unknown" if reason and _same(reason, _CONTAINER) else "critical"


def state(raw: str) -> tuple[bool, str | None] | None:
    """`Not Available(why)` -> (False, why); None when this is no GPU state."""
    match = _STATE.fullmatch(raw.strip())
    if not match:
        return None
    reason = (match[2] or "").strip().rstrip(")").strip()
    return match[1].lower() == "available", reason or None


def verdict(cards: list[Mapping[str, Json]] | list[dict[str, Json]]) -> Status:
    """What the reasons of all cards mean for the node: MetaX gives its own verdict on driver and VBIOS."""
    reasons = [str(card["reason"]) for card in cards if card.get("reason")]
    if any(_same(reason, _NO_DRIVER) for reason in reasons):
        return "driver-not-loaded"
    if any(_same(reason, _MISMATCH) for reason in reasons):
        return "driver-mismatch"
    return "ok"


def errors(text: str) -> Status | None:
    """The status when the tool printed nothing but an error of its own, no table and no list of cards."""
    if re.search(r"^[ \t]*PARSE ERROR:", text[: 1 << 16], re.M):
        return "unsupported"
    if len(text) > _SHORT or re.search(r"^[ \t]*(?:\||GPU#)", text, re.M) or _FOREIGN.search(text):
        return None
    lowered = text.lower()
    if _NO_DRIVER.lower() in lowered:
        return "driver-not-loaded"
    if re.search(r"\bno (?:metax |mars )?(?:gpus?|devices?)(?: was| were)?(?: found| detected)", lowered):
        return "no-devices"
    return None


def _same(reason: str, known: str) -> bool:
    return " ".join(known.lower().split()) in " ".join(reason.lower().split())
