"""Whatever is asked of the shipped tables, the answer is a right one: no crash, no broken rule, every line sourced."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compat_matrix import Matrix, load, parse_request, road, solve
from compat_matrix.choose import allowed
from compat_matrix.compile import compile_problem
from compat_matrix.conflict import core
from compat_matrix.facts import node_class
from compat_matrix.problem import feasible
from fleet.core.errors import FleetError
from fleet.core.model import Conflict, Json, OsFacts, Policy, Request
from tests.matrix.test_solve_law import walk

MATRIX: Matrix = load(env={"XDG_CACHE_HOME": "/dev/null"})
SYSTEMS = [
    OsFacts("ubuntu", "22.04", "5.15.0-119-generic", "x86_64"),
    OsFacts("ubuntu", "22.04", "5.15.0-72-generic", "x86_64"),
    OsFacts("openEuler", "22.03", "5.10.0-216.0.0.115.oe2203sp4.aarch64", "aarch64"),
    OsFacts("kylin", "V10", "4.19.90-24.4.v2101.ky10.x86_64", "x86_64"),
    OsFacts("rocky", "9.4", "5.14.0-427.42.1.el9_4.x86_64", "x86_64"),
    OsFacts("debian", "12", "", ""),
    OsFacts("", "", "", ""),
    OsFacts("plan9", "four", "not a kernel", "mips"),
]


@st.composite
def requests(draw: st.DrawFn) -> Request:
    tables = MATRIX.tables[draw(st.sampled_from(MATRIX.vendors))]
    model = draw(st.sampled_from([m.name for m in tables.models]))
    versions = {
        c: [r.version for r in tables.releases.get(row.releases_of or c, ())] + ["0.0", "N/A"]
        for c, row in tables.components.items()
    }
    some = draw(st.lists(st.sampled_from(sorted(versions)), max_size=5, unique=True))
    current = {c: draw(st.sampled_from(versions[c])) for c in some}
    wish = {}
    for c in draw(st.lists(st.sampled_from(sorted(versions)), max_size=2, unique=True)):
        version = draw(st.sampled_from(versions[c][:-1]))
        wish[c] = draw(st.sampled_from([f"=={version}", f">={version}", f"<={version}", version, f"{version[:2]}*"]))
    flags: dict[str, Json] = draw(
        st.fixed_dictionaries(
            {}, optional={"nvswitch": st.booleans(), "flash_floor": st.sampled_from(["234", "237", "240", "crc_error"])}
        )
    )
    policy = Policy(
        draw(st.sampled_from(["lts", "stable", "candidate", "developer", "legacy"])),
        draw(st.sampled_from(["community", "observed", "vendor"])),
        draw(st.sampled_from(["validated", "newest", "minimal"])),
        draw(st.booleans()),
    )
    count = draw(st.sampled_from([1, 4, 8]))
    return Request(tables.name, model, count, draw(st.sampled_from(SYSTEMS)), current, wish, policy, flags)


@given(requests())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_answer_is_right(request: Request) -> None:
    MATRIX.cache.clear()
    try:
        answer = solve(MATRIX, request)
    except FleetError as error:
        assert error.slug in ("bad-range",), error
        return
    facts = node_class(MATRIX, request)
    assert facts is not None
    problem = compile_problem(MATRIX, request, facts)
    if isinstance(answer, Conflict):
        assert answer.causes and all(reason.text and reason.source for reason in answer.causes)
        clash = core(problem)
        if clash:
            assert not feasible(problem, clash)
            assert all(feasible(problem, [g for g in clash if g is not one]) or one.impossible for one in clash)
        return
    assert allowed(problem, answer.stack)
    assert all(reason.source for found in answer.reasons.values() for reason in found)
    fixed = [c for c, row in MATRIX.tables[request.vendor].components.items() if not row.removable]
    walk(answer, {c: v for c, v in request.current.items() if c in answer.stack or _moves(answer.road, c)}, fixed)
    assert road(MATRIX, request, answer.stack, answer.stack) == ()


def _moves(stages: object, component: str) -> bool:
    return any(c.component == component for stage in stages for c in stage.changes)  # type: ignore[attr-defined]


@given(st.text(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_request_or_one_error(text: str) -> None:
    try:
        parse_request(text, "f")
    except FleetError as error:
        assert error.exit_code == 2 and error.where.startswith("f:")


@given(st.text(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_model_or_none(text: str) -> None:
    for vendor in MATRIX.vendors:
        found = MATRIX.model(vendor, text)
        assert found is None or found in {m.name for m in MATRIX.tables[vendor].models}
