"""From nodes of the inventory and a wish to a plan: asks the matrix, the vendors and the artifact store."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

import compat_matrix
import drivers
from fleet.artifact import ArtifactStore
from fleet.config import Settings
from fleet.core import drift
from fleet.core.budget import FLEET, Limit, known_kind
from fleet.core.errors import BadInput, FleetError, NotFound, UsageError
from fleet.core.model import LEVELS, Channel, Conflict, Facts, Node, Plan, Policy, Request, Solution, component
from fleet.core.move import STAGES
from fleet.core.plan import Candidate, make
from fleet.core.policy import PlanPolicy
from fleet.core.vendor import ArtifactName
from fleet.core.version import Range
from fleet.core.window import Window

_WISH = re.compile(r"\s*([A-Za-z_-]+)\s*(==|>=|<=|!=|=|<|>|in\s*\[)")
_NOT_WISHED = ("os", "kernel")  # what a baseline says of them is judged by the audit, not brought about by an upgrade


def parse_wish(
    texts: Sequence[str], baselines: Mapping[str, drift.Baseline]
) -> tuple[dict[str, str], list[drift.Baseline]]:
    """`driver==580.95.05,toolkit>=12.8` or names of baselines -> (component -> range, baselines).

    A comma inside a range (`driver>=570.26,<580`, `in [a, b]`) belongs to it.
    """
    wish: dict[str, str] = {}
    named: list[drift.Baseline] = []
    for text in texts:
        current = ""
        for part in re.split(r",(?![^\[]*\])", text):
            match = _WISH.match(part)
            word = part.strip()
            if match:
                found = component(match[1])
                if found is None:
                    raise BadInput(f"{match[1]!r} is not a component", hint="fleet help bad-wish", slug="bad-wish")
                current = found
                range_ = part[match.start(2) :].strip()
                wish[current] = f"={range_}" if range_.startswith("=") and not range_.startswith("==") else range_
            elif current and re.match(r"[<>=!]", word):
                wish[current] += f",{word}"
            elif word in baselines:
                named.append(baselines[word])
            else:
                known = ", ".join(baselines) or "none is saved"
                raise NotFound(
                    f"{word!r} is neither a wish nor a baseline",
                    hint=f"write driver==580.95.05; baselines: {known}",
                    slug="unknown-baseline",
                )
    for name, range_ in wish.items():
        try:
            Range.parse(range_)
        except BadInput as error:
            raise BadInput(f"{name}: {error.what}", hint=error.hint, slug="bad-wish") from error
    return wish, named


def parse_limits(texts: Sequence[str], fleet_wide: str) -> dict[str, str]:
    """`10%`, `rack=1` or `label:pool=25%` -> kind of domain -> limit; the setting stands for the whole fleet."""
    out = {FLEET: fleet_wide}
    for text in texts:
        kind, equals, limit = text.rpartition("=")
        kind = kind.strip() if equals else FLEET
        if not known_kind(kind):
            raise BadInput(
                f"{kind!r} is no kind of domain", hint="fleet, site, rack, leaf, nvlink_domain, superpod or label:KEY",
                slug="bad-limit",
            )  # fmt: skip
        out[kind] = limit.strip()
    for limit in out.values():
        Limit.parse(limit)
    return out


_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_time(text: str) -> int:
    """`90`, `90s`, `10m`, `2h` or `1d` -> seconds, at most 30 days; BadInput for anything else."""
    match = re.fullmatch(r"\s*(\d{1,7})\s*([smhd]?)\s*", text, re.ASCII)
    seconds = int(match[1]) * _UNITS[match[2]] if match else -1
    if not 0 <= seconds <= 30 * 86400:
        raise BadInput(
            f"a time cannot be {text[:40]!r}", hint="write 90s, 10m, 2h or 1d; 30 days at most", slug="bad-time"
        )
    return seconds


def parse_windows(texts: Iterable[str]) -> tuple[str, ...]:
    """Maintenance windows as they were written; BadInput for one that is none."""
    found = tuple(text.strip() for text in texts if text.strip())
    for text in found:
        Window.parse(text)
    return found


def parse_approval(text: str) -> tuple[str, ...]:
    """`start`, `canary`, both with a comma, or `none` -> the stages in their order."""
    words = [word.strip() for word in text.split(",") if word.strip() not in ("", "none")]
    unknown = [word for word in words if word not in STAGES]
    if unknown:
        raise BadInput(
            f"nobody can approve {unknown[0]!r}", hint=f"it is {' or '.join(STAGES)}", slug="bad-setting"
        )  # fmt: skip
    return tuple(stage for stage in STAGES if stage in words)


def wave_kind(kind: str) -> str:
    """A kind of domain that waves can follow; BadInput for another."""
    if kind == FLEET or not known_kind(kind):
        raise BadInput(
            f"waves cannot follow {kind!r}", slug="bad-limit",
            hint="site, rack, leaf, nvlink_domain, superpod or label:KEY",
        )  # fmt: skip
    return kind


def policy_of(settings: Settings, strategy: str = "validated") -> Policy:
    """What the matrix may use, by the settings."""
    channel = next((c for c in get_args(Channel) if c == settings.channel), None)
    level = next((known for known in LEVELS if known == settings.min_level), None)
    if channel is None or level is None:
        raise UsageError(
            f"channel {settings.channel!r} or min_level {settings.min_level!r} is not known",
            hint="fleet config show",
            slug="bad-setting",
        )
    return Policy(channel=channel, min_level=level, strategy=strategy)  # type: ignore[arg-type]  # a choice of the option


class Recogniser:
    """Which vendor's file a name is: the first vendor that knows it."""

    def __init__(self, vendor_path: Iterable[str]) -> None:
        self.vendors = drivers.vendors(tuple(vendor_path))

    def __call__(self, name: str) -> ArtifactName | None:
        for vendor in self.vendors.values():
            found = vendor.artifact(name)
            if found is not None:
                return found
        return None


