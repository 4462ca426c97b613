"""The cached layers between the base root and a node: one for each operating system, one for each starting stack.

A layer is the upper folder of an OverlayFS in which the work was really done. Its key is a digest of all that went
into it; an unfinished one has the suffix `.building` and is removed by the next builder.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from fleet.core.errors import FleetError
from fleet.core.model import digest
from fleet.lab.base import NODE, Say, headers_of
from fleet.lab.namespace import ENV, Rootfs, die_with_parent, proc_files, run
from fleet.lab.spec import LabNode, NodeClass


@dataclass(frozen=True)
class Layer:
    """`lowers` from top to ground; `state` is the state.json that a starting stack left."""

    key: str
    lowers: tuple[Path, ...]
    state: Mapping[str, Any]


def tree_digest(folder: Path) -> str:
    """One digest of names and contents under a folder, caches of Python left out."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return digest([[str(p.relative_to(folder)), digest(p.read_bytes())] for p in files])


def os_layer(cache: Path, root: Path, base_key: str, node_class: NodeClass, opt: Path, say: Say) -> Layer:
    """The layer of the class's operating system and kernel."""
    newest, older = headers_of(root)
    order = {
        "os": dict(node_class.os),
        "kind": node_class.os["kind"],
        "kernels": [{"name": node_class.kernel, "headers": older if node_class.headers == "older" else newest}],
        "spare": [newest, older],
    }
    key = digest([base_key, order, (NODE / "layer.py").read_text()])[7:19]
    done = cache / "systems" / key

    def work(building: Path) -> None:
        (building / "order.json").write_text(json.dumps(order))
        inside(
            building,
            (root,),
            ["/usr/bin/python3", "-B", "/opt/fleet-lab/layer.py", "/run/order.json"],
            {"/opt/fleet-lab": opt, "/run/order.json": building / "order.json"},
            "build",
            proc_files(node_class.kernel, "0"),
        )

    build(done, f"{node_class.os['name']} {node_class.os['version']}, kernel {node_class.kernel}", work, say)
    return Layer(key, (done / "upper", root), {})


def stack_layer(
    cache: Path,
    system: Layer,
    node: LabNode,
    opt: Path,
    packages: Path,
    files: Sequence[str],
    boot: Sequence[str],
    say: Say,
) -> Layer:
    """The layer in which the class's starting stack was installed by running its packages."""
    node_class = node.node_class
    state = first_state(node, boot)
    stack = {
        **node_class.stack(node_class.name, node_class.start, platform.machine()),
        "files": list(files),
        "packages": "/opt/fleet-lab-packages",
    }
    digests = [digest((packages / name).read_bytes()) for name in files]
    identity = {**state, "cards": [{**card, "uuid": "", "serial": ""} for card in state["cards"]]}
    programs = [tree_digest(opt / node_class.vendor), tree_digest(opt / "tools"), tree_digest(opt / "module")]
    programs += [digest(file.read_bytes()) for file in sorted(opt.glob("*.py"))]
    key = digest([system.key, stack, digests, identity, programs])[7:19]
    done = cache / "stacks" / key

    def work(building: Path) -> None:
        for name in ("state", "log"):
            (building / name).mkdir()
        (building / "state/state.json").write_text(json.dumps(state))
        (building / "stack.json").write_text(json.dumps(stack))
        binds = {
            "/opt/fleet-lab": opt,
            "/opt/fleet-lab-packages": packages,
            "/var/lib/fleet-lab": building / "state",
            "/var/log/fleet-lab": building / "log",
            "/run/stack.json": building / "stack.json",
        }
        argv = ["/usr/bin/python3", "-B", "/opt/fleet-lab/stack.py", "/run/stack.json"]
        inside(building, system.lowers, argv, binds, node_class.name, proc_files(node_class.kernel, "0"))

    what = ", ".join(f"{name} {version}" for name, version in node_class.start.items()) or "nothing installed"
    build(done, f"{node_class.name}: {node_class.model}, {what}", work, say)
    kept = json.loads((done / "state/state.json").read_text())
    return Layer(key, (done / "upper", *system.lowers), kept)


