"""NVLink and topology: `nvidia-smi nvlink -s|-e`, `nvidia-smi topo -m`, `dcgmi nvlink -s|-e`."""

from __future__ import annotations

import json
import re

from drivers.nvidia.values import Draft, nothing, rows
from fleet.core.model import Json
from fleet.core.vendor import Reading

_GPU = re.compile(r"\s*GPU (\d+): (\S.{0,120}?)\s{1,8}\(UUID: (GPU-[0-9A-Fa-f-]+)\)\s*$")
_SPEED = re.compile(r"\s*Link (\d+): (?:(\d+(?:\.\d+)?) GB/s|(<?inactive>?|<?N/A>?|<?Disabled>?))\s*$", re.IGNORECASE)
_COUNTER = re.compile(
    r"\s*Link (\d+): ((?:Replay|Recovery|CRC|CRC FLIT|CRC Data|[A-Z][A-Za-z ]{2,40}) Errors): (\d+)\s*$"
)
_CAPABILITY = re.compile(r"\s*Link \d+, [A-Z][A-Za-z0-9 ]{2,60}: (?:true|false)\s*$")
_ALL_INACTIVE = re.compile(r"all links are inactive", re.IGNORECASE)
_UNSUPPORTED = ("Nvlink queries are not supported", "Device does not have or support Nvlink", "does not support NvLink")
_COUNTER_NAMES = {
    "replay errors": "replay_errors",
    "recovery errors": "recovery_errors",
    "crc errors": "crc_errors",
    "crc flit errors": "crc_flit_errors",
    "crc data errors": "crc_data_errors",
}
_DEVICE = re.compile(r"(?:GPU|NIC)\d+$|(?:mlx|bnxt|irdma|efa|rdma|hns)\w*_\d+\w*$")
_KINDS = ("SYS", "NODE", "PHB", "PXB", "PIX", "SOC", "PSB", "C2C", "NV")
_PAIR = re.compile(r"(?:NV\d+|SYS|NODE|PHB|PXB|PIX|SOC|PSB|C2C)$")


def speeds(command: str, text: str) -> Reading | None:
    """`nvlink -s`: per GPU all links, those that are up, and their speed when it is one."""
    draft = Draft(command)
    seen: list[list[float]] = []  # per GPU: the speed of each link, 0 = inactive
    numbers: set[str] = set()
    refused = False
    lines = [line for line in rows(text) if line.strip()]
    for i, line in enumerate(lines):
        gpu = _GPU.match(line) if "UUID" in line else None
        if gpu:
            if int(gpu.group(1)) == 0:  # the list comes again: the last one counts
                draft, seen = Draft(command), []
            draft.accelerators.append({"index": int(gpu.group(1)), "name": gpu.group(2), "uuid": gpu.group(3)})
            seen.append([])
            numbers = set()
            continue
        if not draft.accelerators:
            continue
        link = _SPEED.match(line) if "Link" in line else None
        index = draft.accelerators[-1]["index"]
        if link:
            if link.group(1) in numbers:
                return nothing(command, "two lists are mixed")
            numbers.add(link.group(1))
            seen[-1].append(float(link.group(2)) if link.group(2) else 0.0)
        elif _ALL_INACTIVE.search(line):
            draft.links.append({"index": index, "links_up": 0})
            seen[-1] = [-1.0]
        elif any(words in line for words in _UNSUPPORTED):
            refused = True
            seen[-1] = [-1.0]
        elif i == len(lines) - 1 and ("Link" in line or not text.endswith("\n")):
            seen[-1] = []  # the last line is cut
            break
    if not draft.accelerators:
        return None
    if not any(seen):
        return Draft(command, "failed", note="the list breaks off").done() if "nvlink" in command else None
    counts = {len(entry) for entry in seen[:-1] if entry[:1] != [-1.0]}
    if not seen[-1] or (seen[-1] != [-1.0] and counts and len(seen[-1]) < min(counts)):
        return Draft(command, "failed", note="the list breaks off").done()
    for card, entry in zip(draft.accelerators, seen, strict=True):
        if not entry or entry == [-1.0]:
            continue
        up = [speed for speed in entry if speed > 0]
        link_row: dict[str, Json] = {"index": card["index"], "links_total": len(entry), "links_up": len(up)}
        if len(set(up)) == 1:
            link_row["speed_gbps"] = up[0]
        draft.links.append(link_row)
    order = {card["index"]: place for place, card in enumerate(draft.accelerators)}
    draft.links.sort(key=lambda row: order[row["index"]])
    if refused and not draft.links:
        draft.status, draft.note = "unsupported", "no NVLink is to be seen on this device or in this mode"
    return draft.done()


