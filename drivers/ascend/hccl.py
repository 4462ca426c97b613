"""The HCCL tests (`all_reduce_test`, `all_gather_test` …): bandwidth by size, and whether the data was right."""

from __future__ import annotations

import re

from drivers.ascend.words import VENDOR_NAME, number
from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed

_TEST = re.compile(r"([a-z_]+)_test\b")
_ROW = re.compile(r"^\s*(\d+)[\s|]+([\d.]+)[\s|]+([\d.]+)[\s|]+(\w+)[\s|]*$")


def read_hccl(command: str, text: str) -> Reading:
    """`algbw_gbps` of the largest message; the check fails when any row does not say success."""
    match = _TEST.search(command.rpartition("/")[2]) or _TEST.search(command)
    name = match[1] if match else "all_reduce"
    if "alg_bandwidth" not in text or "check_result" not in text:
        if len(text) < 20_000 and re.search(r"hccl\w* return err|\bret(?:val)?:? ?-?[1-9]\d*|\bfailed\b", text, re.I):
            return Reading(VENDOR_NAME, command, "failed", checks=({"name": name, "result": "fail"},))
        return unparsed(VENDOR_NAME, command, "no table of an HCCL test")
    rows: list[tuple[int, int | float | None, str]] = []
    for line in text[-(1 << 20) :].split("\n"):
        row = _ROW.match(line)
        if row:
            rows.append((int(row[1]), number(row[3]), row[4].lower()))
        elif rows and re.match(r"\s*\d+\s*\|", line):
            return unparsed(VENDOR_NAME, command, "a row is cut")
    if not rows:
        return unparsed(VENDOR_NAME, command, "the table has no row")
    good = all(word == "success" for _, _, word in rows)
    check: dict[str, Json] = {"name": name, "result": "pass" if good else "fail"}
    measure: dict[str, Json] = {"algbw_gbps": max(rows)[1]}
    return Reading(VENDOR_NAME, command, "ok" if good else "failed", checks=(check,), measure=measure)
