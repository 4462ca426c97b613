"""`ascend-dmi`: diagnosis, bandwidth, compute power and package compatibility, as JSON or as text.

Its exit status says nothing: `{"error": …}` comes with 0. A FAIL may mean that it has no threshold for this product.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from drivers.ascend.words import VENDOR_NAME, label, number, quantity, trouble, version
from fleet.core.model import Json
from fleet.core.vendor import Reading, Status, unparsed

_MAX = 1 << 21
_RESULTS = {"HEALTH": "pass", "PASS": "pass", "SKIP": "skip", "WARN": "warn", "FAIL": "fail"}
_PACKAGES = {"npu-driver": "driver", "npu-firmware": "firmware"}
_NO_THRESHOLD = re.compile(r"threshold[^\"\n]{0,120}failed from configuration file", re.I)
_NOT_CHECKED = re.compile(r"not support|not checked|skipped", re.I)
_POWER = re.compile(r"(tops|tflops)@(\w+)|(tops|tflops)_(\w+)", re.I)


def _result(word: str) -> str | None:
    upper = word.strip().upper()
    if upper in _RESULTS:
        return _RESULTS[upper]
    return "warn" if upper.endswith("_WARN") else None


def _documents(text: str) -> list[Json]:
    """Every JSON object that starts a line (noise may stand before); [] when one is cut."""
    decoder = json.JSONDecoder()
    out: list[Json] = []
    at = text.find("{")
    while at >= 0 and len(out) < 64:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        out.append(value)
        at = text.find("{", end)
    return out


def _objects(value: Json) -> Iterable[dict[str, Json]]:
    """Every object in a document, outer ones first; no recursion, so that depth is no matter."""
    todo: list[Json] = [value]
    while todo:
        here = todo.pop(0) if len(todo) < 1000 else todo.pop()
        if isinstance(here, dict):
            yield here
            todo.extend(here.values())
        elif isinstance(here, list):
            todo.extend(here)


def _judged(command: str, items: list[tuple[str, str, str]]) -> Reading:
    """Items of a diagnosis (name, result, information) as checks."""
    checks: list[dict[str, Json]] = []
    for name, result, info in items:
        if result == "fail" and _NO_THRESHOLD.search(info):
            result = "unsupported"
        elif result == "pass" and "notice" in info.lower() and _NOT_CHECKED.search(info):
            result = "warn"
        checks.append({"name": name or "diagnosis", "result": result})
    results = {check["result"] for check in checks}
    status: Status = "failed" if "fail" in results else "unsupported" if results == {"unsupported"} else "ok"
    return Reading(VENDOR_NAME, command, status, checks=tuple(checks))


def _largest(results: Json) -> int | float | None:
    """Bandwidth at the largest message of one test's list."""
    best: tuple[int | float, int | float] | None = None
    for entry in results if isinstance(results, list) else []:
        if isinstance(entry, dict):
            size, speed = (quantity(str(entry.get(key, ""))) for key in ("size", "bandwidth"))
            if speed and (best is None or (size[0] if size else 0) >= best[0]):
                best = (size[0] if size else 0, speed[0])
    return best[1] if best else None


def _spread(prefix: str, values: list[int | float], pair: bool) -> dict[str, Json]:
    if not values:
        return {}
    if pair:
        return {f"{prefix}gbps": values[-1]}
    return {f"{prefix}min_gbps": min(values), f"{prefix}max_gbps": max(values)}


def _side(title: str) -> str:
    words = title.lower()
    if "peer" not in words and "p2p" not in words:
        return ""
    return "p2p_bidir_" if "bidirectional" in words else "p2p_uni_"


def _json(command: str, documents: list[Json]) -> Reading:
    objects = [found for document in documents for found in _objects(document)]
    if any("error" in found for found in objects):
        return Reading(VENDOR_NAME, command, "failed")
    items = []
    for found in objects:
        result = _result(str(found.get("item_result", "")))
        if result:
            info = found.get("item_info", "")
            items.append((str(found.get("item_name", "")), result, json.dumps(info)))
    if items:
        if all(not name for name, _, _ in items) and all(_NO_THRESHOLD.search(info) for _, _, info in items):
            return Reading(VENDOR_NAME, command, "unsupported")
        return _judged(command, items)
    speeds: dict[str, list[int | float]] = {}
    for found in objects:
        speed = _largest(found.get("results")) if "results" in found else None
        if speed is not None:
            speeds.setdefault(_side(str(found.get("type", ""))), []).append(speed)
    measure: dict[str, Json] = {}
    for side, values in speeds.items():
        measure.update(_spread(side, values, pair=bool(side) and len(values) == 1))
    measure.update(_flops([(key, str(value)) for found in objects for key, value in found.items()]))
    if not measure:
        return unparsed(VENDOR_NAME, command, "JSON without a known measure")
    return Reading(VENDOR_NAME, command, "ok", measure=measure)


