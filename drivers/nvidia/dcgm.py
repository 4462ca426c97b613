"""`dcgmi diag` as a table (DCGM 2 to 4) and as JSON (`-j`, DCGM 3 and 4), and the version."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from drivers.nvidia.values import Draft, nothing, rows, say, version
from drivers.text import bus_id
from fleet.core.model import Json
from fleet.core.vendor import Reading

_RESULTS = {
    "pass": "pass", "passed": "pass", "fail": "fail", "failed": "fail", "warn": "warn", "warning": "warn",
    "skip": "skip", "skipped": "skip", "not run": "skip", "notrun": "skip",
}  # fmt: skip
_RESULT = re.compile(r"(Pass|Fail|Warn|Skip)\b(?:\s*-\s*(All|GPUs?:\s*([0-9, ]+)))?\s*$", re.IGNORECASE)
_OPEN_RESULT = re.compile(r"(?:Pass|Fail|Warn|Skip)\s*-\s*GPUs?:[0-9, ]*$", re.IGNORECASE)
_ENTITY = re.compile(r"(GPU|CPU)\s?(\d+):\s*(Pass|Fail|Warn|Skip)\s*$", re.IGNORECASE)
_SECTION = re.compile(r"[|+]-{3,}\s{1,4}([A-Za-z][A-Za-z ]*?)\s{1,4}-{3,}[+|]")
_REFUSED_MIG = "MIG configuration is incompatible with the diagnostic"
_RETURN = re.compile(r"Return: \((-\d+)\)\s*(.*)")
_VERSION = re.compile(r"(?:dcgmi\s+version|Version)\s*:\s*(\d+\.\d+\.\d+)", re.IGNORECASE)


def diag(command: str, text: str, rc: int | None) -> Reading | None:
    """What a diagnostic found. Any `fail` makes the reading `failed`; skip and warn do not."""
    reading = None
    if "{" in text:
        reading = _from_json(command, text)
    if reading is None and "|" in text:
        reading = _from_table(command, text)
    if reading is None:
        reading = _refusal(command, text)
    if reading is not None and reading.status == "ok" and rc not in (None, 0):
        draft = Draft(command, "failed", note=f"exit status {rc}")
        draft.components, draft.checks = dict(reading.components), [dict(check) for check in reading.checks]
        return draft.done()
    return reading


def _refusal(command: str, text: str) -> Reading | None:
    head = text[:4000]
    if _REFUSED_MIG in head:
        return Draft(command, "unsupported", note="MIG is on: the diagnostic was not run").done()
    match = _RETURN.search(head)
    if match and "connection" not in head.lower():
        return Draft(command, "failed", note=match.group(2).strip()).done()
    if "Error: " in head or "unable to establish a connection" in head.lower():
        line = next((line for line in rows(head) if "rror" in line or "connection" in line), head)
        waits = "connection" in line.lower()
        return Draft(command, "not-ready" if waits else "failed", note=line.strip()).done()
    return None


def _lines(text: str) -> Iterator[tuple[str, str, bool]]:
    """(left cell, right cell, closed) of each row; a section is (title, "", True) with a leading `#`."""
    for line in rows(text):
        stripped = line.strip()
        section = _SECTION.match(stripped)
        if section:
            yield "#" + section.group(1), "", True
        elif stripped.startswith("|") and stripped.count("|") >= 2:
            cells = stripped.split("|")
            yield cells[1].strip(), cells[2].rstrip()[1:], len(cells) > 3
        elif stripped.startswith("|"):
            yield stripped[1:].strip(), "", False


def _from_table(command: str, text: str) -> Reading | None:
    if "| Diagnostic" not in text:
        return None
    draft = Draft(command)
    section, name = "", ""
    pending: str | None = None  # a result whose list of GPUs may go on in the next row
    note_row = failed = False
    closed = True
    for left, right, whole in _lines(text):
        closed = whole
        if left.startswith("#"):
            _settle(draft, name, pending)
            pending = None
            section, name, note_row = left[1:], "", False
            continue
        words = right.strip()
        if left in ("Diagnostic", "") and words in ("Result", ""):
            continue
        if section == "Metadata":
            if left == "DCGM Version":
                say(draft.components, "dcgm", words)
            elif left == "Driver Version Detected":
                say(draft.components, "driver", version(words))
            continue
        if left in ("Warning", "Error", "Info"):
            _settle(draft, name, pending)
            pending = None
            note_row = True
            failed |= left == "Error"
            continue
        if left:
            _settle(draft, name, pending)
            pending = None
            name, note_row = left, False
        entity = _ENTITY.match(words)
        if entity and name:
            _settle(draft, name, pending)
            pending, note_row = None, False
            check: dict[str, Json] = {"name": name, "result": _RESULTS[entity.group(3).lower()]}
            if entity.group(1).upper() == "GPU":
                check["gpus"] = [int(entity.group(2))]
            draft.checks.append(check)
        elif _RESULT.match(words) or _OPEN_RESULT.match(words):
            _settle(draft, name, pending)
            pending, note_row = words, False
        elif not left and not note_row and pending is not None:
            pending += right  # the text wraps in mid-word
    _settle(draft, name, pending)
    failed |= any(check["result"] == "fail" for check in draft.checks)
    if failed:
        draft.status, draft.note = "failed", "a check failed"
    elif not draft.checks or not closed:
        draft.status, draft.note = "failed", "the table breaks off"
    return draft.done()


def _settle(draft: Draft, name: str, words: str | None) -> None:
    match = _RESULT.match(words.strip().rstrip(",").strip()) if words and name else None
    if not match:
        return
    check: dict[str, Json] = {"name": name, "result": _RESULTS[match.group(1).lower()]}
    if match.group(3):
        check["gpus"] = _numbers(match.group(3))
    draft.checks.append(check)


def _numbers(text: str) -> list[Json]:
    return [int(word) for word in text.replace(",", " ").split() if word.isdigit()]


def _from_json(command: str, text: str) -> Reading | None:
    start, end = text.find("{"), text.rfind("}")
    if "DCGM" not in text:
        return None
    try:
        document = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return nothing(command, "not well-formed JSON")
    if not isinstance(document, dict):
        return None
    root = document.get("DCGM GPU Diagnostic", document.get("DCGM Diagnostic"))
    if not isinstance(root, dict):
        return None
    draft = Draft(command)
    metadata = document.get("metadata")
    for source in (root, metadata if isinstance(metadata, dict) else {}):
        for key in ("DCGM Version", "version"):
            found = re.match(r"\d+\.\d+\.\d+", str(source.get(key, "")))
            say(draft.components, "dcgm", found.group() if found else None)
        say(draft.components, "driver", version(str(source.get("Driver Version Detected", ""))))
    categories = root.get("test_categories")
    for category in categories if isinstance(categories, list) else []:
        tests = category.get("tests") if isinstance(category, dict) else None
        for test in tests if isinstance(tests, list) else []:
            if isinstance(test, dict):
                draft.checks += _json_checks(test)
    error = root.get("runtime_error")
    if error:
        draft.status, draft.note = ("unsupported" if _REFUSED_MIG in str(error) else "failed"), str(error)
    elif any(check["result"] == "fail" for check in draft.checks):
        draft.status, draft.note = "failed", "a check failed"
    elif not draft.checks:
        draft.status, draft.note = "failed", "no test was run"
    return draft.done()


def _json_checks(test: dict[str, Json]) -> list[dict[str, Json]]:
    found: list[dict[str, Json]] = []
    results = test.get("results")
    entries = [*results] if isinstance(results, list) else []
    summary = test.get("test_summary")
    if isinstance(summary, dict):
        entries.insert(0, summary)
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        result = _RESULTS.get(str(entry.get("status", "")).strip().lower())
        if result is None:
            continue
        check: dict[str, Json] = {"name": str(test.get("name", "")), "result": result}
        gpus = entry.get("gpu_ids", entry.get("gpu_id"))
        if gpus is None and entry.get("entity_group") == "GPU":
            gpus = entry.get("entity_id")
        numbers = _numbers(str(gpus)) if gpus is not None else []
        if numbers:
            check["gpus"] = numbers
        found.append(check)
    return found


def discovery(command: str, text: str) -> Reading | None:
    """`dcgmi discovery -l`: the cards and switches that the host engine knows."""
    count = re.search(r"^(\d+) GPUs? found\.", text[:4000], re.MULTILINE)
    if not count:
        return _refusal(command, text)
    draft = Draft(command)
    switches = in_switches = 0
    for line in rows(text):
        found = re.match(r"(\d+) (GPU|NvSwitch|CPU|ConnectX|CX)\w* found", line, re.IGNORECASE)
        if found:
            in_switches = found.group(2).lower() == "nvswitch"
            switches = int(found.group(1)) if in_switches else switches
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if in_switches or len(cells) != 2 or not line.rstrip().endswith("|"):
            continue
        if cells[0].isdigit():
            draft.accelerators.append({"index": int(cells[0])})
        key, colon, value = cells[1].partition(": ")
        if colon and draft.accelerators:
            card = draft.accelerators[-1]
            if key == "Name":
                card["name"] = value
            elif key == "PCI Bus ID":
                card["bus_id"] = bus_id(value)
            elif key == "Device UUID":
                card["uuid"] = value
    whole = all("uuid" in card for card in draft.accelerators) and len(draft.accelerators) == int(count.group(1))
    if not whole:
        return Draft(command, "failed", note="the table breaks off").done()
    if switches:
        draft.more["switch_count"] = switches
    if not draft.accelerators:
        draft.status, draft.note = "no-devices", "the host engine knows no GPU"
    return draft.done()


def dcgm_version(command: str, text: str) -> Reading | None:
    """`dcgmi --version`."""
    match = _VERSION.search(text[:4000])
    if not match:
        return None
    draft = Draft(command)
    draft.components["dcgm"] = match.group(1)
    return draft.done()
