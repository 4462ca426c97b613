"""Drift: what nodes said against what they should be. Pure; a finding's fingerprint is stable between audits.

What a component has is never merged into one value, so one component gives up to two findings: is the right version
*installed*, and is what is installed also *loaded*? What was not read is `unknown`, which is neither ok nor drift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from fleet.core import version
from fleet.core.errors import BadInput
from fleet.core.model import ComponentFact, Facts, Json, digest

Result = Literal["ok", "drift", "unknown", "waived"]
RESULTS: tuple[Result, ...] = get_args(Result)
Kind = Literal["installed", "loaded", "probe", "baseline"]
Scheme = Callable[[str], str]
_RUNS = ("driver",)  # components that do nothing until they are loaded: installed alone is not an answer


@dataclass(frozen=True)
class Baseline:
    """A named stack: the best known configuration of one vendor or model; empty = of any.

    A version may be a range (`580.*`); a plain one means equality.
    """

    name: str
    stack: Mapping[str, str]
    vendor: str = ""
    model: str = ""

    def fits(self, facts: Facts) -> bool:
        """Whether it is meant for a node that said this."""
        models = {card.model for card in facts.accelerators}
        return (not self.vendor or self.vendor == facts.vendor) and (not self.model or models == {self.model})


@dataclass(frozen=True)
class Finding:
    """One answer about one component of one node. `expected` and `found` are None where there is no such value."""

    node: str
    component: str  # "" for a finding about the node as a whole
    kind: Kind
    result: Result
    expected: str | None
    found: str | None
    detail: str = ""

    @property
    def fingerprint(self) -> str:
        """Names this very difference: the same in each audit until a value changes. 16 hex digits."""
        content: Json = [self.node, self.component, self.kind, self.expected, self.found]
        return digest(content).removeprefix("sha256:")[:16]

    def as_dict(self) -> dict[str, Json]:
        """The finding as plain JSON values."""
        return {**vars(self), "fingerprint": self.fingerprint}


@dataclass(frozen=True)
class Waiver:
    """Somebody answers for a finding until a day. `until` is an ISO 8601 time and mandatory."""

    fingerprint: str
    owner: str
    reason: str
    until: str


def choose(baselines: Sequence[Baseline], facts: Facts) -> Baseline | None:
    """The baseline meant for a node: by model before by vendor before any; None when there is none.

    Raises BadInput when two are equally meant.
    """

    def closeness(baseline: Baseline) -> tuple[bool, bool]:
        return bool(baseline.model), bool(baseline.vendor)

    ranked = sorted((b for b in baselines if b.fits(facts)), key=closeness)
    if len(ranked) > 1 and closeness(ranked[-1]) == closeness(ranked[-2]):
        names = f"{ranked[-2].name!r} and {ranked[-1].name!r}"
        raise BadInput(f"the baselines {names} are both meant for node {facts.node}", slug="bad-baseline")
    return ranked[-1] if ranked else None


def compare(node: str, facts: Facts | None, baseline: Baseline | None, scheme: Scheme) -> tuple[Finding, ...]:
    """The findings about one node, the ok ones too. `scheme` gives the version scheme of a component."""
    if facts is None:
        return (Finding(node, "", "probe", "unknown", None, None, "never probed"),)
    if baseline is None or not baseline.fits(facts):
        found = " ".join(filter(None, (facts.vendor, facts.accelerators[0].model if facts.accelerators else "")))
        return (
            Finding(node, "", "baseline", "unknown", None, found or None, "no baseline is meant for this hardware"),
        )
    out: list[Finding] = []
    for component, expected in sorted(baseline.stack.items()):
        fact = facts.components.get(component, ComponentFact())
        if component == "kernel" and fact.current is None and facts.os.kernel:
            fact = ComponentFact(loaded=facts.os.kernel)
        out += _component(node, component, expected, fact, scheme(component))
    return tuple(out)


def _component(node: str, name: str, expected: str, fact: ComponentFact, scheme: str) -> list[Finding]:
    if fact.installed is None and fact.loaded is None:
        return [Finding(node, name, "installed", "unknown", expected, None, "no version was read")]
    if fact.installed is None:
        right = _meets(fact.loaded or "", expected, scheme)
        return [Finding(node, name, "loaded", "ok" if right else "drift", expected, fact.loaded)]
    right = _meets(fact.installed, expected, scheme)
    out = [Finding(node, name, "installed", "ok" if right else "drift", expected, fact.installed)]
    if fact.loaded is not None:
        same = _equal(fact.loaded, fact.installed, scheme)
        detail = "" if same else "what is installed is not what runs: a reload or reboot is owed"
        out.append(Finding(node, name, "loaded", "ok" if same else "drift", fact.installed, fact.loaded, detail))
    elif name in _RUNS:
        out.append(Finding(node, name, "loaded", "unknown", fact.installed, None, "no loaded version was read"))
    return out


def waive(findings: Iterable[Finding], waivers: Iterable[Waiver], now: str) -> tuple[Finding, ...]:
    """The findings, drift that somebody answers for turned into `waived`. An expired waiver counts nothing."""
    valid = {waiver.fingerprint: waiver for waiver in waivers if waiver.until > now}
    return tuple(
        replace(f, result="waived", detail=f"{valid[f.fingerprint].owner}: {valid[f.fingerprint].reason}")
        if f.result == "drift" and f.fingerprint in valid
        else f
        for f in findings
    )


def _meets(found: str, expected: str, scheme: str) -> bool:
    try:
        return version.Range.parse(expected).contains(found, scheme)
    except BadInput:
        return found == expected  # not a version of the scheme: only the very text will do


def _equal(left: str, right: str, scheme: str) -> bool:
    try:
        return left == right or version.key(left, scheme) == version.key(right, scheme)
    except BadInput:
        return False