def _flops(cells: Iterable[tuple[str, str]]) -> dict[str, Json]:
    """fp16_tflops, int8_tops … and power_w of the first device named."""
    out: dict[str, Json] = {}
    for key, value in cells:
        match = _POWER.fullmatch(key.strip())
        found = quantity(value.replace(",", ""))
        if match and found:
            kind, unit = (match[2] or match[4]).lower(), (match[1] or match[3]).lower()
            out.setdefault(f"{kind}_{unit}", found[0])
        elif found and label(key) in {"power", "power_w"}:
            out.setdefault("power_w", found[0])
    return out if any(key != "power_w" for key in out) else {}


def _compatible(command: str, text: str) -> Reading | None:
    """The package table of `-c`: name, version, state, inner version."""
    components: dict[str, str] = {}
    states: list[str] = []
    for line in text.split("\n"):
        if not line.strip().startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) < 3 or not version(cells[1]):
            continue
        components[_PACKAGES.get(cells[0].lower(), cells[0].lower())] = cells[1]
        states.append(cells[2].upper())
    if not components:
        return None
    bad = any("INCOMPATIBLE" in state for state in states)
    result = "fail" if bad else "pass" if all(state == "OK" for state in states) else "unknown"
    check: dict[str, Json] = {"name": "compatibility", "result": result}
    return Reading(VENDOR_NAME, command, "driver-mismatch" if bad else "ok", components=components, checks=(check,))


def _diagnosis(command: str, text: str) -> Reading | None:
    """The text form: an item's name with a colon, its result on the same or the next line."""
    items: list[tuple[str, str, str]] = []
    name = ""
    for raw in text.split("\n"):
        line = raw.strip()
        head, colon, value = line.partition(":")
        if colon and head and raw[:1].isspace() and re.fullmatch(r"[A-Za-z][\w -]*", head):
            result = _result(value)
            if result:
                items.append((head, result, ""))
            elif not value.strip():
                name = head
                continue
        elif name and (result := _result(line)):
            items.append((name, result, ""))
            name = ""
            continue
        if items and line and not _result(value):
            items[-1] = (*items[-1][:2], (items[-1][2] + " " + line)[:500])
    return _judged(command, items) if items else None


def _columns(line: str) -> list[str]:
    return [word for word in re.split(r"\s{2,}|\t", line.strip()) if word]


def _tables(command: str, text: str) -> Reading | None:
    """Bandwidth and compute tables: columns by header word, P2P matrices by their title."""
    measure: dict[str, Json] = {}
    header: list[str] = []
    side = ""
    by_device: dict[str, dict[str, tuple[int | float, int | float]]] = {}  # side -> device -> (size, speed)
    matrix: dict[str, list[int | float]] = {}
    for line in text.split("\n"):
        words = _columns(line)
        if not words or set(line.strip()) <= {"-", "=", "+"}:
            continue
        if len(words) == 1 and "test" in line.lower():
            header, side = [], _side(line)
        elif any(word.startswith(("Bandwidth(", "TFLOPS@", "TOPS@")) for word in words) or (
            side and not header and all(word.isdigit() for word in words)
        ):
            header = words
        elif header and header[0].isdigit() and words[0].isdigit() and len(words) == len(header) + 1:
            values = [number(word) for word in words[1:]]
            matrix.setdefault(side, []).extend(
                value for column, value in zip(header, values, strict=True) if value is not None and column != words[0]
            )
        elif header and not header[0].isdigit() and len(words) == len(header):
            row = dict(zip(header, words, strict=True))
            measure = {**_flops(row.items()), **measure}
            speed = number(next((row[key] for key in header if key.startswith("Bandwidth(")), ""))
            size = number(next((row[key] for key in header if key.startswith("Size(")), "0"))
            if speed is not None and size is not None:
                devices = by_device.setdefault(side, {})
                key = "pair" if side else row.get("ID", row.get("Device", "0"))
                devices[key] = max(devices.get(key, (-1, 0)), (size, speed))
        elif header and words[0].isdigit():
            return None  # a row that is cut
    for where, found in by_device.items():
        measure.update(_spread(where, [speed for _, speed in found.values()], pair=bool(where)))
    for where, values_ in matrix.items():
        measure.update(_spread(where, values_, pair=False))
    return Reading(VENDOR_NAME, command, "ok", measure=measure) if measure else None


def read_dmi(command: str, text: str) -> Reading:
    """One answer of ascend-dmi, by its content."""
    if len(text) > _MAX:
        return unparsed(VENDOR_NAME, command, "longer than any answer of ascend-dmi")
    if "{" in text:
        documents = _documents(text)
        if documents:
            return _json(command, documents)
        return unparsed(VENDOR_NAME, command, "the JSON is cut")
    options = set(command.split())
    found = _compatible(command, text) or (_diagnosis(command, text) if "--dg" in options else None)
    found = found or _tables(command, text)
    if found:
        return found
    number_ = re.search(r"version\D{0,4}(\d+(?:\.\w+)+)", text[:2000], re.I)
    if options & {"-v", "--version"} and number_:
        return Reading(VENDOR_NAME, command, "ok", components={"toolbox": number_[1]})
    status = trouble(text)
    if status or (len(text) < 2000 and re.search(r"\berror\b|\bfail(?:ed)?\b", text, re.I) and "dmi" in text.lower()):
        return Reading(VENDOR_NAME, command, status or "failed")
    return unparsed(VENDOR_NAME, command, "no known answer of ascend-dmi")
