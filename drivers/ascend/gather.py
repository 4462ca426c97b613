"""From the readings of one probe to what an Ascend node is: components, chips, flags, problems.

Three places are kept apart: the version files (installed), npu-smi and upgrade-tool (loaded), and where they differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from drivers.ascend.bus import CHIPS
from drivers.ascend.fault_codes import fault
from drivers.ascend.pairing import pairing
from fleet.core.model import Accelerator, ComponentFact, Health, Item, Json
from fleet.core.vendor import Gathered, PciDevice, Reading, Seen

_WORSE: dict[str, int] = {"unknown": 0, "ok": 1, "warning": 2, "critical": 3, "lost": 4}
_INCOMPLETE = "the driver package is not completely installed"


def is_accelerator(device: PciDevice) -> bool:
    """Class 12xx of vendor 19e5, or one of the chips' device ids (some report another class until the driver loads)."""
    return device.vendor == "19e5" and (device.pci_class.startswith("12") or device.device in CHIPS)


def _ok(readings: Mapping[str, Reading], name: str) -> Reading | None:
    """That reading when it says something; a driver-mismatch still carries its values."""
    reading = readings.get(name)
    return reading if reading is not None and reading.status in ("ok", "driver-mismatch", "not-ready") else None


def _component(readings: Mapping[str, Reading], probe: str, name: str) -> str | None:
    reading = _ok(readings, probe)
    return reading.components.get(name) if reading else None


