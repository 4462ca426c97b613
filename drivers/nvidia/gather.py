"""From the readings of one probe to components, cards, flags and problems. Three values of a version, never merged."""

from __future__ import annotations

from collections.abc import Mapping

from drivers.nvidia import catalogue, naming
from fleet.core.model import Accelerator, ComponentFact, Health, Item, Json
from fleet.core.vendor import Gathered, PciDevice, Reading, Seen

# Bridges of HGX boards. B200 and later show their switches through ConnectX bridge functions instead.
SWITCH_IDS = frozenset({"10de:1ac2", "10de:1af1", "10de:22a3"})
_FOREIGN_OK = frozenset({"", "nvidia", "vfio-pci"})


def is_accelerator(device: PciDevice) -> bool:
    """A display or 3D controller of NVIDIA's; audio, USB and bridges of the same vendor are none."""
    return device.vendor == "10de" and device.pci_class[:4] in ("0300", "0302")


def gather(seen: Seen) -> Gathered:
    """Everything that one probe of a node says about NVIDIA."""
    readings = seen.readings
    gpus = [device for device in seen.pci if is_accelerator(device)]
    problems: list[str] = []
    installed = _installed(readings, problems)
    loaded = _loaded(seen)
    flavour_loaded = readings["proc_version"].components.get("driver_flavour") if "proc_version" in readings else None
    module = _component(readings, "modinfo", "driver")
    facts: dict[str, ComponentFact] = {}
    driver_installed = installed.get("driver") or module
    runtime = _component(readings, "table", "smi")
    if driver_installed or loaded or runtime:
        facts["driver"] = ComponentFact(installed=driver_installed, loaded=loaded, runtime=runtime)
    flavour_installed = _component(readings, "modinfo", "driver_flavour")
    if flavour_loaded or flavour_installed:
        facts["driver_flavour"] = ComponentFact(installed=flavour_installed, loaded=flavour_loaded)
    if "fabricmanager" not in installed:
        said = _component(readings, "fabricmanager", "fabricmanager")
        if said:
            installed["fabricmanager"] = said
    toolkit = _component(readings, "toolkit", "toolkit")
    if toolkit:
        installed["toolkit"] = toolkit
    for name in ("fabricmanager", "nscq", "nvsdm", "nvlsm", "imex", "dcgm", "container_toolkit", "toolkit", "gdrcopy"):
        if name in installed:
            facts[name] = ComponentFact(installed=installed[name])
    nvswitch = any(device.pci_id in SWITCH_IDS for device in seen.pci) or bool(
        readings["switches"].more.get("switches") if "switches" in readings else False
    )
    cards, fabric = _cards(gpus, readings, loaded, problems)
    flags: dict[str, Json] = {"nvswitch": nvswitch}
    if fabric:
        flags["fabric_state"] = fabric
    _judge(seen, gpus, facts, module, nvswitch, fabric, problems)
    faults = tuple(_fault(entry) for name in ("table", "kernel_log") for entry in _faults(readings, name))
    return Gathered(components=facts, accelerators=cards, flags=flags, problems=tuple(problems), faults=faults)


def _component(readings: Mapping[str, Reading], probe: str, name: str) -> str | None:
    reading = readings.get(probe)
    return reading.components.get(name) if reading is not None else None


def _faults(readings: Mapping[str, Reading], probe: str) -> tuple[Item, ...]:
    reading = readings.get(probe)
    return reading.faults if reading is not None else ()


def _fault(entry: Item) -> Item:
    severity, action = catalogue.judged(dict(entry))
    # How often a line stands in a ring buffer is a counter, not a fact.
    return {**{k: v for k, v in entry.items() if k != "count"}, "severity": severity, "action": action}


def _installed(readings: Mapping[str, Reading], problems: list[str]) -> dict[str, str]:
    """component -> version of its package. Several packages of one component must agree."""
    found: dict[str, dict[str, str]] = {}
    for probe in ("dpkg", "rpm"):
        packages = readings[probe].more.get("packages") if probe in readings else None
        if not isinstance(packages, dict):
            continue
        for name, text in packages.items():
            component = naming.component_of(name)
            if component:
                found.setdefault(component, {})[name] = naming.plain_version(str(text))
    out: dict[str, str] = {}
    for component, names in found.items():
        versions = sorted(set(names.values()))
        preferred = next((name for name in names if naming.artifact_component(name) == component), min(names))
        out[component] = names[preferred]
        if len(versions) > 1:
            listed = ", ".join(f"{name} {version}" for name, version in sorted(names.items()))
            problems.append(f"packages of {component} have different versions: {listed}")
    return out


def _loaded(seen: Seen) -> str | None:
    said = _component(seen.readings, "proc_version", "driver")
    return said or seen.modules.get("nvidia") or None


