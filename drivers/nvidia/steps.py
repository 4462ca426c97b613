"""One stage of a road as steps: stop, remove the old scheme's packages, install in one transaction, reboot, verify.

Driver, fabric manager, NSCQ, NVSDM and IMEX have one version and move in one transaction; DCGM, container toolkit, CUDA
toolkit and the rest are separate ones after it. A reboot is the default; a live reload only where the road asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from drivers.nvidia import naming
from fleet.core.errors import Refused
from fleet.core.model import Json, Step, VersionChange
from fleet.core.vendor import Change

# In this order; the union of what operators and NVIDIA's own driver container stop.
STOP_UNITS = (
    "nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service", "dcgm-exporter", "nvidia-dcgm", "nvsm", "slurmd",
    "nvidia-persistenced", "nvidia-gridd", "nvidia-topologyd", "nvidia-fabricmanager", "nvlsm", "nvidia-imex",
)  # fmt: skip
START_UNITS = (
    "nvidia-persistenced",
    "nvidia-fabricmanager",
    "nvidia-imex",
    "nvidia-dcgm",
    "nvidia-cdi-refresh.service",
)
UNLOAD = (
    "gdrdrv", "nvidia_fs", "nvidia_peermem", "nv_peer_mem", "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia",
)  # fmt: skip
LOAD = ("nvidia", "nvidia_uvm", "nvidia_modeset")
DEVICES = ("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm*", "/dev/nvidia-nvswitch*")
SEPARATE = ("nvlsm", "dcgm", "container_toolkit", "toolkit", "gdrcopy")
_UNITS_OF = {"dcgm": ("nvidia-dcgm",), "nvlsm": ("nvlsm",), "container_toolkit": ("nvidia-cdi-refresh.service",)}
_OURS = frozenset({"driver", "driver_flavour", *naming.COMPANIONS, *SEPARATE})


def steps(change: Change) -> tuple[Step, ...]:
    """The steps of one stage; Refused for a component that this vendor does not install."""
    foreign = [c.component for c in change.changes if c.component not in _OURS]
    if foreign:
        raise Refused(f"the nvidia adapter installs no {', '.join(foreign)}", slug="no-steps")
    moves = {c.component: c for c in change.changes}
    core = {name: moves[name] for name in ("driver", "driver_flavour", *naming.COMPANIONS) if name in moves}
    out: list[Step] = [_preflight(change, bool(core))]
    removes: list[str] = []
    installs: list[Step] = []
    if core:
        step, old, new = _one_transaction(change, core)
        removes += [name for name in old if name not in new]
        if step is not None:
            installs.append(step)
    for name in SEPARATE:
        if name in moves:
            step, old, new = _separate(change, moves[name])
            removes += [package for package in old if package not in new]
            if step is not None:
                installs.append(step)
    units = STOP_UNITS if core else tuple(unit for name in moves for unit in _UNITS_OF.get(name, ()))
    if units:
        out.append(
            Step(
                "stop",
                undo="start the units again",
                arguments={"units": list(units)},
                limit_s=300,
                why="nothing may hold the devices or the libraries while they are replaced",
            )
        )
    if removes:
        removed = () if installs else change.changes
        out.append(
            Step(
                "remove",
                changes=removed,
                delivery="package",
                undo="install the packages of the old stack again",
                arguments={"packages": list(removes), "kind": change.package_kind},
                limit_s=600,
                why="packages of the old naming scheme, branch or flavour would collide with the new ones",
            )
        )
    out += installs
    if core and change.reboot == "reload":
        out.append(_reload())
    elif core:
        off = 30 if change.reboot == "power_cycle" else 0
        out.append(
            Step(
                "reboot",
                effect="probeable",
                activation="power_cycle" if off else "reboot",
                off_seconds=off,
                undo="the way back ends with a reboot of its own",
                limit_s=1800,
                why="the new module is loaded at the next boot; a live reload is only an optimisation",
            )
        )
    elif units:
        out.append(
            Step(
                "activate",
                effect="idempotent",
                undo="start the units again",
                arguments={"modules": [], "load": [], "units": list(units)},
                limit_s=300,
                why="the units that were stopped run again with the new files",
            )
        )
    out.append(
        Step(
            "verify",
            changes=change.changes,
            effect="idempotent",
            arguments=_verify_arguments(change, moves),
            limit_s=900,
            why="loaded module, user space, fabric manager and number of GPUs, read afresh",
        )
    )
    return tuple(out)


def _new(change: Change, moves: dict[str, VersionChange], name: str) -> str | None:
    return moves[name].new if name in moves else change.now.get(name)


def _verify_arguments(change: Change, moves: dict[str, VersionChange]) -> dict[str, Json]:
    return {
        "driver": _new(change, moves, "driver") or "",
        "count": change.count,
        "fabric": bool(change.flags.get("nvswitch")) and bool(_new(change, moves, "fabricmanager")),
    }


def _preflight(change: Change, core: bool) -> Step:
    return Step(
        "preflight",
        arguments={
            "kind": change.package_kind,
            "kernel": change.os.kernel,
            "headers": core,
            "devices": list(DEVICES) if core else [],
            "free_mib": 2048 if core else 512,
            "count": change.count,
        },
        limit_s=300,
        why="headers, free space, holders of the devices, another package manager: before anything is changed",
    )


def _one_transaction(change: Change, core: dict[str, VersionChange]) -> tuple[Step | None, list[str], list[str]]:
    """(install step, package names before, package names after)."""
    old_driver, new_driver = change.now.get("driver"), _new(change, core, "driver")
    before: list[str] = []
    old_flavour = ""
    if old_driver:
        old_flavour = naming.flavour(old_driver, change.now.get("driver_flavour"), change.model)
        before.append(naming.package("driver", old_driver, change.package_kind, old_flavour))
    # A companion that is there and that the road does not name still has to follow the driver.
    moved: dict[str, str | None] = {}
    for name in naming.COMPANIONS:
        old = change.now.get(name)
        if old:
            before.append(naming.package(name, old, change.package_kind))
        if name in core:
            moved[name] = core[name].new
        elif old and new_driver:
            moved[name] = new_driver
    after: list[str] = []
    files: list[str] = []
    if new_driver:
        word = naming.flavour(new_driver, _new(change, core, "driver_flavour"), change.model)
        if change.delivery.get("driver") == "runfile":
            files.append(naming.run_file(new_driver, change.os))
        else:
            after.append(naming.package("driver", new_driver, change.package_kind, word))
            files.append(naming.file_name("driver", new_driver, change.package_kind, change.os, word))
    for name, version in moved.items():
        if version is None:
            continue
        if new_driver and version != new_driver:
            raise Refused(f"{name} {version} and driver {new_driver} must be equal", slug="unequal-driver")
        after.append(naming.package(name, version, change.package_kind))
        files.append(naming.file_name(name, version, change.package_kind, change.os))
    if not files:
        return None, before, after
    changes = list(core.values())
    changes += [
        VersionChange(name, change.now.get(name), version) for name, version in moved.items() if name not in core
    ]
    undo = "install the packages of the new stack again"
    if old_driver:
        undo = f"remove what differs and install driver {old_driver} and its companions again in one transaction"
    elif not old_driver and before == []:
        undo = "remove the packages: there was no driver before"
    step = Step(
        "install",
        changes=tuple(changes),
        delivery="runfile" if change.delivery.get("driver") == "runfile" else "package",
        effect="probeable",
        undo=undo,
        artifacts=tuple(files),
        arguments={
            "packages": list(after),
            "kind": change.package_kind,
            "flavour": naming.flavour(new_driver, _new(change, core, "driver_flavour"), change.model)
            if new_driver
            else "",
            "driver": new_driver or "",
        },
        limit_s=1800,
        why="one version of driver and companions, in one transaction, so that none can be left behind",
    )
    return step, before, after


def _separate(change: Change, move: VersionChange) -> tuple[Step | None, list[str], list[str]]:
    kind = change.package_kind
    before = [naming.package(move.component, move.old, kind)] if move.old else []
    if move.new is None:
        return None, before, []
    after = [naming.package(move.component, move.new, kind)]
    step = Step(
        "install",
        changes=(move,),
        delivery="package",
        effect="probeable",
        undo=f"install {move.component} {move.old} again" if move.old else f"remove {move.component}",
        artifacts=(naming.file_name(move.component, move.new, kind, change.os),),
        arguments={"packages": list(after), "kind": kind, "flavour": "", "driver": ""},
        limit_s=1200,
        why=f"{move.component} has a version of its own and follows the driver",
    )
    return step, before, after


def _reload() -> Step:
    lists: dict[str, Sequence[str]] = {"modules": UNLOAD, "load": LOAD, "units": START_UNITS}
    return Step(
        "activate",
        effect="probeable",
        activation="reload",
        undo="unload the new modules and load those of the old stack; reboot when that is refused",
        arguments={key: list(value) for key, value in lists.items()},
        limit_s=600,
        why="modules are unloaded from the top and the new ones loaded, without a reboot",
    )
