"""Do this driver and this firmware go together, by the lists that both packages carry?

Either side may accept. Bounds are compared number by number; a bound that ends in a dot, as `24.1.`, takes all versions
under it. The vendor's own check compares text after cutting the candidate to the longer bound, so that 7.10 sorts below
7.2 there: `text_order_accepts` is that comparison, kept to show where the two disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from fleet.core.errors import BadInput
from fleet.core.version import key

Verdict = Literal["ok", "nok", "unknown"]
_FLOOR = "6.4"  # firmware below this is never accepted


def _key(version: str) -> tuple[object, ...]:
    return key(version.rstrip("."), "generic")[:-1]


def accepts(ranges: Iterable[Sequence[str]], version: str) -> bool:
    """Whether one of the [low, high] pairs holds `version`."""
    own = _key(version)
    for low, high in ranges:
        top = _key(high)
        if own >= _key(low) and (own <= top or own[: len(top)] == top):
            return True
    return False


def text_order_accepts(ranges: Iterable[Sequence[str]], version: str) -> bool:
    """The same question by the order of characters, as the driver's own library asks it."""
    for low, high in ranges:
        cut = version[: max(len(low), len(high))]
        if low <= cut <= high:
            return True
    return False


def pairing(
    driver: str, firmware: str, driver_accepts: Sequence[Sequence[str]], firmware_accepts: Sequence[Sequence[str]]
) -> Verdict:
    """ok when either list holds the other's version, unknown when a list is missing and the other says no."""
    try:
        if _key(firmware) < _key(_FLOOR):
            return "nok"
        if accepts(driver_accepts, firmware) or accepts(firmware_accepts, driver):
            return "ok"
    except BadInput:  # a bound or version of no known form
        return "unknown"
    return "nok" if driver_accepts and firmware_accepts else "unknown"
