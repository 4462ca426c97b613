"""`hccn_tool`: address, link, optics and statistics of a card's network port, in the old form and that of A5."""

from __future__ import annotations

import re

from drivers.ascend.words import VENDOR_NAME, label, number, pairs, quantity, trouble
from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed

_PREFIX = re.compile(r"^\s*\[dev(?:id|ice) \d+\]\s*", re.M)
_TLS = re.compile(r"tls switch\[(\d+)\]")
_EVENT = re.compile(r"\bLINK[_ ](UP|DOWN)\b")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f:]{2,39}(?:/\d+)?|\d{1,3}")
_RX = re.compile(r"rx_power(\d+)_mw")
_RX_LOW_MW = 0.1445  # where the module does not print its own low threshold
_SSH = re.compile(r"^\s*warning: [^\n]*\n?", re.I | re.M)
_MAX = 1 << 19


def _table(text: str) -> list[dict[str, str]]:
    """Rows of a table drawn with + and |, by header word; [] when a border or a cell is missing."""
    header: list[str] = []
    rows: list[dict[str, str]] = []
    for line in (raw.strip() for raw in text.split("\n")):
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not header:
            header = [cell.lower() for cell in cells]
        elif len(cells) != len(header):
            return []
        else:
            rows.append(dict(zip(header, cells, strict=True)))
    drawn = [line for line in text.rstrip().split("\n") if line.strip().startswith(("|", "+"))]
    return rows if drawn and drawn[-1].strip().startswith("+") else []


def _measure(text: str) -> dict[str, Json]:
    out: dict[str, Json] = {}
    for key, value in pairs(text):
        found = quantity(value) if key else None
        if found:
            out.setdefault(label(key, found[1]), found[0])
    return out


def _link_history(command: str, text: str) -> Reading:
    measure = {key: value for key, value in _measure(text).items() if key in {"link_up_count", "link_down_count"}}
    rows = _table(text)
    newest = next((row["link_status"] for row in rows if "link_status" in row), "")
    state = _EVENT.search(newest or ("" if "|" in text else text))
    if not state or not measure:
        return unparsed(VENDOR_NAME, command, "no link record")
    return Reading(VENDOR_NAME, command, "ok", links=({"state": state[1].lower()},), measure=measure)


def _optical(command: str, text: str) -> Reading:
    measure = _measure(text)
    if not any(_RX.fullmatch(key) for key in measure):
        present = any(key == "present" for key, _ in pairs(text))
        return (
            Reading(VENDOR_NAME, command, "ok", measure=measure)
            if present
            else unparsed(VENDOR_NAME, command, "no optics")
        )
    low = measure.get("rxpower_low_thres_mw", _RX_LOW_MW)
    floor = float(low) if isinstance(low, int | float) else _RX_LOW_MW
    checks: list[dict[str, Json]] = []
    for key, value in measure.items():
        lane = _RX.fullmatch(key)
        if lane and isinstance(value, int | float):
            checks.append({"name": f"rx_power{lane[1]}", "result": "fail" if value < floor else "pass"})
    return Reading(VENDOR_NAME, command, "ok", measure=measure, checks=tuple(checks))