def counters(command: str, text: str) -> Reading | None:
    """`nvlink -e`: the error counters of each link."""
    draft = Draft(command)
    current: dict[str, Json] | None = None
    for line in rows(text):
        gpu = _GPU.match(line) if "UUID" in line else None
        if gpu:
            draft.accelerators.append({"index": int(gpu.group(1)), "name": gpu.group(2), "uuid": gpu.group(3)})
            current = None
            continue
        match = _COUNTER.match(line) if draft.accelerators and "Errors:" in line else None
        if not match:
            continue
        index, link = draft.accelerators[-1]["index"], int(match.group(1))
        if current is None or current["link"] != link or current["index"] != index:
            current = {"index": index, "link": link}
            draft.links.append(current)
        name = match.group(2).lower()
        current[_COUNTER_NAMES.get(name, name.replace(" ", "_"))] = int(match.group(3))
    if not draft.links:
        return None
    per_card = [sum(row["index"] == card["index"] for row in draft.links) for card in draft.accelerators]
    last = text[text.rfind("\n") + 1 :]
    if (
        len(draft.links[-1]) < max(5, len(draft.links[0]))  # index, link and at least three counters
        or (per_card[-1] < max(per_card) and "[...]" not in text)
        or (last.strip() and last.strip() != "[...]" and not _COUNTER.match(last))
    ):
        return Draft(command, "failed", note="the list breaks off").done()
    return draft.done()


def capabilities(command: str, text: str) -> Reading | None:
    """`nvlink -c`: which cards were asked; what each link can do is told by the speeds."""
    draft = Draft(command)
    told = False
    for line in rows(text):
        gpu = _GPU.match(line) if "UUID" in line else None
        if gpu:
            draft.accelerators.append({"index": int(gpu.group(1)), "name": gpu.group(2), "uuid": gpu.group(3)})
        told |= bool(draft.accelerators and _CAPABILITY.match(line))
    return draft.done() if told else None


def topology(command: str, text: str) -> Reading | None:
    """`topo -m`: the type of each GPU pair that is printed, once. Underlining is gone before this is called."""
    columns: list[str] = []
    pairs: dict[tuple[int, int], str] = {}
    printed: set[str] = set()
    for line in rows(text):
        words = line.split()
        if not words:
            if columns and printed:
                break
            continue
        if not columns:
            if words[0] == "GPU0" and "Affinity" in line:
                for word in words:
                    if not _DEVICE.match(word):
                        break
                    columns.append(word)
            continue
        if not words[0].startswith("GPU") or words[0] not in columns:
            continue
        cells = words[1 : 1 + len(columns)]
        if any(
            cell != "X" and not _PAIR.match(cell) and not any(kind.startswith(cell) for kind in _KINDS)
            for cell in cells
        ):
            return None  # another vendor's matrix
        if len(cells) < len(columns) or not all(cell == "X" or _PAIR.match(cell) for cell in cells):
            return Draft(command, "failed", note="the matrix breaks off").done()
        printed.add(words[0])
        row = int(words[0][3:])
        for column, kind in zip(columns, cells, strict=True):
            if column.startswith("GPU") and column != words[0]:
                other = int(column[3:])
                pairs.setdefault((min(row, other), max(row, other)), kind)
    gpus = [column for column in columns if column.startswith("GPU")]
    if not gpus:
        return None
    draft = Draft(command)
    draft.accelerators = [{"index": int(gpu[3:])} for gpu in gpus]
    draft.links = [{"from": f"GPU{a}", "to": f"GPU{b}", "type": kind} for (a, b), kind in sorted(pairs.items())]
    if len(printed) < len(gpus):
        draft.status, draft.note = "failed", "the matrix breaks off"
        draft.accelerators = []
    return draft.done()


