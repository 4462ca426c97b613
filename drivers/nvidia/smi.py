"""`nvidia-smi` as people run it: failures, the table, `-L`, `--version`, `dmon`.

Formats: the table has 79 columns to about R525, 91 from R535; R610 names the driver `KMD Version`. Cells are found by
the header words and the bars, never by column number.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

from drivers.nvidia.values import Draft, Signs, nothing, number, present, put, rows, say, version
from drivers.text import bus_id
from fleet.core.model import Item, Json
from fleet.core.vendor import Reading, Status

_FAILURES: tuple[tuple[str, Status], ...] = (
    ("couldn't communicate with the NVIDIA driver", "driver-not-loaded"),
    ("couldn't find libnvidia-ml.so", "tool-missing"),
    ("Failed to initialize NVML: Driver/library version mismatch", "driver-mismatch"),
    ("Failed to initialize NVML: Insufficient Permissions", "permission-denied"),
    ("Failed to initialize NVML: Driver Not Loaded", "driver-not-loaded"),
    ("Failed to initialize NVML: GPU is lost", "device-lost"),
    ("Failed to initialize NVML: No supported GPUs", "no-devices"),
    ("Failed to initialize NVML: NVML library not found", "tool-missing"),
    ("Failed to initialize NVML", "failed"),
    ("No devices were found", "no-devices"),
    ("No devices found", "no-devices"),
    ("is not a valid field to query", "failed"),
    ("Invalid combination of input arguments", "failed"),
    ("ERROR: Option ", "failed"),
    ("being used by one or more other processes", "occupied"),
    ("is currently in use by one or more", "occupied"),
)
# What a setting or an action (`-pm 1`, `-mig 1`, `--gpu-reset`) says of one GPU.
_ACTIONS: tuple[tuple[re.Pattern[str], Status], ...] = (
    (re.compile(r"(?:Unable|Failed) [^<|]{1,200}: Insufficient Permissions\.?$"), "permission-denied"),
    (re.compile(r"(?:Unable|Failed) [^<|]{1,200}: Not Supported\.?$"), "unsupported"),
    (re.compile(r"\s*GPU [0-9A-Fa-f:.]+: In use by another client\.?$"), "occupied"),
)
_HANDLE = re.compile(
    r"Unable to determine the device handle for (?:GPU|gpu)\s?\d*:?\s*"
    r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.\d)?):\s*(.*)"
)
_NVML = re.compile(r"NVML library version:\s*(\S+)")
_HEADER = re.compile(
    r"\|\s*NVIDIA-SMI\s+(\S+)\s+(?:Driver|KMD) Version:\s*(\S+)(?:\s+CUDA (?:UMD )?Version:\s*(\S+))?\s*\|\s*$"
)
_BUS = re.compile(r"\s*([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\b")
_NAMED = re.compile(r"\s*(\d+)\s+(\S.*?)\s*$")
_PERSISTENCE = re.compile(r"\s+(?:On|Off|N/A|ERR!)$")
_INFOROM = re.compile(r"WARNING: infoROM is corrupted at gpu ([0-9A-Fa-f:.]+)")
_LISTED = re.compile(r"GPU (\d+): (\S.{0,120}?)\s{1,8}\(UUID: (GPU-[0-9A-Fa-f-]+)\)\s*$")
_LISTED_MIG = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+):\s+\(UUID: (MIG-[0-9A-Za-z/-]+)\)\s*$")
_VERSION_LINE = re.compile(r"\s*(NVIDIA-SMI|NVML|DRIVER|KMD|CUDA|CUDA UMD) version\s*:\s*(.+?)\s*$", re.IGNORECASE)


def failure(command: str, text: str) -> Reading | None:
    """The reading of an output that only says why there is none; None when it is not such an output."""
    head = text[:8000]
    match = _HANDLE.search(head)
    if match:
        words = match.group(2)
        lost = words.startswith(("GPU is lost", "Unknown Error")) or "fallen off the bus" in words
        draft = Draft(command, "device-lost" if lost else "failed", note=words.strip())
        for line in rows(head):
            listed = _LISTED.match(line) if "(UUID: GPU-" in line else None
            if listed:  # `-L` goes on with the other cards
                draft.accelerators.append(
                    {"index": int(listed.group(1)), "name": listed.group(2), "uuid": listed.group(3)}
                )
            found = _HANDLE.search(line) if "device handle" in line else None
            if not found:
                continue
            card: dict[str, Json] = {"bus_id": bus_id(found.group(1))}
            if found.group(2).startswith(("GPU is lost", "Unknown Error")):
                card["health"] = "lost"
            if card not in draft.accelerators:
                draft.accelerators.append(card)
        return draft.done()
    if "| NVIDIA-SMI" in head or "NVSMI LOG" in head:
        return None
    for line in rows(head):
        for words, status in _FAILURES:
            if words in line:
                draft = Draft(command, status, note=line.strip())
                nvml = _NVML.search(head) if status == "driver-mismatch" else None
                if nvml:
                    draft.components["nvml"] = nvml.group(1)
                return draft.done()
        for form, status in _ACTIONS:
            if form.match(line):
                return Draft(command, status, note=line.strip()).done()
    return None


def table(command: str, text: str) -> Reading | None:
    """The table of a plain `nvidia-smi`; in watch mode the last whole one. None when there is no such table."""
    lines = rows(text)
    heads = [(i, match) for i, line in enumerate(lines) if "NVIDIA-SMI" in line and (match := _HEADER.search(line))]
    if not heads:
        return _headless(command, text, lines)
    for (start, _), (end, _) in itertools.pairwise(heads):
        if not any(line.startswith("|=") for line in lines[start:end]):
            return nothing(command, "two tables are mixed")
    answer: Reading | None = None
    for place in range(len(heads) - 1, -1, -1):
        start, match = heads[place]
        end = heads[place + 1][0] if place + 1 < len(heads) else len(lines)
        draft = Draft(command)
        smi, driver, cuda = match.groups()
        say(draft.components, "smi", version(smi))
        say(draft.components, "driver", version(driver))
        if cuda and re.fullmatch(r"\d+\.\d+", cuda):
            draft.components["cuda"] = cuda
        cards, whole = _cards(lines[start + 1 : end])
        if len({str(card["bus_id"]) for card in cards}) < len(cards):
            return nothing(command, "a GPU stands twice in one table")
        # Where an earlier table has the list of processes, one without it is cut between two cards.
        if whole and (not any(map(_is_box, lines[:start])) or any(map(_is_box, lines[start:end]))):
            draft.accelerators = cards
            return draft.done()
        draft.status, draft.note = "failed", "the table breaks off"
        answer = answer or draft.done()
    return answer


def _headless(command: str, text: str, lines: list[str]) -> Reading | None:
    """Rows without a header: an excerpt. Another vendor's table has rows too, so the 8-digit domain is asked for."""
    if "-SMI" in text or "-smi" in text or "Driver Version" in text:
        return None
    cards, whole = _cards(lines)
    if not cards or not whole:
        return None
    draft = Draft(command, "failed", note="rows without a header")
    draft.accelerators = cards
    return draft.done()


