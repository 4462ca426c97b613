"""Results of the vendor's test programs: `suvs` logs and the summary of `succl-tests`."""

from __future__ import annotations

import re

from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed

_MARKER = re.compile(r"\[Test (Pass|Fail)(?:ed)?\]\s*\[test_([A-Za-z0-9_]+)", re.I)
_MONITOR = re.compile(r"\bgm[ ,]\s*gpu(\d{1,4})\b[^\n]{0,200}\bfail", re.I)
_BANDWIDTH = re.compile(r"\bmembw\s*=\s*(\d{1,9}(?:\.\d{1,9})?)\s*GB/s")
_COLLECTIVES = frozenset({
    "allreduce", "all_reduce", "allgather", "all_gather", "allgatherv", "reducescatter", "reduce_scatter", "alltoall",
    "alltoallv", "broadcast", "reduce", "sendrecv", "gather", "scatter", "hypercube",
})  # fmt: skip
_ROW = re.compile(r"\s*([a-z_]{4,20}):\s+(\S+)(.*)$")
_RATE = re.compile(r"\b(algbw|busbw)\s+(\d{1,9}(?:\.\d{1,9})?) GB/s")


def looks_like_suvs(text: str) -> bool:
    """Whether a marker of suvs is in the text."""
    return bool(_MARKER.search(text)) or "Test result summary" in text


def read_suvs(command: str, text: str) -> Reading:
    """Each `[Test Pass|Fail]` marker is a check; a failing monitor line overrules a summary that says PASS."""
    checks: list[dict[str, Json]] = []
    rates: list[float] = []
    broken: list[Json] = []
    for line in text.split("\n"):
        for match in _MARKER.finditer(line):
            name = match[2].rstrip("_")
            checks.append({"name": name, "result": match[1].lower()})
        if "fail" in line.lower() and (monitor := _MONITOR.search(line[:2000])):
            broken.append(int(monitor[1]))
        rates += [float(match[1]) for match in _BANDWIDTH.finditer(line)]
    if broken:
        checks.append({"name": "gm", "result": "fail", "gpus": broken})
    summary = "Test result summary" in text
    if not checks and not summary:
        return unparsed("biren", command, "no marker of suvs")
    failed = any(check["result"] == "fail" for check in checks)
    failed = failed or bool(re.search(r"Test result summary[^\n]{0,80}\bFAIL", text))
    measure: dict[str, Json] = {"membw_gbps": min(rates)} if rates else {}
    return Reading("biren", command, "failed" if failed else "ok", checks=tuple(checks), measure=measure)


def read_succl(command: str, text: str) -> Reading:
    """One check for each collective: OK = pass, anything else = fail; bandwidths in GB/s."""
    checks: list[dict[str, Json]] = []
    measure: dict[str, Json] = {}
    for line in text.split("\n"):
        match = _ROW.match(line)
        if not match or (match[1] not in _COLLECTIVES and not _RATE.search(match[3])):
            continue
        name, passed = match[1], match[2] == "OK"
        rates = {key: float(raw) for key, raw in _RATE.findall(match[3])}
        if passed and len(rates) != 2:
            return unparsed("biren", command, f"the row of {name} breaks off")
        if any(check["name"] == name for check in checks):
            return unparsed("biren", command, f"two rows of {name}")
        checks.append({"name": name, "result": "pass" if passed else "fail"})
        measure.update({f"{name}_{key}_gbps": rate for key, rate in rates.items()})
    if not checks:
        return unparsed("biren", command, "no row of a collective")
    failed = any(check["result"] == "fail" for check in checks)
    return Reading("biren", command, "failed" if failed else "ok", checks=tuple(checks), measure=measure)
