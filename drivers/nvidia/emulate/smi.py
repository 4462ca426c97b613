"""nvidia-smi of a lab node."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
sys.path.insert(0, str(Path(__file__).parent))
import labnode
import node
import render

LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")


def when():
    return time.strftime("%a %b %e %H:%M:%S %Y", time.gmtime())


def say(text, code=0):
    sys.stdout.write(text)
    return code


def fields(card, count, driver):
    """Every field of --query-gpu that this driver knows: name -> bare value."""
    branch = render.major(driver)
    device, vendor = card["pci_id"].split(":")[::-1]
    sub_vendor, sub_device = card["subsystem"].split(":")
    out = {
        "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.000", time.gmtime()),
        "driver_version": driver,
        "count": str(count),
        "name": card["name"],
        "gpu_name": card["name"],
        "index": str(card["index"]),
        "serial": card["serial"] or "[N/A]",
        "gpu_serial": card["serial"] or "[N/A]",
        "uuid": card["uuid"],
        "gpu_uuid": card["uuid"],
        "pci.bus_id": card["bus_id"],
        "gpu_bus_id": card["bus_id"],
        "pci.device_id": f"0x{device}{vendor}".upper().replace("0X", "0x"),
        "pci.sub_device_id": f"0x{sub_device}{sub_vendor}".upper().replace("0X", "0x"),
        "vbios_version": card["vbios"],
        "persistence_mode": "Enabled",
        "pstate": card["pstate"],
        "fan.speed": "[N/A]",
        "memory.total": str(card["total"]),
        "memory.used": str(card["used"]),
        "memory.free": str(card["total"] - card["used"]),
        "utilization.gpu": "0",
        "utilization.memory": "0",
        "temperature.gpu": str(card["temperature"]),
        "power.draw": f"{card['power']:.2f}",
        "power.limit": f"{card['limit']:.2f}",
        "compute_mode": card["compute"],
        "ecc.mode.current": "Enabled",
        "ecc.errors.uncorrected.volatile.total": card["ecc"],
        "retired_pages.pending": "[N/A]",
        "remapped_rows.correctable": "0",
        "remapped_rows.uncorrectable": "1" if card["sick"] else "0",
        "remapped_rows.pending": "Yes" if card["sick"] else "No",
        "remapped_rows.failure": "No",
        "mig.mode.current": card["mig"] if card["mig"] != "N/A" else "[N/A]",
        "inforom.checksum_validation": "valid",
    }
    if branch >= 530:
        out |= {"fabric.state": node.fabric(), "fabric.status": "Success" if node.fabric() == "Completed" else "N/A"}
    if branch >= 570:
        out["gpu_recovery_action"] = "Reset" if card["sick"] else "None"
    if branch >= 595:
        out["kmd_version"] = driver
    return out


def query(text, argv, cards, driver):
    wanted = [field.strip() for field in text.split(",")]
    formats = next((a.split("=", 1)[1] for a in argv if a.startswith("--format=")), "").split(",")
    if "csv" not in formats:
        return say("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n", 2)
    rows = []
    for card in cards:
        known = fields(card, len(cards), driver)
        for field in wanted:
            if field not in known:
                return say(f'Field "{field}" is not a valid field to query.\n\n', 2)
        rows.append([known[field] for field in wanted])
    return say(render.csv(wanted, rows, "noheader" not in formats, "nounits" not in formats))


def sections(card, driver):
    yes = "Yes" if card["sick"] else "No"
    device, vendor = card["pci_id"].split(":")[::-1]
    out = [
        (1, "Product Name", card["name"]),
        (1, "Product Brand", "NVIDIA"),
        (1, "Persistence Mode", "Enabled"),
        (1, "MIG Mode", None),
        (2, "Current", card["mig"]),
        (2, "Pending", card["mig"]),
        (1, "Serial Number", card["serial"] or "N/A"),
        (1, "GPU UUID", card["uuid"]),
        (1, "Minor Number", str(card["index"])),
        (1, "VBIOS Version", card["vbios"]),
    ]
    if render.major(driver) >= 570:
        out.append((1, "GPU Recovery Action", "Reset" if card["sick"] else "None"))
    out += [
        (1, "GSP Firmware Version", driver if node.flavour() == "open" else "N/A"),
        (1, "PCI", None),
        (2, "Device Id", f"0x{device}{vendor}".upper().replace("0X", "0x")),
        (2, "Bus Id", card["bus_id"]),
        (1, "Fan Speed", "N/A"),
        (1, "Performance State", card["pstate"]),
        (1, "FB Memory Usage", None),
        (2, "Total", f"{card['total']} MiB"),
        (2, "Used", f"{card['used']} MiB"),
        (2, "Free", f"{card['total'] - card['used']} MiB"),
        (1, "ECC Mode", None),
        (2, "Current", "Enabled"),
        (2, "Pending", "Enabled"),
        (1, "ECC Errors", None),
        (2, "Volatile", None),
        (3, "SRAM Correctable", "0"),
        (3, "SRAM Uncorrectable Parity", "0"),
        (3, "DRAM Correctable", "0"),
        (3, "DRAM Uncorrectable", card["ecc"]),
        (1, "Remapped Rows", None),
        (2, "Correctable Error", "0"),
        (2, "Uncorrectable Error", "1" if card["sick"] else "0"),
        (2, "Pending", yes),
        (2, "Remapping Failure Occurred", "No"),
        (1, "Temperature", None),
        (2, "GPU Current Temp", f"{card['temperature']} C"),
        (1, "GPU Power Readings", None),
        (2, "Power Draw", f"{card['power']:.2f} W"),
        (2, "Current Power Limit", f"{card['limit']:.2f} W"),
        (1, "Fabric", None),
        (2, "State", node.fabric()),
        (2, "Status", "Success" if node.fabric() == "Completed" else "N/A"),
        (1, "Processes", "None"),
    ]
    return out


def elements(card, driver):
    yes = "Yes" if card["sick"] else "No"
    tree = {
        "product_name": card["name"],
        "mig_mode": {"current_mig": card["mig"], "pending_mig": card["mig"]},
        "serial": card["serial"] or "N/A",
        "uuid": card["uuid"],
        "minor_number": str(card["index"]),
        "vbios_version": card["vbios"],
    }
    if render.major(driver) >= 570:
        tree["gpu_recovery_action"] = "Reset" if card["sick"] else "None"
    tree |= {
        "gsp_firmware_version": driver if node.flavour() == "open" else "N/A",
        "pci": {"pci_device_id": "".join(card["pci_id"].split(":")[::-1]).upper(), "pci_bus_id": card["bus_id"]},
        "fb_memory_usage": {
            "total": f"{card['total']} MiB",
            "used": f"{card['used']} MiB",
            "free": f"{card['total'] - card['used']} MiB",
        },
        "ecc_errors": {"volatile": {"sram_correctable": "0", "dram_uncorrectable": card["ecc"]}},
        "remapped_rows": {"remapped_row_pending": yes, "remapped_row_failure": "No"},
        "temperature": {"gpu_temp": f"{card['temperature']} C"},
        "gpu_power_readings": {"power_draw": f"{card['power']:.2f} W"},
        "fabric": {"state": node.fabric(), "status": "Success" if node.fabric() == "Completed" else "N/A"},
        "processes": "",
    }
    return tree


def nvlink(cards):
    _, _, count, speed, _ = node.model_row()
    for card in cards:
        card["speeds"] = [speed] * count if count else "Device does not have or support Nvlink"
        if count and node.fabric() == "In Progress":
            card["speeds"] = "NVML: Unable to retrieve NVLink information as all links are inactive"
    return say(render.links(cards))


def main():
    labnode.refuse_outside_lab()
    argv = sys.argv[1:]
    driver, library = node.loaded(), node.userland()
    if not any((Path(folder) / f"libnvidia-ml.so.{library}").is_file() for folder in LIBRARIES) and not node.own().get(
        "userland"
    ):
        return say(render.NO_LIBRARY, 12)
    if driver is None:
        return say(render.NO_DRIVER, 9)
    if driver != library:
        return say(render.mismatch(library), 18)
    cards = node.cards() if node.usable() else []
    if not cards:
        return say(render.NO_DEVICES, 6)
    for card in cards:
        if node.is_lost(card["index"]):
            return say(render.lost(card["bus_id"][4:]), 15)
    picked = next((argv[i + 1] for i, a in enumerate(argv[:-1]) if a in ("-i", "--id")), None)
    shown = [card for card in cards if picked is None or picked in (str(card["index"]), card["uuid"], card["bus_id"])]
    if not shown:
        return say(NO_SUCH.format(picked), 6)
    asked = next((a.split("=", 1)[1] for a in argv if a.startswith("--query-gpu=")), None)
    if asked is not None:
        return query(asked, argv, shown, driver)
    if "-L" in argv or "--list-gpus" in argv:
        return say(render.listing(shown))
    if "--version" in argv:
        return say(render.versions(library, driver, node.cuda()))
    if argv[:1] == ["nvlink"]:
        return nvlink(shown)
    if argv[:1] == ["topo"]:
        _, _, count, _, _ = node.model_row()
        kind = f"NV{count}" if count and node.fabric() != "In Progress" else "SYS"
        return say(render.topology(len(cards), kind))
    if "-q" in argv and "-x" in argv:
        for card in shown:
            card["elements"] = elements(card, driver)
        return say(render.xml(when(), driver, node.cuda(), len(cards), shown))
    if "-q" in argv:
        for card in shown:
            card["sections"] = sections(card, driver)
        return say(render.details(when(), driver, node.cuda(), len(cards), shown))
    if argv and argv[0] not in ("-i", "--id"):
        return say("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n", 2)
    jobs = [
        {
            "index": entry["device"].removeprefix("/dev/nvidia"),
            "pid": entry["pid"],
            "type": "C",
            "name": entry["command"][:36],
            "used": 512,
        }
        for entry in labnode.holders("nvidia")
        if entry["device"].removeprefix("/dev/nvidia").isdigit()
    ]
    return say(render.table(when(), library, driver, node.cuda(), shown, jobs))


NO_SUCH = "No devices were found for the id {}\n"

if __name__ == "__main__":
    sys.exit(main())
