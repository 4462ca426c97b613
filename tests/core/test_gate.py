"""The verdict on a wave: every value of it, and the laws over all samples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.gate import CONTROLS, MOST_CONTROLS, Judgement, Sample, by_chance, dump, judge, load, sample

STATES = st.sampled_from(["well", "ill", "unknown"])
SAMPLES = st.lists(STATES, max_size=40).map(lambda found: [Sample(f"n{i}", s) for i, s in enumerate(found)])  # type: ignore[arg-type]


def some(well: int = 0, ill: int = 0, unknown: int = 0) -> list[Sample]:
    return [
        *(Sample(f"w{i}", "well") for i in range(well)),
        *(Sample(f"i{i}", "ill", "2 of 8 cards") for i in range(ill)),
        *(Sample(f"u{i}", "unknown", "no answer") for i in range(unknown)),
    ]


@pytest.mark.parametrize(
    ("treated", "control", "canary", "verdict", "words"),
    [
        (some(1), [], True, "pass", "1 of 1 nodes are well"),
        (some(0, 1), some(8), True, "fail", "i0 (2 of 8 cards); 8 of 8 untouched ones are well"),
        (some(0, 1), [], True, "fail", "none is untouched"),
        (some(0, 1), some(5, 3), True, "inconclusive", "but so are 3 of 8 untouched ones"),
        (some(0, 0, 1), some(8), True, "no-data", "1 of 1 nodes said nothing"),
        (some(7, 0, 1), some(8), True, "inconclusive", "silent, not known to be ill"),
        (some(19, 1), some(8), False, "pass", "not i0"),
        (some(18, 2), some(8), False, "fail", "i0 and 1 more"),
        (some(18, 2), some(15, 1), False, "inconclusive", "untouched"),
        (some(90, 10), some(31, 1), False, "inconclusive", "1 of 32 untouched"),
        (some(70, 30), some(31, 1), False, "fail", "31 of 32"),
        (some(4, 0, 6), some(8), False, "no-data", "6 of 10"),
        ([], some(8), False, "no-data", "0 of 0"),
    ],
)
def test_verdicts(treated: list[Sample], control: list[Sample], canary: bool, verdict: str, words: str) -> None:
    said = judge(treated, control, canary=canary)
    assert said.verdict == verdict and words in said.reason
    assert said.open is (verdict == "pass")


@given(SAMPLES, SAMPLES, st.booleans())
def test_laws(treated: list[Sample], control: list[Sample], canary: bool) -> None:
    said = judge(treated, control, canary=canary)
    bad = [s for s in treated if s.state != "well"]
    if canary and said.verdict == "pass":
        assert treated and not bad  # silence is not a yes
    if said.verdict == "fail":
        assert any(s.state == "ill" for s in treated)
        assert not control or any(s.state == "well" for s in control)
    if treated and not bad:
        assert said.verdict == "pass"
    if all(s.state != "well" for s in control) and control:
        assert said.verdict != "fail"  # something else is going on
    assert load(dump({"c": said})) == {"c": said}


@given(st.integers(0, 5000), st.integers(0, 3000))
def test_the_control_group_is_spread_and_the_same_each_time(there: int, wave: int) -> None:
    names = [f"n{i}" for i in range(there)]
    chosen = sample(names, wave)
    assert chosen == sample(names, wave) and len(set(chosen)) == len(chosen) and set(chosen) <= set(names)
    assert len(chosen) == min(there, min(max(wave, CONTROLS), MOST_CONTROLS))


def test_what_another_release_wrote_asks_a_person() -> None:
    assert load({"c": {"verdict": "maybe", "reason": "?"}, "d": 3}) == {"c": Judgement("inconclusive", "?")}


def test_the_exact_test_against_known_values() -> None:
    assert by_chance(1, 1, 0, 8) == pytest.approx(1 / 9)
    assert by_chance(3, 4, 1, 4) == pytest.approx(17 / 70)  # the lady tasting tea
    assert by_chance(4, 4, 0, 4) == pytest.approx(1 / 70)
    assert by_chance(0, 4, 2, 4) == pytest.approx(1.0)
