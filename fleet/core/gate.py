"""The gate after a wave: how the upgraded nodes are, beside nodes that were not touched. A verdict has four values.

`pass` goes on. `fail` says that the change did it. `inconclusive` asks a person: nodes that nobody touched are ill
too, or upgraded ones are merely silent. `no-data` = too few nodes said anything; that fails a canary and asks a person
later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Literal, get_args

from fleet.core.model import Json

Verdict = Literal["pass", "fail", "inconclusive", "no-data"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
State = Literal["well", "ill", "unknown"]
TOLERATED = 5  # percent of a later wave that may be ill or silent; of a canary none
CONTROLS = 8  # nodes of the control group for a small wave; for a larger one as many as the wave has, up to:
MOST_CONTROLS = 32
CHANCE = (
    0.05  # where untouched nodes are ill too: how improbable the difference must be before it is the change's doing
)


@dataclass(frozen=True)
class Sample:
    """How one node was found after the soak, or at the same moment without having been touched."""

    node: str
    state: State
    reason: str = ""


@dataclass(frozen=True)
class Judgement:
    """What the gate says of one hardware cell of a wave. `accepted` = a person said to go on all the same."""

    verdict: Verdict
    reason: str = ""
    accepted: bool = False

    @property
    def open(self) -> bool:
        """Whether the rollout may go on through it."""
        return self.verdict == "pass" or self.accepted


def _named(samples: Sequence[Sample]) -> str:
    first = samples[0]
    more = f" and {len(samples) - 1} more" if len(samples) > 1 else ""
    return f"{first.node}{more}" + (f" ({first.reason})" if first.reason else "")


def judge(treated: Sequence[Sample], control: Sequence[Sample], *, canary: bool) -> Judgement:
    """The verdict on the upgraded nodes of one cell, given untouched nodes looked at in the same minutes.

    Silence counts as bad, since nobody knows. A canary may have no bad node, a later wave a few (`TOLERATED`).
    """
    ill = [s for s in treated if s.state == "ill"]
    silent = [s for s in treated if s.state == "unknown"]
    total, bad = len(treated), len(ill) + len(silent)
    if not treated or 2 * len(silent) > total:
        return Judgement("no-data", f"{len(silent)} of {total} nodes said nothing")
    if bad <= (0 if canary else total * TOLERATED // 100):
        return Judgement("pass", f"{total - bad} of {total} nodes are well" + (f", not {_named(ill or silent)}"
                         if bad else ""))  # fmt: skip
    what = f"{bad} of {total} upgraded nodes are not well: {_named(ill or silent)}"
    sick = [s for s in control if s.state != "well"]
    if sick and by_chance(bad, total, len(sick), len(control)) > CHANCE:
        return Judgement("inconclusive", f"{what}; but so are {len(sick)} of {len(control)} untouched ones: "
                         f"{_named(sick)}")  # fmt: skip
    if not ill:
        return Judgement("inconclusive", f"{what}; silent, not known to be ill")
    beside = f"{len(control) - len(sick)} of {len(control)} untouched ones are well" if control else "none is untouched"
    return Judgement("fail", f"{what}; {beside}")


def by_chance(bad: int, total: int, sick: int, others: int) -> float:
    """The probability that so many of the upgraded ones, or more, are bad if the change makes no difference.

    Fisher's exact test, one-sided: `bad` of `total` upgraded nodes beside `sick` of `others` untouched ones.
    """
    pool, of = bad + sick, total + others
    ways = sum(comb(total, n) * comb(others, pool - n) for n in range(bad, min(total, pool) + 1))
    return ways / comb(of, pool)


def sample(names: Sequence[str], wave: int) -> tuple[str, ...]:
    """The control group for a wave of so many nodes: evenly spread over the untouched nodes, the same each time."""
    wanted = min(max(wave, CONTROLS), MOST_CONTROLS)
    if len(names) <= wanted:
        return tuple(names)
    return tuple(names[number * len(names) // wanted] for number in range(wanted))


def dump(judgements: Mapping[str, Judgement]) -> dict[str, Json]:
    """The judgements of a wave, by cell, as plain JSON."""
    return {
        cell: {"verdict": j.verdict, "reason": j.reason, "accepted": j.accepted} for cell, j in judgements.items()
    }  # fmt: skip


def load(document: Mapping[str, Json]) -> dict[str, Judgement]:
    """The judgements of a wave from plain JSON; a verdict that this release does not know is `inconclusive`."""
    out = {}
    for cell, raw in document.items():
        if isinstance(raw, dict):
            known: list[Verdict] = [v for v in VERDICTS if v == raw.get("verdict")]
            out[cell] = Judgement(
                known[0] if known else "inconclusive", str(raw.get("reason", "")), raw.get("accepted") is True
            )
    return out
