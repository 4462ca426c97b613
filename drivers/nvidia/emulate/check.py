"""Holds render.py against captured outputs: `check.py SAMPLES_DIR`. A sample's values are taken out and rendered again.

What the values are masked or made up with (UUIDs, times) is taken from the sample too: the layout is what is proven.
The last line is `N of N`; exit status 1 when any differs.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import render

ROW1 = re.compile(
    r"\|\s+(?P<index>\d+)\s+(?P<name>\S.*?)\s+(?P<persistence>On|Off)\s+\|\s+(?P<bus_id>\S+) (?P<display>\S+)\s+"
    r"\|\s+(?P<ecc>\S+) \|"
)
ROW2 = re.compile(
    r"\|\s+(?P<fan>\S+)\s+(?P<temperature>\d+)C\s+(?P<pstate>\S+)\s+(?P<power>\d+)W /\s+(?P<limit>\d+)W "
    r"\|\s+(?P<used>\d+)MiB /\s+(?P<total>\d+)MiB \|\s+(?P<utilisation>\S+)\s+(?P<compute>\S+) \|"
)
HEAD = re.compile(r"NVIDIA-SMI (\S+)\s+(?:Driver|KMD) Version: (\S+)\s+CUDA (?:UMD )?Version: (\S+)")
PROCESS = re.compile(r"\|\s+(\d+)   N/A  N/A\s+(\d+)\s+(\S)   (\S+)\s+(\d+)MiB \|")
UNIT = re.compile(r" \[[^\]]+\]$")


def table(text):
    lines = text.splitlines()
    cards = []
    for number, line in enumerate(lines):
        first = ROW1.match(line)
        if first:
            card = {**first.groupdict(), **ROW2.match(lines[number + 1]).groupdict()}
            card["mig"] = lines[number + 2].split("|")[3].strip()
            cards.append(card)
    jobs = [
        {"index": m[1], "pid": m[2], "type": m[3], "name": m[4], "used": m[5]} for m in map(PROCESS.match, lines) if m
    ]
    return render.table(lines[0].rstrip(), *HEAD.search(text).groups(), cards, jobs)


def listing(text):
    cards = []
    for line in text.splitlines():
        card = re.match(r"GPU (\d+): (.+) \(UUID: (\S+)\)", line)
        part = re.match(r"  MIG (\S+)\s+Device\s+(\d+): \(UUID: (\S+)\)", line)
        if card:
            cards.append({"index": card[1], "name": card[2], "uuid": card[3], "parts": []})
        elif part:
            cards[-1]["parts"].append({"profile": part[1], "index": part[2], "uuid": part[3]})
    return render.listing(cards)


def csv(text):
    lines = text.splitlines()
    fields = [UNIT.sub("", cell) for cell in lines[0].split(", ")]
    units = {UNIT.sub("", cell): cell.rsplit("[", 1)[1][:-1] for cell in lines[0].split(", ") if UNIT.search(cell)}
    kept, render.UNITS = render.UNITS, {**units, **{k: v for k, v in render.UNITS.items() if k in units}}
    rows = []
    for line in lines[1:]:
        cells = zip(fields, line.split(", "), strict=True)
        rows.append([cell.removesuffix(" " + units.get(field, "\0")) for field, cell in cells])
    try:
        return render.csv(fields, rows)
    finally:
        render.UNITS = kept


def versions(text):
    rows = {key.strip().upper(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    driver = rows.get("KMD VERSION", rows["DRIVER VERSION"])
    return render.versions(rows["NVIDIA-SMI VERSION"], driver, rows.get("CUDA UMD VERSION", rows["CUDA VERSION"]))


def links(text):
    cards = []
    for line in text.splitlines():
        card = re.match(r"GPU (\d+): (.+) \(UUID: (\S+)\)", line)
        link = re.match(r"\s+Link \d+: (.+)", line)
        if card:
            cards.append({"index": card[1], "name": card[2], "uuid": card[3], "speeds": []})
        elif link:
            cards[-1]["speeds"].append(link[1])
        else:
            cards[-1]["speeds"] = line
    return render.links(cards)


def topology(text):
    head, row = text.splitlines()[:2]
    return render.topology(len(re.findall(r"GPU\d+", head)), "NV18", row.split("\t")[-4])


def proc(text):
    match = re.search(r"UNIX (Open )?.*?  (\d{3}[\d.]+)  (.*)\nGCC version:  (.*)\n", text)
    return render.proc_version(match[2], "open" if match[1] else "proprietary", match[3], match[4])


def expanded(text):
    """Some publications turned tabs into blanks."""
    return text.expandtabs(8)


CASES = {
    "smi_table_590_h100.txt": table,
    "smi_table_595_l40s.txt": table,
    "smi_table_610_kmd.txt": table,
    "smi_L_h100_mig.txt": listing,
    "smi_query_gpu_590_h100.txt": csv,
    "smi_query_gpu_595_l40s.txt": csv,
    "smi_query_gpu_610.txt": csv,
    "smi_version_590.txt": versions,
    "smi_version_610.txt": versions,
    "smi_no_driver_rc9.txt": lambda _: render.NO_DRIVER,
    "smi_no_nvml_lib_rc12.txt": lambda _: render.NO_LIBRARY,
    "smi_no_devices.txt": lambda _: render.NO_DEVICES,
    "smi_mismatch_570.txt": lambda _: render.mismatch("570.124.04"),
    "smi_mismatch_old.txt": lambda _: render.mismatch("460.73.01"),
    "smi_gpu_lost.txt": lambda text: render.lost(re.search(r"GPU (\S+): GPU is", text)[1]),
    "smi_nvlink_s_590_h100.txt": links,
    "smi_nvlink_s_595_l40s.txt": links,
    "smi_nvlink_s_a100_inactive.txt": links,
    "smi_nvlink_s_8xa100.txt": links,
    "smi_topo_m_590_1gpu_ansi.txt": topology,
    "proc_version_open_570.txt": proc,
    "proc_version_proprietary_520.txt": proc,
    "proc_version_proprietary_580.txt": proc,
}


def main():
    folder = Path(sys.argv[1])
    folder = folder / "nvidia" if (folder / "nvidia").is_dir() else folder
    good = 0
    for name, again in CASES.items():
        text = (folder / name).read_text()
        made = again(text)
        want = text if made == text else expanded(text)
        got = made if made == text else expanded(made)
        # A publication may lack the last end of line.
        if got.rstrip("\n") == want.rstrip("\n"):
            good += 1
            continue
        pairs = zip(want.splitlines(), got.splitlines(), strict=False)
        line = next((pair for pair in pairs if pair[0] != pair[1]), ("<length>", "<length>"))
        print(f"{name}: differs\n  sample   {line[0]!r}\n  rendered {line[1]!r}")
    print(f"{good} of {len(CASES)}")
    return 0 if good == len(CASES) else 1


if __name__ == "__main__":
    sys.exit(main())
