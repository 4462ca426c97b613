"""What was changed and when, as the package managers wrote it down: apt, dpkg, dnf."""

from __future__ import annotations

import re

from drivers.nvidia.values import Draft, rows
from fleet.core.model import Json
from fleet.core.vendor import Reading

_CHANGE = re.compile(r"([a-z0-9][a-z0-9+.-]*)(?::[a-z0-9]+)? \(([^()]{1,200})\)")
_DPKG = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (install|upgrade|remove|purge) ([^\s:]+)(?::\S+)? (\S+) (\S+)\s*$")
_DNF = re.compile(
    r"\s*(Install|Upgrade|Upgraded|Downgrade|Downgraded|Removed|Erase|Obsoleted|Reinstall|Reinstalled)\s+"
    r"(\S+?)-((?:\d+:)?[^-\s]+-[^-\s]+)\.(?:x86_64|aarch64|noarch|ppc64le|i[3-6]86)(?:\s|$)"
)


def apt(command: str, text: str) -> Reading | None:
    """`/var/log/apt/history.log`: package, from, to of each change, in order."""
    if "Start-Date:" not in text:
        return None
    changes: list[Json] = []
    for line in text.split("\n"):
        title, colon, rest = line.partition(": ")
        if not colon or title not in ("Upgrade", "Downgrade", "Install", "Reinstall", "Remove", "Purge"):
            continue
        for match in _CHANGE.finditer(rest):
            versions = [part.strip() for part in match.group(2).split(",") if part.strip() != "automatic"]
            change: dict[str, Json] = {"package": match.group(1)}
            if title in ("Remove", "Purge"):
                change["from"] = versions[0] if versions else ""
            elif len(versions) > 1:
                change["from"], change["to"] = versions[0], versions[1]
            elif versions:
                change["to"] = versions[0]
            changes.append(change)
    draft = Draft(command)
    draft.more["changes"] = changes
    return draft.done()


def dpkg(command: str, text: str) -> Reading | None:
    """`/var/log/dpkg.log`: the same of each install, upgrade and removal; `<none>` is no version."""
    changes: list[Json] = []
    seen = False
    for line in rows(text):
        seen |= bool(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?:startup|status|configure|trigproc) ", line))
        match = _DPKG.match(line)
        if not match:
            continue
        change: dict[str, Json] = {"package": match.group(2)}
        for key, value in (("from", match.group(3)), ("to", match.group(4))):
            if not value.startswith("<"):
                change[key] = value
        changes.append(change)
    if not seen and not changes:
        return None
    draft = Draft(command)
    draft.more["changes"] = changes
    return draft.done()


def dnf(command: str, text: str) -> Reading | None:
    """`dnf history info`: each altered package once, old and new version joined; `dnf history`: no packages."""
    if re.search(r"^\s*ID\s*\|", text[:4000], re.MULTILINE):
        return Draft(command).done()
    if "Packages Altered:" not in text:
        return None
    changes: dict[str, dict[str, Json]] = {}
    for line in rows(text):
        match = _DNF.match(line)
        if not match:
            continue
        what, package, version = match.groups()
        change = changes.setdefault(package, {"package": package})
        old = what in ("Upgraded", "Downgraded", "Removed", "Erase", "Obsoleted", "Reinstalled")
        change["from" if old else "to"] = version
    draft = Draft(command)
    draft.more["changes"] = list(changes.values())
    return draft.done()
