"""From one stage of a road to the steps on a node.

Order of the vendor's guide: old SDK away, driver first, VBIOS second, cold reboot, SDK, verify. The VBIOS goes to one
card first; if the vendor's own check then says that driver and VBIOS do not fit, nothing else is flashed.
"""

from __future__ import annotations

from typing import Literal

from drivers.metax import artifacts
from fleet.core.errors import Refused
from fleet.core.model import Activation, Step, VersionChange
from fleet.core.vendor import Change

_HANDLED = ("driver", "firmware", "toolkit")
_FLASH_LIMIT_S = 600  # the tool's own default of 60 s is too short for a node of eight cards
_OFF_S = 30

SERVICES = ("mx-exporter", "metax-device-plugin", "mxvisor")  # what may hold /dev/mxcd on a node without Kubernetes


def steps(change: Change) -> tuple[Step, ...]:
    """Steps of one stage, in order. Refused for a component that this vendor cannot move."""
    named = {item.component: item for item in change.changes}
    for name in named:
        if name not in _HANDLED:
            raise Refused(f"metax has no way to change {name!r}", slug="component-not-handled")
    driver, firmware, toolkit = (named.get(name) for name in _HANDLED)
    if firmware is not None and firmware.new is None:
        raise Refused("a VBIOS cannot be removed from a card", slug="component-not-handled")
    if not named:
        return ()
    out = [_preflight(change, firmware), *_stop(driver, firmware)]
    out += _remove(driver, toolkit)
    if driver is not None and driver.new is not None:
        out.append(_driver(change, driver, before_flash=firmware is not None))
    if firmware is not None:
        out += _firmware(change, firmware)
    out += _activate(change, driver, firmware)
    if toolkit is not None and toolkit.new is not None:
        out.append(_toolkit(change, toolkit))
    out.append(_verify(change))
    return tuple(out)


def _preflight(change: Change, firmware: VersionChange | None) -> Step:
    return Step(
        "preflight",
        limit_s=180,
        arguments={
            "components": [item.component for item in change.changes],
            "cards": change.count,
            "free_mib": 4096 if any(item.component == "toolkit" for item in change.changes) else 1024,
            "chip": artifacts.chip(change.model),
            # a card that does not answer forbids an upgrade, but it is often the very reason to go back
            "cards_must_answer": firmware is not None and not _older(firmware),
        },
        why="what would stop the upgrade is named before anything is changed",
    )


def _stop(driver: VersionChange | None, firmware: VersionChange | None) -> list[Step]:
    if driver is None and firmware is None:
        return []
    return [
        Step(
            "stop",
            limit_s=300,
            undo="start the services again",
            arguments={"services": list(SERVICES), "unload": driver is not None},
            why="the driver cannot be unloaded, nor a card flashed, while a process holds /dev/mxcd",
        )
    ]


def _remove(driver: VersionChange | None, toolkit: VersionChange | None) -> list[Step]:
    gone = [item for item in (toolkit, driver) if item is not None and item.old is not None and item.new is None]
    old_sdk = toolkit is not None and toolkit.old is not None and toolkit.new is not None
    if old_sdk and toolkit is not None:
        return [_removal((*gone, VersionChange("toolkit", toolkit.old, None)))]
    return [_removal(tuple(gone))] if gone else []


def _removal(changes: tuple[VersionChange, ...]) -> Step:
    back = ", ".join(f"{item.component} {item.old}" for item in changes)
    return Step(
        "remove",
        changes=changes,
        delivery="runfile",
        undo=f"install {back} again",
        limit_s=900,
        why="an SDK of another version is removed before the driver moves",
    )


def _activation(change: Change) -> Activation:
    kinds: dict[Literal["none", "reload", "reboot", "power_cycle"], Activation] = {
        "none": "reload", "reload": "reload", "reboot": "reboot", "power_cycle": "power_cycle",
    }  # fmt: skip
    return kinds[change.reboot]


def _driver(change: Change, driver: VersionChange, *, before_flash: bool) -> Step:
    assert driver.new is not None
    back = f"install KMD {driver.old} again" if driver.old else "remove the driver package"
    return Step(
        "install",
        changes=(driver,),
        delivery=change.delivery.get("driver", "runfile"),
        effect="probeable",
        # the cards are flashed by the new driver, so it must be loaded by then
        activation="reload" if before_flash else _activation(change),
        undo=back,
        artifacts=(artifacts.driver(driver.new, change.package_kind, change.os.arch or "x86_64"),),
        arguments={"kmd": driver.new, "compat_gate": not before_flash},
        limit_s=1800,
        why="the driver comes before the VBIOS; DKMS builds it for the running kernel",
    )


def _firmware(change: Change, firmware: VersionChange) -> list[Step]:
    assert firmware.new is not None
    older = _older(firmware)
    why = "the VBIOS follows the driver, one canary card first; it runs after a cold reboot"
    if older:
        why += "; an older VBIOS may be refused by the card's anti-rollback trigger"
    return [
        Step(
            "firmware",
            changes=(firmware,),
            delivery=change.delivery.get("firmware", "runfile"),
            effect="probeable",
            activation="power_cycle",
            off_seconds=_OFF_S,
            undo=f"flash VBIOS {firmware.old or 'that was dumped before'} with -U, then a cold reboot",
            artifacts=(artifacts.vbios(firmware.new, change.model),),
            arguments={
                "vbios": firmware.new,
                "flash_limit_s": _FLASH_LIMIT_S,
                "canary_card": 0,
                "forced": older,
                "cards": change.count,
            },
            limit_s=3 * _FLASH_LIMIT_S + 300,
            why=why,
        )
    ]


def _activate(change: Change, driver: VersionChange | None, firmware: VersionChange | None) -> list[Step]:
    if firmware is not None or change.reboot == "power_cycle":
        return [
            Step(
                "reboot", activation="power_cycle", off_seconds=_OFF_S, limit_s=1800,
                why="a new VBIOS runs after the card has lost power; a warm reset is certified on few servers",
            )
        ]  # fmt: skip
    if change.reboot == "reboot":
        return [Step("reboot", activation="reboot", limit_s=1800, why="the new driver is loaded from a clean start")]
    if driver is not None and driver.new is not None:
        return [
            Step(
                "activate", activation="reload", limit_s=300, undo="load the former module",
                arguments={"kmd": driver.new}, why="the module is loaded and its devices have settled",
            )
        ]  # fmt: skip
    return []


def _toolkit(change: Change, toolkit: VersionChange) -> Step:
    assert toolkit.new is not None
    return Step(
        "install",
        changes=(toolkit,),
        delivery=change.delivery.get("toolkit", "runfile"),
        undo=f"install MXMACA {toolkit.old} again" if toolkit.old else "remove the SDK",
        artifacts=(artifacts.toolkit(toolkit.new, change.package_kind, change.os.arch or "x86_64"),),
        arguments={"toolkit": toolkit.new},
        limit_s=1800,
        why="the SDK comes last: it is user space and needs the running driver",
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
        why="cards appear late after a load: the count must be right twice",
    )


def _older(change: VersionChange) -> bool:
    return bool(change.old and change.new) and _number(change.new or "") < _number(change.old or "")


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
