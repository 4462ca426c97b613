"""npu-smi of a lab node: info, -l, -m, -t TYPE, upgrade -b|-t|-a|-q mcu. Errors go to stdout."""

import fcntl
import json
import os
import sys
import time
from pathlib import Path

import npu_node as node
import npu_text as text
from npu_node import labnode

MCU_LOCK = Path("/run/ascend_mcu.lock")


def fail(code, message):
    """End as npu-smi does."""
    print(message)
    sys.exit(code & 0xFF)


def usage(message):
    fail(-9001, f"{message}\nUsage: npu-smi info <watch|proc|-h|-m|-l|-t type> [Options...]")


def option(args, name, default=None):
    return args[args.index(name) + 1] if name in args[:-1] else default


def word(card):
    return "Alarm" if node.alarmed() == card["index"] else "OK"


def spread(card, base, span):
    """A steady value that differs from card to card."""
    return base + (card["index"] * 7) % span


def table():
    complete = node.file_value("/etc/ascend_install.info", "Driver_Install_Status") == "complete"
    chips = []
    for card in node.cards():
        bus = card["bus_id"]
        chips.append(
            {
                "npu": card["index"], "chip": 0, "name": node.model(), "health": word(card),
                "power": f"{spread(card, 90, 12)}.{card['index'] % 10}", "temp": spread(card, 36, 9), "huge": (0, 0),
                "bus": bus[:5] + bus[5:].upper(), "aicore": 0, "memory": (0, 0),
                "hbm": (3300 + spread(card, 1, 80), node.hbm_mib()),
            }
        )  # fmt: skip
    print(
        text.info(
            node.installed("driver") or node.live_driver(), node.live_driver(), chips,
            processes=[chip["npu"] for chip in chips], warning=not complete,
        ),
        end="",
    )  # fmt: skip


def board(card, chip):
    pci = str(card.get("pci_id", "19e5:d802")).split(":")
    sub = str(card.get("subsystem") or "19e5:3000").split(":")
    ids = [
        ("PCI Vendor ID", f"0x{pci[0].upper()}"),
        ("PCI Device ID", f"0x{pci[1].upper()}"),
        ("Subsystem Vendor ID", f"0x{sub[0].upper()}"),
        ("Subsystem Device ID", f"0x{sub[1].upper()}"),
    ]
    bus = card["bus_id"][:5] + card["bus_id"][5:].upper()
    running = node.firmware(card) or "NA"
    if chip is not None:
        print(
            text.board(
                [
                    ("NPU ID", card["index"]), ("Chip ID", 0), ("Chip Type", "Ascend"), ("Chip Name", node.model()),
                    ("Chip Version", "V1"), ("Board ID", "0x32"), ("PCB ID", "NA"), ("BOM ID", "1"),
                    ("VDie ID", card.get("uuid") or "NA"), ("NDie ID", "NA"), ("Chip Position ID", 0),
                    ("PCIe Bus Info", bus), ("Firmware Version", running),
                ]
            ),
            end="",
        )  # fmt: skip
        return
    print(
        text.board(
            [
                ("NPU ID", card["index"]), ("Product Name", "IT21LABC_Bin1"), ("Model", "NA"),
                ("Manufacturer", "Huawei"), ("Serial Number", card.get("serial") or "NA"),
                ("Software Version", node.live_driver()), ("Firmware Version", running),
                ("Compatibility", node.compatibility(card)), ("Board ID", "0x32"), ("PCB ID", "A"), ("BOM ID", 1),
                ("PCIe Bus Info", bus), ("Slot ID", 0), ("Class ID", "NA"), *ids, ("Chip Count", 1),
            ]
        ),
        end="",
    )  # fmt: skip


def health(card, chip):
    bad = node.alarmed() == card["index"]
    if chip is not None:
        print(text.health(word(card), [node.ALARM[0]] if bad else [], [node.ALARM[1]] if bad else []), end="")
        return
    print(
        text.lines([("NPU ID", card["index"]), ("Chip Count", 1), None, ("Health", word(card)), ("Chip ID", 0), None])
    )


def usages(card):
    rows = [("DDR Capacity(MB)", 0), ("DDR Usage Rate(%)", 0), ("HBM Capacity(MB)", node.hbm_mib())]
    rows += [("HBM Usage Rate(%)", 5), ("Aicore Usage Rate(%)", 0), ("Aicpu Usage Rate(%)", 0)]
    rows += [("Ctrlcpu Usage Rate(%)", 0), ("HBM Bandwidth Usage Rate(%)", 0)]
    print(text.lines([("NPU ID", card["index"]), ("Chip Count", 1), None, *rows, ("Chip ID", 0), None]))


def common(card):
    rows = [("Memory Usage Rate(%)", 0), ("HBM Usage Rate(%)", 5), ("Aicore Usage Rate(%)", 0)]
    rows += [("Aicore Freq(MHZ)", 1800), ("Aicore curFreq(MHZ)", 800), ("Aicore Count", 20)]
    rows += [("Temperature(C)", spread(card, 36, 9)), ("NPU Real-time Power(W)", f"{spread(card, 90, 12)}.0")]
    print(text.lines([("NPU ID", card["index"]), ("Chip Count", 1), None, ("Chip ID", 0), *rows]), end="")


def ecc(card):
    kinds = ("Error Count", "Aggregate Total Err Cnt", "Isolated Pages Count", "Next-Isolated Pages Count")
    rows = [(f"HBM {bit} Bit {kind}", 0) for kind in kinds for bit in ("Single", "Double")]
    print(text.lines([("NPU ID", card["index"]), ("Chip Count", 1), None, *rows, ("Chip ID", 0), None], 40))


