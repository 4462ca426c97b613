"""How a change of an Ascend stack is carried out, and how it is taken back.

First install: driver, firmware, reboot. Upgrade: firmware, driver, reboot. The microcontrollers follow after the
reboot, one card at a time; the toolkit last. `--quiet` always: without it the installers wait for an answer.
Exit 2 of an installer means "on disk, reboot owed" and is no failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from drivers.ascend.packages import file_name
from fleet.core.errors import Refused
from fleet.core.model import Delivery, Json, Step, VersionChange
from fleet.core.vendor import Change
from fleet.core.version import key

HDK = ("driver", "firmware")
# Flash capability of a chip -> the first driver that may run on it (the installer's own upgrade check).
FLOORS = {
    234: "23.0.0",
    235: "24.1.rc2",
    236: "24.1.rc3",
    237: "24.1.rc4",
    238: "25.2.0",
    239: "25.2.2",
    240: "25.3.rc1",
}
# What holds /dev/davinci* on a node that runs no job: asked to stop, and found by fuser if it does not.
SERVICES = ("npu-exporter", "ascend-device-plugin")
ARTIFACT_KINDS: Mapping[str, Delivery] = {"run": "runfile", "rpm": "package", "deb": "package"}


def floor_driver(flags: Mapping[str, Json]) -> str | None:
    """The first driver that the chips' flash allows; None when it allows any or was not read."""
    raw = str(flags.get("flash_floor") or "0")
    level = int(raw) if raw.isdigit() else 0
    known = [capability for capability in FLOORS if capability <= level]
    return FLOORS[max(known)] if known else None


def below_floor(version: str | None, flags: Mapping[str, Json]) -> str | None:
    """The floor's driver when `version` lies below it, else None."""
    floor = floor_driver(flags)
    if not floor or not version:
        return None
    return floor if key(version, "generic") < key(floor, "generic") else None


def _kind(change: Change, component: str) -> str:
    """run, rpm or deb: the policy's word, else what is installed, else run."""
    wanted = change.delivery.get(component)
    if wanted == "runfile":
        return "run"
    if wanted == "package":
        return change.package_kind
    installed = change.flags.get("delivery_kind")
    known = installed.get(component) if isinstance(installed, dict) else None
    return str(known) if known in ARTIFACT_KINDS else "run"


def _installed_kind(change: Change, component: str) -> str | None:
    installed = change.flags.get("delivery_kind")
    known = installed.get(component) if isinstance(installed, dict) else None
    return str(known) if known in ARTIFACT_KINDS else None


def _hdk_step(change: Change, moved: VersionChange, riders: tuple[VersionChange, ...], first: bool) -> Step:
    assert moved.new is not None
    kind = _kind(change, moved.component)
    driver = moved.component == "driver"
    floor = below_floor(moved.old, change.flags) if driver else None
    if floor:
        undo: str | None = None
    elif moved.old is None:
        undo = f"uninstall the {moved.component}"
    else:
        undo = f"{moved.component} {moved.old} again"
    why = "driver module and libraries; its service ends with the reboot" if driver else "written to every chip's flash"
    if floor:
        why += f"; no way back to {moved.old}: the chips' flash wants {floor} or newer"
    return Step(
        "install" if driver else "firmware",
        changes=(moved, *riders),
        delivery=ARTIFACT_KINDS[kind],
        effect="probeable",
        activation="reboot",
        undo=undo,
        artifacts=(file_name(moved.component, moved.new, change.model, change.os.arch, kind),),
        arguments={
            "component": moved.component,
            "kind": kind,
            "mode": "full" if first else "upgrade",
            "chips": change.count,
            "user": str(change.flags.get("install_user") or "HwHiAiUser"),
        },
        limit_s=1800,
        why=why,
    )


