"""Roads, ways back and floors, records and levels, on matrices small enough to see through."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from compat_matrix import Matrix, solve
from fleet.core.errors import NotFound
from fleet.core.model import Conflict, Json, OsFacts, Policy, Request, Solution, Stage
from tests.matrix.conftest import small

BASE = """
components:
  - {component: driver, scheme: ascend_hdk, choose: always, activation: reboot, source: book, level: vendor}
  - {component: firmware, scheme: firmware, choose: always, activation: reboot, removable: false, source: book,
     level: vendor}
  - {component: mcu, scheme: dotted, activation: power_cycle, removable: false, alone: true, source: book,
     level: vendor}
  - {component: toolkit, scheme: cann, activation: none, source: book, level: vendor}
order:
  - {case: first_install, sequence: [driver, firmware, toolkit], because: "driver first", source: book, level: vendor}
  - {case: upgrade, sequence: [firmware, driver, toolkit], because: "firmware first", source: book, level: vendor}
releases:
  - {component: driver, version: "23.0.0", channel: stable, source: book, level: vendor}
  - {component: driver, version: "24.1.rc2", channel: stable, source: book, level: vendor}
  - {component: driver, version: "24.1.0", channel: stable, source: book, level: vendor}
  - {component: driver, version: "25.2.0", channel: stable, source: book, level: vendor}
  - {component: firmware, version: "7.1.0.3.220", channel: stable, source: book, level: vendor}
  - {component: firmware, version: "7.3.0.1.231", channel: stable, source: book, level: vendor}
  - {component: firmware, version: "7.5.0.3.220", channel: stable, source: book, level: vendor}
  - {component: firmware, version: "7.7.0.6.236", channel: stable, source: book, level: vendor}
  - {component: mcu, version: "24.5.9", channel: stable, source: book, level: vendor}
  - {component: mcu, version: "25.50.10", channel: stable, source: book, level: vendor}
  - {component: toolkit, version: "8.0.RC2", channel: stable, source: book, level: vendor}
  - {component: toolkit, version: "8.2.RC1", channel: stable, source: book, level: vendor}