def first_state(node: LabNode, boot_modules: Sequence[str]) -> dict[str, Any]:
    """The state.json of a node that was never booted."""
    node_class = node.node_class
    return {
        "vendor": node_class.vendor,
        "model": node_class.model,
        "cards": node.functions(node_class.cards, "cards"),
        "switches": node.functions(node_class.switches, "switches"),
        "nvswitch": bool(node_class.switches),
        "os": {key: node_class.os[key] for key in ("id", "version", "name")},
        "package_kind": node_class.os["kind"],
        "kernel": node_class.kernel,
        "dmi": dict(node_class.dmi),
        "boot_modules": list(boot_modules),
        "boot_id": "",
        "boots": 0,
        "power_cycles": 0,
        "modules": {},
        "packages": {},
        "pending": {},
        "faults": [],
        "holders": [],
        "units": {},
        **node_class.state,
    }


def inside(
    building: Path,
    lowers: Sequence[Path],
    argv: Sequence[str],
    binds: Mapping[str, Path],
    hostname: str,
    files: Mapping[str, str],
) -> None:
    """Run one program in a root over `lowers` whose changes stay in `building`/upper; FleetError when it fails."""
    root = Rootfs(
        mountpoint=building / "root",
        lowers=lowers,
        upper=building / "upper",
        work=building / "work",
        hostname=hostname,
        binds=binds,
        read_only=frozenset({"/opt/fleet-lab", "/opt/fleet-lab-packages"}),
        files=files,
    )
    log = building / "log.txt"
    with log.open("ab") as handle:
        code = run(root, argv, ENV, handle.fileno(), limit_s=900)
    if code:
        lines = log.read_text(errors="replace").strip().splitlines()[-12:]
        kept = building.with_suffix(".failed.log")
        shutil.copy(log, kept)
        raise FleetError(
            f"a layer of the lab cannot be built: exit status {code}",
            where=str(kept),
            cause=" | ".join(lines),
            slug="lab-layer",
        )


def build(done: Path, what: str, work: Callable[[Path], None], say: Say) -> None:
    """Have the folder `done`: `work` fills a folder beside it, which takes that name when it is whole."""
    if (done / "done").is_file():
        (done / "done").touch()  # when it was last used: see fleet.lab.base.prune
        return
    say(f"building the layer of {what}")
    building = done.with_name(done.name + ".building")
    shutil.rmtree(building, ignore_errors=True)
    (building / "upper").mkdir(parents=True)
    work(building)
    for name in ("root", "work"):
        shutil.rmtree(building / name, ignore_errors=True)
    (building / "done").touch()
    building.rename(done)


def _job(job: Callable[[], object], report: Path) -> NoReturn:
    """Do the job in this child process, and end it; what went wrong stands in the report."""
    code = 1
    try:
        die_with_parent()
        job()
        code = 0
    except FleetError as error:
        report.write_text(json.dumps(error.as_dict()), encoding="utf-8")
    except BaseException as error:  # a child that unwound further would run its parent's code
        said = {"what": f"a layer of the lab cannot be built: {error!r}"}
        report.write_text(json.dumps(said), encoding="utf-8")
    finally:
        os._exit(code)


def in_parallel(jobs: Sequence[Callable[[], object]], width: int = 2) -> None:
    """Run jobs in child processes, `width` at a time; FleetError of the first that failed.

    Processes, because building unshares and mounts: threads of one process share what it would change.
    """
    running: dict[int, Path] = {}
    errors: list[str] = []

    def wait_one() -> None:
        while True:  # only our own children: the caller may have others
            for pid, report in list(running.items()):
                done, status = os.waitpid(pid, os.WNOHANG)
                if not done:
                    continue
                del running[pid]
                if status:
                    errors.append(report.read_text() if report.exists() else f"a builder ended with {status}")
                report.unlink(missing_ok=True)
                return
            time.sleep(0.02)

    # A folder of our own: a guessable name in /tmp could be somebody else's link.
    with tempfile.TemporaryDirectory(prefix="fleet-lab-") as reports:
        for number, job in enumerate(jobs):
            if len(running) >= width:
                wait_one()
            report = Path(reports) / str(number)
            pid = os.fork()
            if pid == 0:
                _job(job, report)
            running[pid] = report
        while running:
            wait_one()
    if errors:
        details: dict[str, str] = json.loads(errors[0]) if errors[0].startswith("{") else {"what": errors[0]}
        what = details.pop("what")
        raise FleetError(what, **details)
