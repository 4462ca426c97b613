"""Measuring tools: nccl-tests, nvbandwidth, gpu-burn. All rates are GB/s (10^9 bytes), as printed."""

from __future__ import annotations

import json
import re

from drivers.nvidia.values import Draft, nothing, rows
from fleet.core.model import Json
from fleet.core.vendor import Reading

_PREFIX = re.compile(r"\s*(?:\[?\d+(?:,\d+)?\]?(?:<std(?:out|err)>)?:|\S{1,80}:(?= *#))\s?")
_TYPES = frozenset(
    {
        "float",
        "half",
        "double",
        "int8",
        "uint8",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "bfloat16",
        "fp8_e4m3",
        "fp8_e5m2",
        "f8e4m3",
        "f8e5m2",
    }
)
_BOUNDS = re.compile(r"# Out of bounds values\s*: (\d+) (OK|FAILED)")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*:\s*(\d+(?:\.\d+)?)")
_BROKEN = re.compile(
    r"Test (?:NCCL|CUDA) failure .{0,300}|: Test failure \S+|\bsystem not yet initialized.{0,80}"
    r"|CUDA_ERROR_[A-Z_]+.{0,200}|No clients are alive!.{0,40}|Couldn't init (?:a GPU test|CUDA).{0,80}"
    r"|\d+\.\d+%\s+proc'd: "
)
_BURN = re.compile(r"\s*GPU (\d+): (OK|FAULTY)\s*$")
_RUNNING = re.compile(r"Running ([a-z0-9_]+)\.\s*$")
_CELL = re.compile(r"\d+\.\d+$|N/A$")


