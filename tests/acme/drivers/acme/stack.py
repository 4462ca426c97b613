"""ACME: facts from readings, steps from a change, names of files, checks."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fleet.core.errors import Refused
from fleet.core.model import Accelerator, Activation, ComponentFact, Health, Item, Json, Step, VersionChange
from fleet.core.vendor import ArtifactName, Change, Check, Gathered, Reading, Seen

_NAME = re.compile(r"acme-(driver|firmware|toolkit)_(\d+(?:\.\d+)+)_(x86_64|aarch64)\.(run|bin)", re.A)
_HEALTH: dict[str, Health] = {"ok": "ok", "warning": "warning", "critical": "critical"}


def file_name(component: str, version: str, arch: str) -> str:
    """The file that brings this version."""
    return f"acme-{component}_{version}_{arch or 'x86_64'}.{'bin' if component == 'firmware' else 'run'}"


def artifact(name: str) -> ArtifactName | None:
    """What a file name tells; None when it is none of ACME's."""
    match = _NAME.fullmatch(name)
    if not match or (match[4] == "bin") != (match[1] == "firmware"):
        return None
    return ArtifactName("acme", match[1], match[2], "bin" if match[4] == "bin" else "run", match[3])


def gather(seen: Seen) -> Gathered:
    """Components and cards. What no reading says is not claimed."""

    def said(name: str, component: str) -> str | None:
        return seen.readings[name].components.get(component) if name in seen.readings else None

    items = seen.readings["ctl"].accelerators if "ctl" in seen.readings else ()
    named = {
        "driver": ComponentFact(said("module_file", "driver"), seen.modules.get("acme") or None, said("ctl", "driver")),
        "firmware": ComponentFact(_one(items, "next"), _one(items, "firmware")),
        "toolkit": ComponentFact(said("toolkit", "toolkit")),
    }
    pci = {device.bus_id: device.pci_id for device in seen.pci if device.pci_class.startswith("12")}
    cards = tuple(_card(item, pci) for item in items)
    problems = (
        () if not items or len(pci) == len(items) else (f"count: {len(pci)} on the bus, {len(items)} in acmectl",)
    )
    return Gathered({k: v for k, v in named.items() if v != ComponentFact()}, cards, problems=problems)


def _one(items: tuple[Item, ...], key: str) -> str | None:
    found = {str(item[key]) for item in items if key in item}
    return found.pop() if len(found) == 1 else None


def _card(item: Item, pci: Mapping[str, str]) -> Accelerator:
    index, memory, bus = item.get("index"), item.get("memory_total_mib"), str(item.get("bus_id", ""))
    return Accelerator(
        vendor="acme",
        model=str(item.get("name", "")),
        bus_id=bus,
        pci_id=pci.get(bus, ""),
        index=index if isinstance(index, int) else None,
        serial=str(item.get("serial", "")),
        firmware=str(item.get("firmware", "")),
        memory_mib=memory if isinstance(memory, int) else None,
        health=_HEALTH.get(str(item.get("health", "")), "unknown"),
    )


def steps(change: Change) -> tuple[Step, ...]:
    """Driver, firmware, reboot, toolkit. Refused for any other component."""
    named = {item.component: item for item in change.changes}
    for name in named:
        if name not in ("driver", "firmware", "toolkit"):
            raise Refused(f"acme has no way to change {name!r}", slug="component-not-handled")
    if not named:
        return ()
    components: list[Json] = list(named)
    out = [Step("preflight", limit_s=60, arguments={"components": components, "cards": change.count})]
    if "driver" in named:
        out.append(Step("stop", limit_s=60, undo="load the module again"))
    gone = tuple(item for item in named.values() if item.new is None and item.component != "firmware")
    if gone:
        out.append(Step("remove", gone, "runfile", undo="install it again", limit_s=120))
    for name in ("driver", "firmware"):
        if name in named and named[name].new is not None:
            out.append(_put(change, named[name]))
    if change.reboot != "none" or "firmware" in named or "driver" in named:
        kind: Activation = "power_cycle" if change.reboot == "power_cycle" else "reboot"
        out.append(Step("reboot", activation=kind, limit_s=300))
    if "toolkit" in named and named["toolkit"].new is not None:
        out.append(_put(change, named["toolkit"]))
    expect: dict[str, Json] = {item.component: item.new for item in named.values() if item.new is not None}
    out.append(Step("verify", limit_s=60, arguments={"expect": expect, "cards": change.count}))
    return tuple(out)


def _put(change: Change, item: VersionChange) -> Step:
    assert item.new is not None
    return Step(
        "firmware" if item.component == "firmware" else "install",
        (item,),
        "runfile",
        effect="probeable",
        activation="none" if item.component == "toolkit" else "reboot",
        undo=f"install {item.component} {item.old} again" if item.old else f"remove {item.component}",
        artifacts=(file_name(item.component, item.new, change.os.arch),),
        arguments={"component": item.component, "version": item.new},
        limit_s=300,
    )


def cards_ok(readings: Mapping[str, Reading], expected: int) -> Item:
    """All cards answer and are well."""
    ctl = readings.get("ctl")
    if ctl is None or ctl.status != "ok":
        return {"name": "cards-ok", "result": "unknown", "detail": "acmectl gave no answer"}
    good = sum(1 for card in ctl.accelerators if card.get("health") == "ok")
    return {
        "name": "cards-ok",
        "result": "pass" if good == expected else "fail",
        "detail": f"{good} of {expected} cards are ok",
    }


CHECKS: tuple[Check, ...] = (Check("cards-ok", cards_ok),)
