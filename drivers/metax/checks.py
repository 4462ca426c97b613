"""Smoke checks of a MetaX node, judged from the readings of one probe."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.core.model import Item
from fleet.core.vendor import Check, Reading

_HOT_C = 85  # the limit of the public health daemon kcover for an idle card's hotspot


def _item(name: str, result: str, detail: str) -> Item:
    return {"name": name, "result": result, "detail": detail}


def _ran(readings: Mapping[str, Reading], name: str) -> Reading | None:
    reading = readings.get(name)
    return reading if reading is not None and reading.status not in ("unparsed", "tool-missing") else None


def driver_loaded(readings: Mapping[str, Reading], expected: int) -> Item:
    """The module is loaded, and the tool reports the same version."""
    del expected
    kmd = readings.get("kmd")
    if kmd is None or kmd.status == "unparsed":
        return _item("driver-loaded", "unknown", "/sys/module/metax/version was not read")
    loaded = kmd.components.get("driver")
    if loaded is None:
        return _item("driver-loaded", "fail", f"the module is not loaded ({kmd.status})")
    smi = _ran(readings, "smi")
    if smi is None:
        return _item("driver-loaded", "unknown", f"KMD {loaded} is loaded, mx-smi gave no answer")
    told = smi.components.get("driver")
    result = "pass" if told == loaded else "fail"
    return _item("driver-loaded", result, f"KMD {loaded} is loaded, mx-smi reports {told}")


def cards_available(readings: Mapping[str, Reading], expected: int) -> Item:
    """As many cards are Available as the node should have."""
    smi = _ran(readings, "smi") or _ran(readings, "list")
    if smi is None:
        return _item("cards-available", "unknown", "mx-smi gave no answer")
    good = sum(1 for card in smi.accelerators if card.get("health") == "ok")
    unjudged = sum(1 for card in smi.accelerators if "health" not in card)
    if unjudged:
        return _item("cards-available", "unknown", f"{unjudged} cards without a GPU state (tool before 2.1.12)")
    return _item("cards-available", "pass" if good == expected else "fail", f"{good} of {expected} cards available")


def driver_vbios(readings: Mapping[str, Reading], expected: int) -> Item:
    """The vendor's own verdict: no card says that driver and VBIOS do not fit."""
    del expected
    said = [reading for name in ("smi", "list") if (reading := _ran(readings, name)) is not None]
    if not said:
        return _item("driver-vbios", "unknown", "mx-smi gave no answer")
    if any(reading.status == "driver-mismatch" for reading in said):
        return _item("driver-vbios", "fail", "mx-smi: driver and VBIOS do not fit")
    if any(reading.status != "ok" for reading in said):
        return _item("driver-vbios", "unknown", f"mx-smi: {said[0].status}")
    return _item("driver-vbios", "pass", "no card complains")


def firmware_uniform(readings: Mapping[str, Reading], expected: int) -> Item:
    """All cards run one VBIOS."""
    del expected
    page = _ran(readings, "version")
    if page is None or not page.accelerators:
        return _item("firmware-uniform", "unknown", "mx-smi --show-version gave no answer")
    found = {str(card.get("firmware", "")) for card in page.accelerators}
    if "" in found:
        return _item("firmware-uniform", "unknown", "a card does not tell its VBIOS")
    return _item("firmware-uniform", "pass" if len(found) == 1 else "fail", ", ".join(sorted(found)))


def temperature(readings: Mapping[str, Reading], expected: int) -> Item:
    """No card of an idle node is hot."""
    del expected
    smi = _ran(readings, "smi")
    values = [card.get("temperature_c") for card in smi.accelerators] if smi else []
    known = [value for value in values if isinstance(value, (int, float))]
    if not known or len(known) != len(values):
        return _item("temperature", "unknown", "not every card tells its temperature")
    return _item("temperature", "pass" if max(known) < _HOT_C else "warn", f"hottest card {max(known)} C")


def kernel_log(readings: Mapping[str, Reading], expected: int) -> Item:
    """No event of a hardware fault in the kernel log since boot."""
    del expected
    log = _ran(readings, "log")
    if log is None or log.status != "ok":
        return _item("kernel-log", "unknown", "the kernel log was not read")
    codes = sorted({str(fault["code"]) for fault in log.faults})
    bad = [code for code in codes if code.startswith("0x1") and code != "0x1102"]
    if bad:
        return _item("kernel-log", "fail", f"hardware events {', '.join(bad)}")
    return _item("kernel-log", "warn" if codes else "pass", ", ".join(codes) or "no event")


CHECKS: tuple[Check, ...] = (
    Check("driver-loaded", driver_loaded),
    Check("cards-available", cards_available),
    Check("driver-vbios", driver_vbios),
    Check("firmware-uniform", firmware_uniform),
    Check("temperature", temperature),
    Check("kernel-log", kernel_log),
)
