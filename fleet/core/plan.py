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
    Json,
    Node,
    Plan,
    Reason,
    Solution,
    Stage,
    Step,
    VersionChange,
    digest,
)
from fleet.core.planfile import content
from fleet.core.vendor import Change, Vendor
from fleet.core.waves import units, waves_of

# Phases that leave the software of the node as it was; the first step outside them is where a way back is needed.
SAFE_PHASES = ("preflight", "cordon", "drain", "stage")
OURS = ("cordon", "drain", "validate", "uncordon")  # a vendor does not say when these happen
RPM_SYSTEMS = (
    "rhel", "centos", "rocky", "almalinux", "fedora", "openeuler", "kylin", "anolis", "alinux", "opensuse", "sles",
    "amzn", "tencentos", "opencloudos", "bclinux", "ctyunos", "hce", "ol", "velinux",
)  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """One node asked for, with what is known of it. `refusal` = the caller already knows why it cannot take part."""

    node: Node
    facts: Facts | None
    answer: Solution | Conflict | None = None
    refusal: str = ""


@dataclass(frozen=True)
class PlanPolicy:
    """What the operator decided; it becomes part of the plan's content.

    `limits` maps a kind of domain to a limit of fleet.core.budget; `max_failures` is such a limit over the plan.
    """

    wish: Mapping[str, str]
    limits: Mapping[str, str]
    max_failures: str = "13%"  # one in eight
    ignore_canary: bool = False
    no_return: bool = False
    drained: bool = False  # a drain adapter is configured: look for holders only after it
    drain_limit_s: int = 3600  # how long running jobs are waited for
    chunk: int = 16
    delivery: Mapping[str, str] | None = None
    gate: bool = True  # look at each wave beside untouched nodes before the next
    soak_s: int = 0  # how long a wave is left alone before it is looked at
    revisits: int = 2  # later turns for a node whose jobs outlast the drain
    revisit_s: int = 1800  # between two of them
    approve: tuple[str, ...] = ()  # stages of fleet.core.move.STAGES that a person must say yes to
    windows: tuple[str, ...] = ()  # see fleet.core.window
    window_margin_s: int = 3600  # nothing begins when a window closes sooner than this
    wave_by: str = "rack"  # the kind of domain that a wave takes whole
    split: bool = False  # a part of an NVLink domain or SuperPod may go without the rest

    def as_dict(self) -> dict[str, Json]:
        """The policy as plain JSON, for the plan."""
        return {
            "wish": dict(self.wish),
            "limits": dict(self.limits),
            "max_failures": self.max_failures,
            "ignore_canary": self.ignore_canary,
            "no_return": self.no_return,
            "drained": self.drained,
            **({"drain_limit_s": self.drain_limit_s} if self.drain_limit_s != PlanPolicy.drain_limit_s else {}),
            "chunk": self.chunk,
            "delivery": dict(self.delivery or {}),
            "gate": self.gate,
            "soak_s": self.soak_s,
            "revisits": self.revisits,
            "revisit_s": self.revisit_s,
            "approve": list(self.approve),
            "windows": list(self.windows),
            "window_margin_s": self.window_margin_s,
            "wave_by": self.wave_by,
            "split": self.split,
        }


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


def package_kind(facts: Facts) -> str:
    """`deb` or `rpm`: what the node's system installs."""
    said = facts.flags.get("package_kind")
    if said in ("deb", "rpm"):
        return str(said)
    return "rpm" if facts.os.id.lower() in RPM_SYSTEMS else "deb"


