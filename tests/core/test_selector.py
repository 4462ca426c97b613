"""Label selectors: the grammar of Kubernetes, and version comparison."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.errors import BadInput
from fleet.core.selector import check_label, parse

NODE = {"x": "a", "z": "5", "vendor": "nvidia", "driver": "570.86.15", "env": "prod", "empty": "", "count": "8"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("x=a", True),
        ("x==a", True),
        (" x = a , z = 5 ", True),
        ("x=a,z=6", False),
        ("x!=a", False),
        ("absent!=a", True),
        ("x", True),
        ("absent", False),
        ("!x", False),
        ("!absent", True),
        ("! absent", True),
        ("env in (prod,test)", True),
        ("env in(prod)", True),
        ("env in (test)", False),
        ("env notin (test)", True),
        ("absent notin (test)", True),
        ("env in (in,notin,prod)", True),
        ("x=", False),
        ("empty=", True),
        ("empty=,x=a", True),
        ("empty in (,b)", True),
        ("z>4", True),
        ("z>5", False),
        ("z<6,z>=5", True),
        ("x>4", False),
        ("absent<4", False),
        ("count>=8", True),
        ("driver<580", True),
        ("driver<570.100", True),
        ("driver<570.86.15", False),
        ("driver<=570.86.15", True),
        ("driver>570", True),
        ("firmware<9", False),
        ("firmware>0", False),
        ("driver=570.86.15", True),
        ("example.com/pool!=gold", True),
    ],
)
def test_matching(text: str, matches: bool) -> None:
    assert parse(text).matches(NODE) is matches


@pytest.mark.parametrize(
    "text",
    [
        "x=a||y=b", "x==a==b", "!x=a", "x<a", "x in a", "x in (a", "x in (a b)", "in (a)", ",x", "x,", "x y",
        "=a", "(x)",
        "x=a b", "-x", "x=-a", "!", "x in", "x<", "driver<", "driver<>5", "a/b/c", "x=" + "y" * 64, "notin",
    ],
)  # fmt: skip
def test_what_is_no_selector_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text)
    assert "at character" in caught.value.what and caught.value.slug == "bad-selector"


def test_versions_are_compared_by_the_scheme_of_the_component() -> None:
    node = {"driver": "24.1.rc3"}
    assert parse("driver<24.1.0").matches(node, lambda _: "ascend_hdk")
    assert not parse("driver<24.1.0").matches({"driver": "not a version"}, lambda _: "ascend_hdk")


def test_hyphens_and_the_usual_other_names_are_accepted() -> None:
    assert parse("container-toolkit=1.17,lifecycle=ready").matches({"container_toolkit": "1.17", "state": "ready"})


def test_a_selector_prints_as_it_is_read() -> None:
    text = "vendor=ascend,model in (910B3,910B4),!quarantine,driver<24.1,pool"
    assert str(parse(text)) == text
    assert parse(text).asks_facts and not parse("pool=gold,rack=r1").asks_facts


@pytest.mark.parametrize(
    ("key", "value"), [("pool", "gold"), ("example.com/pool", ""), ("owner", "训练组"), ("a.b", "1.2")]
)
def test_labels(key: str, value: str) -> None:
    check_label(key, value)


@pytest.mark.parametrize(
    ("key", "value"), [("", "x"), ("rack", "x"), ("driver", "5"), ("a b", "x"), ("a", "x y"), ("a", "-x")]
)
def test_what_cannot_be_a_label(key: str, value: str) -> None:
    with pytest.raises(BadInput):
        check_label(key, value)


@given(st.text(alphabet="ab/.-_=!<>(), inot5é", max_size=20))
def test_any_text_is_a_selector_or_a_complaint(text: str) -> None:
    try:
        found = parse(text)
    except BadInput as error:
        assert error.slug == "bad-selector"
    else:
        assert parse(str(found)) == found
        found.matches(NODE)
