"""What the simulated fleet's own log says about a rollout: steps lost and doubled, fences, budgets and waves broken.

Nothing here reads a database. The log tells what was done to which node when and under which fence; the plan tells what
should have been done, in which waves, and how many nodes of which domain might be out at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from fleet.core.budget import Domain, Limit, domains
from fleet.core.model import Group, Node, Plan
from fleet.core.task import Direction, path
from fleet.lab.simulated import Effect


@dataclass(frozen=True)
class Counts:
    """A sentence for each violation; all empty = proven."""

    lost: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    over_budget: tuple[str, ...] = ()
    out_of_wave: tuple[str, ...] = ()

    @property
    def numbers(self) -> dict[str, int]:
        """How many of each."""
        return {field.name: len(getattr(self, field.name)) for field in fields(self)}


def owed(group: Group, direction: Direction = "forward", attempt: int = 1) -> list[str]:
    """What the log says of a node that went that way to its end, in order."""
    said: list[str] = []
    for cursor, step in enumerate(path(group, direction)):
        if step.phase in ("cordon", "uncordon", "reboot"):
            said.append(step.phase)
        elif step.phase in ("stop", "install", "firmware") or (step.phase == "stage" and step.artifacts):
            said.append(f"{step.phase} {direction[0]}{cursor}.{attempt}")
    return said


def lost_and_doubled(log: Iterable[Effect], plan: Plan, done: Collection[str]) -> tuple[list[str], list[str]]:
    """Steps that a node of `done` lacks, and steps that a node had more often than its way has them.

    A node that did not end well may have gone the way there and the way back, cordoned once.
    """
    had: dict[str, Counter[str]] = {name: Counter() for wave in plan.waves for name in wave}
    for effect in log:
        if effect.node in had and not effect.what.endswith("-failed"):
            had[effect.node][effect.what] += 1
    lost, doubled = [], []
    for group in plan.groups:
        there = Counter(owed(group))
        both = there + Counter(owed(group, "back"))
        both["cordon"] = both["uncordon"] = 1
        for name in group.nodes:
            if name in done:
                lost += [f"{name}: {what}" for what in (there - had[name]).elements()]
            more = had[name] - (there if name in done else both)
            doubled += [f"{name}: {what}" for what in more.elements()]
    return lost, doubled


def superseded(log: Iterable[Effect]) -> list[str]:
    """Effects under an older fence than one before on the same node."""
    newest: Counter[str] = Counter()
    found = []
    for effect in log:
        if effect.fence and effect.fence < newest[effect.node]:
            found.append(f"{effect.node}: {effect.what} under {effect.fence} after {newest[effect.node]}")
        newest[effect.node] = max(newest[effect.node], effect.fence)
    return found


def over_budget(log: Iterable[Effect], nodes: Mapping[str, Node], limits: Mapping[str, str]) -> list[str]:
    """Moments at which more nodes of a domain lay between cordon and uncordon than its limit allows."""
    parsed = {kind: Limit.parse(text) for kind, text in limits.items()}
    total: Counter[Domain] = Counter()
    for node in nodes.values():
        total.update(domains(node, parsed))
    out: dict[Domain, set[str]] = {}
    found = []
    for effect in log:
        for domain in domains(nodes[effect.node], parsed):
            away = out.setdefault(domain, set())
            if effect.what == "uncordon":
                away.discard(effect.node)
            elif effect.what == "cordon":
                away.add(effect.node)
                allowed = parsed[domain.kind].of(total[domain])
                if len(away) > allowed:
                    found.append(f"{domain}: {len(away)} out, {allowed} allowed, when {effect.node} went")
    return found


def out_of_wave(log: Sequence[Effect], plan: Plan) -> list[str]:
    """Effects on a node after a node of a later wave had been cordoned."""
    wave_by_node = {name: number for number, wave in enumerate(plan.waves) for name in wave}
    furthest, first = -1, ""
    found = []
    for effect in log:
        wave = wave_by_node.get(effect.node)
        if wave is None:
            continue
        if wave < furthest:
            found.append(f"{effect.node} of wave {wave}: {effect.what} after {first} of wave {furthest} was cordoned")
        if effect.what == "cordon" and wave > furthest:
            furthest, first = wave, effect.node
    return found


def counted(
    log: Sequence[Effect],
    plan: Plan,
    nodes: Mapping[str, Node],
    limits: Mapping[str, str],
    *,
    done: Collection[str] | None = None,
) -> Counts:
    """Everything that went wrong in one rollout; `done` = the nodes that ended well, all unless given."""
    names = {name for wave in plan.waves for name in wave}
    lost, doubled = lost_and_doubled(log, plan, names if done is None else done)
    return Counts(
        tuple(lost), tuple(doubled), tuple(superseded(log)), tuple(over_budget(log, nodes, limits)),
        tuple(out_of_wave(log, plan)),
    )  # fmt: skip
