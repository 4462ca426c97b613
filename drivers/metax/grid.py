"""Outputs of `mx-smi` in columns: `dmon` and `topo -m`."""

from __future__ import annotations

import re

from drivers.metax.sections import smi_version
from drivers.metax.values import number
from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed

_LINK_TYPES = frozenset({"X", "SYS", "NODE", "PHB", "PXB", "PIX", "MX", "ETH", "NA"})
_ATTACHED = re.compile(r"^[ \t]*Attached GPUs[ \t]*:[ \t]*(\d{1,5})[ \t]*$", re.M)


def is_monitor(text: str) -> bool:
    """Whether a header of `dmon` is in the text."""
    return any(_monitor_header(line) for line in text.split("\n", 60)[:60])


def _words(line: str) -> list[str]:
    return [word.strip() for word in line.split(",")] if "," in line else line.split()


def _monitor_header(line: str) -> list[str]:
    words = _words(line.lstrip("# "))
    return words if len(words) >= 3 and words[:2] == ["dev", "die"] else []


def read_monitor(command: str, text: str) -> Reading:
    """`dmon`: the last whole round. Column names changed (soctemp, drmossoctemp): they are read by name."""
    header: list[str] = []
    rounds: list[list[dict[str, str]]] = []
    seen: set[tuple[str, str]] = set()
    for line in text.split("\n"):
        if found := _monitor_header(line):
            header = found
            continue
        words = _words(line)
        if not header or not words or not words[0].isdecimal():
            continue
        if len(words) != len(header):
            rounds[-1:] = [[]]  # the round breaks off
            continue
        row = dict(zip(header, words, strict=True))
        place = (row["dev"], row["die"])
        if not rounds or place in seen:
            rounds.append([])
            seen = set()
        seen.add(place)
        rounds[-1].append(row)
    whole = [r for r in rounds if r and len(r) == len(rounds[0])]
    if not whole or not rounds[0]:
        return unparsed("metax", command, "no whole round of dmon")
    cards = tuple(_monitored(row) for row in whole[-1])
    return Reading("metax", command, "ok", accelerators=cards)


def _monitored(row: dict[str, str]) -> dict[str, Json]:
    card: dict[str, Json] = {"index": number(row["dev"])}
    if row["die"] != "0":
        card["die"] = number(row["die"])
    for column, name in (("hottemp", "temperature_c"), ("power", "power_w"), ("gpu", "utilization_percent")):
        if column in row:
            card[name] = number(row[column])
    return card


def read_topology(command: str, text: str) -> Reading:
    """`topo -m`: one link for each pair of GPUs, `from` before `to`."""
    names: list[str] = []
    rows: dict[str, list[str]] = {}
    for line in text.split("\n"):
        words = line.split()
        if not words:
            if rows:
                break
            continue
        if not names and _heads(words):
            names = _columns(words)
        elif names and words[0] in names:
            if words[0] in rows:
                return unparsed("metax", command, "two matrices are mixed")
            rows[words[0]] = words[1 : len(names) + 1]
    gpus = [name for name in names if name.startswith("GPU")]
    counted = _ATTACHED.search(text)
    if not gpus or any(name not in rows for name in gpus):
        return unparsed("metax", command, "no whole matrix")
    if any(len(row) != len(names) or not _LINK_TYPES.issuperset(row) for row in rows.values()):
        return unparsed("metax", command, "a row of the matrix is not understood")
    if counted and int(counted[1]) != len(gpus):
        return unparsed("metax", command, f"{counted[1]} cards attached, {len(gpus)} in the matrix")
    links = tuple(
        {"from": one, "to": other, "type": rows[one][names.index(other)]}
        for i, one in enumerate(gpus)
        for other in gpus[i + 1 :]
    )
    smi = smi_version(text)
    return Reading("metax", command, "ok", components={"smi": smi} if smi else {}, links=links)


def _heads(words: list[str]) -> bool:
    """Whether this is the line of column names: after the first device another one, the affinity, or nothing."""
    return words[0] == "GPU0" and (len(words) == 1 or re.match(r"GPU|NIC|Node|CPU|NUMA", words[1]) is not None)


def _columns(words: list[str]) -> list[str]:
    """Names of the devices; the affinity columns that follow them are words without a number."""
    out: list[str] = []
    for word in words:
        if not re.fullmatch(r"[A-Za-z_]+\d+\S*", word, re.A):
            break
        out.append(word)
    return out if len(set(out)) == len(out) else []
