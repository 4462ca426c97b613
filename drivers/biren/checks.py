"""Smoke checks of a Biren node, judged from the readings of one probe."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.core.model import Item
from fleet.core.vendor import Check, Fault, Reading


def _item(name: str, result: str, detail: str) -> Item:
    return {"name": name, "result": result, "detail": detail}


def _table(readings: Mapping[str, Reading]) -> Reading | None:
    reading = readings.get("smi")
    return reading if reading is not None and reading.status == "ok" else None


def driver_loaded(readings: Mapping[str, Reading], expected: int) -> Item:
    """The module is loaded, and the tool reports the same version."""
    del expected
    sysfs = readings.get("loaded")
    if sysfs is None or sysfs.status == "unparsed":
        return _item("driver-loaded", "unknown", "/sys/module/biren/version was not read")
    loaded = sysfs.components.get("driver")
    if loaded is None:
        return _item("driver-loaded", "fail", f"the module is not loaded ({sysfs.status})")
    smi = _table(readings)
    if smi is None:
        return _item("driver-loaded", "unknown", f"driver {loaded} is loaded, brsmi gave no answer")
    told = smi.components.get("driver")
    return _item("driver-loaded", "pass" if told == loaded else "fail", f"{loaded} is loaded, brsmi reports {told}")


def cards_present(readings: Mapping[str, Reading], expected: int) -> Item:
    """As many cards answer as the node should have. Slices (SVI) are not counted."""
    smi = _table(readings)
    if smi is None:
        return _item("cards-present", "unknown", "brsmi gave no answer")
    if any(card.get("svi") == "Enabled" for card in smi.accelerators):
        return _item("cards-present", "unknown", "SVI is on: rows are slices, not cards")
    found = len(smi.accelerators)
    return _item("cards-present", "pass" if found == expected else "fail", f"{found} of {expected} cards")


def ecc(readings: Mapping[str, Reading], expected: int) -> Item:
    """No uncorrectable memory error since the driver was loaded."""
    del expected
    smi = _table(readings)
    if smi is None:
        return _item("ecc", "unknown", "brsmi gave no answer")
    bad = [str(card.get("index")) for card in smi.accelerators if card.get("health") == "critical"]
    if bad:
        return _item("ecc", "fail", f"uncorrectable errors on card {', '.join(bad)}")
    if any("health" not in card for card in smi.accelerators):
        return _item("ecc", "unknown", "a card does not count ECC errors")
    return _item("ecc", "pass", "no uncorrectable error")


def driver_stays(readings: Mapping[str, Reading], expected: int) -> Item:
    """The file that the next boot will load is the version that is loaded now."""
    del expected
    loaded = readings["loaded"].components.get("driver") if "loaded" in readings else None
    on_disk = readings["module_file"].components.get("driver") if "module_file" in readings else None
    if loaded is None or on_disk is None:
        return _item("driver-stays", "unknown", "loaded version or module file was not read")
    return _item("driver-stays", "pass" if loaded == on_disk else "fail", f"loaded {loaded}, on disk {on_disk}")


CHECKS: tuple[Check, ...] = (
    Check("driver-loaded", driver_loaded),
    Check("cards-present", cards_present),
    Check("ecc", ecc),
    Check("driver-stays", driver_stays),
)

FAULTS: Mapping[str, Fault] = {
    "pcie-replay": Fault(
        "pcie-replay",
        "critical",
        "drain-and-check-link",
        "the PCIe replay counter floods: a bad link, or IOMMU on",
    ),
}
"""There is no public list of fault codes; this one is a line of the kernel log (facts: story B-1)."""
