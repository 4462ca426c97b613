"""mx-smi for the lab: the read pages, flashing and reset, on the node's emulated cards."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
sys.path.insert(0, str(Path(__file__).parent))
import labnode
import node
import render

PROGRAM = "mx-smi"
SECONDS_A_CARD = 70  # of flashing; the tool's own limit of 60 s is too short even for one
WARM_RESET = ("R5300 G6",)  # servers on which a warm reset is certified
VALUED = {"-i", "--index", "-t", "--timelimit", "-u", "-U", "--force-vbios-flash", "--dump-vbios", "-c"}
PLAIN = {
    "-L", "--list", "-j", "--json", "-r", "--reset", "-y", "--yes", "--show-version", "--show-hwinfo", "--show-sn",
    "--show-temperature", "--show-pcie", "--show-memory", "--show-ecc-state", "--count-ecc", "--show-board-power",
    "--show-process", "--show-unavailable-reason", "--show-vbios", "topo", "-m", "dmon",
}  # fmt: skip


def parse(argv):
    """Option -> value; None when an argument is not known."""
    out, left = {}, list(argv)
    while left:
        word = left.pop(0)
        if word in VALUED and left:
            out[word] = left.pop(0)
        elif word in PLAIN:
            out[word] = ""
        else:
            print(f"PARSE ERROR: Argument: {word}\n             Couldn't find match for argument\n")
            print(f"For complete USAGE and HELP type: \n   {PROGRAM} --help")
            return None
    return out


def now():
    return time.strftime("%a %b %e %H:%M:%S %Y")


def chosen(options):
    cards = node.cards()
    wanted = options.get("-i", options.get("--index", "all"))
    if wanted == "all":
        return cards
    named = set(wanted.split(","))
    return [c for c in cards if str(c["index"]) in named or c["uuid"] in named or c["bus_id"] in named]


def head(cards):
    return render.first_line(PROGRAM, node.tool_version()) + "\n" + render.log_head(PROGRAM, now(), len(cards))


def page(options, groups):
    cards = chosen(options)
    out = head(node.cards())
    for card in cards:
        out += render.section(card, groups(card))
    sys.stdout.write(out + "\nEnd of Log\n")
    return 0


def table():
    cards = node.cards()
    vbios = {card["vbios"] for card in cards}
    text = head(cards) + render.table(
        PROGRAM, node.tool_version(), node.loaded(), node.toolkit(), sorted(vbios)[0] if vbios else "N/A", cards
    )
    sys.stdout.write(text + "\n" + render.processes() + "\nEnd of Log\n")
    return 0


def versions(card):
    vbios = card["vbios"]
    core = ".".join([*vbios.split(".")[:2], "0", "0"])
    pairs = [("MACA", node.toolkit()), ("BIOS", vbios), ("KMD", node.loaded()), ("SMP0", vbios), ("SMP1", vbios)]
    pairs += [(f"CCX{i}", core) for i in range(3)] + [("VR0", "0.13.0.5"), ("VR1", "0.13.0.5"), ("MCU", "1.2.6.0")]
    return [("Version", [(label, f"{value} ") for label, value in pairs])]


def hardware(card):
    pairs = [
        ("Model Name", f"MetaX {card['model']}"), ("Chip Name", card["chip"]),
        ("Manufacturer", "MetaX Integrated Circuites"), ("Board Serial Number", card["serial"]),
        ("Board Part Number", "702-M01301"), ("Chip Serial Number", f"TP0000_00_0_{card['index']}"),
        ("Memory Type", "HBM2e"), ("Memory Capacity", f"{card['total'] // 1024}GB"),
    ]  # fmt: skip
    return [("Hardware Info", [(label, f"{value} ") for label, value in pairs])]


def temperatures(card):
    hot = float(card["temperature"])
    board = [
        ("DrMOS_soc", hot - 7),
        ("DrMOS_core", hot - 9),
        ("tdiode", hot - 5),
        ("air-inlet", 27),
        ("air-outlet", 31),
    ]
    return [
        ("Chip Temperature", [("hotspot(sensor3)", f"{hot:6.2f} C")]),
        ("Board Temperature", [(label, f"{value:6.2f} C") for label, value in board]),
    ]


def pcie(card):
    del card
    pairs = [("Current Speed", "32 GT/s"), ("Current Width", "x16 "), ("Max Speed", "32 GT/s"), ("Max Width", "x16 ")]
    return [("Pcie Info", pairs)]


def memory(card):
    total, used = card["total"] * 1024, card["used"] * 1024
    return [("Memory", [("vram total", f"{total} KB"), ("vram used", f"{used} KB")])]


def errors(card):
    del card
    counts = [f"{kind} {what}" for kind in ("SRAM", "DRAM") for what in ("Correctable", "Uncorrectable")]
    return [("ECC Errors", [(name, "0 ") for name in counts]), ("Retired Pages", [("Double Bit ECC", "0 ")])]


PAGES = {
    "--show-version": versions,
    "--show-hwinfo": hardware,
    "--show-temperature": temperatures,
    "--show-pcie": pcie,
    "--show-memory": memory,
    "--show-ecc-state": lambda _: [("Ecc state", [("state", "Enable ")])],
    "--count-ecc": errors,
    "--show-sn": lambda card: [("Serial Number", [("Chip Serial Number", f"TP0000_00_0_{card['index']} ")])],
    "--show-vbios": lambda _: [("Vbios Info", [("SRIOV", "Not Support ")])],
    "--show-board-power": lambda card: [
        ("Board Power", [("Total", f"{float(card['power']):.3f} W"), ("Limit", f"{float(card['limit']):.3f} W")])
    ],
    "--show-unavailable-reason": lambda card: [("Unavailable Reason", [("reason", f"{card['reason']} ")])],
}


def document(cards):
    entries = [
        {
            "bus_id": card["bus_id"], "device_id": card["index"], "vbios_version": card["vbios"],
            "unavailable_reason": card["reason"], "hotspot": f"{float(card['temperature']):.3f}", "utilization": 0,
            "clocks": {"XCORE": 1125, "MC": 1800, "VPUE": 535, "VPUD": 525},
            "ras_count": {"uncorrected_error": {}, "corrected_error": {}},
            "pci_event_info": {"aer_ue": [], "aer_ce": [], "synfld": [], "dbe": [], "mmio": []},
            "sgpu_count": 0, "sgpu_info": [],
        }
        for card in cards
    ]  # fmt: skip
    text = render.document(node.tool_version(), node.toolkit(), node.loaded(), now(), entries)
    sys.stdout.write(render.first_line(PROGRAM, node.tool_version()) + text)
    return 0


def topology(cards):
    half = (len(cards) + 1) // 2  # MetaXLink joins the cards of one half of the board
    rows = [
        ["X" if i == j else "MX" if i // half == j // half else "NODE" for j in range(len(cards))]
        for i in range(len(cards))
    ]
    sys.stdout.write(render.log_head(PROGRAM, now(), len(cards)) + render.topology(rows, 0, "0-31,64-95"))
    return 0


def monitor(cards):
    rows = [
        {
            "index": c["index"], "hot": c["temperature"], "soc": 31, "core": 29, "power": c["power"], "gpu": 0,
            "used_percent": 1,
        }
        for c in cards
    ]  # fmt: skip
    sys.stdout.write(render.monitor(rows))
    return 0


def read_image(path):
    """version and chip of a VBIOS file of the lab; None when it is none."""
    try:
        text = Path(path).read_bytes()[:200].decode("ascii", "replace")
    except OSError:
        return None
    match = re.match(r"MXVBIOS\nversion=(\S+)\nchip=(\S+)\n", text)
    return match.groups() if match else None


def refuse(text):
    print(text)
    return 1


def flash(options, path, forced):
    image = read_image(path)
    if image is None:
        return refuse(f"vbios file {path} is not valid")
    version, chip = image
    if chip != node.model():
        return refuse(f"vbios file is for {chip}, the device is {node.model()}")
    if labnode.holders("metax"):
        return refuse("device is busy, please stop all processes that use it first")
    targets = [card["index"] for card in chosen(options)]
    if forced and "-i" not in options and "--index" not in options:
        return refuse("the device must be specified by -i, --index")
    limit = int(options.get("-t", options.get("--timelimit", "60")))
    if labnode.fault("flash-timeout") or limit < SECONDS_A_CARD * len(targets):
        return refuse(f"upgrade vbios timeout, time limit is {limit}s")
    state = labnode.state()
    done = [c["index"] for c in state["cards"] if c["index"] in targets and node.flash(c)["installed"] == version]

    def write(document):
        for card in document["cards"]:
            if card["index"] in targets:
                node.flash(card)["installed"] = version

    labnode.update(write)
    for index in targets:
        if index not in done:
            labnode.effect("flash", component="firmware", version=version, card=index)
        print(f"GPU#{index} upgrade vbios to {version} success, please reset device or reboot")
    return 0


def dump(options, path):
    cards = labnode.state()["cards"]
    wanted = [card["index"] for card in chosen(options)]
    card = next((c for c in cards if c["index"] in wanted), None)
    if card is None:
        return refuse("no such device")
    Path(path).write_bytes(f"MXVBIOS\nversion={node.flash(card)['running']}\nchip={node.model()}\n".encode())
    print(f"GPU#{card['index']} dump vbios to {path} success")
    return 0


def reset(options):
    if "-y" not in options and "--yes" not in options:
        print("Warm reset will interrupt all work on the device, continue? [y/N] ", end="")
        if (sys.stdin.readline() or "n").strip().lower() != "y":
            print()
            return 0
    if labnode.holders("metax"):
        return refuse("device is busy, please stop all processes that use it first")
    server = str(labnode.state().get("dmi", {}).get("product_name", ""))
    if not any(name in server for name in WARM_RESET):
        return refuse("warm reset is not supported on this server, please reboot")

    def activate(document):
        for card in document["cards"]:
            node.flash(card)["running"] = node.flash(card)["installed"]

    labnode.update(activate)
    labnode.effect("reset", component="firmware")
    print("reset success")
    return 0


def main():
    labnode.refuse_outside_lab()
    options = parse(sys.argv[1:])
    if options is None:
        return 1
    if not node.loaded():
        print(f"{render.first_line(PROGRAM, node.tool_version())}MetaX Kernel Driver Not Found")
        return 1
    for option in ("-u", "-U", "--force-vbios-flash"):
        if option in options:
            return flash(options, options[option], forced=option != "-u")
    if "--dump-vbios" in options:
        return dump(options, options["--dump-vbios"])
    if "-r" in options or "--reset" in options:
        return reset(options)
    if "-L" in options or "--list" in options:
        sys.stdout.write(render.first_line(PROGRAM, node.tool_version()) + render.listing(chosen(options)))
        return 0
    if "-j" in options or "--json" in options:
        return document(node.cards())
    if "topo" in options:
        return topology(node.cards())
    if "dmon" in options:
        return monitor(node.cards())
    if "--show-process" in options:
        sys.stdout.write(head(node.cards()) + "\n" + render.processes() + "\nEnd of Log\n")
        return 0
    for option, groups in PAGES.items():
        if option in options:
            return page(options, groups)
    return table()


if __name__ == "__main__":
    sys.exit(main())
