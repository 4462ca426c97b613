"""Writes `releases.yaml` and `rules-models.yaml` from CSV files of NVIDIA's public lists.

    python compat_matrix/nvidia/import_tables.py FOLDER

FOLDER holds driver_releases.csv, driver_branches.csv, cuda_toolkit_driver.csv and gpu_pci_driver_support.csv. The
output is committed and is what counts; this program only saves typing when the lists grow. A branch past its end of
life on TODAY becomes `legacy`.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

TODAY = "2026-11-30"
HERE = Path(__file__).parent
CHANNEL = {"LTS": "lts", "PB": "stable", "NFB": "candidate"}

# Tags of the open modules that are newer than the newest data-centre release of their branch.
TAGS_ONLY = ("520.61.07", "565.77", "575.64", "575.64.03", "575.64.05")

# model -> (name in the list of open modules, PCI device)
LISTED = {
    "A10": ("NVIDIA A10", "2236"), "A16": ("NVIDIA A16", "25B6"), "A2": ("NVIDIA A2", "25B6"),
    "A40": ("NVIDIA A40", "2235"), "A800-SXM4-80GB": ("NVIDIA A800-SXM4-80GB", "20F3"),
    "A800-SXM4-40GB": ("NVIDIA A800-SXM4-40GB", "20BD"), "A800-PCIE-80GB": ("NVIDIA A800 80GB PCIe", "20F5"),
    "L4": ("NVIDIA L4", "27B8"), "L2": ("NVIDIA L2", "27B6"), "L20": ("NVIDIA L20", "26BA"),
    "L40": ("NVIDIA L40", "26B5"), "L40S": ("NVIDIA L40S", "26B9"),
    "RTX-6000-ADA": ("NVIDIA RTX 6000 Ada Generation", "26B1"),
    "H100-SXM5-80GB": ("NVIDIA H100 80GB HBM3", "2330"), "H100-PCIE-80GB": ("NVIDIA H100 PCIe", "2331"),
    "H100-NVL-94GB": ("NVIDIA H100 NVL", "2321"), "H100-SXM5-64GB": ("NVIDIA H100", "2339"),
    "H800-SXM5-80GB": ("NVIDIA H800", "2324"), "H800-PCIE-80GB": ("NVIDIA H800 PCIe", "2322"),
    "H800-NVL": ("NVIDIA H800 NVL", "233A"), "H20-SXM5-96GB": ("NVIDIA H20", "2329"),
    "H20-3E-141GB": ("NVIDIA H20-3e", "232C"), "H20-NVL16": ("NVIDIA H20 NVL16", "230E"),
    "H200-SXM5-141GB": ("NVIDIA H200", "2335"), "H200-NVL-141GB": ("NVIDIA H200 NVL", "233B"),
    "GH200-120GB": ("GH200 120GB", "2342"), "GH200-480GB": ("GH200 480GB", "2342"),
    "GH200-144GB": ("NVIDIA GH200 144G HBM3e", "2348"), "B200": ("NVIDIA B200", "2901"),
    "GB200": ("NVIDIA GB200", "2941"), "B300": ("NVIDIA B300 SXM6 AC", "3182"), "GB300": ("NVIDIA GB300", "31C2"),
    "RTX-PRO-6000-SERVER": ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "2BB5"),
    "RTX-6000D": ("NVIDIA RTX 6000D", "2BB9"),
}  # fmt: skip
# The proprietary module knew these before the open list began.
EARLIER = {
    "A100-SXM4-40GB": "450", "A100-SXM4-80GB": "450", "A100-PCIE-40GB": "450", "A100-PCIE-80GB": "470", "A30": "460",
    "A10": "460", "T4": "450",
}  # fmt: skip


def _table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / name).open(newline="") as file:
        return list(csv.DictReader(file))


def driver_rows(folder: Path) -> list[str]:
    """One release row per driver version."""
    branches = {row["branch"]: row for row in _table(folder, "driver_branches.csv")}
    out = []
    for row in _table(folder, "driver_releases.csv"):
        branch = branches.get(row["branch"], {})
        eol = branch.get("eol", "") if re.fullmatch(r"\d{4}-\d{2}", branch.get("eol", "")) else ""
        kind = branch.get("type", "").split(" ")[0]
        date = row["date"].split(" ")[0]
        if row["stream"] != "release":
            channel = "developer"
        elif row["version"] in TAGS_ONLY:
            channel = "candidate"
        elif eol and eol <= TODAY[:7]:
            channel = "legacy"
        elif kind == "PB" and date and date < branch["first_release_date"]:
            channel = "candidate"  # a beta of the branch, before its first data-centre release
        else:
            channel = CHANNEL.get(kind, "candidate")
        source, level = ("open-tags", "vendor") if "git tag" in row["source"] else ("releases-json", "vendor")
        fields = [f'component: driver, version: "{row["version"]}", channel: {channel}']
        fields += [f'released: "{date}"'] if date else []
        fields += [f'eol: "{eol}"'] if eol else []
        out.append(f"  - {{{', '.join(fields)}, source: {source}, level: {level}}}")
    return out


def toolkit_rows(folder: Path) -> tuple[list[str], list[str]]:
    """(release rows of CUDA toolkits, rows that prefer the driver a toolkit came with)."""
    releases, likings = [], []
    for row in _table(folder, "cuda_toolkit_driver.csv"):
        version, bundled = row["cuda_toolkit"], row["driver_bundled_in_runfile"].split(" ")[0]
        releases.append(
            f'  - {{component: toolkit, version: "{version}", channel: stable, source: cuda-runfiles, level: vendor}}'
        )
        if re.fullmatch(r"\d{3}\.\d+\.\d+", bundled):
            likings.append(
                f"  - relation: prefers\n"
                f'    when: {{toolkit: "{version}"}}\n'
                f'    needs: {{driver: ">={bundled}"}}\n'
                f'    because: "CUDA {version} comes with driver {bundled}; an older one gives only '
                f'the limited feature set of minor-version compatibility."\n'
                f"    source: cuda-runfiles\n"
                f"    level: vendor"
            )
    return releases, likings


def driver_range(firsts: list[str], branches: list[str], branch_first: dict[str, str]) -> str:
    """The drivers that list a GPU, from the first version that does in each branch; open at the new end."""
    by_branch = {v.split(".")[0]: v for v in firsts}
    parts: list[str] = []
    start = ""
    last = max(by_branch, key=int)
    for branch in [b for b in branches if int(b) <= int(last)]:
        first = by_branch.get(branch)
        if start and (first is None or first != branch_first[branch]):
            parts.append(f">={start},<{branch}")
            start = ""
        if first and not start:
            start = first
    return " || ".join([*parts, f">={start}"])


def model_rows(folder: Path) -> list[str]:
    """One row of the table model-driver per model."""
    releases = [
        r for r in _table(folder, "driver_releases.csv") if r["stream"] == "release" and int(r["branch"]) >= 515
    ]
    branches = sorted({r["branch"] for r in releases}, key=int)
    branch_first: dict[str, str] = {}
    for row in releases:
        branch_first.setdefault(row["branch"], row["version"])
    listed = {(r["name"], r["pci_device_id"]): r for r in _table(folder, "gpu_pci_driver_support.csv")}
    out = []
    for model, (name, pci) in LISTED.items():
        firsts = listed[(name, pci)]["first_release_per_branch"].split()
        if name.startswith("GH200"):  # the same board under its later name
            firsts += listed[(f"NVIDIA {name}", pci)]["first_release_per_branch"].split()
            firsts = sorted({v.split(".")[0]: v for v in reversed(firsts)}.values(), key=lambda v: int(v[:3]))
        if model in EARLIER:
            continue
        wanted = driver_range(firsts, branches, branch_first)
        out.append(_model_row([model], wanted, f"{model} is in the supported-chips list from driver {firsts[0]}."))
    for model, branch in EARLIER.items():
        out.append(_model_row([model], f">={branch}", f"{model} is supported since branch {branch}."))
    return out


def _model_row(models: list[str], wanted: str, because: str) -> str:
    return (
        f"  - relation: pairs\n"
        f"    table: model-driver\n"
        f"    when: {{model: [{', '.join(models)}]}}\n"
        f'    pairs: {{driver: "{wanted}"}}\n'
        f'    because: "{because}"\n'
        f"    source: open-chips\n"
        f"    level: vendor"
    )


def main(folder: Path) -> None:
    toolkits, likings = toolkit_rows(folder)
    note = "# Written by import_tables.py from NVIDIA's public lists; edit here when a row is wrong.\n"
    text = note + "releases:\n" + "\n".join([*driver_rows(folder), *toolkits]) + "\n"
    (HERE / "releases.yaml").write_text(text)
    (HERE / "rules-models.yaml").write_text(note + "rules:\n" + "\n".join(model_rows(folder)) + "\n")
    (HERE / "rules-toolkit-drivers.yaml").write_text(note + "rules:\n" + "\n".join(likings) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