"""
PAIRS = "".join(
    f'  - {{relation: pairs, table: hdk, pairs: {{driver: "{d}", firmware: "{f}"}}, because: "shipped so", '
    "source: book, level: vendor}\n"
    for d, f in (("23.0.0", "7.1.0.3.220"), ("24.1.rc2", "7.3.0.1.231"), ("24.1.0", "7.5.0.3.220"),
                 ("25.2.0", "7.7.0.6.236"))
)  # fmt: skip
OLD = {"driver": "23.0.0", "firmware": "7.1.0.3.220"}


def matrix(*rules: str) -> Matrix:
    return small(BASE + "rules:\n" + PAIRS + "".join(f"  - {{{r}, source: book, level: vendor}}\n" for r in rules))


def ask(
    current: Mapping[str, str], wish: Mapping[str, str] | None = None, policy: Policy | None = None, **flags: Json
) -> Request:
    system = OsFacts("ubuntu", "22.04", "5.15.0-94-generic", "aarch64")
    return Request("acme", "M1", 8, system, dict(current), dict(wish or {}), policy or Policy(), flags)


def solution(matrix: Matrix, request: Request) -> Solution:
    answer = solve(matrix, request)
    assert isinstance(answer, Solution), answer
    return answer


def shape(stages: tuple[Stage, ...] | None) -> list[list[str]] | None:
    if stages is None:
        return None
    return [[f"{c.component} {c.old or '-'} {c.new or '-'}" for c in stage.changes] for stage in stages]


def test_an_upgrade_goes_firmware_first_and_back_the_same_way() -> None:
    answer = solution(matrix(), ask(OLD, {"driver": "24.1.0"}))
    assert shape(answer.road) == [["firmware 7.1.0.3.220 7.5.0.3.220", "driver 23.0.0 24.1.0"]]
    assert shape(answer.back) == [["firmware 7.5.0.3.220 7.1.0.3.220", "driver 24.1.0 23.0.0"]]
    texts = [reason.text for reason in answer.road[0].reasons]
    assert "firmware first" in texts
    assert any("power must stay on" in text for text in texts), "new firmware with the old driver is no shipped pair"


def test_a_first_install_goes_driver_first_and_back_only_the_driver_goes() -> None:
    answer = solution(matrix(), ask({}, {"driver": "24.1.0", "toolkit": "8.0.RC2"}))
    assert shape(answer.road) == [["driver - 24.1.0", "firmware - 7.5.0.3.220", "toolkit - 8.0.RC2"]]
    assert shape(answer.back) == [["toolkit 8.0.RC2 -", "driver 24.1.0 -"]]


def test_the_mcu_is_last_and_alone() -> None:
    current = {**OLD, "mcu": "24.5.9"}
    answer = solution(matrix(), ask(current, {"driver": "24.1.0", "mcu": ">=25"}))
    assert shape(answer.road) == [
        ["firmware 7.1.0.3.220 7.5.0.3.220", "driver 23.0.0 24.1.0"],
        ["mcu 24.5.9 25.50.10"],
    ]
    assert [stage.reboot for stage in answer.road] == ["reboot", "power_cycle"]


def test_a_stepping_stone_makes_two_stages_and_its_pair_goes_along() -> None:
    stone = (
        'relation: transition, component: driver, from: "<24.1.rc2", to: ">24.1.rc2", verdict: via, via: "24.1.rc2", '
        'because: "by way of 24.1.RC2"'
    )
    answer = solution(matrix(stone), ask(OLD, {"driver": "25.2.0"}))
    assert shape(answer.road) == [
        ["firmware 7.1.0.3.220 7.3.0.1.231", "driver 23.0.0 24.1.rc2"],
        ["firmware 7.3.0.1.231 7.7.0.6.236", "driver 24.1.rc2 25.2.0"],
    ]
    assert all(stage.allowed for stage in answer.road)
    assert answer.back is not None and len(answer.back) == 1, "no row speaks against a direct way back"


def test_a_state_between_that_is_no_supported_set_is_marked() -> None:
    stone = 'relation: transition, component: driver, from: "<24.1.rc2", to: ">=24.1.0", verdict: via, because: "so"'
    hole = 'relation: forbids, when: {driver: "24.1.rc2"}, because: "known bad"'
    answer = solution(matrix(stone + ', via: "24.1.rc2"', hole), ask(OLD, {"driver": "25.2.0"}))
    assert [stage.allowed for stage in answer.road] == [False, True]
    assert any("stays drained" in reason.text for reason in answer.road[0].reasons)


def test_no_road_is_a_conflict_and_no_way_back_is_said() -> None:
    wall = 'relation: transition, component: driver, to: ">=25", verdict: forbidden, because: "a wall"'
    assert isinstance(solve(matrix(wall), ask(OLD, {"driver": "25.2.0"})), Conflict)
    one_way = (
        'relation: transition, component: firmware, from: ">=7.7", to: "<7.7", verdict: forbidden, '
        'because: "the flash keeps its floor"'
    )
    answer = solution(matrix(one_way), ask(OLD, {"driver": "25.2.0"}))
    assert answer.road and answer.back is None


def test_a_floor_in_flash_bounds_the_choice_and_the_way_back() -> None:
    floor = (
        'relation: requires, when: {flags: {flash_floor: ">=235"}}, needs: {driver: ">=24.1.rc2"}, '
        'because: "the flash refuses it"'
    )
    refused = solve(matrix(floor), ask({"driver": "24.1.0", "firmware": "7.5.0.3.220"}, {"driver": "23.0.0"},
                                       flash_floor="235"))  # fmt: skip
    assert isinstance(refused, Conflict)
    assert [r.text for r in refused.causes] == ["you wish driver 23.0.0", "the flash refuses it"]
    below = solution(matrix(floor), ask(OLD, {"driver": "25.2.0"}, flash_floor="235"))
    assert below.back is None
    above = solution(matrix(floor), ask(OLD, {"driver": "25.2.0"}, flash_floor="234"))
    assert above.back


def test_back_to_a_set_that_the_tables_do_not_know() -> None:
    answer = solution(matrix(), ask({"driver": "22.0.0", "firmware": "6.4.12.1.241"}, {"driver": "24.1.0"}))
    assert answer.back is not None
    assert answer.back[-1].allowed, "the node served with it before"
    assert any("do not support the set that was there before" in r.text for r in answer.back[-1].reasons)


def test_nothing_to_do() -> None:
    answer = solution(matrix(), ask({"driver": "25.2.0", "firmware": "7.7.0.6.236"}))
    assert answer.road == () and answer.back == ()
    again = solution(matrix(), ask({"driver": "25.2.0", "firmware": "7.7.0.6.236"}, {"driver": "==25.2.0"}))
    assert again.road == ()


def test_letters_do_not_make_a_change() -> None:
    answer = solution(matrix(), ask({"driver": "24.1.RC2", "firmware": "7.3.0.1.231"}, {"driver": "24.1.rc2"}))
    assert answer.road == ()


def test_a_release_that_no_pair_names_is_unknown_unless_the_policy_allows_it() -> None:
    more = BASE + '  - {component: driver, version: "26.0.0", channel: stable, source: book, level: vendor}\n'
    tables = small(more + "rules:\n" + PAIRS)
    refused = solve(tables, ask(OLD, {"driver": "26.0.0"}))
    assert isinstance(refused, Conflict) and len(refused.causes) >= 2
    answer = solution(tables, ask(OLD, {"driver": "26.0.0"}, Policy(allow_unknown=True)))
    assert answer.level == "community"
    assert any("policy allows unknown" in r.text for r in answer.reasons["driver"])
    assert solution(tables, ask(OLD)).stack["driver"] == "25.2.0"


def test_a_unit_is_told() -> None:
    unit = 'relation: unit, flag: superpod, components: [driver], because: "one version in a SuperPoD"'
    answer = solution(matrix(unit), ask(OLD, superpod="pod7"))
    assert any("superpod pod7" in reason.text for reason in answer.reasons["driver"])


RECORD = """records:
  - stack: {driver: "24.1.0", firmware: "7.5.0.3.220"}
    when: {model: M1}
    result: pass
    evidence: ["run/7"]
    source: hearsay
    level: validated
  - stack: {driver: "25.2.0", firmware: "7.7.0.6.236"}
    result: fail
    evidence: ["run/8"]
    because: "all-reduce hung"
    source: hearsay
    level: validated