def _cells(line: str) -> list[str] | None:
    line = line.strip()
    return line[1:-1].split("|") if len(line) > 2 and line[0] == "|" and line[-1] == "|" else None


def _cards(lines: list[str]) -> tuple[list[dict[str, Json]], bool]:
    """The GPU rows of one table, and whether the table is closed after the last of them."""
    cards: list[dict[str, Json]] = []
    closed = False
    open_row: list[str] | None = None
    for place, line in enumerate(lines):
        stripped = line.strip()
        if stripped.startswith("|") and ("MIG devices:" in stripped or "Processes:" in stripped):
            return cards, closed and _is_closed(lines[place:])
        cells = _cells(line)
        if cells is None:
            if stripped.startswith("+-"):
                closed = open_row is None and bool(cards) and stripped.endswith("+")
            elif stripped.startswith("|") and stripped.strip("|+-="):
                return cards, False  # a row cut in the middle
            elif closed and stripped:
                break
            continue
        if open_row is not None:
            if len(cells) == 3 and _BUS.match(cells[1]):
                return cards, False  # a card with half of its lines
            card = _card(open_row, cells)
            if card:
                cards.append(card)
            open_row, closed = None, False
        elif len(cells) == 3 and _BUS.match(cells[1]):
            open_row, closed = cells, False
    return cards, closed


def _is_box(line: str) -> bool:
    return "Processes:" in line and line.lstrip().startswith("|")


def _is_closed(lines: list[str]) -> bool:
    """The boxes below the cards go on to the end of the list of processes."""
    processes = False
    for line in lines:
        stripped = line.strip()
        processes |= _is_box(line)
        if processes and stripped.startswith("+-") and stripped.endswith("+"):
            return True
    return False


def _card(first: list[str], second: list[str]) -> dict[str, Json] | None:
    named = _NAMED.match(_PERSISTENCE.sub("", first[0].rstrip()))
    bus = _BUS.match(first[1])
    if not bus:
        return None
    card: dict[str, Json] = {}
    if named:
        card["index"] = int(named.group(1))
        name = named.group(2)
        if not name.endswith("...") and not name.startswith("ERR!"):
            card["name"] = name
    card["bus_id"] = bus_id(bus.group(1))
    signs = Signs()
    ecc = first[2].strip()
    if ecc.isdigit():
        card["ecc_uncorrected"] = int(ecc)
        signs.errors(ecc)
    elif ecc == "On":
        signs.shown = True
    usage = second[0] if second else ""
    temperature = re.search(r"\b(\d{1,3})C\b", usage)
    put(card, "temperature_c", int(temperature.group(1)) if temperature else None)
    power = re.search(r"\b(\d{1,4})W\s*/", usage)
    put(card, "power_w", int(power.group(1)) if power else None)
    memory = re.search(r"(\d{1,7})MiB\s{0,8}/\s{0,8}(\d{1,7})MiB", second[1] if len(second) > 1 else "")
    if memory:
        card["memory_used_mib"], card["memory_total_mib"] = int(memory.group(1)), int(memory.group(2))
    if any("ERR!" in cell or "Unknown Error" in cell for cell in (*first, *second)):
        signs.warning = True
    put(card, "health", signs.health)
    return card


