"""`npu-smi info -t TYPE`, `-l`, `-m` and `-t topo`: answers in `key : value` lines.

On 910 cards `Chip ID` closes a chip's block for usages, ecc and health and opens it for common; on 310 it always opens.
Which of the two holds is seen from the first key after the card's own lines. Blocks of the MCU are not chips.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from drivers.ascend.table import HEALTH
from drivers.ascend.words import VENDOR_NAME, body, cut_short, label, number, pairs, quantity, trouble, version
from drivers.text import bus_id
from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed

MAX_CHARS = 1 << 20
_CARD_KEYS = {"NPU ID", "Chip Count", "Card ID"}
_NOT_MEASURED = _CARD_KEYS | {"Chip ID", "Chip Name", "Chip Phy-ID", "Chip Logic ID"}
_CODE = re.compile(r"\b(?:0[xX])?([0-9A-Fa-f]{8})\b")
_EVENT = re.compile(r"event id\s*=\s*0[xX]([0-9A-Fa-f]{8})")
_BRACKET = re.compile(r"\[([^\]]*)\]?")
# What a section of one of these types must have at least one of, so that a foreign `a : b` text is not taken for it.
_KNOWN = re.compile(
    r"usage rate|capacity|err cnt|error count|isolated pages|temperature|power|freq|hugepages|voltage|aicore"
    r"|retry count|super pod|sdid|server index|bandwidth|flash (?:id|count)|hit rate|p2p|ecc enable|nve level"
    r"|vnpu-mode|work mode|i2c|fan (?:count|speed)|\A(?:npu id|chip count)\Z",
    re.I,
)
_COMPATIBILITY = {"OK": "pass", "NOK": "fail", "UNKNOWN": "warn", "NOT SUPPORT": "unsupported"}


@dataclass
class _Card:
    """One card: its own keys, then one list of (key, value) for each chip."""

    head: dict[str, str] = field(default_factory=dict)
    chips: list[list[tuple[str, str]]] = field(default_factory=list)
    open: list[tuple[str, str]] = field(default_factory=list)  # lines that no Chip ID has closed yet

    @property
    def npu(self) -> int | float | None:
        return number(self.head.get("NPU ID", ""))


def _is_mcu(block: list[tuple[str, str]]) -> bool:
    return any(key == "Chip Name" and value.lower() == "mcu" for key, value in block)


def _joined(blocks: list[list[tuple[str, str]]], opens: bool) -> list[list[tuple[str, str]]]:
    """A controller may be named by its chip id and by its name: then both lines are of one block.

    Where these lines close a block, the name stands alone after it; where they open one, the id stands alone before.
    """
    out: list[list[tuple[str, str]]] = []
    for block in blocks:
        named = _is_mcu(block)
        alone = out and named and (len(out[-1]) == 1 if opens else len(block) == 1)
        if alone and any(key == "Chip ID" for key, _ in out[-1]):
            out[-1] = [*out[-1], *block]
        else:
            out.append(block)
    return out


def _cards(text: str) -> list[_Card]:
    """The cards of an answer. Without any `NPU ID` line (a query with -c) the whole is one chip of one card."""
    cards: list[_Card] = []
    grouped: list[list[tuple[str, str]]] = []
    for key, value in pairs(text):
        if key == "NPU ID" or not grouped:
            grouped.append([])
        grouped[-1].append((key, value))
    for lines in grouped:
        card = _Card()
        body = [(k, v) for k, v in lines if k not in _CARD_KEYS]
        card.head = {k: v for k, v in lines if k in _CARD_KEYS}
        opens = bool(body) and (body[0][0] == "Chip ID" or not any(k == "Chip ID" for k, _ in body))
        block: list[tuple[str, str]] = []
        for key, value in body:
            edge = key == "Chip ID" or (key == "Chip Name" and value.lower() == "mcu")
            if edge and opens and block:
                card.chips.append(block)
                block = []
            block.append((key, value))
            if edge and not opens:
                card.chips.append(block)
                block = []
        if block:
            if opens:
                card.chips.append(block)
            else:
                card.open = block
        card.chips = [chip for chip in _joined(card.chips, opens) if not _is_mcu(chip)]
        cards.append(card)
    return cards


def _whole(cards: list[_Card]) -> str:
    """Why an answer is not whole; "" when it is."""
    for card in cards:
        if card.open:
            return "a chip's block is cut"
        expected = number(card.head.get("Chip Count", ""))
        if expected is not None and card.chips and len(card.chips) != expected:
            return "fewer chips than the card's count"
        if expected and not any(key == "Chip ID" for chip in card.chips for key, _ in chip):
            return "no chip after the card's count"
        if any(len(chip) < 2 and chip[0][0] == "Chip ID" for chip in card.chips):
            return "a chip without values"
    return ""


def _measure(block: list[tuple[str, str]]) -> dict[str, Json]:
    out: dict[str, Json] = {}
    for key, value in block:
        if key and key not in _NOT_MEASURED:
            found = quantity(value)
            if found:
                out[label(key, found[1])] = found[0]
    return out


def _values(measure: dict[str, Json]) -> dict[str, Json]:
    """The measured values that have a fixed name on an accelerator."""
    out: dict[str, Json] = {}
    for name, keys in (
        ("memory_total_mib", ("hbm_capacity_mb", "ddr_capacity_mb", "memory_capacity_mb")),
        ("temperature_c", ("temperature_c", "npu_temperature_c")),
        ("power_w", ("npu_real_time_power_w", "power_dissipation_w", "power_w")),
    ):
        found = next((measure[key] for key in keys if key in measure), None)
        if found is not None:
            out[name] = found
    return out


def _index(card: _Card, block: list[tuple[str, str]], asked: int | None) -> dict[str, Json]:
    own = dict(block)
    phy = number(own.get("Chip Phy-ID", ""))
    out: dict[str, Json] = {}
    index = phy if phy is not None else card.npu if card.npu is not None else asked
    if index is not None:
        out["index"] = index
    chip = number(own.get("Chip ID", ""))
    if chip is not None and len(card.chips) > 1:
        out["chip"] = chip
    return out


def _measured(command: str, text: str, asked: int | None) -> Reading:
    cards = _cards(text)
    why = _whole(cards)
    blocks = [(card, chip, _measure(chip)) for card in cards for chip in card.chips]
    if why or not blocks:
        return unparsed(VENDOR_NAME, command, why or "no chip in the answer")
    chips: list[dict[str, Json]] = []
    for card, chip, measure in blocks:
        entry = {**_index(card, chip, asked), **_values(measure)}
        if len(blocks) > 1:
            entry["measure"] = measure
        chips.append(entry)
    single = blocks[0][2] if len(blocks) == 1 else {}
    if not any(card.head for card in cards):  # a query of one chip: its values, no card line to count
        chips = [chip for chip in chips if len(chip) > 1]
    return Reading(VENDOR_NAME, command, "ok", accelerators=tuple(chips), measure=single)


def read_section(command: str, text: str, asked: int | None) -> Reading:
    """usages, common, ecc, pcie-err, temp, power, memory, spod-info and other types of measured values."""
    if not any(key[:1].isalpha() and _KNOWN.search(key) for key, _ in pairs(text)):
        return unparsed(VENDOR_NAME, command, "none of the labels is known")
    return _measured(command, text, asked)


def read_health(command: str, text: str, asked: int | None) -> Reading:
    """`-t health`: one entry for each chip and the error codes, upper case without 0x."""
    cards = _cards(text)
    why = _whole(cards)
    chips: list[dict[str, Json]] = []
    faults: list[dict[str, Json]] = []
    for card in cards:
        for block in card.chips:
            words = [value for key, value in block if key in {"Health", "Health Status"}]
            if len(words) != 1 or not words[0]:
                why = why or "a chip without one health word"
                continue
            entry = _index(card, block, asked)
            entry["health"] = HEALTH.get(words[0].lower(), "unknown")
            chips.append(entry)
            previous = ""
            for key, value in block:
                previous = key or previous
                if previous == "Error Code":
                    at: dict[str, Json] = {name: entry[name] for name in ("index", "chip") if name in entry}
                    faults += [{"code": code.upper(), **at} for code in _CODE.findall(value)]
    if why or not chips:
        return unparsed(VENDOR_NAME, command, why or "no health line")
    return Reading(VENDOR_NAME, command, "ok", accelerators=tuple(chips), faults=tuple(faults))


def read_product(command: str, text: str, asked: int | None) -> Reading:
    """`-t product`: what the card is sold as; answered by 310, 310B and 310P only."""
    chips: list[dict[str, Json]] = []
    npu: int | float | None = asked
    for key, value in pairs(text):
        if key == "NPU ID":
            npu = number(value)
        elif key in {"Product Name", "Product Type"} and value not in {"", "NA"}:
            chips.append({"index": npu, "product": value})
    if not chips:
        return unparsed(VENDOR_NAME, command, "no product name")
    return Reading(VENDOR_NAME, command, "ok", accelerators=tuple(chips))


def read_event(command: str, text: str, asked: int | None) -> Reading:  # noqa: ARG001 - one shape for all types
    """`-t event`: the pending fault events; a count larger than the events that follow is a cut answer."""
    codes = _EVENT.findall(text)
    count = next((number(value) for key, value in pairs(text) if key == "Fault Event Count"), None)
    if count is None or count != len(codes):
        return unparsed(VENDOR_NAME, command, "no event count, or another number of events")
    return Reading(VENDOR_NAME, command, "ok", faults=tuple({"code": code.upper()} for code in codes))


def _board(own: dict[str, str]) -> dict[str, Json]:
    card: dict[str, Json] = {"index": number(own.get("NPU ID", ""))}
    for name, key in (
        ("serial", "Serial Number"),
        ("product", "Product Name"),
        ("uuid", "VDie ID"),
        ("chip_name", "Chip Name"),
    ):
        value = own.get(key, "")
        if value and value.upper() not in {"NA", "N/A", "-"}:
            card[name] = value
    card["bus_id"] = bus_id(own.get("PCIe Bus Info", "")) or None
    vendor, device = (own.get(f"PCI {part} ID", "").lower().removeprefix("0x") for part in ("Vendor", "Device"))
    if vendor and device:
        card["pci_id"] = f"{vendor}:{device}"
        sub = (own.get(f"Subsystem {part} ID", "").lower().removeprefix("0x") for part in ("Vendor", "Device"))
        card["subsystem"] = ":".join(sub)
    card["firmware"] = version(own.get("Firmware Version", ""))
    chip = number(own.get("Chip ID", ""))
    if chip is not None:
        card["chip"] = chip
    return card


def read_board(command: str, text: str, asked: int | None) -> Reading:
    """`-t board`, of one card or of several in a row: driver, firmware, identity and `compatibility`.

    Cards that name different versions give the status driver-mismatch and no value for that component.
    """
    boards: list[dict[str, str]] = []
    for key, value in pairs(body(text)):
        if key == "NPU ID" or (not boards and key in {"Chip ID", "Software Version", "Product Name"}):
            boards.append({})
        if boards:
            boards[-1].setdefault(key, value)
    if not boards:
        status = trouble(text)
        return Reading(VENDOR_NAME, command, status) if status else unparsed(VENDOR_NAME, command, "no board lines")
    for own in boards:
        whole = "Chip ID" in own or {"Software Version", "Chip Count"} <= own.keys()
        if not whole:
            return unparsed(VENDOR_NAME, command, "a board's answer is cut")
        own.setdefault("NPU ID", str(asked) if asked is not None else "")
    components: dict[str, str] = {}
    mixed = False
    for name, key in (("driver", "Software Version"), ("firmware", "Firmware Version")):
        values = {v for own in boards if (v := version(own.get(key, "")))}
        if len(values) == 1:
            components[name] = values.pop()
        mixed = mixed or len(values) > 1
    results = [_COMPATIBILITY[own["Compatibility"]] for own in boards if own.get("Compatibility") in _COMPATIBILITY]
    checks: tuple[dict[str, Json], ...] = ()
    if results:
        worst = next(word for word in ("fail", "warn", "unsupported", "pass") if word in results)
        checks = ({"name": "compatibility", "result": worst},)
        mixed = mixed or worst == "fail"
    lost = trouble(re.sub(r"NOT SUPPORT", "", text)) if re.search(r"^[^:\n]*(?:nvalid|ret is)", text, re.M) else None
    return Reading(
        VENDOR_NAME,
        command,
        "driver-mismatch" if mixed else lost or "ok",
        components=components,
        accelerators=tuple(_board(own) for own in boards),
        checks=checks,
    )


def _hccs_block(own: dict[str, str]) -> list[dict[str, Json]] | None:
    columns: dict[str, list[int | float | None]] = {}
    for name, key in (
        ("lanes", "hccs lane mode"),
        ("speed_gbit", "hccs link speed"),
        ("retries", "hccs retry count"),
        ("errors", "hccs error count"),
    ):
        groups = _BRACKET.findall(own.get(key, ""))
        values = " ".join(groups) if groups else own.get(key, "")
        columns[name] = [number(word) for word in values.replace(",", " ").split()]
    size = len(columns["lanes"])
    if not size or any(len(values) != size for values in columns.values()):
        return None
    return [{"index": i, **{name: values[i] for name, values in columns.items()}} for i in range(size)]


def read_hccs(command: str, text: str, asked: int | None) -> Reading:
    """`-t hccs`, of one chip or of several in a row: one link for each lane group; 4 lanes of 56 Gbit/s are full."""
    blocks: list[dict[str, str]] = []
    card: str = ""
    for key, value in pairs(text):
        name = key.lower()
        if key == "NPU ID":
            card = value
        elif name == "hccs health status":
            blocks.append({"card": card})
        if blocks and name.startswith("hccs "):
            blocks[-1].setdefault(name, value)
    links: list[dict[str, Json]] = []
    states = {block["hccs health status"].upper() for block in blocks}
    for block in blocks:
        lanes = _hccs_block(block)
        if lanes is None:
            return unparsed(VENDOR_NAME, command, "the hccs lists are cut or differ in length")
        owner = number(block["card"]) if block["card"] else asked
        links += [{**lane, "npu": owner} if len(blocks) > 1 else lane for lane in lanes]
    if not blocks or not states <= {"OK", "NOK", "NA"}:
        return unparsed(VENDOR_NAME, command, "no hccs lines")
    result = "fail" if "NOK" in states else "pass" if "OK" in states else "skip"
    return Reading(VENDOR_NAME, command, "ok", links=tuple(links), checks=({"name": "hccs", "result": result},))


def read_topo(command: str, text: str, asked: int | None) -> Reading:  # noqa: ARG001
    """`-t topo`: one link for each pair above the diagonal, labels and types as printed."""
    names: list[str] = []
    rows: dict[str, list[str]] = {}
    for line in text.split("\n"):
        words = line.split()
        if not words:
            if rows:
                break
            continue
        if not names:
            head = line.split("CPU Affinity")[0].split("NUMA")[0].split()
            if len(head) > 0 and all(re.fullmatch(r"(?:NPU|Phy-ID|NIC)\d+", word) for word in head):
                names = head
        elif words[0] in names:
            if words[0] in rows:
                return unparsed(VENDOR_NAME, command, "a row comes twice")
            rows[words[0]] = words[1 : len(names) + 1]
        elif re.fullmatch(r"(?:NPU|Phy-ID|NIC)\d+", words[0]):
            return unparsed(VENDOR_NAME, command, "a row that the header does not name")
    if not names or list(rows) != names or any(len(row) != len(names) for row in rows.values()):
        return unparsed(VENDOR_NAME, command, "no whole matrix")
    if any(rows[name][i] != "X" for i, name in enumerate(names)):
        return unparsed(VENDOR_NAME, command, "the diagonal is not X")
    links = tuple(
        {"from": one, "to": other, "type": rows[one][j]}
        for i, one in enumerate(names)
        for j, other in enumerate(names)
        if j > i
    )
    return Reading(VENDOR_NAME, command, "ok", links=links)


def read_list(command: str, text: str) -> Reading:
    """`npu-smi info -l`: one entry for each card; fewer cards than `Total Count` is a cut answer.

    Of a list that is printed again and again the last whole one counts.
    """
    runs: list[list[tuple[str, str]]] = []
    for key, value in pairs(text):
        if key in {"Total Count", "Card Count"}:
            runs.append([])
        if runs:
            runs[-1].append((key, value))
    if not runs:
        status = trouble(text)
        return Reading(VENDOR_NAME, command, status) if status else unparsed(VENDOR_NAME, command, "no Total Count")
    lists = [_listed(run) for run in runs]
    if len(lists) > 1 and lists[-1] is None:
        lists.pop()  # the watch was stopped while it printed
    cards = lists[-1]
    if cards is None or any(one is None for one in lists):
        return unparsed(VENDOR_NAME, command, "the count and the cards differ, or the last card is cut")
    return Reading(VENDOR_NAME, command, "ok" if cards else "no-devices", accelerators=tuple(cards))


def _listed(run: list[tuple[str, str]]) -> list[dict[str, Json]] | None:
    """The cards of one list; None when they are not as many as its first line says, or one is cut."""
    cards: list[dict[str, Json]] = []
    for key, value in run:
        if key == "NPU ID":
            cards.append({"index": number(value)})
        elif cards and key in {"Serial Number", "Product Name"} and value not in {"NA", ""}:
            cards[-1]["serial" if key == "Serial Number" else "product"] = value
        elif cards and key == "Chip Count":
            cards[-1]["chips"] = number(value)
    ids = [card["index"] for card in cards]
    if number(run[0][1]) != len(cards) or None in ids or len(set(map(str, ids))) != len(ids):
        return None
    uneven = any("chips" in card for card in cards) and not all("chips" in card for card in cards)
    return None if uneven else cards


_COLUMN = re.compile(r"NPU ID|Slot ID|Chip ID|Chip Logic ID|Chip Phy-ID|Phy-ID|Device ID|Card ID|Chip Name")


def read_map(command: str, text: str) -> Reading:
    """`npu-smi info -m`: one entry for each chip; rows of the MCU are left out. Read by header words."""
    columns: list[str] = []
    rows: list[dict[str, str]] = []
    for line in text.split("\n"):
        if line.strip().startswith("NPU ID") and "Chip Name" in line:
            if _COLUMN.sub("", line).strip():
                return unparsed(VENDOR_NAME, command, "a column that is not known")
            columns, rows = _COLUMN.findall(line), []
        elif columns and line.strip():
            words = line.split(None, len(columns) - 1)
            if not words[0].isdigit():
                continue
            if len(words) != len(columns):
                return unparsed(VENDOR_NAME, command, "a row is cut")
            rows.append(dict(zip(columns, (word.strip() for word in words), strict=True)))
    if not columns or columns[-1] != "Chip Name":
        status = trouble(text)
        return Reading(VENDOR_NAME, command, status) if status else unparsed(VENDOR_NAME, command, "no map")
    chips = [row for row in rows if row["Chip Name"].lower() != "mcu" and row.get("Chip Logic ID") != "-"]
    if not chips:
        return unparsed(VENDOR_NAME, command, "no chip in the map")
    keys = [(row["NPU ID"], row.get("Chip ID", "")) for row in chips]
    if len(set(keys)) != len(keys):
        return unparsed(VENDOR_NAME, command, "a chip comes twice")
    per_card = {npu: sum(1 for other, _ in keys if other == npu) for npu, _ in keys[:1024]}
    found: list[dict[str, Json]] = []
    for row in chips:
        phy = row.get("Chip Phy-ID", row.get("Phy-ID"))
        logic = row.get("Chip Logic ID") if per_card.get(row["NPU ID"], 1) > 1 else None
        index = number(phy or logic or row["NPU ID"])
        found.append({"index": index, "npu": number(row["NPU ID"]), "name": row["Chip Name"]})
    return Reading(VENDOR_NAME, command, "ok", accelerators=tuple(found))


_SectionReader = Callable[[str, str, "int | None"], Reading]
_TYPES: dict[str, _SectionReader] = {
    "health": read_health,
    "board": read_board,
    "hccs": read_hccs,
    "topo": read_topo,
    "event": read_event,
    "product": read_product,
}


def read_type(command: str, kind: str, text: str, asked: int | None) -> Reading:
    """The answer to `npu-smi info -t KIND [-i ASKED]`."""
    if len(text) > MAX_CHARS:
        return unparsed(VENDOR_NAME, command, "longer than any answer of this kind")
    status = trouble(text)
    if status and not any(value for key, value in pairs(text) if key in {"NPU ID", "Health", "Health Status"}):
        return Reading(VENDOR_NAME, command, status)
    if kind != "topo" and cut_short(text):  # topo: a matrix has its own shape, and a legend after it
        return unparsed(VENDOR_NAME, command, "the last line is cut")
    if kind not in {"topo", "board"}:
        text = body(text)
    return _TYPES.get(kind, read_section)(command, text, asked)
