"""Smoke checks: judged from the readings of one probe. A check without its reading is `unknown`, never a pass."""

from __future__ import annotations

from collections.abc import Mapping

from drivers.nvidia import catalogue
from fleet.core.model import Item
from fleet.core.vendor import Check, Reading

Readings = Mapping[str, Reading]


def _result(name: str, result: str, detail: str) -> Item:
    return {"name": name, "result": result, "detail": detail}


def _cards(readings: Readings) -> Reading | None:
    reading = readings.get("cards") or readings.get("table")
    return reading if reading is not None and reading.status in ("ok", "not-ready", "device-lost") else None


def count(readings: Readings, expected: int) -> Item:
    """As many GPUs as the PCI bus shows."""
    reading = readings.get("cards") or readings.get("table")
    if reading is None:
        return _result("count", "unknown", "nvidia-smi was not read")
    if reading.status not in ("ok", "not-ready", "device-lost"):
        return _result("count", "fail", f"nvidia-smi: {reading.status} {reading.note}".strip())
    found = sum(card.get("health") != "lost" for card in reading.accelerators)
    return _result("count", "pass" if found == expected else "fail", f"{found} of {expected} GPUs")


def driver_equal(readings: Readings, _expected: int) -> Item:
    """Module in the kernel, module on disk, user space and fabric manager have one version."""
    places = {
        "loaded": ("proc_version", "driver"),
        "on disk": ("modinfo", "driver"),
        "user space": ("table", "smi"),
        "fabric manager": ("fabricmanager", "fabricmanager"),
    }
    found = {
        place: version
        for place, (probe, name) in places.items()
        if probe in readings and (version := readings[probe].components.get(name))
    }
    detail = ", ".join(f"{place} {version}" for place, version in found.items())
    if "loaded" not in found:
        return _result("driver-equal", "fail", f"no driver is loaded; {detail}".rstrip("; "))
    if "user space" not in found:
        return _result("driver-equal", "unknown", f"nvidia-smi told no version; {detail}")
    return _result("driver-equal", "pass" if len(set(found.values())) == 1 else "fail", detail)


def fabric(readings: Readings, _expected: int) -> Item:
    """On a node with NVSwitch each GPU has joined the fabric."""
    reading = _cards(readings)
    if reading is None:
        return _result("fabric", "unknown", "nvidia-smi was not read")
    states = [str(card["fabric_state"]) for card in reading.accelerators if card.get("fabric_state")]
    if not states:
        switches = readings["switches"].more.get("switches") if "switches" in readings else None
        if switches:
            return _result("fabric", "unknown", "NVSwitches are there, the driver tells no fabric state")
        return _result("fabric", "unsupported", "no NVSwitch")
    done = sum(state == "Completed" for state in states)
    return _result("fabric", "pass" if done == len(states) else "fail", f"{done} of {len(states)} GPUs Completed")


def ecc(readings: Readings, _expected: int) -> Item:
    """No uncorrectable error, pending retirement or demanded reset on any card."""
    reading = _cards(readings)
    if reading is None:
        return _result("ecc", "unknown", "nvidia-smi was not read")
    bad = {
        str(card.get("bus_id") or card.get("index")): str(card["health"])
        for card in reading.accelerators
        if card.get("health") in ("critical", "warning", "lost")
    }
    if bad:
        worst = "fail" if set(bad.values()) - {"warning"} else "warn"
        return _result("ecc", worst, ", ".join(f"{where} {health}" for where, health in sorted(bad.items())))
    if not any(card.get("health") == "ok" for card in reading.accelerators):
        return _result("ecc", "unsupported", "the cards tell no ECC state")
    return _result("ecc", "pass", f"{len(reading.accelerators)} cards")


def links(readings: Readings, _expected: int) -> Item:
    """Every NVLink that a card has is up; a diagnostic passes with all of them down, so they are looked at here."""
    reading = readings.get("links")
    if reading is None:
        return _result("links", "unknown", "nvidia-smi nvlink was not read")
    if reading.status == "unsupported":
        return _result("links", "unsupported", reading.note or "no NVLink")
    if reading.status != "ok":
        return _result("links", "fail", f"{reading.status} {reading.note}".strip())
    down = []
    for row in reading.links:
        up, total = row.get("links_up"), row.get("links_total")
        if up == 0 or (isinstance(total, int) and up != total):
            down.append(f"GPU {row.get('index')}: {up} of {total if total is not None else 'its'} links up")
    return _result("links", "fail" if down else "pass", "; ".join(down) or f"{len(reading.links)} GPUs")


def kernel_log(readings: Readings, _expected: int) -> Item:
    """No Xid of severity critical since boot."""
    reading = readings.get("kernel_log")
    if reading is None or reading.status in ("unparsed", "permission-denied", "tool-missing"):
        return _result("xid", "unknown", "the kernel's log was not read")
    bad = [fault for fault in reading.faults if catalogue.judged(dict(fault))[0] == "critical"]
    if bad or reading.status == "device-lost":
        named = ", ".join(f"{fault.get('code')} at {fault.get('bus_id')}" for fault in bad)
        return _result("xid", "fail", named or reading.note)
    return _result("xid", "pass", f"{len(reading.faults)} faults, none critical")


CHECKS = (
    Check("count", count),
    Check("driver-equal", driver_equal),
    Check("fabric", fabric),
    Check("ecc", ecc),
    Check("links", links),
    Check("xid", kernel_log),
)