def collective(command: str, text: str, rc: int | None) -> Reading | None:
    """nccl-tests: the best bus bandwidth of any row, the trailer, and wrong results; launcher prefixes are dropped."""
    if '"results"' in text and "{" in text:
        reading = _collective_json(command, text, rc)
        if reading is not None:
            return reading
    best: float | None = None
    largest = wrong = 0
    draft = Draft(command)
    titled = False
    for line in rows(text):
        prefix = _PREFIX.match(line)
        body = line[prefix.end() :] if prefix else line
        if "#" in body:
            titled |= "algbw" in body and "busbw" in body
            bounds = _BOUNDS.search(body)
            if bounds:
                draft.measure["out_of_bounds"] = int(bounds.group(1))
                if bounds.group(2) == "FAILED":
                    draft.status, draft.note = "failed", "wrong results"
            average = _AVERAGE.search(body)
            if average:
                draft.measure["avg_busbw_gbps"] = float(average.group(1))
            continue
        words = _row(body)
        if not words:
            continue
        tail = words[-8:]  # time algbw busbw #wrong, out of place and in place
        try:
            rates = [float(tail[2]), float(tail[6])]
        except ValueError:
            continue
        best = max([*rates, best or 0.0])
        largest = max(largest, int(words[0]))
        for cell in (tail[3], tail[7]):
            errors = float(cell) if re.fullmatch(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", cell) else 0.0
            wrong += int(errors) if errors >= 1 else 0
    if best is None:
        failure = broken(command, text)
        return failure or (Draft(command, "failed", note="no result row").done() if titled else None)
    draft.measure |= {"busbw_gbps": best, "max_size_bytes": largest, "wrong": wrong}
    if wrong:
        draft.status, draft.note = "failed", "wrong results"
    elif rc not in (None, 0):
        draft.status, draft.note = "failed", f"exit status {rc}"
    return draft.done()


def broken(command: str, text: str) -> Reading | None:
    """A measuring tool that ended without a result: CUDA's words for a fabric that is not up, or its own failure."""
    match = _BROKEN.search(text[:200_000])
    if not match:
        return None
    waits = "system not yet initialized" in match.group() or "SYSTEM_NOT_READY" in match.group()
    return Draft(command, "not-ready" if waits else "failed", note=match.group().strip()).done()


def _row(line: str) -> list[str]:
    """The words of a result row from its size on, whatever a launcher or log stream put before it; else []."""
    words = line.split()
    for start in range(min(4, len(words))):
        rest = words[start:]
        if len(rest) >= 10 and rest[0].isdigit() and rest[1].isdigit() and rest[2] in _TYPES:
            return rest
    return []


def _collective_json(command: str, text: str, rc: int | None) -> Reading | None:
    """What `-J FILE` writes."""
    try:
        document = json.loads(text[text.find("{") : text.rfind("}") + 1])
    except (ValueError, RecursionError):
        return nothing(command, "not well-formed JSON")
    results = document.get("results") if isinstance(document, dict) else None
    if not isinstance(results, list):
        return None
    draft = Draft(command)
    rates: list[float] = []
    wrong, largest = 0, 0
    for row in results:
        if not isinstance(row, dict):
            continue
        largest = max(largest, row["size"] if isinstance(row.get("size"), int) else 0)
        for place in ("out_of_place", "in_place"):
            half = row.get(place)
            if isinstance(half, dict):
                rates += [float(half["bus_bw"])] if isinstance(half.get("bus_bw"), int | float) else []
                wrong += int(half["nwrong"]) if isinstance(half.get("nwrong"), int | float) else 0
    if not rates:
        return Draft(command, "failed", note="no result row").done()
    draft.measure = {"busbw_gbps": max(rates), "max_size_bytes": largest, "wrong": wrong}
    for key, name, part in (
        ("average_bus_bandwidth", "avg_busbw_gbps", "bandwidth"), ("out_of_bounds", "out_of_bounds", "count"),
    ):  # fmt: skip
        entry = document.get(key)
        if isinstance(entry, dict) and isinstance(entry.get(part), int | float):
            draft.measure[name] = entry[part]
    if wrong or draft.measure.get("out_of_bounds"):
        draft.status, draft.note = "failed", "wrong results"
    elif rc not in (None, 0):
        draft.status, draft.note = "failed", f"exit status {rc}"
    return draft.done()


def copy_test(command: str, text: str) -> Reading | None:
    """The CUDA samples' bandwidthTest: the rate of each direction and the verdict."""
    verdict = re.search(r"^\s*Result = (PASS|FAIL)", text[:40_000], re.MULTILINE)
    cells = [float(cell) for cell in re.findall(r"^\s+\d+[ \t]+(\d+\.\d+)\s*$", text[:40_000], re.MULTILINE)]
    if "Bandwidth Test" not in text[:4000]:
        return None
    if not verdict:
        return Draft(command, "failed", note="no verdict").done()
    draft = Draft(command, "ok" if verdict.group(1) == "PASS" else "failed")
    if cells:
        draft.measure = {"min_gbps": min(cells), "max_gbps": max(cells)}
    return draft.done()


def bandwidth(command: str, text: str) -> Reading | None:
    """nvbandwidth: lowest and highest cell of the matrix, the zero diagonal left out; table or `-j`."""
    if "nvbandwidth" in text and "{" in text:
        reading = _bandwidth_json(command, text)
        if reading is not None:
            return reading
    test = ""
    columns = 0
    cells: list[float] = []
    lines_read = 0
    between = False
    for line in rows(text):
        running = _RUNNING.match(line.strip())
        if running:
            test = test or running.group(1)
            columns = 0
            continue
        words = line.split()
        if "bandwidth (GB/s)" in line:
            between = "GPU(column)" in line and "GPU(row)" in line
            columns = -1
        elif columns == -1 and words and all(word.isdigit() for word in words):
            columns = len(words)
        elif columns > 0 and words and words[0].isdigit() and len(words) > 1:
            if len(words) != columns + 1 or not all(_CELL.match(word) for word in words[1:]):
                return Draft(command, "failed", note="the matrix breaks off").done()
            lines_read += 1
            own = int(words[0]) + 1 if between else 0  # from a GPU to itself nothing is measured
            cells += [
                float(word)
                for place, word in enumerate(words)
                if place and word != "N/A" and not (place == own and float(word) == 0.0)
            ]
            if between and lines_read == columns:
                between = False
        elif columns > 0 and not words:
            columns = 0
    if not cells:
        return None
    draft = Draft(command)
    draft.measure = {"min_gbps": min(cells), "max_gbps": max(cells)}
    if test:
        draft.measure["test"] = test
    if between:
        return Draft(command, "failed", note="the matrix breaks off").done()
    return draft.done()


def _bandwidth_json(command: str, text: str) -> Reading | None:
    try:
        document = json.loads(text[text.find("{") : text.rfind("}") + 1])
    except (ValueError, RecursionError):
        return nothing(command, "not well-formed JSON")
    root = document.get("nvbandwidth") if isinstance(document, dict) else None
    cases = root.get("testcases") if isinstance(root, dict) else None
    if not isinstance(cases, list):
        return None
    draft = Draft(command)
    cells: list[float] = []
    for case in cases:
        if not isinstance(case, dict):
            continue
        draft.measure.setdefault("test", str(case.get("name", "")))
        matrix = case.get("bandwidth_matrix")
        for row in matrix if isinstance(matrix, list) else []:
            for cell in row if isinstance(row, list) else []:
                if re.fullmatch(r"\d+(?:\.\d+)?", str(cell)):
                    cells.append(float(str(cell)))
        if str(case.get("status", "")).lower() in ("failed", "error"):
            draft.status, draft.note = "failed", "a test failed"
    if cells:
        draft.measure |= {"min_gbps": min(cells), "max_gbps": max(cells)}
    return draft.done()


def burn(command: str, text: str, rc: int | None) -> Reading | None:
    """gpu-burn's summary: its exit status is 0 in spite of FAULTY."""
    summary = text.rfind("Tested ")
    if summary < 0:
        return None
    draft = Draft(command)
    announced = re.match(r"Tested (\d+) GPUs?:", text[summary : summary + 80])
    for line in rows(text[summary:]):
        match = _BURN.match(line)
        if match:
            gpus: list[Json] = [int(match.group(1))]
            draft.checks.append(
                {"name": "gpu-burn", "result": "pass" if match.group(2) == "OK" else "fail", "gpus": gpus}
            )
    if not announced:
        return None
    if any(check["result"] == "fail" for check in draft.checks):
        draft.status, draft.note = "failed", "a GPU computed wrong results"
    elif len(draft.checks) != int(announced.group(1)) or rc not in (None, 0):
        draft.status, draft.note = "failed", "the summary breaks off"
    return draft.done()