def with_inforom(reading: Reading, text: str) -> Reading:
    """The reading with what the lines below any output of the tool say of corrupted infoROMs."""
    if "infoROM is corrupted" not in text:
        return reading
    found: list[str] = []
    for line in rows(text):
        match = _INFOROM.search(line) if "infoROM" in line else None
        bus = bus_id(match.group(1).rstrip(".")) if match else ""
        if bus and bus not in found:
            found.append(bus)
    faults: list[Item] = [{"code": "infoROM", "bus_id": bus, "count": 1} for bus in found]
    cards = [
        {**card, "health": "critical"} if card.get("bus_id") in found and card.get("health") != "lost" else card
        for card in reading.accelerators
    ]
    return replace(reading, faults=(*reading.faults, *faults), accelerators=tuple(cards))


def listing(command: str, text: str) -> Reading | None:
    """`nvidia-smi -L`; of several lists the last one counts."""
    draft = Draft(command)
    lines = [line for line in rows(text) if line.strip()]
    for i, line in enumerate(lines):
        card = _LISTED.match(line.strip()) if "(UUID: GPU-" in line else None
        if card:
            index = int(card.group(1))
            if index == 0:
                draft.accelerators = []
            elif draft.accelerators and index <= int(str(draft.accelerators[-1]["index"])):
                return nothing(command, "two lists are mixed")
            draft.accelerators.append({"index": int(card.group(1)), "name": card.group(2), "uuid": card.group(3)})
            continue
        part = _LISTED_MIG.match(line) if "(UUID: MIG-" in line else None
        if part and draft.accelerators:
            entry: dict[str, Json] = {"index": int(part.group(2)), "profile": part.group(1), "uuid": part.group(3)}
            parts = draft.accelerators[-1].setdefault("mig", [])
            if isinstance(parts, list):
                parts.append(entry)
        elif i == len(lines) - 1 and draft.accelerators and re.match(r"\s*(?:GPU \d+:|MIG \S+\s+Device)", line):
            return _cut(command, "the list breaks off")
    return draft.done() if draft.accelerators else None


def _cut(command: str, note: str) -> Reading:
    return Draft(command, "failed", note=note).done()


def versions(command: str, text: str) -> Reading | None:
    """`nvidia-smi --version`; on R610 the old keys hold a sentence and the new ones the versions."""
    found: dict[str, str] = {}
    for line in rows(text[:8000]):
        match = _VERSION_LINE.match(line)
        if match:
            found[match.group(1).upper()] = match.group(2)
    if "NVIDIA-SMI" not in found:
        return None
    draft = Draft(command)
    say(draft.components, "smi", version(found["NVIDIA-SMI"]))
    say(draft.components, "nvml", version(found.get("NVML")))
    say(draft.components, "driver", version(found.get("KMD")) or version(found.get("DRIVER")))
    for key in ("CUDA UMD", "CUDA"):
        if re.fullmatch(r"\d+\.\d+", found.get(key, "")):
            draft.components.setdefault("cuda", found[key])
    if "driver" not in draft.components:
        draft.status, draft.note = "failed", "the list breaks off"
    return draft.done() if draft.components else nothing(command, "no versions")


def confidential(command: str, text: str) -> Reading | None:
    """`nvidia-smi conf-compute -f`, `-grs`, `-e`: each `title: value` line; not-ready while the GPUs are not."""
    found: dict[str, Json] = {}
    for line in rows(text[:8000]):
        match = re.match(r"\s*((?:CC|Confidential Compute)[A-Za-z ]{2,60}?)\s*:\s*(\S.*?)\s*$", line)
        if match:
            found[match.group(1).lower().replace(" ", "_")] = match.group(2)
    if not found:
        return None
    draft = Draft(command)
    draft.more["confidential"] = found
    if any(str(value).lower().replace(" ", "-") == "not-ready" for value in found.values()):
        draft.status, draft.note = "not-ready", "the GPUs do not take confidential work yet"
    return draft.done()


def dmon(command: str, text: str) -> Reading | None:
    """`nvidia-smi dmon`: the last sample of each GPU. Columns are found by the first comment line."""
    titles: list[str] = []
    last: dict[int, dict[str, Json]] = {}
    for line in rows(text):
        words = line.split()
        if words[:2] == ["#", "gpu"]:
            titles = words[1:]
        elif titles and len(words) == len(titles) and words[0].isdigit():
            cells = dict(zip(titles, words, strict=True))
            card: dict[str, Json] = {"index": int(words[0])}
            put(card, "power_w", number(present(cells.get("pwr"))))
            put(card, "temperature_c", number(present(cells.get("gtemp"))))
            last[int(words[0])] = card
    if not last:
        return None
    draft = Draft(command)
    draft.accelerators = [last[index] for index in sorted(last)]
    return draft.done()
