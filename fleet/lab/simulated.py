"""A fleet in a folder: thousands of nodes without SSH, behind the same Protocols as the real doors.

A node is a JSON file, so that it outlives the process that uses it: a rollout can be killed and gone on with by
another. Every effect on a node is noted in that same file, outside any database, by the same write that brings it
about: no kill comes between the two. `SimFleet.log` is the effects of all nodes in the order of the machine's one
monotonic clock, with the fence number under which each was done: what was lost, done twice, done by a process that had
been superseded, or done beyond a budget is counted from there.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fleet.act import Hands
from fleet.core.errors import FleetError
from fleet.core.model import (
    Accelerator,
    ComponentFact,
    Facts,
    Item,
    Json,
    Node,
    OsFacts,
    Step,
)
from fleet.core.vendor import ArtifactName, Change, Check, Gathered, Reading, Vendor
from fleet.drain import Drained
from fleet.playbook import Play, Played, Staged
from fleet.power import Action
from fleet.probe import Probed
from fleet.remote import Answer

NOW = "2031-05-01T08:00:00Z"


def _steps(change: Change) -> tuple[Step, ...]:
    out = [Step("stop", undo="start again")]
    for item in change.changes:
        name = f"acme-{item.component}-{item.new}.run"
        phase = "firmware" if item.component == "firmware" else "install"
        effect = "one_way" if item.component == "mcu" else "probeable"
        out.append(
            Step(
                phase,  # type: ignore[arg-type]  # a phase, as just chosen
                changes=(item,),
                effect=effect,  # type: ignore[arg-type]  # likewise
                artifacts=(name,),
                undo="the other way round",
                activation=change.reboot,
            )
        )
    return tuple(out)


def _count(readings: Mapping[str, Reading], expected: int) -> Item:
    seen = len(readings["cards"].accelerators) if "cards" in readings else 0
    return {"name": "count", "result": "pass" if seen == expected else "fail", "detail": f"{seen} of {expected}"}


def _healthy(readings: Mapping[str, Reading], expected: int) -> Item:  # noqa: ARG001
    sick = readings["cards"].status != "ok"
    return {"name": "health", "result": "fail" if sick else "pass", "detail": "a card is sick" if sick else ""}


ACME = Vendor(
    name="acme",
    title="Acme",
    pci_vendors=frozenset({"1ace"}),
    is_accelerator=lambda device: device.vendor == "1ace",
    modules=("acme",),
    schemes={},
    probes=(),
    read=lambda _command, _text, _rc: Reading("acme", "", "ok"),
    gather=lambda _seen: Gathered(),
    steps=_steps,
    artifact=lambda name: ArtifactName("acme", "driver", "1", "run") if name.startswith("acme-") else None,
    checks=(Check("count", _count), Check("health", _healthy)),
)


class Effect(NamedTuple):
    """One thing that was done to a node.

    `at` is in nanoseconds of the monotonic clock, which all processes of the machine share and no jump of the time of
    day moves. `fence` is 0 and `rollout` "" where the node was not told them.
    """

    at: int
    node: str
    what: str
    fence: int
    rollout: str


class SimFleet:
    """Nodes in `folder`. `kill(point, node)` is called at every place where a process might die."""

    def __init__(self, folder: Path, kill: Callable[[str, str], None] = lambda _p, _n: None) -> None:
        self.folder = folder
        self.kill = kill
        self.clock = 1_000_000.0
        folder.mkdir(exist_ok=True)

    # --- the nodes ------------------------------------------------------------------------------------------------

    def add(self, name: str, driver: str = "1.0", **more: Any) -> Node:
        self._save(
            name,
            {
                "installed": {"driver": driver}, "loaded": {"driver": driver}, "boot": str(uuid.uuid4()), "boots": 0,
                "results": {}, "faults": [], "marks": {}, "up": True, "cycles": 0, "log": [], **more,
            },
        )  # fmt: skip
        return Node(name, "192.0.2.9", lifecycle="in-service")

    def state(self, name: str) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.folder / f"{name}.json").read_text())
        return loaded

    def _save(self, name: str, state: Mapping[str, Any]) -> None:
        part = self.folder / f".{name}.{os.getpid()}"
        part.write_text(json.dumps(state))
        part.replace(self.folder / f"{name}.json")

    @contextmanager
    def changing(self, name: str) -> Iterator[dict[str, Any]]:
        """The state of a node, to be changed: nobody else does meanwhile, and the change is there wholly or not."""
        with (self.folder / f".{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = self.state(name)
            yield state
            self._save(name, state)

    def change(self, name: str, **more: Any) -> None:
        with self.changing(name) as state:
            state.update(more)

    def log(self) -> list[Effect]:
        """Every effect on every node, in the order in which they came about."""
        files = [file for file in self.folder.glob("*.json") if not file.name.startswith(".")]
        found = [Effect(at, file.stem, *rest) for file in files for at, *rest in json.loads(file.read_text())["log"]]
        return sorted(found)

    def effects(self, node: str = "") -> list[str]:
        """What was done to that node, or to all."""
        return [effect.what for effect in self.log() if node in ("", effect.node)]

    def facts(self, name: str) -> Facts:
        state = self.state(name)
        components = sorted({*state["installed"], *state["loaded"]})
        return Facts(
            node=name,
            os=OsFacts("debian", "12", "6.1.0-test", "x86_64"),
            vendor="acme",
            components={
                c: ComponentFact(installed=state["installed"].get(c), loaded=state["loaded"].get(c)) for c in components
            },
            accelerators=tuple(
                Accelerator("acme", "A1", uuid=f"{name}-{i}", bus_id=f"0000:0{i}:00.0") for i in range(2)
            ),
            boot_id=state["boot"],
            at=NOW,
        )

    def _boot(self, name: str, what: str) -> None:
        with self.changing(name) as state:
            state.update(boot=str(uuid.uuid4()), boots=state["boots"] + 1, loaded=dict(state["installed"]))
            if "stale-module" in state["faults"] and state["installed"].get("driver") != "1.0":
                state["loaded"]["driver"] = "1.0"
            note(state, what)

    # --- the doors ------------------------------------------------------------------------------------------------

    def look(self, nodes: Sequence[Node]) -> Iterator[Probed]:
        for node in nodes:
            state = self.state(node.name)
            if not state["up"]:
                yield Probed(node, "silent", "connect", detail="no route")
                continue
            new = state["loaded"].get("driver") != "1.0"
            sick = "sick-anyway" in state["faults"] or ("sick" in state["faults"] and new)
            cards = tuple({"index": i} for i in range(2))
            reading = Reading("acme", "cards", "device-lost" if sick else "ok", accelerators=cards)
            yield Probed(node, "answered", "done", self.facts(node.name), readings={"cards": reading})

    def run(self, node: Node, script: str, *, timeout_s: float, sudo: bool) -> Answer:  # noqa: ARG002
        state = self.state(node.name)
        if not state["up"]:
            return Answer(node, "connect", trouble="unreachable", detail="no route")
        if "asked-" not in script:
            said = "" if "--running" in script else state["boot"]
            return Answer(node, "done", 0, f"{said}\n".encode())
        with self.changing(node.name) as state:
            if state["boot"] not in script:
                return Answer(node, "done", 0, b"other\n")
            if self.clock < state["marks"].get(state["boot"], -1e9) + 120:
                return Answer(node, "done", 0, b"waiting\n")
            state["marks"][state["boot"]] = self.clock
        if "reboot ||" in script:
            self.kill("reboot-before", node.name)
            if "dead-after-reboot" in state["faults"]:
                self.change(node.name, up=False)
            else:
                self._boot(node.name, "reboot")
            self.kill("reboot-after", node.name)
        return Answer(node, "done", 0, b"asked\n")

    def close(self) -> None:
        pass

    # power
    def available(self, node: Node) -> bool:
        return "no-power" not in self.state(node.name)["faults"]

    def do(self, node: Node, action: Action, off_seconds: int = 0) -> str:  # noqa: ARG002
        if "power-fails" in self.state(node.name)["faults"]:
            raise FleetError(f"power {action} of {node.name} failed", slug="power-failed")
        self.change(node.name, cycles=self.state(node.name)["cycles"] + 1)
        self._boot(node.name, "power-cycle")
        return "on"


def note(state: dict[str, Any], what: str, fence: int = 0, rollout: str = "") -> None:
    """Put one effect into the log of a node whose state is being changed."""
    state["log"].append([time.monotonic_ns(), what, fence, rollout])


class SimPlaybook:
    """Does what roles with fleet-run do: one effect for each step id, however often it is started."""

    def __init__(self, fleet: SimFleet) -> None:
        self.fleet = fleet

    def has(self, vendor: str, phase: str) -> bool:  # noqa: ARG002
        return phase != "verify"

    def run(self, play: Play, nodes: Sequence[Node]) -> dict[str, Played]:
        return {node.name: self._one(play, node.name) for node in nodes}

    def _one(self, play: Play, name: str) -> Played:
        self.fleet.kill(f"{play.phase}-before", name)
        with self.fleet.changing(name) as state:
            played = self._act(play, state)
        if played.ok:
            self.fleet.kill(f"{play.phase}-after", name)
        return played

    def _act(self, play: Play, state: dict[str, Any]) -> Played:
        if not state["up"]:
            return Played(False, "no route", "unreachable", lost=True)
        if play.fence < state.get("fence", 0):
            return Played(False, f"a later controller owns this node (fence {state['fence']})", "fenced")
        state["fence"] = play.fence
        failing = f"fail-{play.phase}"
        if failing in state["faults"] and (play.phase != "install" or play.changes[0].new != "1.0"):
            note(state, f"{play.phase}-failed", play.fence, play.rollout)
            return Played(False, "the tool said no", "made-up")
        if play.step not in state["results"] and play.phase in ("stop", "install", "firmware", "stage"):
            for change in play.changes:
                if change.new is None:
                    state["installed"].pop(change.component, None)
                elif "lying-installer" not in state["faults"]:
                    state["installed"][change.component] = change.new
            state["results"][play.step] = 0
            note(state, f"{play.phase} {play.step.partition('.')[2]}", play.fence, play.rollout)
        return Played(True, transcript=f"ran {play.phase}")


class SimDrain:
    """A scheduler that knows who cordoned a node. A node with the fault `busy` is drained when asked the third time."""

    def __init__(self, fleet: SimFleet) -> None:
        self.fleet = fleet
        self.asked: dict[str, int] = {}

    def cordon(self, node: Node, token: str) -> Drained:
        self.fleet.kill("cordon-before", node.name)
        with self.fleet.changing(node.name) as state:
            if "foreign" in state["faults"]:
                return Drained("failed", "repair ticket 7", foreign=True)
            if state.get("cordoned") != token:
                state["cordoned"] = token
                note(state, "cordon", rollout=token.partition(":")[2])
        self.fleet.kill("cordon-after", node.name)
        return Drained("done", prior={"cordoned": True})

    def drain(self, node: Node, token: str) -> Drained:  # noqa: ARG002
        self.fleet.kill("drain-before", node.name)
        self.asked[node.name] = self.asked.get(node.name, 0) + 1
        faults = self.fleet.state(node.name)["faults"]
        if "busy-for-ever" in faults or ("busy" in faults and self.asked[node.name] % 3):
            return Drained("waiting", "2 jobs run")
        return Drained("done")

    def uncordon(self, node: Node, token: str, prior: Mapping[str, Json]) -> Drained:
        self.fleet.kill("uncordon-before", node.name)
        with self.fleet.changing(node.name) as state:
            if prior.get("cordoned") and state.get("cordoned") == token:
                state["cordoned"] = ""
                note(state, "uncordon", rollout=token.partition(":")[2])
        self.fleet.kill("uncordon-after", node.name)
        return Drained("done")


def hands(
    fleet: SimFleet, sleep: Callable[[float], None] | None = None, clock: Callable[[], float] | None = None
) -> Hands:
    """The doors of that fleet. Sleeping, and a little each look at the clock, moves the fleet's own time.

    With `clock` the controller goes by that one, and only the nodes by their own.
    """

    def tell() -> float:
        fleet.clock += 0.05
        return fleet.clock if clock is None else clock()

    def nap(seconds: float) -> None:
        fleet.clock += seconds

    return Hands(
        look=fleet.look,
        transport=fleet,
        playbook=SimPlaybook(fleet),
        power=fleet,
        drain=SimDrain(fleet),
        vendors={"acme": ACME},
        artifact=lambda name: Staged(name, f"/nowhere/{name}", "0" * 64, 1),
        clock=tell,
        now=lambda: NOW,
        sleep=sleep or nap,
        elapsed=tell if clock is None else time.monotonic,
    )
