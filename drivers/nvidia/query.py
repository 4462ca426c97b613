"""`nvidia-smi --query-gpu`, `--query-retired-pages` and `--query-compute-apps` with `--format=csv`.

Columns are found by name, with or without units. Pages and processes: one entry for each GPU that the rows name.
"""

from __future__ import annotations

import re

from drivers.nvidia.commands import Command
from drivers.nvidia.values import Draft, Signs, nothing, number, one_value, pci_id, present, put, say, version
from drivers.text import bus_id
from fleet.core.model import Json
from fleet.core.vendor import Reading

_KNOWN = frozenset(
    {
        "timestamp", "driver_version", "kmd_version", "count", "name", "gpu_name", "serial", "gpu_serial", "uuid",
        "gpu_uuid", "pci.bus_id", "gpu_bus_id", "index", "vbios_version", "memory.total", "memory.used", "pstate",
        "temperature.gpu", "power.draw", "fabric.state", "gpu_recovery_action", "compute_cap", "utilization.gpu",
        "pid", "process_name", "used_gpu_memory", "used_memory",
    }
)  # fmt: skip
_FIELD = re.compile(r"[a-z][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*$")
_LONGEST = 40_000  # characters of a line; all 241 fields of R610 take about 9 thousand


def _column(title: str) -> str:
    return title.split(" [", 1)[0].strip()


def csv_form(command: Command, text: str) -> Reading | None:
    """CSV with a header, or without one when the command names the columns; None when it is no such output.

    A loop (`-l`) prints rows again: the last row of each GPU counts.
    """
    asked = command.value("--query-gpu") or command.value("--query-retired-pages")
    asked = asked or command.value("--query-compute-apps")
    wanted = [_column(field) for field in asked.split(",")] if asked and "<" not in asked else []
    lines = text.split("\n")
    titles, start = _header(command, lines, wanted)
    if not titles:
        return None
    if start and start < len(lines) and _titles(lines[start]) == titles:
        return nothing(command.text, "two lists are mixed")
    events = any(title == "pid" or title.startswith("retired_pages.") for title in titles) and "index" not in titles
    cards: dict[str, dict[str, Json]] = {}
    draft = Draft(command.text)
    count: int | float | None = None
    known = 0  # rows that tell nothing of a card
    cut = False
    last = max((i for i, line in enumerate(lines) if line.strip()), default=0)
    for i in range(start, len(lines)):
        line = lines[i].strip()
        if not line:
            continue
        cells = [cell.strip() for cell in line[:_LONGEST].split(", ")]
        if len(cells) != len(titles):
            # A last line that is short is a cut row; one word with an end of line is the shell's.
            cut |= i >= last and (len(cells) > 1 or (i == len(lines) - 1 and len(titles) > 1))
            cut |= len(cells) >= 3 and len(titles) > 2 and "pid" not in titles
            continue
        if [_column(cell) for cell in cells] == titles:
            continue  # the header again
        row = dict(zip(titles, cells, strict=True))
        if start == 0 and not _fits(row):
            continue
        card = _card(row)
        if not card and not version(row.get("driver_version")):
            known += 1
            continue
        key = next((f"{name} {card[name]}" for name in ("uuid", "bus_id", "index") if name in card), str(len(cards)))
        cards.pop(key, None)
        cards[key] = card
        say(draft.components, "driver", version(row.get("kmd_version")) or version(row.get("driver_version")))
        count = number(present(row.get("count")))
    lacking = isinstance(count, int) and count > len(cards) and not command.has("-i", "--id")
    if cut or lacking or not (cards or events or (start and known)):
        if start == 0:
            return None  # no header was seen: these lines are something else
        return Draft(command.text, "failed", note="the rows break off").done()
    draft.accelerators = [card for card in cards.values() if card]
    if isinstance(count, int) and count != len(cards):
        draft.more["attached"] = count
    if any(card.get("fabric_state") == "In Progress" for card in draft.accelerators):
        draft.status, draft.note = "not-ready", "the fabric has not come up"
    elif any(card.get("health") == "lost" for card in draft.accelerators):
        draft.status, draft.note = "device-lost", "a GPU is lost"
    return draft.done()


def _header(command: Command, lines: list[str], wanted: list[str]) -> tuple[list[str], int]:
    """The columns and the number of the first row; ([], 0) when there is neither a header nor a list in the command."""
    single = "--query-" in command.text and len(wanted) <= 1
    for i, line in enumerate(lines[:2000]):
        if "," not in line and not single:
            continue
        titles = _titles(line)
        if wanted and titles == wanted:
            return titles, i + 1
        if (
            _KNOWN.intersection(titles)
            and all(_FIELD.match(title) for title in titles)
            and len(set(titles)) == len(titles)
        ):
            return titles, i + 1
    return (wanted, 0) if "noheader" in command.text else ([], 0)


def _titles(line: str) -> list[str]:
    return [_column(cell) for cell in line.split(",")] if len(line) <= _LONGEST else []


def _fits(row: dict[str, str]) -> bool:
    """Without a header only the form of the values tells our rows from other lines."""
    for title, value in row.items():
        if present(value) is None:
            continue
        if title in ("index", "count", "temperature.gpu", "memory.total", "memory.used") and number(value) is None:
            return False
        if title.endswith("uuid") and not value.startswith("GPU-"):
            return False
        if title.endswith("bus_id") and not bus_id(value):
            return False
        if title in ("driver_version", "kmd_version") and not version(value):
            return False
    return True


def _card(row: dict[str, str]) -> dict[str, Json]:
    card: dict[str, Json] = {}
    put(card, "index", number(present(row.get("index"))))
    put(card, "name", present(row.get("name") or row.get("gpu_name")))
    put(card, "uuid", present(row.get("uuid") or row.get("gpu_uuid")))
    put(card, "serial", present(row.get("serial") or row.get("gpu_serial")))
    put(card, "vbios", present(row.get("vbios_version")))
    put(card, "bus_id", bus_id(row.get("pci.bus_id") or row.get("gpu_bus_id") or ""))
    put(card, "pci_id", pci_id(row.get("pci.device_id")))
    put(card, "memory_total_mib", number(present(row.get("memory.total"))))
    put(card, "memory_used_mib", number(present(row.get("memory.used"))))
    put(card, "temperature_c", number(present(row.get("temperature.gpu"))))
    draws = ("power.draw", "power.draw.average", "power.draw.instant")
    put(card, "power_w", one_value(present(row.get(key)) for key in draws))
    put(card, "fabric_state", present(row.get("fabric.state")))
    signs = Signs()
    for key, value in row.items():
        if key.startswith("ecc.errors.uncorrected.volatile."):
            signs.errors(value)
        elif key.startswith("retired_pages.") and key.endswith(".count"):
            signs.count(value)
    signs.flag(row.get("retired_pages.pending"))
    signs.flag(row.get("remapped_rows.pending"))
    signs.flag(row.get("remapped_rows.failure"), critical=True)
    signs.recovery(row.get("gpu_recovery_action"))
    if (present(row.get("inforom.checksum_validation")) or "").lower() == "invalid":
        signs.critical = True
    signs.unreadable(row.values())
    put(card, "health", signs.health)
    if any("GPU is lost" in value for value in row.values()):
        card["health"] = "lost"
    return card
