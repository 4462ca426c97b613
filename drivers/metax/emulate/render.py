"""How mx-smi writes its answers: values in, text out. The layouts follow public captures of 2.1.6 to 2.3.1."""

from __future__ import annotations

import json

RULE3 = "+------------------------------------+---------------------+----------------------+"
RULE4 = "+------------------+-----------------+---------------------+----------------------+"
WIDE = "+" + "-" * 81 + "+"
NAMES = {"mx-smi": ("MX-SMI", "MACA", "MetaX"), "ht-smi": ("HT-SMI", "HPCC", "Mars")}


def generation(smi):
    """A to 2.1.6, B to 2.2.4, C to 2.2.8, D from there on."""
    number = tuple(int(part) for part in smi.split(".")[:3])
    if number <= (2, 1, 6):
        return "A"
    if number <= (2, 2, 4):
        return "B"
    return "C" if number <= (2, 2, 8) else "D"


def first_line(program, smi):
    return f"{program}  version: {smi}\n"


def log_head(program, timestamp, attached, gap=True):
    word = NAMES[program][2]
    line = f"=================== {word} System Management Interface Log ===================\n"
    blank = "\n" if gap else ""
    return f"{line}{'Timestamp':<50}: {timestamp}\n{blank}{'Attached GPUs':<50}: {attached}\n"


def _row(cells):
    return "| " + " | ".join(cells) + " |\n"


def _ends(left, right, width):
    return left + str(right).rjust(width - len(left))


def _banner(program, smi, driver, toolkit, firmware, column):
    tool, sdk, _ = NAMES[program]
    one = f"| {tool} {smi}".ljust(column) + f"Kernel Mode Driver Version: {driver}"
    two = f"| {sdk} Version: {toolkit}".ljust(column) + f"BIOS Version: {firmware}"
    return one.ljust(82) + "|\n" + two.ljust(82) + "|\n"


def table(program, smi, driver, toolkit, firmware, cards):
    """The banner and one block a card: {index, board, name, bus_id, temperature, power, limit, used, total, …}."""
    form = generation(smi)
    body = _card_d if form == "D" else _card_c if form == "C" else _card_ab
    rule = RULE4 if form == "D" else RULE3
    out = WIDE + "\n" + _banner(program, smi, driver, toolkit, firmware, 37 if form == "D" else 38)
    end = "|" if form == "D" else "+"
    out += "|" + rule[1:-1] + end + "\n"
    for line in HEADERS[form]:
        out += line + "\n"
    out += "|" + rule[1:-1].replace("-", "=") + "|\n"
    for card in cards:
        out += body(card, form) + rule + "\n"
    return out


HEADERS = {
    "A": (
        "| GPU         NAME                   | Bus-id              | GPU-Util             |",
        "| Temp        Power                  | Memory-Usage        |                      |",
    ),
    "B": (
        "| GPU         NAME                   | Bus-id              | GPU-Util             |",
        "| Temp        Pwr:Usage/Cap          | Memory-Usage        | GPU-State            |",
    ),
    "C": (
        "| GPU     NAME         Persistence-M | Bus-id              | GPU-Util      sGPU-M |",
        "| Temp    Pwr:Usage/Cap         Perf | Memory-Usage        | GPU-State            |",
    ),
    "D": (
        "| Board       Name | GPU   Persist-M | Bus-id              | GPU-Util      sGPU-M |",
        "| Pwr:Usage/Cap    | Temp       Perf | Memory-Usage        | GPU-State            |",
    ),
}


def _memory(card):
    return f"{card['used']}/{card['total']} MiB"


def _power(card):
    return f"{card['power']}W / {card['limit']}W"


def _card_ab(card, form):
    power = f"{card['power']}W" if form == "A" else _power(card)
    state = "" if form == "A" else card["state"]
    return _row(
        [f"{card['index']:<12}{card['name']:<22}", f"{card['bus_id']:<19}", f"{card['utilization']:<20}"]
    ) + _row([f"{card['temperature'] + 'C':<12}{power:<22}", f"{_memory(card):<19}", f"{state:<20}"])


def _card_c(card, form):
    del form
    return _row(
        [
            f"{card['index']:<8}" + _ends(card["name"], card["persistence"], 26),
            f"{card['bus_id']:<19}",
            _ends(card["utilization"], card["sgpu"], 20),
        ]
    ) + _row(
        [
            f"{card['temperature'] + 'C':<8}" + _ends(_power(card), card["perf"], 26),
            f"{_memory(card):<19}",
            f"{card['state']:<20}",
        ]
    )


def _card_d(card, form):
    del form
    return _row(
        [
            _ends(str(card["board"]), card["name"], 16),
            _ends(str(card["index"]), card["persistence"], 15),
            f"{card['bus_id']:<19}",
            _ends(card["utilization"], card["sgpu"], 20),
        ]
    ) + _row(
        [
            f"{_power(card):<16}",
            _ends(card["temperature"] + "C", card["perf"], 15),
            f"{_memory(card):<19}",
            f"{card['state']:<20}",
        ]
    )