def _more(readings: Mapping[str, Reading], probe: str, key: str) -> dict[str, Json]:
    reading = _ok(readings, probe)
    value = reading.more.get(key) if reading else None
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _integer(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _check(readings: Mapping[str, Reading], probe: str, name: str) -> str | None:
    reading = readings.get(probe)
    for item in reading.checks if reading else ():
        if item.get("name") == name:
            return _text(item.get("result")) or None
    return None


def _components(seen: Seen) -> dict[str, ComponentFact]:
    readings = seen.readings
    module = next((v for m in ("drv_pcie_host",) if re.fullmatch(r"\d+\.\d[\w.]*", v := seen.modules.get(m, ""))), None)
    loaded_driver = _component(readings, "smi", "driver") or _component(readings, "boards", "driver") or module
    loaded_firmware = _component(readings, "firmware", "firmware") or _component(readings, "boards", "firmware")
    toolkit = _component(readings, "toolkit", "toolkit")
    mcu = _component(readings, "mcu", "mcu")
    out = {
        "driver": ComponentFact(_component(readings, "driver_info", "driver"), loaded_driver),
        "firmware": ComponentFact(_component(readings, "firmware_info", "firmware"), loaded_firmware),
        "toolkit": ComponentFact(toolkit),
        "mcu": ComponentFact(None, mcu),
        "bundle": ComponentFact(_bundle(readings)),
    }
    return {name: fact for name, fact in out.items() if fact.current is not None}


def _bundle(readings: Mapping[str, Reading]) -> str | None:
    """The HDK that both packages on the disk name; None when they name none or differ."""
    named = {
        _text(_more(readings, probe, "settings").get("package_version")) for probe in ("driver_info", "firmware_info")
    }
    return named.pop() or None if len(named) == 1 else None


def _health(words: Iterable[object]) -> Health:
    worst = max((_text(word) or "unknown" for word in words), key=lambda word: _WORSE.get(word, 0), default="unknown")
    return worst if worst in ("ok", "warning", "critical", "lost") else "unknown"  # type: ignore[return-value]


def _firmware_by_chip(readings: Mapping[str, Reading]) -> dict[int, str]:
    reading = _ok(readings, "firmware")
    out: dict[int, str] = {}
    for item in reading.accelerators if reading else ():
        index = _integer(item.get("index"))
        if index is not None:
            out[index] = _text(item.get("firmware"))
    return out


def _model(name: str, pci: PciDevice | None) -> str:
    """What the caller's table knows: the tool's name, or the PCI id where the name is none (A3 prints `Ascend910`)."""
    plain = name.strip()
    if pci is not None and (not plain or plain.lower().replace(" ", "") == "ascend910"):
        return f"{pci.pci_id}/{pci.subsystem}" if pci.subsystem else pci.pci_id
    return plain


def _accelerators(seen: Seen) -> tuple[Accelerator, ...]:
    readings = seen.readings
    bus = {device.bus_id: device for device in seen.pci if is_accelerator(device)}
    smi = _ok(readings, "smi")
    if smi is None or not smi.accelerators:
        return tuple(
            Accelerator("ascend", _model("", device), bus_id=device.bus_id, pci_id=device.pci_id)
            for device in bus.values()
        )
    boards = {_integer(item.get("index")): item for item in _items(readings, "boards")}
    chips = {(_integer(item.get("index")), _integer(item.get("chip"))): item for item in _items(readings, "chips")}
    codes = {(_integer(item.get("index")), _integer(item.get("chip"))): item for item in _items(readings, "health")}
    firmware = _firmware_by_chip(readings)
    per_card: dict[int | None, int] = {}
    for item in smi.accelerators:
        per_card[_integer(item.get("npu"))] = per_card.get(_integer(item.get("npu")), 0) + 1
    out = []
    for item in smi.accelerators:
        npu, chip, index = (_integer(item.get(key)) for key in ("npu", "chip", "index"))
        board, own = boards.get(npu, {}), chips.get((npu, chip), {})
        bus_id = _text(item.get("bus_id")) or _text(board.get("bus_id"))
        device = bus.get(bus_id)
        serial = _text(board.get("serial"))
        if serial and per_card[npu] > 1:
            serial = f"{serial}/{chip}"  # the card's serial is not the die's
        second = codes.get((npu, chip)) or codes.get((npu, None)) or {}
        out.append(
            Accelerator(
                "ascend",
                _model(_text(item.get("name")), device),
                bus_id=bus_id,
                pci_id=device.pci_id if device else _text(board.get("pci_id")),
                index=index,
                uuid=_text(own.get("uuid")).replace(" ", ""),
                serial=serial,
                firmware=firmware.get(index if index is not None else -1, "") or _text(board.get("firmware")),
                memory_mib=_integer(item.get("memory_total_mib")),
                health=_health([item.get("health"), second.get("health")]),
            )
        )
    return tuple(out)


def _items(readings: Mapping[str, Reading], probe: str) -> tuple[Item, ...]:
    reading = _ok(readings, probe)
    return reading.accelerators if reading else ()


def _flags(seen: Seen, components: Mapping[str, ComponentFact]) -> dict[str, Json]:
    readings = seen.readings
    out: dict[str, Json] = {}
    floor = _ok(readings, "floor")
    if floor is not None:
        if "hw_base_version" in floor.measure:
            out["flash_floor"] = str(floor.measure["hw_base_version"])
        elif _check(readings, "floor", "hw-base-version") == "fail":
            out["flash_floor"] = "crc_error"
    compatibility = _check(readings, "boards", "compatibility")
    if compatibility:
        out["compatibility"] = compatibility
    ranges = {name: _more(readings, name, "ranges") for name in ("driver_info", "firmware_info")}
    driver, firmware = components.get("driver"), components.get("firmware")
    if driver and firmware and driver.current and firmware.current:
        out["pairing"] = pairing(
            driver.current,
            firmware.current,
            _pairs(ranges["driver_info"].get("firmware")),
            _pairs(ranges["firmware_info"].get("driver")),
        )
    packages = _more(readings, "packages", "packages")
    kinds: dict[str, Json] = {}
    if _ok(readings, "packages"):
        for name in ("driver", "firmware"):
            package = packages.get(name)
            fact = components.get(name)
            if isinstance(package, dict):
                kinds[name] = package.get("kind")
            elif fact and fact.installed:
                kinds[name] = "run"
    if kinds:
        out["delivery_kind"] = kinds
    settings = _more(readings, "install_info", "settings")
    if settings.get("UserName"):
        out["install_user"] = settings["UserName"]
    pod = _ok(readings, "spod")
    if pod and "super_pod_id" in pod.measure:
        out["superpod"] = str(pod.measure["super_pod_id"])
        out["superpod_size"] = pod.measure.get("super_pod_size")
        out["superpod_server"] = pod.measure.get("server_index")
    return out


def _pairs(value: Json | None) -> list[list[str]]:
    pairs = value if isinstance(value, list) else []
    return [[str(end) for end in pair] for pair in pairs if isinstance(pair, list) and len(pair) == 2]


def _problems(seen: Seen, components: Mapping[str, ComponentFact], flags: Mapping[str, Json]) -> tuple[str, ...]:
    readings, out = seen.readings, []
    on_bus = sum(is_accelerator(device) for device in seen.pci)
    smi = readings.get("smi")
    listed = len(smi.accelerators) if smi and smi.status == "ok" else None
    if listed is not None and on_bus and listed != on_bus:
        out.append(f"npu-smi lists {listed} chips, the PCI bus has {on_bus}")
    files = readings.get("driver_info")
    if smi is not None and smi.status != "ok" and files is not None and files.status == "ok":
        out.append(f"npu-smi does not answer ({smi.status}) although a driver is installed")
    if files is not None and files.status == "failed" and (_more(readings, "install_info", "settings")):
        out.append("install.info is there and driver/version.info is not: a broken uninstall")
    if "fail" in (
        _check(readings, "smi", "driver-install-complete"),
        _check(readings, "install_info", "driver-install-complete"),
    ):
        out.append(_INCOMPLETE)
    since = _more(readings, "since", "changes")
    for name in ("driver", "firmware"):
        fact = components.get(name)
        if fact and fact.pending and since.get(name) is False:
            out.append(
                f"{name}/version.info says {fact.installed} but {fact.loaded} runs, and nothing was installed since"
                " the boot: the file is not to be trusted"
            )
    module = _component(readings, "module", "driver")
    driver = components.get("driver")
    if module and driver and driver.installed and module != driver.installed:
        out.append(f"driver/version.info says {driver.installed} but the module on the disk is {module}")
    if _check(readings, "firmware", "firmware-uniform") == "fail":
        out.append("the chips run different firmware")
    if (boards := readings.get("boards")) and boards.status == "device-lost":
        out.append("a card that npu-smi lists does not answer")
    kinds = flags.get("delivery_kind")
    if isinstance(kinds, dict) and len({str(kind) for kind in kinds.values()}) > 1:
        out.append("driver and firmware were delivered as different kinds of package")
    if flags.get("compatibility") == "fail":
        out.append("npu-smi calls driver and firmware incompatible")
    if flags.get("flash_floor") == "crc_error":
        out.append("a chip's flash floor cannot be read (crc_error): every installer will refuse")
    return tuple(out)


def gather(seen: Seen) -> Gathered:
    """What the vendor sees on one node."""
    components = _components(seen)
    flags = _flags(seen, components)
    health = _ok(seen.readings, "health")
    faults: list[Item] = []
    for item in health.faults if health else ():
        known = fault(_text(item.get("code")))
        faults.append({**item, "severity": known.severity, "action": known.action, "text": known.text})
    return Gathered(
        components=components,
        accelerators=_accelerators(seen),
        flags=flags,
        problems=_problems(seen, components, flags),
        faults=tuple(faults),
    )
