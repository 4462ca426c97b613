"""`mx-smi -L` and the pages of `--show-…` and `--count-ecc`: a head for each card, then `label : value` lines."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from drivers.metax.values import health, key, number, state, value, verdict, version
from drivers.text import bus_id
from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed

_VERSION = re.compile(r"^\s*(?:mx|ht)-smi\s+version:\s*(\S+)\s*$")
_LOG = re.compile(r"\s*=+ (?:MetaX|Mars) System Management Interface Log =")
_ATTACHED = re.compile(r"\s*Attached GPUs\s*:\s*(\d{1,5})\s*$")
_HEAD = re.compile(r"\s*GPU#(\d{1,5})\s+(\S+)\s+([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*(.*)$")
_SLICE = re.compile(r"\s+SGPU#\d+\s")
_ERROR = re.compile(r"\s*GPU#\d+ \S+ .*\berror\b")
_UUID = re.compile(r"^(Available|Not Available.*?)\s*\(UUID:\s*(\S+)\)$")
_VRAM = re.compile(r"vram_(total|used)(?:_kb|_kbytes)?")
_QUANTITY = re.compile(r"(-?\d+(?:\.\d+)?)\s*(\S+)")

# What a page must hold when its `End of Log` line is not there to prove that it is whole.
_EXPECTED: dict[str, frozenset[str]] = {
    "--show-version": frozenset({"maca", "bios", "kmd"}),
    "--show-temperature": frozenset({"hotspot", "air_inlet", "air_outlet"}),
    "--show-pcie": frozenset({"current_speed", "current_width", "max_speed", "max_width"}),
    "--show-hwinfo": frozenset({"model_name", "board_serial_number", "memory_capacity"}),
    "--show-clock": frozenset({"xcore", "mc", "vpue", "vpud"}),
    "--show-clk-tr": frozenset({"idle", "other"}),
    "--show-dpm cur": frozenset({"xcore", "ccx"}),
    "--show-power-state": frozenset({"xcore", "pci"}),
    "--show-sysinfo": frozenset({"driver_gpu_id", "card_id"}),
    "--show-pcie-bandwidth": frozenset({"rx", "tx"}),
    "--show-board-power": frozenset({"total"}),
}
_COMPONENTS = {"maca": "toolkit", "hpcc": "toolkit", "bios": "firmware", "kmd": "driver", "mcu": "mcu"}
_MATRIX = re.compile(r"--show-(?:ap-usage|dpm|core-usage|process|all-process|vpu|event)")  # rows without a colon


_MOST_CARDS = 1024  # an end to reading, far above any node


@dataclass
class _Section:
    index: int
    name: str
    bus_id: str
    pairs: list[tuple[str, str, str]] = field(default_factory=list)  # group, label, value
    lines: int = 0
    failed: bool = False

    def labels(self) -> set[str]:
        return {_label(label) for _, label, _ in self.pairs}


@dataclass
class _Page:
    smi: str | None = None
    attached: int | None = None
    sections: list[_Section] = field(default_factory=list)
    log: bool = False
    ended: bool = False
    wrong: str = ""


def smi_version(text: str) -> str | None:
    """The tool's version from its first line."""
    for line in text.split("\n", 40)[:40]:
        match = _VERSION.match(line)
        if match:
            return match[1]
    return None


def read_list(command: str, text: str) -> Reading:
    """`-L`: one line a card; slices (SGPU) are not cards."""
    cards: list[dict[str, Json]] = []
    for line in text.split("\n"):
        match = _HEAD.match(line)
        if match:
            card = _listed(match)
            if card is None:
                return unparsed("metax", command, f"line {line[:80]!r} breaks off")
            cards.append(card)
        elif line.lstrip().startswith("GPU#"):
            return unparsed("metax", command, f"line {line[:80]!r} is not understood")
    last = _last_run(cards)
    if not last:
        return unparsed("metax", command, "no list of cards, or two mixed ones")
    attached = [match[1] for line in text.split("\n") if (match := _ATTACHED.match(line))]
    if attached and int(attached[-1]) != len(last):
        return unparsed("metax", command, f"{attached[-1]} cards attached, {len(last)} listed")
    smi = smi_version(text)
    return Reading(
        "metax", command, verdict(last), components={"smi": smi} if smi else {}, accelerators=tuple(last)
    )  # fmt: skip


def _listed(match: re.Match[str]) -> dict[str, Json] | None:
    card: dict[str, Json] = {"index": int(match[1]), "name": match[2], "bus_id": bus_id(match[3])}
    rest = match[4].strip()
    uuid = _UUID.match(rest)
    if uuid:
        rest = uuid[1]
        card["uuid"] = uuid[2]
    found = state(rest)
    if found is None or rest.count("(") != rest.count(")"):
        return None
    card["health"] = health(found[1], found[0])
    if found[1]:
        card["reason"] = found[1]
    return card


