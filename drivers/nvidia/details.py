"""`nvidia-smi -q`, as text and as XML: one card's fields by their path, whatever the driver branch.

The text is parsed by indentation because `Current`, `Pending` and `State` stand at several levels. The XML is read from
direct children only: a MIG device repeats the names of its card.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping

from drivers.nvidia.commands import Command
from drivers.nvidia.values import Draft, Signs, nothing, number, one_value, pci_id, present, put, rows, say, version
from drivers.text import bus_id
from fleet.core.model import Json
from fleet.core.vendor import Reading

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
_FIELD = re.compile(r"(\s*)(\S.*?)\s*: ?(.*)$")
_XML_LIMIT = 2_000_000  # characters; a GPU takes about 20 thousand
Fields = Mapping[str, str]


def text_form(command: Command, text: str) -> Reading | None:
    """`nvidia-smi -q [-d SECTIONS]`; in loop mode the last whole log. None when it is no such log."""
    logs: list[list[str]] = [[]]
    for line in rows(text):
        if "NVSMI LOG" in line and line.lstrip().startswith("="):
            logs.append([])
        else:
            logs[-1].append(line)
    answer: Reading | None = None
    for log in reversed(logs):
        reading = _one_log(command, log)
        if reading is not None and reading.status != "failed":
            return reading
        answer = answer or reading
    return answer


def _one_log(command: Command, lines: list[str]) -> Reading | None:
    head: dict[str, str] = {}
    blocks: list[tuple[str, dict[str, str]]] = []
    stack: list[tuple[int, str]] = []
    excerpt = False
    last_is_title = False
    for line in lines:
        stripped = line.strip()
        if not stripped:
            continue
        if stripped == "[...]":
            excerpt = True
            continue
        gpu = _GPU.match(line)
        if gpu:
            blocks.append((bus_id(gpu.group(1)), {}))
            stack, last_is_title = [], True
            continue
        indent = len(line) - len(line.lstrip())
        match = _FIELD.match(line) if ":" in line else None
        if indent == 0:
            if match and not blocks:
                head[match.group(2).lower()] = match.group(3).strip()
                continue
            if blocks:
                break  # what follows the log
            continue
        if not blocks:
            continue
        while stack and stack[-1][0] >= indent:
            stack.pop()
        name = (match.group(2) if match else stripped).lower()
        path = "/".join([*(title for _, title in stack), name])
        last_is_title = match is None
        if match:
            blocks[-1][1][path] = match.group(3).strip()
        stack.append((indent, name))
    driver = version(head.get("kmd version")) or version(head.get("driver version"))
    if not blocks and not driver:
        return None
    draft = Draft(command.text)
    say(draft.components, "driver", driver)
    for key in ("cuda umd version", "cuda version"):
        cuda = re.match(r"\d+\.\d+(?!\S)", head.get(key, ""))
        if cuda:
            draft.components.setdefault("cuda", cuda.group())
    attached = number(head.get("attached gpus"))
    if len({bus for bus, _ in blocks}) < len(blocks):
        return nothing(command.text, "two logs are mixed")
    if attached == 0 and not blocks:
        draft.status, draft.note = "no-devices", "no GPU is attached"
        return draft.done()
    fewer = isinstance(attached, int) and attached > len(blocks)
    lacking = fewer and not command.has("-i", "--id")
    if not blocks or last_is_title or (not excerpt and (lacking or _is_cut(command, [f for _, f in blocks]))):
        draft.status, draft.note = "failed", "the log breaks off"
        if not excerpt:
            return draft.done() if driver else nothing(command.text, "no intact header")
    for position, (bus, fields) in enumerate(blocks):
        draft.accelerators.append(_text_card(bus, fields, None if excerpt or fewer else position))
    gsp = next((v for _, fields in blocks if (v := version(fields.get("gsp firmware version")))), None)
    say(draft.components, "gsp", gsp)
    _finish(draft, attached)
    if excerpt:
        draft.status, draft.note = "failed", "an excerpt"
    return draft.done()


def _is_cut(command: Command, blocks: list[dict[str, str]]) -> bool:
    """A whole `-q` ends with the processes of its last card; a selection has the same fields for each card."""
    last = blocks[-1]
    if not command.has("-d", "--display") and "product name" in last:
        return not any(path.startswith("processes") for path in last)
    return bool(blocks[0].keys() - last.keys()) and len(blocks) > 1


def _text_card(bus: str, fields: Fields, position: int | None) -> dict[str, Json]:
    card: dict[str, Json] = {}
    put(card, "index", position)
    card["bus_id"] = bus
    put(card, "name", present(fields.get("product name")))
    put(card, "uuid", present(fields.get("gpu uuid")))
    put(card, "serial", present(fields.get("serial number")))
    put(card, "vbios", present(fields.get("vbios version")))
    put(card, "pci_id", pci_id(fields.get("pci/device id")))
    put(card, "memory_total_mib", number(present(fields.get("fb memory usage/total"))))
    put(card, "memory_used_mib", number(present(fields.get("fb memory usage/used"))))
    put(card, "temperature_c", number(present(fields.get("temperature/gpu current temp"))))
    put(
        card,
        "power_w",
        one_value(
            present(fields.get(f"{section}/{key}"))
            for section in ("gpu power readings", "power readings")
            for key in ("power draw", "average power draw", "instantaneous power draw")
        ),
    )
    put(card, "fabric_state", present(fields.get("fabric/state")))
    signs = Signs()
    for path, value in fields.items():
        if path.startswith("ecc errors/volatile/"):
            if "uncorrectable" in path or "double bit" in path:
                signs.errors(value)
            else:
                signs.count(value)
        elif path.startswith("retired pages/"):
            if "pending" in path:
                signs.flag(value)
            else:
                signs.count(value)
    signs.flag(fields.get("remapped rows/pending"))
    signs.flag(fields.get("remapped rows/remapping failure occurred"), critical=True)
    signs.flag(fields.get("ecc errors/unrepairable memory"), critical=True)
    signs.recovery(fields.get("gpu recovery action"))
    signs.unreadable(fields.values())
    put(card, "health", signs.health)
    return card


def _finish(draft: Draft, attached: int | float | None) -> None:
    if isinstance(attached, int) and attached != len(draft.accelerators):
        draft.more["attached"] = attached
    if any(card.get("fabric_state") == "In Progress" for card in draft.accelerators):
        draft.status, draft.note = "not-ready", "the fabric has not come up"


def xml_form(command: str, text: str) -> Reading:
    """`nvidia-smi -q -x` of DTD v9 to v13, with or without the DOCTYPE line, with noise around the document."""
    end = text.rfind("</nvidia_smi_log>")
    start = text.rfind("<nvidia_smi_log", 0, end if end >= 0 else None)
    if start < 0 or end < 0:
        return nothing(command, "the document breaks off")
    document = text[start : end + len("</nvidia_smi_log>")]  # without prologue: no entity can be declared
    if len(document) > _XML_LIMIT:
        return nothing(command, "the document is larger than any machine's")
    try:
        root = ElementTree.fromstring(document)
    except (ElementTree.ParseError, ValueError) as error:
        return nothing(command, f"not well-formed: {error}")
    draft = Draft(command)

    def said(node: ElementTree.Element, path: str) -> str | None:
        return present(node.findtext(path))

    say(draft.components, "driver", version(said(root, "kmd_version")) or version(said(root, "driver_version")))
    for key in ("cuda_umd_version", "cuda_version"):
        cuda = re.match(r"\d+\.\d+(?!\S)", said(root, key) or "")
        if cuda:
            draft.components.setdefault("cuda", cuda.group())
    gpus = root.findall("gpu")
    attached = number(said(root, "attached_gpus"))
    if not gpus and attached is None:
        return nothing(command, "a document without GPUs")
    for position, gpu in enumerate(gpus):
        card: dict[str, Json] = {"index": position}
        if isinstance(attached, int) and attached > len(gpus):
            del card["index"]  # a selection of the cards: the position is not the index
        put(card, "bus_id", bus_id(gpu.get("id") or said(gpu, "pci/pci_bus_id") or ""))
        put(card, "name", said(gpu, "product_name"))
        put(card, "uuid", said(gpu, "uuid"))
        put(card, "serial", said(gpu, "serial"))
        put(card, "vbios", said(gpu, "vbios_version"))
        put(card, "pci_id", _xml_pci(said(gpu, "pci/pci_device_id")))
        put(card, "memory_total_mib", number(said(gpu, "fb_memory_usage/total")))
        put(card, "memory_used_mib", number(said(gpu, "fb_memory_usage/used")))
        put(card, "temperature_c", number(said(gpu, "temperature/gpu_temp")))
        put(
            card,
            "power_w",
            one_value(
                said(gpu, f"{section}/{key}")
                for section in ("gpu_power_readings", "power_readings")
                for key in ("power_draw", "average_power_draw", "instant_power_draw")
            ),
        )
        put(card, "fabric_state", said(gpu, "fabric/state"))
        put(card, "health", _xml_signs(gpu).health)
        draft.accelerators.append(card)
        if "gsp" not in draft.components:
            say(draft.components, "gsp", version(said(gpu, "gsp_firmware_version")))
    _finish(draft, attached)
    if not gpus and not attached:
        draft.status = "no-devices"
    return draft.done()


def _xml_pci(value: str | None) -> str | None:
    text = (value or "").removeprefix("0x")
    return pci_id("0x" + text) if text else None


def _xml_signs(gpu: ElementTree.Element) -> Signs:
    signs = Signs()
    for node in gpu.findall("ecc_errors/volatile//*"):
        if len(node) == 0:
            if "uncorrectable" in node.tag:
                signs.errors(node.text)
            elif node.tag != "total":
                signs.count(node.text)
    for node in gpu.findall("ecc_errors/volatile/double_bit/*"):
        signs.errors(node.text)
    for path in ("pending_blacklist", "pending_retirement"):
        signs.flag(gpu.findtext(f"retired_pages/{path}"))
    for path in ("multiple_single_bit_retirement", "double_bit_retirement"):
        signs.count(gpu.findtext(f"retired_pages/{path}/retired_count"))
    signs.flag(gpu.findtext("remapped_rows/remapped_row_pending"))
    signs.flag(gpu.findtext("remapped_rows/remapped_row_failure"), critical=True)
    signs.flag(gpu.findtext("ecc_errors/unrepairable_memory"), critical=True)
    signs.recovery(gpu.findtext("gpu_recovery_action"))
    signs.unreadable(node.text or "" for node in gpu.iter())
    return signs