def _cards(
    gpus: list[PciDevice], readings: Mapping[str, Reading], loaded: str | None, problems: list[str]
) -> tuple[tuple[Accelerator, ...], str]:
    """The cards of the PCI bus with what the tool says of each, and the fabric state that all of them share."""
    rows: dict[str, Item] = {}
    usable = False
    gone: set[str] = set()  # by the tool's own word
    for probe in ("table", "cards"):
        reading = readings.get(probe)
        if reading is None:
            continue
        # With one GPU lost the tool names that one only, and says nothing of the others.
        usable |= probe == "cards" and reading.status in ("ok", "not-ready")
        gone |= {str(row.get("bus_id", "")) for row in reading.accelerators if row.get("health") == "lost"}
        for row in reading.accelerators:
            bus = str(row.get("bus_id", ""))
            rows[bus] = {**rows.get(bus, {}), **row}
    log = readings.get("kernel_log")
    # The log is as old as the boot: a card that the tool lists is there.
    gone |= {
        str(row.get("bus_id", ""))
        for row in (log.accelerators if log is not None else ())
        if row.get("health") == "lost" and not (usable and rows.get(str(row.get("bus_id", ""))))
    }
    cards: list[Accelerator] = []
    for device in sorted(gpus, key=lambda d: d.bus_id):
        row = rows.get(device.bus_id, {})
        said = str(row.get("pci_id", "")) or device.pci_id
        if said != device.pci_id:
            problems.append(f"{device.bus_id}: the PCI bus says {device.pci_id}, nvidia-smi says {said}")
        health = str(row.get("health", "unknown"))
        if device.bus_id in gone or (loaded and usable and not row):
            health = "lost"
        memory, index = row.get("memory_total_mib"), row.get("index")
        by_id = device.pci_id + (f"/{device.subsystem}" if device.subsystem else "")
        cards.append(
            Accelerator(
                vendor="nvidia",
                model=str(row.get("name") or by_id),
                bus_id=device.bus_id,
                pci_id=device.pci_id,
                index=index if isinstance(index, int) else None,
                uuid=str(row.get("uuid", "")),
                serial=str(row.get("serial", "")),
                firmware=str(row.get("vbios", "")),
                memory_mib=int(memory) if isinstance(memory, (int, float)) else None,
                health=_health(health),
            )
        )
    if gone:
        problems.append(f"GPUs are lost: {', '.join(sorted(gone))}")
    strangers = sorted(bus for bus in rows if bus and bus not in {device.bus_id for device in gpus})
    if strangers:
        problems.append(f"nvidia-smi lists GPUs that are not on the PCI bus: {', '.join(strangers)}")
    if usable and len(rows) - len(strangers) < len(gpus):
        problems.append(f"the PCI bus shows {len(gpus)} GPUs, nvidia-smi {len(rows) - len(strangers)}")
    states = sorted({str(row["fabric_state"]) for row in rows.values() if row.get("fabric_state")})
    return tuple(cards), "/".join(states)


def _health(word: str) -> Health:
    for known in ("ok", "warning", "critical", "lost"):
        if word == known:
            return known
    return "unknown"


def _judge(
    seen: Seen,
    gpus: list[PciDevice],
    facts: Mapping[str, ComponentFact],
    module: str | None,
    nvswitch: bool,
    fabric: str,
    problems: list[str],
) -> None:
    driver = facts.get("driver", ComponentFact())
    if driver.pending:
        problems.append(f"driver {driver.installed} is installed, {driver.loaded} is loaded: a reboot is owed")
    if module and driver.installed and module != driver.installed:
        problems.append(f"the module on disk for {seen.os.kernel} is {module}, the package is {driver.installed}")
    if driver.loaded and driver.runtime and driver.loaded != driver.runtime:
        problems.append(f"user space is {driver.runtime}, the loaded module {driver.loaded}")
    for probe in ("table", "cards"):
        reading = seen.readings.get(probe)
        if reading is not None and reading.status == "driver-mismatch":
            problems.append("user-space libraries and kernel module have different versions")
            break
    flavour = facts.get("driver_flavour", ComponentFact())
    if flavour.pending:
        problems.append(f"module flavour {flavour.installed} is installed, {flavour.loaded} is loaded")
    for device in gpus:
        if device.driver not in _FOREIGN_OK:
            problems.append(f"{device.bus_id}: the kernel driver {device.driver} owns the GPU")
    manager = facts.get("fabricmanager")
    if nvswitch and manager is None:
        problems.append("NVSwitches are there and no fabric manager is installed")
    if manager is not None and driver.current and manager.installed != driver.current and not driver.pending:
        problems.append(f"fabric manager {manager.installed} and driver {driver.current} must be equal")
    if nvswitch and fabric and fabric != "Completed":
        problems.append(f"the fabric state is {fabric}, not Completed")
