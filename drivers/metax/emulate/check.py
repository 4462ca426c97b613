"""Holds render.py against captured outputs: `check.py SAMPLES_DIR`. A sample's values are taken out and rendered again.

The last line is `N of N`; exit status 1 when any differs.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import render

BANNER = re.compile(
    r"\| (MX|HT)-SMI (\S+)\s+Kernel Mode Driver Version: (\S+)\s+\|\n"
    r"\| (?:MACA|HPCC) Version: (\S+)\s+BIOS Version: (\S+)\s+\|"
)


CARD_KEYS = ("index", "chip", "bus_id", "uuid", "reason")
SLICE_KEYS = ("id", "compute", "vram", "uuid", "name")


def named(keys, values):
    return dict(zip(keys, values, strict=False))


def heads(text):
    """What stands before the banner, and how it is rendered again."""
    said = text[: text.index("+---")]
    again = ""
    version = re.match(r"(mx-smi|ht-smi)  version: (\S+)\n(\n?)", said)
    if version:
        again += render.first_line(version[1], version[2]) + version[3]
    log = re.search(r"( *)=+ (MetaX|Mars) .*\nTimestamp +: (.*)\n(\n?)Attached GPUs +: (\d+)\n", said)
    if log:
        program = "ht-smi" if log[2] == "Mars" else "mx-smi"
        again += log[1] + render.log_head(program, log[3], log[5], gap=bool(log[4]))
    return again


def table(text):
    kind, smi, driver, toolkit, firmware = BANNER.search(text).groups()
    program = "ht-smi" if kind == "HT" else "mx-smi"
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|==")) + 1
    cards = []
    while start + 1 < len(lines) and lines[start].startswith("|"):
        cards.append(card(render.generation(smi), lines[start], lines[start + 1]))
        start += 3
    out = heads(text) + render.table(program, smi, driver, toolkit, firmware, cards)
    rows = re.findall(r"^\| (\d{3})\s+(\d+)\s+(\d+)\s+(\d+%)\s+\| (\d+/\d+) MiB\s+\| (\d+%)", text, re.M)
    if rows:
        keys = ("minor", "gpu", "id", "compute", "quota", "utilization")
        out += "\n" + render.slices([named(keys, row) for row in rows])
    if "Process:" in text:
        out += "\n" + render.processes()
    return out + ("\nEnd of Log\n" if "End of Log" in text else "")


def card(form, one, two):
    first = [cell.strip() for cell in one.strip("|").split("|")]
    second = [cell.strip() for cell in two.strip("|").split("|")]
    out = {"board": 0, "sgpu": "", "persistence": "", "perf": "", "state": "", "limit": ""}
    if form == "D":
        out["board"], out["name"] = first[0].split(None, 1)
        out["index"], out["persistence"] = first[1].split()
        out["bus_id"], (out["utilization"], out["sgpu"]) = first[2], first[3].split()
        power, (temperature, out["perf"]) = second[0], second[1].split()
    else:
        out["index"], name = first[0].split(None, 1)
        out["bus_id"], util = first[1], first[2].split()
        temperature, power = second[0].split(None, 1)
        out["utilization"] = util[0]
        if form == "C":
            name, out["persistence"] = name.rsplit(None, 1)
            power, out["perf"] = power.rsplit(None, 1)
            out["sgpu"] = util[1]
        out["name"] = name.strip()
    out["temperature"] = temperature.removesuffix("C")
    out["power"], _, limit = power.replace("W", "").strip().partition(" / ")
    out["limit"] = limit.strip()
    out["used"], out["total"] = re.match(r"(\d+)/(\d+) MiB", second[-2]).groups()
    out["state"] = second[-1]
    return out


def listing(text):
    cards = []
    for line in text.splitlines()[1:]:
        if match := re.match(r"GPU#(\d+) +(\S+) +(\S+) +(?:Available \(UUID: (\S+)\)|Not Available\((.*)\))$", line):
            cards.append({**named(CARD_KEYS, (g or "" for g in match.groups())), "slices": []})
        elif match := re.match(r"  SGPU#(\d+) +(\S+) (\S+) +Available \(UUID: (\S+)\) (\S+)$", line):
            cards[-1]["slices"].append(named(SLICE_KEYS, match.groups()))
    return render.first_line("mx-smi", text.split()[2]) + render.listing(cards)


def document(text):
    first, _, rest = text.partition("\n")
    found = json.loads(rest)
    cards = [{"bus_id": key, **value} for key, value in found.items() if isinstance(value, dict)]
    return f"{first}\n" + render.document(
        found["smi_version"], found["maca_version"], found["driver_version"], found["timestamp"], cards
    )


def page(text):
    head = re.match(r"mx-smi  version: (\S+)\n\n=+ .*\nTimestamp +: (.*)\n\nAttached GPUs +: (\d+)\n", text)
    out = render.first_line("mx-smi", head[1]) + "\n" + render.log_head("mx-smi", head[2], head[3])
    groups = []
    who = {}
    for line in text[head.end() :].splitlines():
        if match := re.match(r"GPU#(\d+)  (\S+)  (\S+)$", line):
            who = named(CARD_KEYS[:3], match.groups())
        elif match := re.match(r" {8}(\S.*?) *: (.*)$", line):
            groups[-1][1].append((match[1], match[2]))
        elif line.startswith("    "):
            groups.append((line.strip(), []))
    return out + render.section(who, groups) + "\nEnd of Log\n"


def topology(text):
    log = re.match(r"=+ .*\nTimestamp +: (.*)\n\nAttached GPUs +: (\d+)\n", text)
    rows, rest = [], []
    for line in text.splitlines():
        if re.match(r"GPU\d+ ", line):
            words = line.split()
            rows.append(words[1 : 1 + int(log[2])])
            rest = words[1 + int(log[2]) :]
    return render.log_head("mx-smi", log[1], log[2]) + render.topology(rows, *rest)


def monitor(text):
    rows = [line.split() for line in text.splitlines()[2:]]
    keys = ("index", "die", "hot", "soc", "core", "power", "gpu", "vpue", "vpud", "used_percent")
    return render.monitor([named(keys, row) for row in rows])


CHECKS = {
    "metax_2.1.6_c500_plain_rekeyed.txt": table,
    "metax_2.2.4_c550_plain_excerpt.txt": table,
    "metax_2.2.8_n260x2_plain.txt": table,
    "metax_2.2.9_c500x8_plain.txt": table,
    "metax_2.2.12_c500sgpu_plain.txt": table,
    "metax_oem_ht-smi_2.3.1_x201_plain.txt": table,
    "metax_2.2.12_c500sgpu_L.txt": listing,
    "metax_2.2.12_c500sgpu_j.txt": document,
    "metax_2.2.12_c500sgpu_show_version.txt": page,
    "metax_2.2.12_c500sgpu_show_hwinfo.txt": page,
    "metax_2.2.12_c500sgpu_show_temperature.txt": page,
    "metax_2.2.12_c500sgpu_show_pcie.txt": page,
    "metax_2.2.12_c500sgpu_show_clock.txt": page,
    "metax_2.2.12_c500sgpu_show_ecc_state.txt": page,
    "metax_2.2.9_c500x8_topo_m.txt": topology,
    "metax_2.2.12_c500sgpu_dmon_c1.txt": monitor,
}


def main():
    folder = Path(sys.argv[1])
    good = 0
    for name, again in CHECKS.items():
        text = (folder / name).read_text()
        made = again(text)
        if made == text:
            good += 1
            continue
        pairs = zip([*made.splitlines(), "<end>"], [*text.splitlines(), "<end>"], strict=False)
        ours, theirs = next((pair for pair in pairs if pair[0] != pair[1]), ("same lines", "other end"))
        print(f"{name}:\n  rendered {ours!r}\n  captured {theirs!r}")
    print(f"{good} of {len(CHECKS)}")
    return 0 if good == len(CHECKS) else 1


if __name__ == "__main__":
    sys.exit(main())
