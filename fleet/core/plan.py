"""Stack now + stack wanted -> a plan: equal nodes in groups, steps there and back, waves, refusals with their reasons.

Pure: the solutions, the vendors and the list of stored artifacts come in as arguments. The id of a plan is the hash of
its content, so the same question on the same facts gives the same plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleet.core.errors import FleetError, StalePlan
from fleet.core.model import (
    Conflict,
    Facts,
    Group,
    Node,
    Plan,
    Reason,
    Solution,
    Step,
    digest,
)
from fleet.core.planfile import content
from fleet.core.policy import PlanPolicy
from fleet.core.stages import after, artifacts_of, stages_of
from fleet.core.vendor import Vendor
from fleet.core.waves import units, waves_of


@dataclass(frozen=True)
class Candidate:
    """One node asked for, with what is known of it. `refusal` = the caller already knows why it cannot take part."""

    node: Node
    facts: Facts | None
    answer: Solution | Conflict | None = None
    refusal: str = ""


def start_digest(facts: Facts) -> str:
    """Digest of what a plan rests on: the identities of the cards and the values of the components, kernel and OS."""
    return digest(
        {
            "os": [facts.os.id.lower(), facts.os.version, facts.os.kernel, facts.os.arch],
            "vendor": facts.vendor,
            "cards": sorted(card.identity for card in facts.accelerators),
            "components": {
                name: [fact.installed, fact.loaded, fact.runtime] for name, fact in sorted(facts.components.items())
            },
        }
    )


def refusal(candidate: Candidate, vendors: Mapping[str, Vendor], now: str) -> str:
    """Why the node cannot be in a plan, or ""."""
    node, facts, answer = candidate.node, candidate.facts, candidate.answer
    hold = node.hold
    if hold is not None and hold.in_force(now):
        return f"held by {hold.who}: {hold.why}" + (f" (until {hold.until})" if hold.until else "")
    if node.lifecycle in ("retired", "discovered", "provisioning"):
        return f"its lifecycle state is {node.lifecycle}"
    if candidate.refusal:
        return candidate.refusal
    if facts is None:
        return f"never probed: fleet probe {node.name}"
    if not facts.vendor:
        return "no accelerator of a known vendor was seen on its PCI bus"
    if facts.vendor not in vendors:
        return f"vendor {facts.vendor!r} is not known here"
    models = Counter(card.model for card in facts.accelerators)
    if not models:
        return "no accelerator was identified"
    if len(models) > 1:
        return f"mixed models in one node: {', '.join(sorted(models))}"
    if answer is None:
        return "no solution was asked for"
    if isinstance(answer, Conflict):
        return "no stack fits: " + "; ".join(cause.text for cause in answer.causes[:3])
    return ""


def _class_key(facts: Facts, solution: Solution) -> str:
    return digest(
        {
            "os": [facts.os.id.lower(), facts.os.version, facts.os.kernel, facts.os.arch],
            "vendor": facts.vendor,
            "models": sorted(card.model for card in facts.accelerators),
            "now": facts.current(),
            "flags": dict(facts.flags),
            "target": dict(solution.stack),
            "road": [
                [[c.component, c.old, c.new] for c in stage.changes] + [[stage.reboot]] for stage in solution.road
            ],
        }
    )


def _group(
    facts: Facts, solution: Solution, vendor: Vendor, stored: Callable[[str], bool], policy: PlanPolicy
) -> Group:
    """The group without its nodes; FleetError with the reason when this class cannot be planned."""
    start = facts.current()
    base = Group(
        nodes=(),
        vendor=vendor.name,
        model=facts.accelerators[0].model,
        start=start,
        target=dict(solution.stack),
        stages=(),
        back=(),
        reasons=dict(solution.reasons),
    )
    if not solution.road:
        return base
    stages = stages_of(vendor, facts, policy, start, solution.road, back=False)
    lacking = [name for name in artifacts_of(s for body in stages for s in body) if not stored(name)]
    if lacking:
        raise FleetError(f"missing artifact {lacking[0]}: fleet artifact add FILE", slug="missing-artifact")
    back: tuple[tuple[Step, ...], ...] | None = None
    why_not = ""
    forever = [step for body in stages for step in body if step.changes and step.undo is None]
    if solution.back is None:
        why_not = "the matrix knows no way back to what is there now"
    elif forever:
        why_not = f"{forever[0].phase} of {', '.join(c.component for c in forever[0].changes)} cannot be taken back"
    else:
        arrived = start
        for stage in solution.road:
            arrived = after(arrived, stage.changes)
        back = stages_of(vendor, facts, policy, arrived, solution.back, back=True) if solution.back else ()
        absent = [name for name in artifacts_of(s for body in back for s in body) if not stored(name)]
        if absent:
            back, why_not = None, f"missing artifact {absent[0]} for the way back: fleet artifact add FILE"
    if back is None and not policy.no_return:
        raise FleetError(f"no way back: {why_not} (--no-return goes without)", slug="no-return")
    extra = {} if back is not None else {"back": (Reason(f"no way back: {why_not}"),)}
    return replace(base, stages=stages, back=back, reasons={**solution.reasons, **extra})


def make(
    candidates: Iterable[Candidate],
    vendors: Mapping[str, Vendor],
    stored: Callable[[str], bool],
    policy: PlanPolicy,
    matrix: str,
    now: str,
    inventory: Iterable[Node] = (),
) -> Plan:
    """The plan for those nodes. `stored(name)` = the artifact is in the store; `matrix` = digest of the tables.

    Nodes that already are where they should be form groups without stages; they are in no wave. `inventory` is the
    whole of it: nodes that move together with others outside the plan are refused, unless the policy splits them.
    """
    candidates = list(candidates)
    together = {} if policy.split else _together(candidates, inventory)
    refusals: dict[str, str] = {}
    keys: dict[str, str] = {}  # node -> class of nodes
    models: dict[str, Group] = {}
    hopeless: dict[str, str] = {}  # class of nodes -> why it cannot be planned
    known = {candidate.node.name: candidate for candidate in sorted(candidates, key=lambda c: c.node.name)}
    for name, candidate in known.items():
        why = refusal(candidate, vendors, now)
        if why or candidate.facts is None or not isinstance(candidate.answer, Solution):
            refusals[name] = why
            continue
        key = _class_key(candidate.facts, candidate.answer)
        if key not in models and key not in hopeless:
            try:
                vendor = vendors[candidate.facts.vendor]
                models[key] = _group(candidate.facts, candidate.answer, vendor, stored, policy)
            except FleetError as error:
                hopeless[key] = error.what
        if key in hopeless:
            refusals[name] = hopeless[key]
        else:
            keys[name] = key
    for name, why in _left_behind(keys, models, refusals, together).items():
        refusals[name] = why
        del keys[name]
    members: dict[str, list[Node]] = {}
    starts: dict[str, str] = {}
    firmware: dict[str, str] = {}
    for name, key in keys.items():
        facts = known[name].facts
        assert facts is not None
        members.setdefault(key, []).append(known[name].node)
        starts[name] = start_digest(facts)
        firmware[key] = digest([facts.os.id, facts.current().get("firmware", "")])
    groups = []
    cells: list[tuple[str, tuple[Node, ...]]] = []
    for key in sorted(members, key=lambda key: members[key][0].name):
        model = models[key]
        groups.append(replace(model, nodes=tuple(node.name for node in members[key])))
        if model.stages:
            cells.append((cell_of(model) + firmware[key], tuple(members[key])))
    waves = waves_of(cells, policy.wave_by, split=policy.split)
    return sealed(Plan("", tuple(groups), waves, refusals, starts, matrix, policy.as_dict()))


def _together(candidates: Sequence[Candidate], inventory: Iterable[Node]) -> dict[str, tuple[str, ...]]:
    """Node -> all that it moves together with; nodes that move alone are left out, and so are those no longer ours."""
    ours = {node.name: node for node in inventory if node.lifecycle not in ("retired", "discovered")}
    ours |= {candidate.node.name: candidate.node for candidate in candidates}
    return {
        node.name: tuple(n.name for n in unit) for unit in units(ours.values()) if len(unit) > 1 for node in unit
    }  # fmt: skip


def _left_behind(
    keys: Mapping[str, str], models: Mapping[str, Group], refusals: Mapping[str, str],
    together: Mapping[str, tuple[str, ...]],
) -> dict[str, str]:  # fmt: skip
    """Nodes that would be changed without one that they move together with, and why."""
    out = {}
    for name, key in keys.items():
        if not models[key].stages:
            continue
        for other in together.get(name, ()):
            if other in refusals:
                out[name] = f"moves together with {other}, which is refused: {refusals[other]}"
            elif other not in keys:
                out[name] = f"moves together with {other}, which was not asked for (--split goes without)"
            else:
                continue
            break
    return out


def cell_of(group: Group) -> str:
    """The hardware cell that a canary speaks for: vendor, model, where it starts and where it goes."""
    return digest([group.vendor, group.model, dict(group.start), dict(group.target)])


def sealed(plan: Plan) -> Plan:
    """The plan with its id: `p-` and twelve hex digits of the hash of everything else."""
    return replace(plan, id="p-" + digest(content(plan)).removeprefix("sha256:")[:12])


def same_tables(plan: Plan, matrix: str) -> None:
    """StalePlan when the plan was made from other tables than those with the digest `matrix`."""
    if plan.matrix != matrix:
        raise StalePlan(
            f"plan {plan.id} was made from other tables than those of today", hint="make it again: fleet plan",
            slug="stale-matrix",
        )  # fmt: skip


def moved(plan: Plan, facts: Mapping[str, Facts], given: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """Nodes neither in their planned start state nor in one that this rollout gave them (`given`, digests by node)."""
    out = []
    for name, digest_ in sorted(plan.starts.items()):
        seen = facts.get(name)
        if seen is None or start_digest(seen) not in {digest_, *given.get(name, frozenset())}:
            out.append(name)
    return tuple(out)
