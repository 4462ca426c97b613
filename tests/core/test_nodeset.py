"""Nodesets: the grammar of clush, and that folding loses nothing."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.errors import BadInput
from fleet.core.nodeset import expand, fold, natural

GROUPS = {"rack:r01": ["gpu1", "gpu2"], "rack:r02": ["gpu3"], "all": ["gpu1", "gpu2", "gpu3"]}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu1", ["gpu1"]),
        ("gpu[8-11]", ["gpu8", "gpu9", "gpu10", "gpu11"]),
        ("gpu[008-011]", ["gpu008", "gpu009", "gpu010", "gpu011"]),
        ("gpu[1-9/4]", ["gpu1", "gpu5", "gpu9"]),
        ("gpu[1,3,07-08]", ["gpu1", "gpu3", "gpu07", "gpu08"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("gpu[1-2]-ib", ["gpu1-ib", "gpu2-ib"]),
        ("a,b,a", ["a", "b"]),
        ("a b\nc", ["a", "b", "c"]),
        ("gpu[1-4]!gpu[2-3]", ["gpu1", "gpu4"]),
        ("gpu[1-4]&gpu[3-9]", ["gpu3", "gpu4"]),
        ("gpu[1-3]^gpu[2-4]", ["gpu1", "gpu4"]),
        ("gpu[1-4]!gpu[1-4],gpu2", ["gpu2"]),  # from left to right
        ("@rack:r01", ["gpu1", "gpu2"]),
        ("@rack:r[01-02]", ["gpu1", "gpu2", "gpu3"]),
        ("@all!@rack:r02", ["gpu1", "gpu2"]),
        ("10.0.0.[1-2]", ["10.0.0.1", "10.0.0.2"]),
    ],
)
def test_expand(text: str, names: list[str]) -> None:
    assert expand(text, lambda group: GROUPS[group]) == names


@pytest.mark.parametrize(
    "text",
    [
        "", " ", ",", ",a", "!a", "a!", "a,,b", "a!!b", "gpu[", "gpu]", "gpu[]", "gpu[1", "gpu[[1]]", "gpu[3-1]",
        "gpu[a-b]", "gpu[1-2/0]", "gpu[01:50]", "web:&prod", "gpu[1-10000000]", "gpu[1-9999999999999999999]",
        "a[1-9999]b[1-9999]", "gpu$", "@", "gpu[1-010]", "gpu[１-３]",
    ],
)  # fmt: skip
def test_what_is_no_nodeset_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        expand(text, lambda group: GROUPS[group])
    assert repr(text) in caught.value.what and caught.value.slug == "bad-nodeset"


def test_a_trailing_comma_is_forgiven() -> None:
    assert expand("a,b,") == ["a", "b"]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["login1"], "login1"),
        (["gpu3", "gpu1", "gpu2"], "gpu[1-3]"),
        (["gpu9", "gpu10", "gpu12"], "gpu[9-10,12]"),
        ([f"gpu{n:03}" for n in range(1, 129)], "gpu[001-128]"),
        (["gpu998", "gpu999", "gpu1000", "gpu001"], "gpu[001,998-1000]"),
        (["gpu1", "gpu01"], "gpu[1,01]"),
        ([f"r{r}n{n}" for r in (1, 2) for n in (1, 2, 3)], "r[1-2]n[1-3]"),
        (["b1", "a1", "a2", "head"], "a[1-2],b1,head"),
        ([f"h100-gpu{n:02}" for n in (1, 2, 4)], "h100-gpu[01-02,04]"),
    ],
)
def test_fold(names: list[str], text: str) -> None:
    assert fold(names) == text


NAMES = st.from_regex(r"[a-z]{0,2}[0-9]{1,3}(-?[a-z]?[0-9]{0,4})?", fullmatch=True)


@given(st.lists(NAMES, max_size=60))
def test_folding_loses_and_invents_nothing(names: list[str]) -> None:
    if names:
        assert sorted(expand(fold(names))) == sorted(set(names))


def test_natural_order() -> None:
    assert sorted(["gpu10", "gpu9", "gpu09", "a"], key=natural) == ["a", "gpu09", "gpu9", "gpu10"]


def test_ten_thousand_names_are_folded_and_expanded_at_once() -> None:
    names = [f"rack{r:02}gpu{n:03}" for r in range(1, 101) for n in range(1, 101)]
    start = time.process_time()
    text = fold(names)
    assert text == "rack[01-100]gpu[001-100]"
    assert len(expand(text)) == 10_000
    assert time.process_time() - start < 1  # 0.05 s is usual: this catches an algorithm that went quadratic


@given(st.text(alphabet="ab12-,[]!&^@:/ .é０", max_size=16))
def test_any_text_is_a_nodeset_or_a_complaint(text: str) -> None:
    try:
        names = expand(text, lambda group: [f"g{group}"])
    except BadInput as error:
        assert error.slug == "bad-nodeset"
    else:
        assert all(names) and len(names) == len(set(names))
