"""The wiring of commands that act on nodes: every door opened by the settings, and a rollout driven in this process."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING, Any

from fleet.cli.output import say
from fleet.cli.selection import now, operator
from fleet.config import Settings
from fleet.core import errors
from fleet.core.model import Node

if TYPE_CHECKING:
    from fleet.act import Hands
    from fleet.core.estimate import Estimate
    from fleet.core.model import Plan
    from fleet.drain import Drain
    from fleet.engine.leases import LeaseEngine
    from fleet.evidence import Origin
    from fleet.inventory import Inventory
    from fleet.inventory.rollouts import Lease, Rollout, Rollouts, Stored
    from fleet.playbook import Staged
    from fleet.probe import Probed
    from fleet.remote import Transport
    from fleet.telling import Transition
    from fleet.upgrade import Upgrade

PARALLEL = 4
LETS_GO_S = 3.0  # how long whoever has just paused a rollout may take to let go of it


def origin_of(nodes: Sequence[Node]) -> Origin:
    """`lab` as soon as one of them is a node of a lab: such evidence never teaches the matrix."""
    return "lab" if any(node.labels.get("lab") == "true" for node in nodes) else "hardware"


@contextmanager
def transport_of(settings: Settings, inventory: Inventory) -> Iterator[Transport]:
    """SSH with the host keys of the inventory."""
    from fleet.remote import Ssh

    transport = Ssh.of(settings, inventory.host_keys())
    try:
        yield transport
    finally:
        transport.close()


def looker(settings: Settings, transport: Transport) -> Callable[[Sequence[Node]], Iterator[Probed]]:
    """A function that probes nodes through that transport."""
    import drivers
    from fleet.planning import matrix_of
    from fleet.probe import probe

    model = matrix_of(settings).model
    vendors = drivers.vendors(settings.vendor_path)

    def look(nodes: Sequence[Node]) -> Iterator[Probed]:
        return probe(
            nodes, transport, vendors, model, now, fanout=settings.fanout, timeout_s=settings.probe_timeout,
            sudo=settings.sudo,
        )  # fmt: skip

    return look


def drain_of(settings: Settings) -> Drain:
    """The scheduler in front of the nodes."""
    from fleet.drain import HookDrain, NoDrain

    match settings.drainer:
        case "slurm":
            from fleet.slurm import SlurmDrain, run_program

            return SlurmDrain(
                run_program, time.time, settings.scontrol_path, settings.slurm_conf, float(settings.drain_deadline)
            )
        case "kubernetes":
            from fleet.kubeclient import OfficialClient
            from fleet.kubernetes import Consent, KubernetesDrain

            consent = Consent(settings.drain_unmanaged_pods, settings.drain_emptydir)
            client = OfficialClient(settings.kubeconfig, settings.kube_context)
            selector = settings.drain_wait_selector
            return KubernetesDrain(client, time.time, consent, float(settings.drain_deadline), selector)
        case "command":
            from fleet.power import run_hook

            census = settings.census_command
            return HookDrain(settings.drain_command, settings.undrain_command, run_hook, census_command=census)
        case _:
            return NoDrain()


def steady(tell: Callable[[], float], ticks: Callable[[], float] = time.monotonic) -> Callable[[], float]:
    """A clock that `tell` sets once and that only `ticks` move on, both in seconds.

    A jump of the time of day, forward or back, makes no running step late and no pause long.
    """
    ahead = tell() - ticks()
    return lambda: ahead + ticks()


def hands_of(settings: Settings, inventory: Inventory, transport: Transport) -> Hands:
    """Every door that a step goes through, as the settings say."""
    import drivers
    from fleet.act import Hands
    from fleet.inventory.rollouts import Rollouts
    from fleet.planning import artifacts
    from fleet.playbook import AnsiblePlaybook, Staged
    from fleet.power import HookPower, NoPower, run_hook

    keys = inventory.host_keys()
    store = artifacts(settings)
    checked: dict[str, Staged] = {}  # hashed once in this process; the node hashes what arrives

    def artifact(name: str) -> Staged:
        if name not in checked:
            found = store.need(name)
            checked[name] = Staged(name, str(store.path(found)), found.sha256, found.size)
        return checked[name]

    return Hands(
        look=looker(settings, transport),
        transport=transport,
        playbook=AnsiblePlaybook(settings, lambda: keys),
        power=HookPower(settings.power_command, run_hook) if settings.power_command else NoPower(),
        drain=drain_of(settings),
        vendors=drivers.vendors(settings.vendor_path),
        artifact=artifact,
        clock=steady(Rollouts(inventory.database).clock),  # the one that all controllers share
        now=now,
        sleep=time.sleep,
        sudo=settings.sudo,
    )


def line(transition: Transition) -> str:
    """One line for one transition, with the time of day in UTC, as all times of fleet are."""
    at = datetime.now(UTC).strftime("%H:%M:%SZ")
    if not transition.node:
        now = f"rollout {transition.rollout} is {transition.now}" if transition.now else ""
        return f"{at} " + ": ".join(part for part in (now, transition.reason) if part)
    if transition.result == "begun":
        return f"{at} {transition.node}  begins"
    moved = transition.now if transition.was == transition.now else f"{transition.was} -> {transition.now}"
    step = f"  ({transition.step} {transition.result})" if transition.step else ""
    reason = f"  {transition.reason}" if transition.reason else ""
    return f"{at} {transition.node}  {moved}{step}{reason}"


@contextmanager
def carrying(
    settings: Settings,
    inventory: Inventory,
    rollout: str,
    *,
    parallel: int = PARALLEL,
    plan: Plan | None = None,
    tell: Callable[[str], None] = say,
) -> Iterator[Upgrade]:
    """The acting loop for that rollout with every door open; with `plan`, for one that is not stored yet.

    `tell` gets one line a transition.
    """
    from fleet.evidence import EvidenceStore
    from fleet.inventory.rollouts import Rollouts
    from fleet.upgrade import Upgrade

    store = Rollouts(inventory.database)
    names = {name for wave in plan.waves for name in wave} if plan else set(store.tasks(rollout))
    known = [node for node in inventory.nodes() if node.name in names]
    with transport_of(settings, inventory) as transport:
        upgrade = Upgrade(
            store, inventory, hands_of(settings, inventory, transport), EvidenceStore(settings.evidence_dir),
            origin=origin_of(known), operator=operator(settings), parallel=parallel,
            watch=lambda transition: tell(line(transition)),
        )  # fmt: skip
        try:
            yield upgrade
        finally:
            upgrade.close()


def drive(
    settings: Settings,
    inventory: Inventory,
    rollout: str,
    *,
    first: Callable[[Upgrade, Lease], object] | None = None,
    parallel: int = PARALLEL,
    plan: Plan | None = None,
    command: str = "",
) -> Rollout:
    """Carry out a rollout here until it rests, or hand it to a living controller and follow; its row afterwards.

    With `plan`, it is stored first, as asked by `command`; `first` is what a person has decided: it is done
    under the lease, unless a controller drives the rollout, which Locked then says.
    Ctrl-C lets the running steps end and raises Interrupted; a second one ends the process at once, which is safe too.
    """
    from fleet import decision
    from fleet.cli.following import hand_over, host_of
    from fleet.cli.watch import Place, showing
    from fleet.engine.leases import LeaseEngine
    from fleet.inventory.rollouts import Rollouts
    from fleet.notify import Target, notifying
    from fleet.planning import matrix_of

    store = Rollouts(inventory.database)
    stop = threading.Event()
    places = [Place()]  # the last is in force: a live screen has a place of its own for lines

    def tell(text: str) -> None:
        places[-1].tell(text)

    def interrupted(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            places[-1].leave()
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop.set()
        tell("the running steps end first; Ctrl-C again stops at once (it is safe: see fleet rollout resume)")

    host = host_of(store)
    if host is None:
        Target.of(settings)  # a wrong address is told before anything is begun
    signals = (signal.SIGINT, signal.SIGTERM) if host is None else ()
    before = {number: signal.signal(number, interrupted) for number in signals}
    try:
        with carrying(settings, inventory, rollout, parallel=parallel, plan=plan, tell=tell) as upgrade:
            engine = LeaseEngine(store, upgrade.tick, stop=stop)
            if plan is not None:
                decision.start(upgrade, rollout, plan, command, matrix_of(settings).digest)
                tell(f"rollout {rollout} begins")
            if first is not None:
                lease = _taken(store, rollout, engine)
                try:
                    first(upgrade, lease)
                except BaseException:
                    store.drop(lease)
                    raise
                if host is not None:
                    store.drop(lease)
            if host is None:
                with (
                    notifying(settings, inventory.database, store.clock, tell),
                    showing(store, rollout, parallel, "this command") as place,
                ):
                    places.append(place)
                    try:
                        engine.submit(rollout)
                    finally:
                        places.pop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if host is not None:
        return hand_over(store, host, rollout, parallel)
    row = store.rollout(rollout)
    if stop.is_set() and not row.finished:
        raise errors.Interrupted(
            "stopped by the operator at a safe point", where=rollout, hint=f"fleet rollout resume {rollout}"
        )
    return row


def obey(settings: Settings, inventory: Inventory, rollout: str) -> Rollout | None:
    """Carry out what was just asked of a rollout; None when a living process drives it, and will do so itself."""
    from fleet.inventory.rollouts import Rollouts

    store, end = Rollouts(inventory.database), time.monotonic() + LETS_GO_S
    while True:
        try:
            return drive(settings, inventory, rollout)
        except errors.Locked as error:
            if error.slug != "rollout-running":
                raise
        while store.leases()[rollout].owner and not store.rollout(rollout).finished:
            if time.monotonic() >= end:
                return None
            time.sleep(0.1)  # it may have looked for the last time before this was asked


def _taken(store: Rollouts, rollout: str, engine: LeaseEngine) -> Lease:
    """The lease of a rollout; whoever has just paused or ended it is given a moment to let go of it."""
    from fleet.engine.leases import gone

    end = time.monotonic() + LETS_GO_S
    while True:
        try:
            return store.acquire(rollout, engine.owner, engine.ttl_s, engine.clock(), gone)
        except errors.Locked:
            if store.rollout(rollout).state == "running" or time.monotonic() >= end:
                raise
            time.sleep(0.1)


def eta(store: Rollouts, row: Rollout, parallel: int = PARALLEL) -> Estimate:
    """How long a rollout will still take, as far as its past and that of others tell."""
    from fleet.inventory.forecast import Forecast
    from fleet.inventory.history import standing

    return Forecast(store, parallel).of(row.plan, row.state, standing(store.database, row.id), store.clock())


def as_dict(row: Rollout, tasks: dict[str, Stored]) -> dict[str, Any]:
    """The body of `kind: Rollout`."""
    from fleet.core.move import summary
    from fleet.inventory.history import iso

    return {
        "id": row.id,
        "plan": row.plan,
        "state": row.state,
        "reason": row.reason,
        "request": row.request,
        "who": row.who,
        "at": row.at,
        "endedAt": row.ended_at,
        "summary": dict(summary(s.task for s in tasks.values()).counts),
        "nodes": [
            {
                "name": name,
                "state": s.task.state,
                "wave": s.task.wave + 1,
                "direction": s.task.direction,
                "since": iso(s.task.since),
                "reason": s.task.reason,
                "owner": s.task.owner,
                "nextAction": s.task.next_action,
            }
            for name, s in tasks.items()
        ],
    }


def outcome(store: Rollouts, row: Rollout) -> int:
    """The exit status of a rollout at rest. A node that waits for a person has not failed."""
    from fleet.core.move import ABORTING, GOING_BACK
    from fleet.core.task import fell_short

    tasks = [s.task for s in store.tasks(row.id).values()]
    if row.state == "rolled-back":  # held nodes were never begun; those that failed or were stale are not back
        left = any(task.state == "failed" or task.reason.startswith("stale:") for task in tasks)
        return errors.NODES_FAILED if left else errors.DONE
    codes = []
    if row.state in ("paused", "running"):
        codes.append(errors.PAUSED)
    if row.request in GOING_BACK and row.request not in ABORTING and row.state == "paused":
        return errors.PAUSED  # nodes that went back did what was asked for
    if any(fell_short(task) for task in tasks):
        codes.append(errors.NODES_FAILED)
    if row.state == "aborted":
        codes.append(errors.FAILED)
    return errors.worst(codes)