def read_hccn(command: str, text: str) -> Reading:
    """One answer of hccn_tool, by the option asked for; no address configured prints nothing and is `ok`."""
    options = set(command.split())
    if len(text) > _MAX:
        return unparsed(VENDOR_NAME, command, "longer than any answer of hccn_tool")
    if not _SSH.sub("", text).strip():
        if options & {"-ip", "-gateway", "-netdetect"}:
            return Reading(VENDOR_NAME, command, "ok")
        return unparsed(VENDOR_NAME, command, "empty")
    text = _PREFIX.sub("", text)
    own = {key.lower(): value for key, value in pairs(text) if key}
    if "-ip" in options and "ipaddr" in own:
        if not all(_ADDRESS.fullmatch(own.get(key, "")) for key in ("ipaddr", "netmask")):
            return unparsed(VENDOR_NAME, command, "the address is cut")
        link: dict[str, Json] = {"ip": own["ipaddr"], "netmask": own.get("netmask") or None}
        return Reading(VENDOR_NAME, command, "ok", links=(link,))
    if own.get("link status", "").upper() in {"UP", "DOWN"}:
        return Reading(VENDOR_NAME, command, "ok", links=({"state": own["link status"].lower()},))
    rows = _table(text) if "-link" in options else []
    if rows and all("link_status" in row for row in rows):
        states = [row["link_status"].upper().removeprefix("LINK_") for row in rows]
        if set(states) <= {"UP", "DOWN"}:
            return Reading(VENDOR_NAME, command, "ok", links=tuple({"state": state.lower()} for state in states))
    if "net health status" in own:
        word = own["net health status"].lower()
        result = {"success": "pass", "init": "skip"}.get(word, "fail")
        return Reading(VENDOR_NAME, command, "ok", checks=({"name": "net_health", "result": result},))
    if "-link_stat" in options:
        return _link_history(command, text)
    if "-optical" in options:
        return _optical(command, text)
    tls = _TLS.search(text)
    if tls:
        return Reading(VENDOR_NAME, command, "ok", measure={"tls_switch": int(tls[1])})
    if "-speed" in options:
        return _speed(command, text, own)
    if "fec mode" in own:
        return Reading(VENDOR_NAME, command, "ok", links=({"fec": own["fec mode"]},))
    if "default gateway" in own or "netdetect address" in own:
        gateway = own.get("default gateway", own.get("netdetect address", "")).split(",")[0].strip()
        return Reading(VENDOR_NAME, command, "ok", links=({"gateway": gateway},))
    if "-vnic" in options and _ADDRESS.fullmatch(own.get("vnic ipaddr", "")):
        vnic: dict[str, Json] = {"ip": own["vnic ipaddr"], "netmask": own.get("vnic netmask") or None}
        return Reading(VENDOR_NAME, command, "ok", links=(vnic,))
    if "-lldp" in options and "End of LLDPDU TLV" in text:
        return Reading(VENDOR_NAME, command, "ok", links=(_neighbour(text, own),))
    measure = _measure(text)
    if "-mtu" in options and "mtu" in measure:
        return Reading(VENDOR_NAME, command, "ok", measure={"mtu": measure["mtu"]})
    if "-stat" in options and "packet statistics" in own and measure:
        return Reading(VENDOR_NAME, command, "ok", measure=measure)
    status = trouble(text)
    if status or (len(text) < 2000 and re.search(r"\bfail(?:ed)?\b|\berror\b", text, re.I)):
        return Reading(VENDOR_NAME, command, status or "failed")
    return unparsed(VENDOR_NAME, command, "no known answer of hccn_tool")


def _neighbour(text: str, own: dict[str, str]) -> dict[str, Json]:
    """The switch port that LLDP names: each TLV is a title line and an indented value line."""
    name = re.search(r"^System Name TLV\s*\n\s+(\S[^\n]*)", text, re.M)
    return {"neighbour": name[1].strip() if name else None, "port": own.get("ifname") or None}


def _speed(command: str, text: str, own: dict[str, str]) -> Reading:
    links: list[dict[str, Json]] = []
    for row in _table(text):
        found = quantity(row.get("speed", ""))
        lanes = number(row.get("width", "").upper().lstrip("X"))
        if not found or lanes is None:
            return unparsed(VENDOR_NAME, command, "a speed row that is not known")
        links.append({"speed_gbit": found[0], "lanes": lanes})
    if not links and own.get("speed"):
        found = quantity(own["speed"].split("/")[0])  # `Speed: 200000 Mb/s`
        if found:
            speed = found[0] / 1000 if found[1].startswith("m") else found[0]
            links.append({"speed_gbit": speed})
    if not links:
        return unparsed(VENDOR_NAME, command, "no speed")
    return Reading(VENDOR_NAME, command, "ok", links=tuple(links))