def artifacts(settings: Settings) -> ArtifactStore:
    """The artifact store of these settings."""
    return ArtifactStore(settings.artifact_dir, Recogniser(settings.vendor_path))


def matrix_of(settings: Settings) -> compat_matrix.Matrix:
    """The compatibility matrix of these settings."""
    return compat_matrix.load(settings.matrix_path, settings.vendor_path)


class Planner:
    """Makes plans; equal node classes are solved once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.matrix = matrix_of(settings)
        self.vendors = drivers.vendors(settings.vendor_path)
        self.store = artifacts(settings)
        self._solved: dict[str, Solution | Conflict] = {}

    def plan(
        self,
        nodes: Sequence[Node],
        facts: Mapping[str, Facts],
        policy: PlanPolicy,
        baselines: Sequence[drift.Baseline],
        now: str,
        strategy: str = "validated",
        inventory: Iterable[Node] = (),
        converge: bool = False,
    ) -> Plan:
        """The plan for those nodes as the inventory knows them; `inventory` is all of it.

        With `converge` they settle on few stacks, where that costs none of them evidence or support.
        """
        wanted = policy_of(self.settings, strategy)
        asked = [self._asked(facts.get(node.name), policy, baselines, wanted) for node in nodes]
        if converge:
            self._settle([request for request in asked if isinstance(request, Request)])
        candidates = [
            self._candidate(node, facts.get(node.name), request) for node, request in zip(nodes, asked, strict=True)
        ]
        return make(candidates, self.vendors, self.store.has, policy, self.matrix.digest, now, inventory)

    def _asked(
        self, facts: Facts | None, policy: PlanPolicy, baselines: Sequence[drift.Baseline], wanted: Policy
    ) -> Request | str:
        """What the matrix is asked for a node, or why it is not asked; "" where the plan itself says why."""
        if facts is None or facts.vendor not in self.vendors:
            return ""
        wish = dict(policy.wish)
        if baselines:
            try:
                chosen = drift.choose(baselines, facts)
            except FleetError as error:
                return error.what
            if chosen is None:
                names = ", ".join(b.name for b in baselines)
                return f"baseline {names} is not meant for this node"
            pinned = {c: f"=={v}" for c, v in chosen.stack.items() if c not in _NOT_WISHED}
            wish = {**pinned, **wish}
        try:
            return compat_matrix.request_of(facts, wanted, wish)
        except FleetError as error:
            return error.what

    def _candidate(self, node: Node, facts: Facts | None, request: Request | str) -> Candidate:
        if isinstance(request, str):
            return Candidate(node, facts, refusal=request)
        try:
            return Candidate(node, facts, self._solve(request))
        except FleetError as error:
            return Candidate(node, facts, refusal=error.what)

    def _settle(self, requests: Sequence[Request]) -> None:
        """Solve them together: what each class is to have, so that many have the same."""
        counts = Counter(map(repr, requests))
        by_class = {repr(request): request for request in requests}
        for key, target in compat_matrix.converge(self.matrix, by_class, counts).items():
            self._solved[key] = target.solution

    def _solve(self, request: Request) -> Solution | Conflict:
        key = repr(request)
        if key not in self._solved:
            self._solved[key] = compat_matrix.solve(self.matrix, request)
        return self._solved[key]
