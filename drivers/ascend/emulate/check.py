#!/usr/bin/env python3
"""Hold the emulated texts against sample outputs: values are taken from a sample, rendered, and must give its bytes.

Usage: check.py SAMPLES_DIR. The values are cut out by hand-written patterns here, not by fleet's parsers, so that
parser and emulator are not proven by each other. Exit status 1 when a sample is not reproduced.
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import npu_text as text


def _pairs(sample):
    return [tuple(part.strip() for part in row.split(" : ", 1)) for row in sample.splitlines() if " : " in row]


def _info(sample, layout):
    smi, driver = re.search(r"npu-smi (\S+) +Version: (\S+)", sample).groups()
    rows = [row for row in sample.splitlines() if re.match(r"\| \d+ ", row) and row.count("|") == 4]
    chips = []
    for one, two in zip(rows[::2], rows[1::2], strict=True):
        a, b = ([cell.strip() for cell in row.strip("|").split("|")] for row in (one, two))
        first, second = re.split(r"[ /]+", a[2]), re.split(r"[ /]+", b[2])
        ids = b[0].split()
        chips.append(
            {
                "npu": a[0].split()[0], "name": a[0].split()[1], "health": a[1], "power": first[0], "temp": first[1],
                "huge": (first[2], first[3]), "chip": ids[0], "phy": ids[-1], "device": ids[-1], "bus": b[1],
                "aicore": second[0], "memory": (second[1], second[2]),
                "hbm": (second[3], second[4]) if len(second) > 4 else None,
            }
        )  # fmt: skip
    idle = re.findall(r"No running processes found in NPU (\d+)", sample)
    return text.info(smi, driver, chips, layout, idle or None, warning="[WARNING]" in sample)


def _health(sample):
    word, codes = (re.search(rf"{key} +: (.*)", sample)[1] for key in ("Health Status", "Error Code"))
    information = [row.split(" : ", 1)[1] for row in sample.splitlines() if re.match(r"\t(?:Error Info\w+)? +: ", row)]
    return text.health(word, [] if codes == "NA" else codes.split(), information)


def _map(sample):
    rows = [row.split(None, 3) for row in sample.splitlines()[1:] if row.strip()]
    return text.chip_map([(*row[:3], row[3].strip()) for row in rows])


def _components(sample):
    versions = {}
    for device, name, version in re.findall(r'"device_id":(\d+), "component":(\w+), "version":([\d.]+)', sample):
        versions.setdefault(device, {})[name] = version
    return text.components(versions)


def _hccs(sample):
    rows = dict(_pairs(sample))
    lists = [
        rows[f"hccs {key}"].strip("[]").split() for key in ("lane mode", "link speed", "retry count", "error count")
    ]
    return text.hccs(rows["hccs health status"], *lists, rows["hccs first error lane"])


def _topo(sample):
    names = re.findall(r"NPU\d+", sample.splitlines()[0])
    affinity = {row.split()[0]: row.split()[-1] for row in sample.splitlines()[1 : len(names) + 1]}
    return text.topo(names, "HCCS", affinity)


def _file(sample):
    own = dict(row.split("=", 1) for row in sample.splitlines())
    groups = {key: re.findall(r"\[([^]]*)\]", value) for key, value in own.items()}
    if "compatible_version_drv" in own:
        return text.firmware_version_info(own["Version"], own["package_version"], groups["compatible_version_drv"])
    return text.driver_version_info(
        own["Version"], own["Innerversion"], groups["compatible_version"], groups["compatible_version_fw"],
        own["ascendhal_version"],
    )  # fmt: skip


FORMS = (
    (r"npu_smi_info_(910|incomplete)", lambda s: _info(s, "classic")),
    (r"npu_smi_info_A3", lambda s: _info(s, "a3")),
    (r"npu_smi_info_310(P3|B4)", lambda s: _info(s, "wide")),
    (r"npu_smi_l_", lambda s: text.card_list(re.findall(r"NPU ID +: (\d+)", s))),
    (r"npu_smi_m_910", _map),
    (r"board_(910|950)", lambda s: text.board(_pairs(s))),
    (r"health_910A", _health),
    (r"hccs_", _hccs),
    (r"topo_910B3", _topo),
    (r"upgrade_tool_component", _components),
    (r"upgrade_tool_boot", lambda s: text.boot_status(re.findall(r"boot status:(\d+)", s))),
    (r"version_info_", _file),
)


def main(folder):
    good = bad = 0
    for path in sorted(Path(folder).glob("*.txt")):
        render = next((function for pattern, function in FORMS if re.match(pattern, path.name)), None)
        if render is None:
            continue
        want = path.read_text()
        got = render(want)
        if got.rstrip("\n") == want.rstrip("\n"):
            good += 1
            continue
        bad += 1
        for a, b in zip(want.splitlines(), got.splitlines(), strict=False):
            if a != b:
                print(f"{path.name}:\n  want {a!r}\n  got  {b!r}")
                break
        else:
            print(f"{path.name}: {len(want.splitlines())} lines, rendered {len(got.splitlines())}")
    print(f"{good} reproduced, {bad} not")
    return 1 if bad or not good else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