def _last_run(cards: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """The last repetition of a list printed again and again; empty when the repetitions do not agree."""
    order = [card["index"] for card in cards]
    if not order:
        return []
    size = order.index(order[0], 1) if order[0] in order[1:] else len(order)
    run = order[:size]
    if len(set(map(str, run))) != size or any(order[i] != run[i % size] for i in range(len(order))):
        return []
    whole = len(order) // size * size
    return cards[whole - size : whole]


def read_pages(command: str, text: str) -> Reading:
    """A `--show-…` page, the last one that is whole when it is printed in a loop."""
    pages = _pages(text.split("\n"))
    wrong = "no page"
    whole: _Page | None = None
    for page in pages:
        wrong = page.wrong or _why_not(command, page)
        if not wrong:
            whole = page
        elif page is not pages[-1]:
            return unparsed("metax", command, wrong)
    if whole is None:
        return unparsed("metax", command, wrong)
    return _reading(command, whole)


def _pages(lines: list[str]) -> list[_Page]:
    pages: list[_Page] = []
    page: _Page | None = None
    pending_smi: str | None = None
    group = ""
    for line in lines:
        if match := _VERSION.match(line):
            pending_smi = match[1]
        elif _LOG.match(line):
            page = _Page(smi=pending_smi, log=True)
            pages.append(page)
        elif page is None and _HEAD.match(line):
            page = _Page(smi=pending_smi)
            pages.append(page)
        if page is None or page.ended:
            continue
        if match := _ATTACHED.match(line):
            if page.attached is not None:
                page.wrong = "two pages are mixed"
            page.attached = int(match[1])
        elif match := _HEAD.match(line):
            group = ""
            if len(page.sections) >= _MOST_CARDS:
                page.wrong = "more cards than any node has"
                break
            page.sections.append(_Section(int(match[1]), match[2], bus_id(match[3])))
        elif line.strip() == "End of Log":
            page.ended = True
        elif _ERROR.match(line):
            if page.sections:
                page.sections[-1].failed = True
                page.sections[-1].lines += 1
        elif page.sections and line.startswith((" ", "\t")) and line.strip():
            group = _content(page.sections[-1], group, line)
        elif page.sections and line.strip():
            page.sections[-1].lines += 1
    return pages


def _content(section: _Section, group: str, line: str) -> str:
    """Take in one indented line; the group title now in force."""
    section.lines += 1
    label, colon, found = line.partition(" :")
    if colon and label.strip():
        section.pairs.append((group, label.strip(), found.strip()))
        return group
    if not line.startswith("        "):
        return line.strip()
    return group


def _why_not(command: str, page: _Page) -> str:
    """Why a page is not whole; "" when it is."""
    if "process" in command and not page.sections:
        return "" if page.attached is not None and page.ended else "the page breaks off"
    if page.attached == 0 and not page.sections:
        return ""
    if not page.sections:
        return "no card is shown"
    indexes = [section.index for section in page.sections]
    if len(set(indexes)) != len(indexes):
        return "a card is shown twice"
    chosen = re.search(r"(?:^|\s)(?:-i|--index)(?:\s|=|\d|$)", command)
    if page.attached is not None and page.attached != len(indexes) and not chosen:
        return f"{page.attached} cards attached, {len(indexes)} shown"
    if any(not section.lines for section in page.sections):
        return "a card without content"
    if not page.ended:
        return _breaks_off(command, page)
    return ""


def _breaks_off(command: str, page: _Page) -> str:
    """The same for a page without its last line: cards must agree, and hold what such a page always holds."""
    first, last = page.sections[0].labels(), page.sections[-1].labels()
    if page.sections[-1].failed:
        return ""
    if len(page.sections) > 1 and last < first:
        return "the last card breaks off"
    wanted = next((labels for page_of, labels in _EXPECTED.items() if f"{page_of} " in f"{command} "), frozenset())
    if not wanted.issubset(last):
        return "the page breaks off"
    if not last and not _MATRIX.search(command):
        return "the page breaks off"
    return ""


def _label(label: str) -> str:
    return key(re.sub(r"\(sensor\d+\)", "", label))


def _measure(section: _Section) -> dict[str, Json]:
    out: dict[str, Json] = {}
    for group, label, raw in section.pairs:
        text = value(raw)
        if text is None:
            continue
        name, found = _label(label), number(text)
        quantity = _QUANTITY.fullmatch(text)
        entry: Json = found if found is not None else text
        if match := re.fullmatch(r"x(\d{1,3})", text):
            entry = int(match[1])
        elif found is None and quantity and number(quantity[1]) is not None and re.match(r"[A-Za-z%]", quantity[2]):
            entry = number(quantity[1])
            unit = key(quantity[2])  # "" for %
            name = f"{name}_{unit}" if unit and name.rpartition("_")[2] != unit else name
        if name in out:
            name = f"{key(group)}_{name}"
        out[name] = entry
    return out


def _card(section: _Section) -> dict[str, Json]:
    card: dict[str, Json] = {"index": section.index, "name": section.name, "bus_id": section.bus_id}
    for name, found in _measure(section).items():
        if name == "board_serial_number":
            card["serial"] = found
        elif name == "hotspot_c":
            card["temperature_c"] = found
        elif name == "total_w":
            card["power_w"] = found
        elif name == "bios" and version(str(found)):
            card["firmware"] = found
        elif (match := _VRAM.fullmatch(name)) and isinstance(found, (int, float)):
            mib = found / 1024
            card[f"memory_{match[1]}_mib"] = int(mib) if mib == int(mib) else mib
        elif name.endswith("unavailable_reason"):
            card["health"], card["reason"] = health(str(found), False), found
    return card


def _reading(command: str, page: _Page) -> Reading:
    cards = [_card(section) for section in page.sections]
    components: dict[str, str] = {"smi": page.smi} if page.smi else {}
    for label, component in _COMPONENTS.items():
        values = {raw for s in page.sections for _, name, raw in s.pairs if key(name) == label and version(raw)}
        if len(values) == 1:  # cards that disagree have no common version; each card keeps its own
            components[component] = values.pop()
    if any(section.failed for section in page.sections):
        return Reading("metax", command, "failed", components=components, accelerators=tuple(cards))
    if page.attached == 0:
        return Reading("metax", command, "no-devices", components=components)
    measure = _measure(page.sections[0]) if len(page.sections) == 1 else {}
    return Reading("metax", command, verdict(cards), components=components, accelerators=tuple(cards), measure=measure)