def hccs(card):
    others = len(labnode.state().get("cards", [])) - 1
    if others < 1:
        fail(-9255, "This device does not support querying hccs.")
    slow = labnode.fault("hccs-degraded") and card["index"] == 0
    lanes = [2 if slow and i == 0 else 4 for i in range(others)]
    print(
        text.hccs(
            "NOK" if slow else "OK", lanes, [56 * n for n in lanes], [0] * others, [0] * others, 0 if slow else "NA"
        ),
        end="",
    )


def topo():
    cards = node.cards()
    names = [f"NPU{card['index']}" for card in cards]
    print(text.topo(names, "HCCS", {name: f"{24 * i}-{24 * i + 23}" for i, name in enumerate(names)}), end="")


def query(args):
    kind = option(args, "-t")
    if kind == "topo":
        return topo()
    number = option(args, "-i")
    card = next((c for c in node.cards() if str(c["index"]) == number), None)
    if card is None:
        usage("Invalid card id.\nError parameter of -i")
    chip = option(args, "-c")
    if chip is not None and chip != "0":
        usage("Invalid chip id.\nError parameter of -c")
    per_card = {"usages": usages, "common": common, "ecc": ecc, "hccs": hccs}
    if kind in per_card:
        return per_card[kind](card)
    if kind in ("board", "health"):
        return {"board": board, "health": health}[kind](card, chip)
    if kind in ("product", "spod-info"):
        fail(-9255, f"This device does not support querying {kind}.")
    usage("Error parameter of -t")
    return None


def upgrade(args):
    """One operation on a card's microcontroller; two at once lock each other out."""
    number = option(args, "-i")
    card = next((c for c in node.cards() if str(c["index"]) == number), None)
    if card is None:
        usage("Invalid card id.\nError parameter of -i")
    if "-b" in args:
        print(text.line("Version", node.mcu(card)), end="")
        return
    with MCU_LOCK.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            fail(-8005, "call mcu_get_lock failed. ret is -8005")
        if labnode.fault("mcu-lock"):
            fail(-8005, "call mcu_get_lock failed. ret is -8005")
        if "-q" in args:
            print(text.lines([("Conclusion", "PASS"), ("Schedule", 100)]), end="")
        elif "-t" in args:
            transfer(card, option(args, "-f", ""))
        elif "-a" in args:
            activate(card)
        else:
            usage("Error parameter of upgrade")


def transfer(card, path):
    print("[WARNING]: Do not power off or restart the system during the upgrade.")
    try:
        with Path(path).open("rb") as handle:
            size = len(head := handle.read())
        version = json.loads(head.split(b"\n", 1)[0])["mcu"]
    except (OSError, ValueError, KeyError):
        print(
            text.line("Validity", "fail")
            + text.lines([("Status", "fail"), ("Message", "Start device upgrade fail[1]")])
        )
        sys.exit(1)
    print(text.line("Validity", "success"))
    print(f"file_len({size})--offset({size}) [100].")
    print(text.line("transfile", "successfully"), end="")
    print(text.line("Status", "start to upgrade"), end="")
    time.sleep(0.3)

    def change(state):
        for other in state["cards"]:
            if other["index"] == card["index"]:
                now = node.mcu(other)
                other["flash"]["mcu"] = {"running": now, "installed": version}

    labnode.update(change)
    labnode.effect("flash", component="mcu", version=version, card=card["index"])
    print("Start upgrade [100].")
    print(
        text.lines(
            [("Status", "OK"), ("Message", "Start device upgrade successfully"), ("Message", "need active mcu")]
        ),
        end="",
    )


def activate(card):
    def change(state):
        for other in state["cards"]:
            if other["index"] == card["index"] and node.mcu(other, "installed"):
                other["flash"]["mcu"]["running"] = node.mcu(other, "installed")

    labnode.update(change)
    labnode.effect("activate", component="mcu", card=card["index"])
    message = "The upgrade has taken effect after performed reboot successfully."
    print(text.lines([("Status", "OK"), ("Message", message)]), end="")


def main(args):
    labnode.refuse_outside_lab()
    if os.geteuid() != 0 and args[:1] == ["upgrade"]:
        fail(-9002, "Permission denied, please use root user.")
    if args[:1] in (["-v"], ["--version"]):
        print(f"npu-smi version: {node.installed('driver')}")
        return
    if node.live_driver() is None:
        fail(-8005, "dcmi module initialize failed. ret is -8005")
    if labnode.holders(node.MODULE) and labnode.fault("smi-busy"):
        fail(-8020, "dcmi model initialized failed, because the device is used. ret is -8020")
    if not node.cards():
        fail(-8008, "There is no NPU card on this server.")
    if args[:1] == ["upgrade"]:
        upgrade(args[1:])
    elif args[:1] != ["info"]:
        usage("Error parameter")
    elif "-t" in args:
        query(args[1:])
    elif "-l" in args:
        print(text.card_list([card["index"] for card in node.cards()]))
    elif "-m" in args:
        rows = []
        for logic, card in enumerate(node.cards()):
            rows += [(card["index"], 0, logic, f"Ascend {node.model()}"), (card["index"], 1, "-", "Mcu")]
        print(text.chip_map(rows), end="")
    elif args[1:]:
        usage("Error parameter")
    else:
        table()


if __name__ == "__main__":
    main(sys.argv[1:])