def _mcu_step(change: Change, moved: VersionChange) -> Step:
    assert moved.new is not None
    return Step(
        "firmware",
        changes=(moved,),
        delivery="mcu",
        effect="probeable",
        activation="none",
        undo=f"mcu {moved.old} again" if moved.old else None,
        artifacts=(file_name("mcu", moved.new, change.model, change.os.arch),),
        arguments={"component": "mcu", "chips": change.count},
        limit_s=300 + 600 * max(change.count, 1),
        why="one card after the other: two at once lock each other out",
    )


def _toolkit_step(change: Change, moved: VersionChange) -> Step:
    assert moved.new is not None
    return Step(
        "install",
        changes=(moved,),
        delivery="runfile",
        effect="idempotent",
        undo=f"toolkit {moved.old} again" if moved.old else "uninstall the toolkit",
        artifacts=(file_name("toolkit", moved.new, change.model, change.os.arch),),
        arguments={"component": "toolkit", "kind": "run"},
        limit_s=1800,
        why="CANN beside the old one; `latest` then points to it",
    )


def _removals(moved: Iterable[VersionChange]) -> list[Step]:
    order = {"toolkit": 0, "driver": 1, "firmware": 2}
    gone = sorted((c for c in moved if c.new is None and c.component in order), key=lambda c: order[c.component])
    return [
        Step(
            "remove",
            changes=(c,),
            effect="idempotent",
            activation="reboot" if c.component in HDK else "none",
            undo=f"{c.component} {c.old} again",
            arguments={"component": c.component},
            why="not part of the wanted stack",
        )
        for c in gone
    ]


def steps(change: Change) -> tuple[Step, ...]:
    """The steps of one stage. Raises Refused when the chips' flash forbids the wanted driver.

    A bundle is a name for a driver and a firmware: it rides with the last of them, and alone it is only verified.
    """
    by_name = {moved.component: moved for moved in change.changes}
    driver, firmware = by_name.get("driver"), by_name.get("firmware")
    floor = below_floor(driver.new, change.flags) if driver else None
    if driver and floor:
        raise Refused(
            f"driver {driver.new} lies below the chips' flash floor {change.flags.get('flash_floor')}",
            cause=f"the first driver that may run is {floor}",
            slug="version-floor",
        )
    riders = tuple(c for c in (by_name.get("bundle"),) if c)
    hdk = [c for c in (driver, firmware) if c and c.new is not None]
    first = change.now.get("driver") is None
    if hdk and not first:
        hdk.reverse()  # an upgrade flashes first, a first install needs the driver before it can flash
    removals = _removals(change.changes)
    out: list[Step] = []
    if hdk or removals or "mcu" in by_name:
        out.append(
            Step(
                "stop",
                arguments={"services": list(SERVICES)},
                limit_s=300,
                why="nothing may hold /dev/davinci* while modules or flash change",
            )
        )
    out += removals
    for moved in hdk:
        was, wanted = _installed_kind(change, moved.component), _kind(change, moved.component)
        if was and moved.old is not None and was != wanted:
            out.append(
                Step(
                    "remove",
                    effect="idempotent",
                    undo=f"the {was} package of {moved.component} {moved.old} again",
                    arguments={"component": moved.component, "kind": was},
                    why=f"delivery changes from {was} to {wanted}: the two are never mixed",
                )
            )
    for i, moved in enumerate(hdk):
        out.append(_hdk_step(change, moved, riders if i == len(hdk) - 1 else (), first))
    if hdk or any(step.activation == "reboot" for step in removals) or change.reboot in ("reboot", "power_cycle"):
        cold = change.reboot == "power_cycle"
        out.append(
            Step(
                "reboot",
                effect="probeable",
                activation="power_cycle" if cold else "reboot",
                off_seconds=30 if cold else 0,
                limit_s=1800,
                why="modules and flash change over only at the next boot",
            )
        )
    if (mcu := by_name.get("mcu")) and mcu.new is not None:
        out.append(_mcu_step(change, mcu))
    if (toolkit := by_name.get("toolkit")) and toolkit.new is not None:
        out.append(_toolkit_step(change, toolkit))
    out.append(Step("verify", changes=change.changes, limit_s=600, why="what runs, not what lies on the disk"))
    return tuple(out)