def slices(rows):
    """The table of sGPU slices."""
    out = f"{WIDE}\n| {'Sliced GPU':<80}|\n|{RULE3[1:-1]}|\n"
    out += "| Minor    GPU    sGPU-Id    Compute | Vram Quota          | sGPU-Util            |\n"
    out += "|" + RULE3[1:-1].replace("-", "=") + "|\n"
    for row in rows:
        left = f"{row['minor']:<9}{row['gpu']:<7}{row['id']:<11}{row['compute']:<7}"
        out += _row([left, f"{row['quota'] + ' MiB':<19}", f"{row['utilization']:<20}"]) + RULE3 + "\n"
    return out


def processes():
    return (
        f"{WIDE}\n| {'Process:':<80}|\n|  GPU{' ' * 20}PID         Process Name{' ' * 17}GPU Memory     |\n"
        f"|{' ' * 66}Usage(MiB)     |\n|{'=' * 81}|\n|  {'no process found':<79}|\n{WIDE}\n"
    )


def listing(cards):
    """The lines of `-L`: {index, chip, bus_id, reason, uuid, slices}."""
    out = ""
    for card in cards:
        state = f"Not Available({card['reason']})" if card["reason"] else f"Available (UUID: {card['uuid']})"
        out += f"GPU#{card['index']:<5}{card['chip']:<12}{card['bus_id']:<15}{state}\n"
        for part in card.get("slices", ()):
            out += f"  SGPU#{part['id']}   {part['compute']} {part['vram']}   Available (UUID: {part['uuid']}) "
            out += f"{part['name']}\n"
    return out


def section(card, groups):
    """One card of a page: groups of (title, [(label, value)]). A value that ends in a unit has no blank after it."""
    out = f"GPU#{card['index']}  {card['chip']}  {card['bus_id']}\n"
    for title, pairs in groups:
        out += f"    {title}\n"
        for label, value in pairs:
            out += f"        {label:<42}: {value}\n"
    return out


def document(smi, toolkit, driver, timestamp, cards):
    """`-j`: {bus_id, device_id, vbios_version, unavailable_reason, hotspot, utilization, …} a card, in this order."""
    out = {
        "timestamp": timestamp, "smi_version": smi, "maca_version": toolkit, "driver_version": driver,
        "attached_gpus": len(cards),
    }  # fmt: skip
    for card in cards:
        out[card["bus_id"]] = {key: value for key, value in card.items() if key != "bus_id"}
    return json.dumps(out, indent=4) + "\n"


LEGEND = (
    ("X", "Self"),
    ("SYS", "Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)"),
    (
        "NODE",
        "Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node",
    ),
    ("PHB", "Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)"),
    ("PXB", "Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)"),
    ("PIX", "Connection traversing at most a single PCIe bridge"),
    ("MX", "Connection traversing MetaXLink"),
    ("ETH", "Connection traversing Eth"),
    ("NA", "Connection type is unknown"),
)


def topology(rows, node, cpus):
    """`topo -m`: a square of link types with the affinity columns."""
    names = [f"GPU{index}" for index in range(len(rows))]
    head = " " * 8 + "".join(f"{name:<8}" for name in names) + "Node Affinity  CPU Affinity\n"
    out = "Device link type matrix\n" + head
    for name, row in zip(names, rows, strict=False):
        out += f"{name:<8}" + "".join(f"{kind:<8}" for kind in row) + f"{node:<15}{cpus}\n"
    out += "\nLegend:\n" + "".join(f"  {word:<4} = {text}\n" for word, text in LEGEND)
    return out


def monitor(rows):
    """`dmon`: {index, hot, soc, core, power, gpu, used_percent} a card."""
    widths = (3, 3, 7, 12, 13, 5, 3, 4, 4, 7, 4, 3)
    names = ["dev", "die", "hottemp", "drmossoctemp", "drmoscoretemp", "power", "gpu", "vpue", "vpud"]
    names += ["visvram", "vram", "xtt"]
    units = ["idx", "idx", "C", "C", "C", "W", "%", "%", "%", "%", "%", "%"]
    out = "".join(f"{cell:<{width + 1}}" for cell, width in zip(names, widths, strict=False)) + "\n"
    out += "".join(f"{cell:<{width + 1}}" for cell, width in zip(units, widths, strict=False)) + "\n"
    for row in rows:
        cells = [row["index"], 0, row["hot"], row["soc"], row["core"], row["power"], row["gpu"], 0, 0]
        cells += [row["used_percent"], row["used_percent"], 0]
        out += "".join(f"{cell:<{width + 1}}" for cell, width in zip(cells, widths, strict=False)) + "\n"
    return out
