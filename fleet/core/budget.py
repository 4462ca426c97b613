"""Nested budgets: how many nodes may be out of service, in total and in each failure domain. Arithmetic only.

A budget counts every node that is out, whoever took it out: nodes that a rollout has claimed, and nodes that were
unavailable already (broken, held, in maintenance). Taking a node that is already out costs nothing more. Nodes that
must move together (an NVLink domain, a SuperPod) are claimed together or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fleet.core.errors import BadInput
from fleet.core.model import DOMAINS, SICK, Facts, Json, Node

FLEET = "fleet"
OUT_OF_SERVICE = ("maintenance", "broken", "provisioning")
NOT_COUNTED = ("discovered", "retired")  # not capacity, so neither in a total nor out of it


@dataclass(frozen=True)
class Limit:
    """At most so many nodes: `absolute` nodes, or `percent` of the domain.

    A percentage is rounded down, yet never below one node unless it is 0 %: otherwise small domains could never move.
    """

    kind: Literal["absolute", "percent"]
    value: int

    @classmethod
    def parse(cls, text: str) -> Limit:
        """`3` or `25%`; BadInput for anything else."""
        raw = text.strip()
        number = raw.removesuffix("%").strip()
        if not number.isascii() or not number.isdigit() or (raw.endswith("%") and int(number) > 100):
            raise BadInput(
                f"a limit cannot be {text!r}", hint="write a number of nodes, or a share such as 25%", slug="bad-limit"
            )
        return cls("percent" if raw.endswith("%") else "absolute", int(number))

    def of(self, total: int) -> int:
        """The number of nodes this allows in a domain of `total` nodes."""
        if self.kind == "absolute":
            return min(self.value, total)
        if self.value == 0 or total == 0:
            return 0
        return max(1, total * self.value // 100)

    def __str__(self) -> str:
        return f"{self.value}%" if self.kind == "percent" else str(self.value)


def limits_of(policy: Mapping[str, Json]) -> dict[str, Limit]:
    """kind of domain -> limit, as a plan's policy has them."""
    table = policy.get("limits")
    return {kind: Limit.parse(str(text)) for kind, text in table.items()} if isinstance(table, Mapping) else {}


@dataclass(frozen=True, order=True)
class Domain:
    """What fails or may be out together: the fleet, or one site, rack, leaf, NVLink domain, SuperPod or label value."""

    kind: str
    name: str

    def __str__(self) -> str:
        return self.kind if self.kind == FLEET else f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Claim:
    """A node taken out of service by a rollout."""

    node: str
    rollout: str


@dataclass(frozen=True)
class Verdict:
    """Whether nodes may be taken. `never` = not even in a fleet in which everything else is well."""

    ok: bool
    reason: str = ""
    never: bool = False


def domains(node: Node, kinds: Iterable[str]) -> tuple[Domain, ...]:
    """The domains of those kinds that the node is in. `label:KEY` is a kind too; an empty name is no domain."""
    found = []
    for kind in kinds:
        if kind == FLEET:
            found.append(Domain(FLEET, FLEET))
            continue
        name = node.labels.get(kind[6:], "") if kind.startswith("label:") else str(getattr(node, kind, ""))
        if name:
            found.append(Domain(kind, name))
    return tuple(found)


def known_kind(kind: str) -> bool:
    """Whether a limit may be set for that kind of domain."""
    return kind == FLEET or kind in DOMAINS or (kind.startswith("label:") and len(kind) > 6)


def unavailable(node: Node, facts: Facts | None, now: str) -> str:
    """Why the node serves nothing at `now` (ISO 8601), or "" when it does as far as is known."""
    if node.lifecycle in OUT_OF_SERVICE:
        return f"lifecycle is {node.lifecycle}"
    if node.hold is not None and node.hold.in_force(now):
        return f"held by {node.hold.who}: {node.hold.why}"
    if facts is not None:
        for card in facts.accelerators:
            if card.health in SICK:
                return f"accelerator {card.identity} is {card.health}"
    return ""


class _Count:
    """How many nodes each domain has, and how many of them are out."""

    def __init__(self, limits: Mapping[str, Limit], nodes: Mapping[str, Node], out: Collection[str]) -> None:
        self.limits = limits
        self.nodes = nodes
        self.out = set(out)
        self.total: Counter[Domain] = Counter()
        self.away: Counter[Domain] = Counter()
        for name, node in nodes.items():
            if node.lifecycle not in NOT_COUNTED:
                there = domains(node, limits)
                self.total.update(there)
                if name in self.out:
                    self.away.update(there)

    def fits(self, wanted: Collection[str]) -> Verdict:
        """Whether these may be out too."""
        more: Counter[Domain] = Counter()
        extra: Counter[Domain] = Counter()  # a node that is no capacity yet counts while it is being taken
        for name in frozenset(wanted) - self.out:
            if (node := self.nodes.get(name)) is not None:
                there = domains(node, self.limits)
                more.update(there)
                if node.lifecycle in NOT_COUNTED:
                    extra.update(there)
        worst = Verdict(True)
        for domain in sorted(more):
            limit, total = self.limits[domain.kind], self.total[domain] + extra[domain]
            allowed = limit.of(total)
            if more[domain] > allowed:
                return Verdict(
                    False,
                    f"{domain}: {more[domain]} nodes must go together but only {allowed} of {total} may be out "
                    f"(limit {limit})",
                    never=True,
                )
            if self.away[domain] + more[domain] > allowed and worst.ok:
                worst = Verdict(
                    False, f"{domain}: {self.away[domain]} of at most {allowed} nodes are out (limit {limit})"
                )
        return worst

    def take(self, wanted: Collection[str]) -> None:
        """They are out from now on."""
        for name in frozenset(wanted) - self.out:
            if (node := self.nodes.get(name)) is not None and node.lifecycle not in NOT_COUNTED:
                self.away.update(domains(node, self.limits))
        self.out.update(wanted)


def fits(
    limits: Mapping[str, Limit], nodes: Mapping[str, Node], out: Collection[str], wanted: Collection[str]
) -> Verdict:
    """Whether `wanted` may be taken out in addition to `out`; both are names of `nodes`.

    `nodes` is the whole inventory: the totals are counted over it, not over a plan.
    """
    return _Count(limits, nodes, out).fits(wanted)


def admit(
    limits: Mapping[str, Limit],
    nodes: Mapping[str, Node],
    out: Collection[str],
    units: Sequence[Sequence[str]],
) -> tuple[tuple[tuple[str, ...], ...], dict[str, Verdict]]:
    """(units that may go now, in order; node -> verdict for the rest). Greedy: an early unit is never passed over
    for a later one that would then use up its room, but a unit that does not fit does not stop smaller ones elsewhere.
    """
    count = _Count(limits, nodes, out)
    admitted: list[tuple[str, ...]] = []
    refused: dict[str, Verdict] = {}
    for unit in units:
        verdict = count.fits(unit)
        if verdict.ok:
            admitted.append(tuple(unit))
            count.take(unit)
        else:
            refused.update(dict.fromkeys(unit, verdict))
    return tuple(admitted), refused
