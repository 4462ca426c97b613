"""Version order is total and agrees with the lists; ranges mean what they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.errors import BadInput
from fleet.core.version import SCHEMES, Range, kernel_tag, key, valid

ORDERED: dict[str, list[list[str]]] = {
    "generic": [
        ["1.0~rc1", "1.0.dev1", "1.0.alpha1", "1.0.beta2", "1.0-rc1", "1.0", "1.0.post1", "1.0.1", "1.9.0", "1.10.0"],
        ["570.86.15", "570.124.06", "580.65.06"],
        ["2512rc2", "2602rc2", "2602"],
        ["26.04.rc1", "26.04.rc2", "26.04", "26.04.1", "26.05.14"],
    ],
    "dotted": [["2.2.0", "2.5.014", "2.12.13", "2.33.0.5", "3.0.0", "3.0.0.8", "3.8.30", "3.10.14"]],
    "nvidia_driver": [
        ["535.43.02", "535.54.03", "535.98", "535.104.05", "535.309.01", "550.40.07", "550.54.14", "550.90.07",
         "550.90.12", "550.100", "550.107.02", "550.163.01", "570.86.15", "580.95.05", "595.80", "610.57.04"],
    ],
    "ascend_hdk": [
        ["23.0.rc1", "23.0.RC3", "23.0.0", "23.0.1", "23.0.2.1", "23.0.3", "24.1.rc1", "24.1.rc1.b030", "24.1.RC2",
         "24.1.rc2.2", "24.1.rc3", "24.1.rc3.7", "24.1.0", "24.1.0.b062", "24.1.0.3", "25.0.RC1", "25.0.rc1.1",
         "25.2.0", "25.3.rc1.b020", "25.5.2", "26.0.rc1", "26.0.rc2", "26.1.0"],
    ],
    "cann": [
        ["6.3.RC2", "7.0.RC1", "7.0.0.alpha001", "7.0.0.beta1", "7.0.0", "7.0.1", "8.0.RC1.beta1", "8.0.RC1",
         "8.0.RC2.alpha001", "8.0.RC2.alpha002", "8.0.RC2.beta1", "8.0.RC2", "8.0.RC3", "8.0.0", "8.0.1", "8.1.RC1",
         "8.5.0", "9.1.0"],
    ],
    "kernel": [
        ["4.19.90-24.4.v2101.ky10.x86_64", "4.19.90-52.22.v2207.ky10.aarch64", "4.19.90-89.11.v2401.ky10"],
        ["5.10.0-60.18.0.50.oe2203", "5.10.0-182.0.0.95.oe2203sp3", "5.10.0-216.0.0.115.oe2203sp4"],
        ["5.4.0-26-generic", "5.15.0-94-generic", "5.15.0-119-generic", "6.5.0-18-generic", "6.8.0-87-generic"],
        ["5.14.0-70.13.1.el9_0.x86_64", "5.14.0-503.11.1.el9_5.x86_64", "5.14.0-570.el9"],
    ],
    "firmware": [["6.3.0.1.241", "7.1.0.11.220", "7.2.99", "7.5.0.1.129", "7.5.0.3.220", "7.10.0.1.1"]],
    "vbios": [["96.00.89.00.01", "96.00.A5.00.01", "97.00.B9.00.69", "97.10.4A.00.0C", "97.10.4A.00.1F"]],
    "release": [["3.3.9", "4.2.3", "4.4.1", "4.5.0", "4.6.0-1", "4.10.0"], ["1.14.0-rc.1"[:6], "1.17.8", "1.20.0"]],
    "deb": [
        ["1.0~rc1-1", "1.0", "1.0-1", "1.0-1ubuntu1", "1.0-2", "1.0+git1", "1.0.1", "1.10", "1:0.1", "1:3.3.9-1"],
        ["1.0~~", "1.0~", "1.0", "1.0a", "1.0+"],
    ],
    "rpm": [["1.0~rc1-1", "1.0-1.el9", "1.0-2.el9", "1.0^git1-1", "1.0.a-1", "1.0.1-1", "1.10-1", "2:0.9-1"]],
    "ofed": [["5.6", "5.7", "23.10", "24.01", "24.04", "24.10-1.1.4.0.105", "doca-3.1", "doca-3.2.1", "doca-3.4.1"]],
    "word": [["open", "proprietary"]],
}  # fmt: skip


@pytest.mark.parametrize("scheme", ORDERED)
def test_ordered_lists_over_all_pairs(scheme: str) -> None:
    for versions in ORDERED[scheme]:
        for i, low in enumerate(versions):
            for j, high in enumerate(versions):
                a, b = key(low, scheme), key(high, scheme)
                assert (a < b, a == b) == (i < j, i == j), f"{scheme}: {low} against {high}"


def test_every_scheme_has_a_list_and_a_good_example() -> None:
    assert set(ORDERED) == set(SCHEMES)
    for name, scheme in SCHEMES.items():
        assert valid(scheme.example, name), name


@pytest.mark.parametrize(
    ("version", "scheme"),
    [
        ("580.9O.05", "nvidia_driver"), ("580", "nvidia_driver"), ("580.95.5", "nvidia_driver"), ("1.2.", "dotted"),
        ("24.1.rcx", "ascend_hdk"), ("24.1", "ascend_hdk"), ("8.0.RC", "cann"), ("generic", "kernel"), ("", "generic"),
        ("open flavour", "word"), ("97.G0.4A.00.0C", "vbios"), ("1.2.3\n4", "generic"), ("٣.١", "dotted"),
    ],
)  # fmt: skip
def test_a_typing_error_is_an_error(version: str, scheme: str) -> None:
    with pytest.raises(BadInput) as caught:
        key(version, scheme)
    assert caught.value.slug == "bad-version"


def test_letters_are_compared_without_case() -> None:
    assert key("24.1.RC3", "ascend_hdk") == key("24.1.rc3", "ascend_hdk")
    assert key("8.0.RC2.Alpha001", "cann") == key("8.0.rc2.alpha001", "cann")


_PIECE = st.one_of(
    st.integers(0, 30).map(str), st.sampled_from(["rc1", "RC2", "alpha1", "beta", "dev3", "el9", "oe2203sp3", "b030"])
)
_VERSION = st.builds(lambda head, rest: ".".join([str(head), *rest]), st.integers(0, 30), st.lists(_PIECE, max_size=4))


@given(st.sampled_from(["generic", "rpm", "deb"]), _VERSION, _VERSION, _VERSION)
def test_order_is_total(scheme: str, a: str, b: str, c: str) -> None:
    ka, kb, kc = key(a, scheme), key(b, scheme), key(c, scheme)
    assert (ka < kb) + (ka == kb) + (ka > kb) == 1
    if ka <= kb <= kc:
        assert ka <= kc
    assert key(a, scheme) == ka


@given(st.sampled_from(sorted(SCHEMES)), st.data())
def test_every_scheme_orders_what_its_form_accepts(scheme: str, data: st.DataObject) -> None:
    form = SCHEMES[scheme].form
    versions = st.from_regex(form, fullmatch=True).filter(lambda v: len(v) < 60 and v == v.strip())
    a, b = data.draw(versions), data.draw(versions)
    ka, kb = key(a, scheme), key(b, scheme)
    assert (ka < kb) + (ka == kb) + (ka > kb) == 1
    assert Range.parse("*").contains(a, scheme)


@pytest.mark.parametrize(
    ("text", "scheme", "inside", "outside"),
    [
        (">=570.26,<580", "nvidia_driver", ["570.26", "570.86.15", "575.57.08"], ["570.20", "580.65.06"]),
        ("==550.90.07", "nvidia_driver", ["550.90.07"], ["550.90.12", "550.90"]),
        ("580.95.05", "nvidia_driver", ["580.95.05"], ["580.95", "580.105.08"]),
        ("580.*", "nvidia_driver", ["580.65.06", "580.142"], ["590.44.01", "570.211.01"]),
        ("in [535.*, 580.95.05]", "nvidia_driver", ["535.98", "580.95.05"], ["580.105.08"]),
        ("!=570.124.04", "nvidia_driver", ["570.124.06"], ["570.124.04"]),
        (">=535.161.07,<536 || >=550.54.14", "nvidia_driver", ["535.183.01", "550.54.14"], ["535.98", "545.29.06"]),
        ("*", "nvidia_driver", ["580.95.05"], []),
        (">=24.1.rc2", "ascend_hdk", ["24.1.RC2", "24.1.0", "25.0.rc1"], ["24.1.rc1", "23.0.7"]),
        ("24.1.*", "ascend_hdk", ["24.1.rc3", "24.1.0.3"], ["24.10.0", "25.0.rc1"]),
        ("==24.1.rc1", "ascend_hdk", ["24.1.rc1", "24.1.RC1.b030"], ["24.1.rc1.1"]),
        ("<=24.1.rc1", "ascend_hdk", ["24.1.rc1.b030"], ["24.1.rc2"]),
        ("==24.1.rc1.b030", "ascend_hdk", ["24.1.rc1.b030"], ["24.1.rc1"]),
        (">=7.0.0,<=7.2.99", "firmware", ["7.1.0.11.220"], ["7.3.0.1.231", "7.10.0.1.1", "6.4.99"]),
        (">=5.15,<6.9", "kernel", ["5.15.0-94-generic", "6.8.0-87-generic"], ["6.9.0-1-generic", "5.4.0-26-generic"]),
        ("5.10.0-*", "kernel", ["5.10.0-182.0.0.95.oe2203sp3"], ["5.10.134-13.al8.x86_64"]),
        (">=5.10.0-60.70.0.94.oe2203", "kernel", ["5.10.0-60.139.0.166.oe2203"], ["5.10.0-216.0.0.115.oe2203sp4"]),
        ("97.10.*", "vbios", ["97.10.4A.00.0C"], ["97.1A.00.00.01"]),
    ],
)
def test_ranges(text: str, scheme: str, inside: list[str], outside: list[str]) -> None:
    wanted = Range.parse(text)
    wanted.check(scheme)
    assert [v for v in inside if not wanted.contains(v, scheme)] == []
    assert [v for v in outside if wanted.contains(v, scheme)] == []
    assert Range.parse(str(wanted)) == wanted


@pytest.mark.parametrize(
    "text",
    ["", ",", ">=", ">=580,", ",<580", "=>580", ">=580.*", "in []", "in [580", "580 595", ">=1,,<2", "||", "a b"],
)
def test_bad_ranges(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        Range.parse(text)
    assert caught.value.slug == "bad-range"


def test_a_bound_of_the_wrong_form_is_found() -> None:
    with pytest.raises(BadInput):
        Range.parse(">=57O.26").check("nvidia_driver")
    Range.parse(">=570").check("nvidia_driver")


@pytest.mark.parametrize(
    ("text", "named"),
    [("580.95.05", True), ("550.*", True), (">=550.54,<560", True), (">=535", False), ("*", False), ("<580", False)],
)
def test_naming_a_branch(text: str, named: bool) -> None:
    assert Range.parse(text).names is named


@given(st.text(max_size=40))
def test_a_range_is_read_or_refused(text: str) -> None:
    try:
        wanted = Range.parse(text)
    except BadInput:
        return
    assert Range.parse(str(wanted)) == wanted


def test_kernel_tags() -> None:
    assert kernel_tag("5.10.0-182.0.0.95.oe2203sp3.aarch64") == "oe2203sp3"
    assert kernel_tag("4.19.90-89.11.v2401.ky10.x86_64") == "ky10"
    assert kernel_tag("5.14.0-503.11.1.el9_5.x86_64") == "el9"
    assert kernel_tag("6.8.0-87-generic") == "generic"
    assert kernel_tag("6.1.0-28-amd64") == ""