def dcgm_states(command: str, text: str) -> Reading | None:
    """`dcgmi nvlink -s`: U up, D down, X disabled, _ not supported."""
    if "NvLink Link Status" not in text:
        return None
    draft = Draft(command)
    gpu: int | None = None
    in_gpus = False
    for line in rows(text):
        stripped = line.strip()
        if stripped in ("GPUs:", "NvSwitches:"):
            in_gpus = stripped == "GPUs:"
            gpu = None
            continue
        match = re.match(r"gpuId (\d+):$", stripped)
        if match:
            gpu = int(match.group(1)) if in_gpus else None
            continue
        states = stripped.split()
        if gpu is not None and states and all(state in ("U", "D", "X", "_") for state in states):
            total = sum(state != "_" for state in states)
            draft.links.append({"index": gpu, "links_total": total, "links_up": states.count("U")})
            gpu = None
    if not draft.links or gpu is not None or ("NvSwitches:" not in text and "Key:" not in text):
        return Draft(command, "failed", note="the list breaks off").done()
    return draft.done()


def dcgm_counters(command: str, text: str) -> Reading | None:
    """`dcgmi nvlink -e -j`: counters of each link of one GPU."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        document = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return nothing(command, "not well-formed JSON")
    header = document.get("header") if isinstance(document, dict) else None
    body = document.get("body") if isinstance(document, dict) else None
    if (
        not isinstance(header, list)
        or not isinstance(body, dict)
        or not any("NVLINK" in str(h).upper() for h in header)
    ):
        return None
    gpu = next((int(m.group(1)) for h in header if (m := re.match(r"GPU (\d+)", str(h)))), 0)
    draft = Draft(command)
    for name, entry in body.items():
        match = re.fullmatch(r"Link (\d+)", str(name))
        children = entry.get("children") if isinstance(entry, dict) else None
        if not match or not isinstance(children, dict):
            continue
        row: dict[str, Json] = {"index": gpu, "link": int(match.group(1))}
        for title, cell in children.items():
            value = cell.get("value") if isinstance(cell, dict) else None
            if str(value).isdigit():
                row[str(title).lower().replace(" ", "_") + "s"] = int(str(value))
        draft.links.append(row)
    return draft.done() if draft.links else None


def dcgm_counter_table(command: str, text: str) -> Reading | None:
    """`dcgmi nvlink -e` as a table: the counters of each link of one GPU."""
    if "NVLINK Error Counts" not in text:
        return None
    draft = Draft(command)
    gpu = 0
    for line in rows(text):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        title = re.fullmatch(r"GPU (\d+)", cells[0])
        if title:
            gpu = int(title.group(1))
            continue
        link = re.fullmatch(r"Link (\d+)", cells[0])
        if link:
            draft.links.append({"index": gpu, "link": int(link.group(1))})
        elif cells[0].startswith("-> ") and draft.links and len(cells) > 1 and cells[1].isdigit():
            draft.links[-1][cells[0][3:].lower().replace(" ", "_") + "s"] = int(cells[1])
    if not draft.links or draft.links[0].keys() - draft.links[-1].keys() or not text.rstrip().endswith("+"):
        return Draft(command, "failed", note="the table breaks off").done()
    return draft.done()
