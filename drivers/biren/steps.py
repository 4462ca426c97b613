"""From one stage of a road to the steps on a node.

Order of the driver guide: users away, old driver uninstalled by its own script (never `dkms remove` on a live node: it
unloads the driver and takes the firmware files along), new driver, module loaded or node rebooted, SDK, verify. The
firmware on the cards is kept: how it is flashed is not public.
"""

from __future__ import annotations

from drivers.biren import artifacts
from fleet.core.errors import Refused
from fleet.core.model import Step, VersionChange
from fleet.core.vendor import Change

SERVICES = ("biren-device-plugin", "br-dcgmd", "sudcgm")  # what holds /dev/biren on a node
_FIRMWARE_FILES = "/lib/firmware/biren"


def steps(change: Change) -> tuple[Step, ...]:
    """Steps of one stage, in order. Refused for a component that this vendor cannot move."""
    named = {item.component: item for item in change.changes}
    for name in named:
        if name == "firmware":
            raise Refused(
                "Biren publishes no way to flash firmware; it is a service of the vendor", slug="component-not-handled"
            )
        if name not in ("driver", "toolkit"):
            raise Refused(f"biren has no way to change {name!r}", slug="component-not-handled")
    if not named:
        return ()
    driver, toolkit = named.get("driver"), named.get("toolkit")
    out = [_preflight(change)]
    if driver is not None:
        out.append(_stop())
    gone = tuple(item for item in (toolkit, driver) if item is not None and item.old is not None)
    if gone:
        out.append(_remove(gone))
    if driver is not None and driver.new is not None:
        out.append(_driver(change, driver))
        out.append(_start(change, driver))
    elif change.reboot in ("reboot", "power_cycle"):
        out.append(_reboot(change))
    if toolkit is not None and toolkit.new is not None:
        out.append(_toolkit(change, toolkit))
    out.append(_verify(change))
    return tuple(out)


def _preflight(change: Change) -> Step:
    return Step(
        "preflight",
        limit_s=180,
        arguments={
            "components": [item.component for item in change.changes],
            "cards": change.count,
            "free_mib": 8192 if any(item.component == "toolkit" for item in change.changes) else 1024,
            "services": list(SERVICES),
        },
        why="what would stop the upgrade is named before anything is changed",
    )


def _stop() -> Step:
    return Step(
        "stop",
        limit_s=300,
        undo="load the module and start the services again",
        arguments={"services": list(SERVICES), "firmware_files": _FIRMWARE_FILES},
        why="the module is unloaded only when no process holds /dev/biren and its reference count is 0",
    )


def _remove(gone: tuple[VersionChange, ...]) -> Step:
    # A change that also installs says old -> new there; here only the old part goes.
    away = tuple(VersionChange(item.component, item.old, None) for item in gone)
    return Step(
        "remove",
        changes=away,
        delivery="runfile",
        undo="install " + ", ".join(f"{item.component} {item.old}" for item in away) + " again",
        arguments={"firmware_files": _FIRMWARE_FILES},
        limit_s=900,
        why="the old release is uninstalled by its own script; firmware files are saved first and kept",
    )


def _driver(change: Change, driver: VersionChange) -> Step:
    assert driver.new is not None
    return Step(
        "install",
        changes=(driver,),
        delivery=change.delivery.get("driver", "runfile"),
        effect="probeable",
        activation="reload" if change.reboot in ("none", "reload") else change.reboot,
        undo=f"run the installer of driver {driver.old} again" if driver.old else "uninstall the driver",
        artifacts=(artifacts.driver(driver.new, change.os.arch or "x86_64"),),
        arguments={"driver": driver.new, "kernel": change.os.kernel},
        limit_s=1800,
        why="the installer checks itself and the node first; the module's vermagic must be the running kernel's",
    )


def _start(change: Change, driver: VersionChange) -> Step:
    if change.reboot in ("reboot", "power_cycle"):
        return _reboot(change)
    return Step(
        "activate",
        activation="reload",
        limit_s=300,
        undo="unload the module",
        arguments={"driver": driver.new, "cards": change.count, "nodes_within_s": 20},
        why="/dev/biren appears within 20 s of loading the module",
    )


def _reboot(change: Change) -> Step:
    cycle = change.reboot == "power_cycle"
    return Step(
        "reboot",
        activation="power_cycle" if cycle else "reboot",
        off_seconds=30 if cycle else 0,
        limit_s=1800,
        why="the new driver is loaded from a clean start",
    )


def _toolkit(change: Change, toolkit: VersionChange) -> Step:
    assert toolkit.new is not None
    return Step(
        "install",
        changes=(toolkit,),
        delivery=change.delivery.get("toolkit", "runfile"),
        undo=f"install SDK {toolkit.old} again" if toolkit.old else "remove the SDK",
        artifacts=(artifacts.toolkit(toolkit.new, change.os),),
        arguments={"toolkit": toolkit.new},
        limit_s=1800,
        why="the SDK is user space and comes after the driver that it was released with",
    )


def _verify(change: Change) -> Step:
    return Step(
        "verify",
        limit_s=300,
        arguments={
            "expect": {item.component: item.new for item in change.changes if item.new is not None},
            "cards": change.count,
            "settle_s": 30,
        },
        why="the count must be right twice, and the loaded version must be the wanted one",
    )
