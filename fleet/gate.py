"""The look behind a gate: upgraded nodes and untouched ones of the same hardware cell, probed in the same minute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.act import Hands
from fleet.core.gate import Judgement, Sample, judge
from fleet.core.model import SICK, Facts, Json, Node
from fleet.core.move import Judge
from fleet.probe import Probed
from fleet.validate import judge as checked


@dataclass(frozen=True)
class Looked:
    """What the gate of a wave came to, by hardware cell; every sample; and what the nodes said."""

    judged: Mapping[str, Judgement]
    treated: tuple[Sample, ...]
    control: tuple[Sample, ...]
    facts: tuple[Facts, ...]
    raw: Mapping[str, bytes]


def look(hands: Hands, move: Judge, nodes: Mapping[str, Node], counts: Mapping[str, int]) -> Looked:
    """Probe all of them at once and judge each cell. `counts` = accelerators that a node should have."""
    names = sorted(names_of(move) & set(nodes))
    seen = {probed.name: probed for probed in hands.look([nodes[name] for name in names])}
    treated = {cell: tuple(_upgraded(hands, seen.get(n), n, counts) for n in some) for cell, some in
               move.treated.items()}  # fmt: skip
    control = {cell: tuple(_untouched(hands, seen.get(n), n, counts) for n in some) for cell, some in
               move.control.items()}  # fmt: skip
    judged = {cell: judge(samples, control.get(cell, ()), canary=move.wave == 0) for cell, samples in treated.items()}
    return Looked(
        judged,
        tuple(s for some in treated.values() for s in some),
        tuple(s for some in control.values() for s in some),
        tuple(probed.facts for probed in seen.values() if probed.facts is not None),
        {key: data for probed in seen.values() for key, data in probed.raw.items()},
    )


def names_of(move: Judge) -> set[str]:
    """Every node that is to be looked at."""
    return {name for some in (move.treated, move.control) for cell in some.values() for name in cell}


def evidence_of(looked: Looked, move: Judge, cell: str) -> dict[str, Json]:
    """The body of the record of the verdict on one cell, with every sample behind it."""
    names = {*move.treated[cell], *move.control.get(cell, ())}
    said = looked.judged[cell]
    return {
        "wave": move.wave + 1, "cell": cell, "verdict": said.verdict, "reason": said.reason,
        "treated": [[s.node, s.state, s.reason] for s in looked.treated if s.node in names],
        "control": [[s.node, s.state, s.reason] for s in looked.control if s.node in names],
    }  # fmt: skip


def _found(hands: Hands, seen: Probed | None, name: str, counts: Mapping[str, int]) -> tuple[str, str]:
    """(verdict of the smoke checks, why)."""
    if seen is None or seen.facts is None:
        return "unknown", "it said nothing" if seen is None else f"{seen.outcome}: {seen.detail}"
    sick = next((card for card in seen.facts.accelerators if card.health in SICK), None)
    if sick is not None:
        return "fail", f"accelerator {sick.identity} is {sick.health}"
    vendor = hands.vendors.get(seen.facts.vendor)
    if vendor is None:
        return "unknown", "no accelerator of a known vendor"
    report = checked(seen, vendor, counts.get(name, len(seen.facts.accelerators)))
    return report.verdict, report.problem


def _upgraded(hands: Hands, seen: Probed | None, name: str, counts: Mapping[str, int]) -> Sample:
    verdict, why = _found(hands, seen, name, counts)
    return Sample(name, "well" if verdict == "pass" else "ill" if verdict == "fail" else "unknown", why)


def _untouched(hands: Hands, seen: Probed | None, name: str, counts: Mapping[str, int]) -> Sample:
    """What old tools cannot tell, they could not tell before either: only a clear no counts, and silence."""
    verdict, why = _found(hands, seen, name, counts)
    if verdict == "fail":
        return Sample(name, "ill", why)
    answered = seen is not None and seen.facts is not None
    return Sample(name, "well", "") if answered else Sample(name, "unknown", why)