def _vendor_steps(vendor: Vendor, facts: Facts, policy: PlanPolicy, stage: Stage, now: Mapping[str, str]) -> list[Step]:
    change = Change(
        model=facts.accelerators[0].model,
        count=len(facts.accelerators),
        os=facts.os,
        now=dict(now),
        changes=stage.changes,
        reboot=stage.reboot,
        flags=facts.flags,
        delivery=dict(policy.delivery or {}),  # type: ignore[arg-type]  # names checked where the option is read
        package_kind="rpm" if package_kind(facts) == "rpm" else "deb",
    )
    steps = [step for step in vendor.steps(change) if step.phase not in OURS]
    if stage.changes and not any(step.changes for step in steps):
        names = ", ".join(c.component for c in stage.changes)
        raise FleetError(f"vendor {vendor.name} has no steps that change {names}", slug="no-steps")
    if stage.reboot in ("reboot", "power_cycle") and not any(step.phase == "reboot" for step in steps):
        steps.append(
            Step(
                "reboot",
                effect="probeable",
                activation=stage.reboot,
                off_seconds=10 if stage.reboot == "power_cycle" else 0,
                limit_s=1800,
                why="what was installed takes effect at the next boot",
            )
        )
    return steps


def after(stack: Mapping[str, str], changes: Iterable[VersionChange]) -> dict[str, str]:
    """The stack once those changes are made."""
    out = dict(stack)
    for change in changes:
        if change.new is None:
            out.pop(change.component, None)
        else:
            out[change.component] = change.new
    return out


def _names(steps: Iterable[Step]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for step in steps for name in step.artifacts))


def stages_of(
    vendor: Vendor, facts: Facts, policy: PlanPolicy, start: Mapping[str, str], road: Sequence[Stage], *, back: bool
) -> tuple[tuple[Step, ...], ...]:
    """The full step lists of a road. On the way back nothing is drained: the node is ours already."""
    now = dict(start)
    bodies: list[list[Step]] = []
    for stage in road:
        steps = _vendor_steps(vendor, facts, policy, stage, now)
        if not any(step.phase == "verify" for step in steps):
            steps.append(Step("verify", changes=stage.changes, limit_s=600, why="a fresh probe shows what is loaded"))
        bodies.append([replace(s, changes=stage.changes) if s.phase == "verify" else s for s in steps])
        now = after(now, stage.changes)
    everything = [step for body in bodies for step in body]
    changes = tuple(change for stage in road for change in stage.changes)
    artifacts = _names(everything)
    if back:  # what would stop an upgrade must not stop a rescue
        bodies = [[step for step in body if step.phase != "preflight"] for body in bodies]
    head: list[Step] = [Step("stage", artifacts=artifacts, limit_s=1800, why="packages on the node, sha256 checked")]
    if not back:
        own = [step for step in bodies[0] if step.phase == "preflight"]
        bodies[0] = [step for step in bodies[0] if step.phase != "preflight"]
        looks = own or [Step("preflight", limit_s=300, why="everything that would stop the upgrade, before any change")]
        looks = [replace(s, changes=s.changes or changes, artifacts=s.artifacts or artifacts) for s in looks]
        away = [
            Step("cordon", undo="uncordon", limit_s=120, why="no new jobs"),
            Step("drain", undo="uncordon", limit_s=policy.drain_limit_s, why="running jobs end"),
        ]
        head = [*away, *looks, *head] if policy.drained else [*looks, *away, *head]
    if any(step.phase == "stage" for step in bodies[0]):
        bodies[0] = [step for step in bodies[0] if step.phase != "stage"]
    bodies[0] = [*head, *bodies[0]]
    bodies[-1] += [
        Step("validate", limit_s=600, why="smoke checks on the new stack"),
        Step("uncordon", limit_s=900, why="back to service, as it was found"),
    ]
    return tuple(tuple(body) for body in bodies)


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
    lacking = [name for name in _names(s for body in stages for s in body) if not stored(name)]
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
        absent = [name for name in _names(s for body in back for s in body) if not stored(name)]
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


def flat(stages: Sequence[Sequence[Step]]) -> tuple[Step, ...]:
    """The steps of all stages in order."""
    return tuple(step for stage in stages for step in stage)


def stack_at(group: Group, index: int, *, back: bool = False) -> dict[str, str]:
    """The stack that the node should have before step `index` of the flattened list, as far as stages tell."""
    stack = dict(group.target if back else group.start)
    seen = 0
    for stage in (group.back or ()) if back else group.stages:
        seen += len(stage)
        if index < seen:
            break
        stack = after(stack, [c for step in stage if step.phase == "verify" for c in step.changes])
    return stack


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
