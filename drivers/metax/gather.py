"""From the readings of one probe to what the node has."""

from __future__ import annotations

from collections.abc import Mapping

from drivers.metax.artifacts import chip
from drivers.metax.tables import KMD_OF
from fleet.core.model import Accelerator, ComponentFact, Health, Item, Json
from fleet.core.vendor import Gathered, PciDevice, Reading, Seen

# 9999 is MetaX; 2020 and 3030 are the ids of the library's OEM build (libmxsml 2.2.8, InitVendorId).
PCI_VENDORS = frozenset({"9999", "2020", "3030"})
# Virtual functions (libmxsml 2.2.8, c_deviceNameMap): a slice of a card, not a card.
_VIRTUAL = frozenset({
    "0a18", "0a19", "0a1b", "409b", "4099", "4098", "4019", "4058", "4029", "4018", "401c", "401e", "4038", "7819",
    "7899",
})  # fmt: skip
_HEALTH: dict[str, Health] = {"ok": "ok", "critical": "critical", "warning": "warning"}


def is_accelerator(device: PciDevice) -> bool:
    """A physical card: display (03) or processing accelerator (12) class, and no virtual function."""
    return (
        device.vendor in PCI_VENDORS
        and device.pci_class[:2] in ("03", "12")
        and device.device not in _VIRTUAL
    )  # fmt: skip


def gather(seen: Seen) -> Gathered:
    """Components, cards, flags and problems. What no reading says is not claimed."""
    readings = seen.readings
    cards = _cards(seen)
    components = _components(seen)
    packages = _packages(readings)
    flags: dict[str, Json] = {}
    train = _train(packages)
    if train:
        flags["driver_package"] = train
    if any(item.get("sgpu") == "Enabled" for item in _items(readings, "smi")):
        flags["sgpu"] = True
    faults = readings["log"].faults if "log" in readings else ()
    return Gathered(components, cards, flags, tuple(_problems(seen, components, cards, packages)), faults)


def _items(readings: Mapping[str, Reading], name: str) -> tuple[Item, ...]:
    return readings[name].accelerators if name in readings else ()


def _said(readings: Mapping[str, Reading], name: str, component: str) -> str | None:
    return readings[name].components.get(component) if name in readings else None


def _packages(readings: Mapping[str, Reading]) -> dict[str, str]:
    raw = readings["packages"].more.get("packages") if "packages" in readings else None
    return {name: str(version) for name, version in raw.items()} if isinstance(raw, dict) else {}


def _train(packages: Mapping[str, str]) -> str:
    """Version of the driver package without the distribution's revision."""
    raw = packages.get("metax-driver") or packages.get("metax-linux") or ""
    return raw.partition("-")[0]


def _components(seen: Seen) -> dict[str, ComponentFact]:
    readings = seen.readings
    loaded = seen.modules.get("metax") or _said(readings, "kmd", "driver")
    installed = _said(readings, "module_file", "driver") or KMD_OF.get(_train(_packages(readings)))
    toolkit = _said(readings, "toolkit", "toolkit")
    named = {
        "driver": ComponentFact(installed, loaded, _said(readings, "smi", "driver")),
        "firmware": ComponentFact(installed=_said(readings, "flashed", "firmware"), loaded=_firmware(readings)),
        "mcu": ComponentFact(loaded=_said(readings, "version", "mcu")),
        "toolkit": ComponentFact(installed=toolkit, runtime=_said(readings, "smi", "toolkit")),
    }
    return {name: fact for name, fact in named.items() if fact != ComponentFact()}


def _firmware(readings: Mapping[str, Reading]) -> str | None:
    """The VBIOS that all cards run. The page of versions names each card; the banner names one for all."""
    if "version" in readings and readings["version"].accelerators:
        found = {str(item["firmware"]) for item in readings["version"].accelerators if item.get("firmware")}
        return found.pop() if len(found) == 1 else None
    return _said(readings, "smi", "firmware")


def _cards(seen: Seen) -> tuple[Accelerator, ...]:
    """One entry for each card on the bus; cards that only the tool names come after them."""
    merged: dict[str, dict[str, Json]] = {}
    devices = {device.bus_id: device for device in seen.pci if is_accelerator(device)}
    for bus in sorted(devices):
        merged[bus] = {}
    for name in ("list", "version", "hwinfo", "smi"):
        for item in _items(seen.readings, name):
            bus = str(item.get("bus_id", ""))
            if bus:
                merged.setdefault(bus, {}).update({k: v for k, v in item.items() if v is not None})
    out = []
    for bus, item in merged.items():
        index, memory = item.get("index"), item.get("memory_total_mib")
        name = str(item.get("name", ""))
        out.append(
            Accelerator(
                vendor="metax",
                model=chip(name) if name else "",
                bus_id=bus,
                pci_id=devices[bus].pci_id if bus in devices else "",
                index=index if isinstance(index, int) else None,
                uuid=str(item.get("uuid", "")),
                serial=str(item.get("serial", "")),
                firmware=str(item.get("firmware", "")),
                memory_mib=memory if isinstance(memory, int) else None,
                health=_HEALTH.get(str(item.get("health", "")), "unknown"),
            )
        )
    return tuple(out)


def _problems(
    seen: Seen, components: Mapping[str, ComponentFact], cards: tuple[Accelerator, ...], packages: Mapping[str, str]
) -> list[str]:
    out: list[str] = []
    readings = seen.readings
    if any(reading.status == "driver-mismatch" for reading in readings.values()):
        out.append("driver_vbios: the vendor's check says that driver and VBIOS do not fit each other")
    on_bus = sum(1 for device in seen.pci if is_accelerator(device))
    listed = _items(readings, "smi") or _items(readings, "list")
    tool_ran = any(name in readings and readings[name].status in ("ok", "no-devices") for name in ("smi", "list"))
    if tool_ran and on_bus != len(listed):
        out.append(f"count: {on_bus} cards on the PCI bus, {len(listed)} in mx-smi")
    for item in listed:
        if item.get("reason"):
            out.append(f"card {item.get('index')} is not available: {item['reason']}")
    driver = components.get("driver", ComponentFact())
    if driver.loaded and driver.runtime and driver.loaded != driver.runtime:
        out.append(f"driver: {driver.loaded} is loaded, mx-smi reports {driver.runtime}")
    firmware = {card.firmware for card in cards if card.firmware}
    if len(firmware) > 1:
        out.append(f"firmware: the cards run different versions: {', '.join(sorted(firmware))}")
    train = KMD_OF.get(_train(packages))
    if train and driver.installed and train != driver.installed:
        out.append(f"driver: the package holds KMD {train}, the module file is {driver.installed}")
    return out + _leftovers(seen, driver)


def _leftovers(seen: Seen, driver: ComponentFact) -> list[str]:
    """Builds in the DKMS tree for the running kernel that are not the loaded driver: the next boot may take them."""
    entries = seen.readings["dkms"].more.get("modules") if "dkms" in seen.readings else None
    found = {
        str(entry["version"])
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and entry.get("name") == "metax" and entry.get("kernel") in (seen.os.kernel, "")
    }
    wrong = sorted(found - {driver.loaded, driver.installed})
    return [f"driver: DKMS also holds {version}, which is not loaded" for version in wrong] if driver.loaded else []
