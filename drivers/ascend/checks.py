"""Smoke checks of an Ascend node, cheapest first: count, health, versions, compatibility, boot, links.

Each is pure: readings by probe name in, {name, result, detail} out. A reading that is missing or not understood makes
the check `unknown`, never `pass`.
"""

from __future__ import annotations

from collections.abc import Mapping

from fleet.core.model import Item
from fleet.core.vendor import Check, Reading

Readings = Mapping[str, Reading]


def _said(name: str, result: str, detail: str) -> Item:
    return {"name": name, "result": result, "detail": detail}


def _missing(name: str, readings: Readings, probe: str) -> Item | None:
    """The verdict when that probe gave nothing to judge; None when it did."""
    reading = readings.get(probe)
    if reading is None:
        return _said(name, "unknown", f"{probe} was not asked")
    if reading.status == "unsupported":
        return _said(name, "unsupported", f"{probe}: not on this product")
    if reading.status in ("unparsed", "tool-missing", "permission-denied"):
        return _said(name, "unknown", f"{probe}: {reading.status}")
    return None


def count(readings: Readings, expected: int) -> Item:
    """Every chip answers npu-smi."""
    gap = _missing("count", readings, "smi")
    if gap:
        return gap
    reading = readings["smi"]
    have = len(reading.accelerators)
    if reading.status != "ok":
        return _said("count", "fail", f"npu-smi: {reading.status}")
    return _said("count", "pass" if have == expected else "fail", f"{have} of {expected} chips answer")


def health(readings: Readings, expected: int) -> Item:  # noqa: ARG001 - the shape of every judge
    """The worse of the table's word and of `-t health`: newer tools write OK there although the table warns."""
    gap = _missing("health", readings, "smi")
    if gap:
        return gap
    words = [
        str(c.get("health")) for name in ("smi", "health") if name in readings for c in readings[name].accelerators
    ]
    codes = [str(f.get("code")) for f in readings["health"].faults] if "health" in readings else []
    bad = [word for word in words if word != "ok"]
    if "critical" in bad or "lost" in bad:
        return _said("health", "fail", f"a chip is critical {' '.join(codes)}".strip())
    if bad or codes:
        return _said("health", "warn", " ".join([*sorted(set(bad)), *codes]))
    return _said("health", "pass" if words else "unknown", f"{len(readings['smi'].accelerators)} chips ok")


def _flagged(name: str, probe: str, check: str) -> Check:
    """A check that a parser already made, taken over."""

    def judge(readings: Readings, expected: int) -> Item:  # noqa: ARG001
        gap = _missing(name, readings, probe)
        if gap:
            return gap
        result = next((str(c["result"]) for c in readings[probe].checks if c.get("name") == check), "unknown")
        return _said(name, result, f"{probe}: {readings[probe].status}")

    return Check(name, judge)


def driver_live(readings: Readings, expected: int) -> Item:  # noqa: ARG001
    """The running driver is the one on the disk."""
    gap = _missing("driver-live", readings, "smi") or _missing("driver-live", readings, "driver_info")
    if gap:
        return gap
    live, disk = (readings[p].components.get("driver") for p in ("smi", "driver_info"))
    if not live or not disk:
        return _said("driver-live", "fail", f"runs {live or 'nothing'}, on the disk {disk or 'nothing'}")
    return _said("driver-live", "pass" if live == disk else "fail", f"runs {live}, on the disk {disk}")


def firmware_live(readings: Readings, expected: int) -> Item:  # noqa: ARG001
    """Every component of every chip runs the firmware that the package on the disk holds."""
    gap = _missing("firmware-live", readings, "firmware") or _missing("firmware-live", readings, "firmware_info")
    if gap:
        return gap
    live, disk = (readings[p].components.get("firmware") for p in ("firmware", "firmware_info"))
    return _said(
        "firmware-live", "pass" if live and live == disk else "fail", f"runs {live or 'several'}, on the disk {disk}"
    )


def install_complete(readings: Readings, expected: int) -> Item:  # noqa: ARG001
    """The driver's installer came to its end; old versions do not say."""
    found = [
        str(c["result"])
        for name in ("smi", "install_info")
        if name in readings
        for c in readings[name].checks
        if c.get("name") == "driver-install-complete"
    ]
    if "fail" in found:
        return _said("install-complete", "fail", "the driver package is not completely installed")
    return _said("install-complete", "pass" if found else "unknown", "said by the installer" if found else "not said")


CHECKS: tuple[Check, ...] = (
    Check("count", count),
    Check("driver-live", driver_live),
    Check("firmware-live", firmware_live),
    _flagged("firmware-uniform", "firmware", "firmware-uniform"),
    _flagged("compatibility", "boards", "compatibility"),
    Check("install-complete", install_complete),
    _flagged("boot", "boot", "boot"),
    Check("health", health),
    _flagged("hccs", "hccs", "hccs"),
)
