"""From the readings of one probe to what the node has."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.core.model import Accelerator, ComponentFact, Health, Item, Json
from fleet.core.vendor import Gathered, PciDevice, Reading, Seen

PCI_VENDORS = frozenset({"1ee0"})  # BirenTechnology/k8s-device-plugin, kata.go; device ids are not public
_HEALTH: dict[str, Health] = {"ok": "ok", "critical": "critical"}


def is_accelerator(device: PciDevice) -> bool:
    """Any display (03) or processing accelerator (12) function of the vendor: no device id is public."""
    return device.vendor in PCI_VENDORS and device.pci_class[:2] in ("03", "12")


def gather(seen: Seen) -> Gathered:
    """Components, cards, flags and problems. What no reading says is not claimed."""
    components = _components(seen)
    flags: dict[str, Json] = {}
    items = (*_items(seen.readings, "smi"), *_items(seen.readings, "query"))
    if any(item.get("svi") == "Enabled" for item in items):
        flags["svi"] = True
    faults = seen.readings["log"].faults if "log" in seen.readings else ()
    return Gathered(components, _cards(seen), flags, tuple(_problems(seen, components)), faults)


def _items(readings: Mapping[str, Reading], name: str) -> tuple[Item, ...]:
    return readings[name].accelerators if name in readings else ()


def _said(readings: Mapping[str, Reading], name: str, component: str) -> str | None:
    return readings[name].components.get(component) if name in readings else None


def _components(seen: Seen) -> dict[str, ComponentFact]:
    readings = seen.readings
    loaded = seen.modules.get("biren") or _said(readings, "loaded", "driver")
    packages = readings["packages"].more.get("packages") if "packages" in readings else None
    packaged = packages.get("biren-driver") if isinstance(packages, dict) else None
    installed = _said(readings, "module_file", "driver") or (str(packaged).partition("-")[0] if packaged else None)
    named = {
        "driver": ComponentFact(installed, loaded, _said(readings, "smi", "driver")),
        "toolkit": ComponentFact(
            installed=_said(readings, "toolkit", "toolkit"), runtime=_said(readings, "smi", "toolkit")
        ),
    }
    return {name: fact for name, fact in named.items() if fact != ComponentFact()}


def _cards(seen: Seen) -> tuple[Accelerator, ...]:
    """One entry for each card on the bus; what only the tool names comes after. Serials come by index."""
    serials = {item.get("index"): str(item["serial"]) for item in _items(seen.readings, "query") if item.get("serial")}
    devices = {device.bus_id: device for device in seen.pci if is_accelerator(device)}
    merged: dict[str, Item] = {bus: {} for bus in sorted(devices)}
    for item in _items(seen.readings, "smi"):
        merged[str(item["bus_id"])] = item
    out = []
    for bus, item in merged.items():
        index, memory = item.get("index"), item.get("memory_total_mib")
        out.append(
            Accelerator(
                vendor="biren",
                model=str(item.get("name") or ""),
                bus_id=bus,
                pci_id=devices[bus].pci_id if bus in devices else "",
                index=index if isinstance(index, int) else None,
                serial=serials.get(index, "") if index is not None else "",
                memory_mib=memory if isinstance(memory, int) else None,
                health=_HEALTH.get(str(item.get("health", "")), "unknown"),
            )
        )
    return tuple(out)


def _problems(seen: Seen, components: Mapping[str, ComponentFact]) -> list[str]:
    out: list[str] = []
    readings = seen.readings
    on_bus = sum(1 for device in seen.pci if is_accelerator(device))
    listed = _items(readings, "smi")
    split = any(item.get("svi") == "Enabled" for item in listed)  # slices are then listed like cards
    if "smi" in readings and readings["smi"].status in ("ok", "no-devices") and on_bus != len(listed) and not split:
        out.append(f"count: {on_bus} cards on the PCI bus, {len(listed)} in brsmi")
    driver = components.get("driver", ComponentFact())
    if driver.loaded and driver.runtime and driver.loaded != driver.runtime:
        out.append(f"driver: {driver.loaded} is loaded, brsmi reports {driver.runtime}")
    entries = readings["dkms"].more.get("modules") if "dkms" in readings else None
    found = {
        str(entry["version"])
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and entry.get("kernel") in (seen.os.kernel, "")
    }
    if driver.loaded:
        for version in sorted(found - {driver.loaded}):
            out.append(f"driver: DKMS holds {version}, not {driver.loaded}: the next boot may load it")
    for item in listed:
        if item.get("health") == "critical":
            out.append(f"card {item.get('index')}: {item.get('ecc_uncorrected')} uncorrectable ECC errors")
    return out