"""


def test_records_are_preferred_demanded_and_heeded() -> None:
    tables = small(BASE + "rules:\n" + PAIRS + RECORD)
    answer = solution(tables, ask(OLD))
    assert answer.stack == {"driver": "24.1.0", "firmware": "7.5.0.3.220"} and answer.level == "validated"
    assert any("run/7" in reason.text for reason in answer.reasons["driver"])
    assert solution(tables, ask(OLD, policy=Policy(min_level="validated"))).stack["driver"] == "24.1.0"
    bad = solve(tables, ask(OLD, {"driver": "25.2.0"}))
    assert isinstance(bad, Conflict) and any(r.text == "all-reduce hung" for r in bad.causes)
    none = solve(tables, ask(OLD, {"driver": "23.0.0"}, Policy(min_level="validated")))
    assert isinstance(none, Conflict) and any("no validation record" in r.text for r in none.causes)


def test_equal_requests_are_answered_once() -> None:
    tables = matrix()
    assert solve(tables, ask(OLD)) is solve(tables, ask(dict(OLD)))
    assert solve(tables, ask(OLD)) is not solve(tables, ask(OLD, {"driver": "24.1.0"}))


def test_an_unknown_vendor_is_an_error() -> None:
    with pytest.raises(NotFound):
        solve(matrix(), Request("nobody", "M1", 1, OsFacts()))
