"""What the matrix costs: CPU seconds for a fleet, and ratios against clingo on the same problems in the same run.

`pytest -m bench -s tests/bench/bench_matrix.py` prints them. Nothing here fails on a slow machine; that both engines
find the same optimum is asserted.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from compat_matrix import Matrix, converge, load, node_classes, road, solve, why_not
from compat_matrix.choose import Objective, best
from compat_matrix.compile import compile_problem
from compat_matrix.facts import node_class
from compat_matrix.load import files, read_tables
from compat_matrix.problem import Problem, propagate
from fleet.core.model import Accelerator, ComponentFact, Conflict, Facts, Node, OsFacts, Policy, Request, Solution
from fleet.inventory import open_inventory
from tests.matrix.oracle import PROGRAM, optimum, program

pytestmark = pytest.mark.bench
NODES, CLASSES = 10_000, 200
SYSTEMS = {
    "nvidia": [
        OsFacts("ubuntu", "22.04", "6.8.0-87-generic", "x86_64"),
        OsFacts("ubuntu", "24.04", "6.8.0-87-generic", "x86_64"),
        OsFacts("rocky", "9.4", "5.14.0-427.42.1.el9_4.x86_64", "x86_64"),
        OsFacts("debian", "12", "6.1.0-31-amd64", "x86_64"),
    ],
    "ascend": [
        OsFacts("openEuler", "22.03", "5.10.0-216.0.0.115.oe2203sp4.aarch64", "aarch64"),
        OsFacts("ubuntu", "22.04", "5.15.0-119-generic", "aarch64"),
        OsFacts("kylin", "V10", "4.19.90-52.22.v2207.ky10.aarch64", "aarch64"),
    ],
    "metax": [OsFacts("ubuntu", "22.04", "5.15.0-119-generic", "x86_64")],
    "biren": [OsFacts("ubuntu", "22.04", "5.15.0-119-generic", "x86_64")],
}
T = TypeVar("T")


def cpu(act: Callable[[], T]) -> tuple[float, T]:
    """(CPU seconds of one call, what it gave)."""
    start = time.process_time()
    found = act()
    return time.process_time() - start, found


def kinds(matrix: Matrix, count: int) -> Iterator[Facts]:
    """What `count` different nodes say: models and versions of the tables, by a fixed seed."""
    choose = random.Random(7)
    seen: set[str] = set()
    while len(seen) < count:
        vendor = choose.choice(["nvidia", "nvidia", "nvidia", "ascend", "ascend", "metax", "biren"])
        tables = matrix.tables[vendor]
        model = choose.choice(tables.models).name
        parts = {}
        for name, row in tables.components.items():
            versions = [r.version for r in tables.releases.get(row.releases_of or name, ())]
            if versions and (row.choose == "always" or choose.random() < 0.3) and not row.alone:
                version = choose.choice(versions[-40:])
                parts[name] = ComponentFact(version, version)
        cards = tuple(Accelerator(vendor, model, f"0000:{n:02x}:00.0", index=n) for n in range(8))
        said = Facts("", choose.choice(SYSTEMS[vendor]), vendor, parts, cards)
        mark = repr(said)
        if mark not in seen:
            seen.add(mark)
            yield said


def fleet_of(matrix: Matrix) -> dict[str, Facts]:
    some = list(kinds(matrix, CLASSES))
    return {
        f"n{i:05}": Facts(f"n{i:05}", k.os, k.vendor, k.components, k.accelerators)
        for i in range(NODES)
        for k in (some[i % CLASSES],)
    }


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    return load(env={"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))})


@pytest.fixture(scope="module")
def requests(shipped: Matrix) -> list[Request]:
    classes, refused = node_classes({str(i): k for i, k in enumerate(kinds(shipped, CLASSES))}, Policy())
    assert not refused
    return [request for request, _ in classes]


def problems(matrix: Matrix, requests: Iterable[Request]) -> list[Problem]:
    out = []
    for request in requests:
        facts = node_class(matrix, request)
        assert facts is not None
        out.append(compile_problem(matrix, request, facts))
    return out


def tell(what: str, times: list[float]) -> None:
    times = sorted(times)
    print(
        f"{what:44} mean {1000 * sum(times) / len(times):6.2f} ms   p95 {1000 * times[len(times) * 95 // 100]:6.2f}   "
        f"max {1000 * times[-1]:6.2f}   ({len(times)} classes)"
    )


def test_a_fleet_with_its_database(shipped: Matrix, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/fleet.db"
    said = fleet_of(shipped)
    inventory = open_inventory(url)
    inventory.add([Node(name, f"10.0.{i >> 8}.{i & 255}") for i, name in enumerate(said)])
    inventory.record(said.values())
    inventory.close()

    def read() -> dict[str, Facts]:
        again = open_inventory(url)
        try:
            return again.facts()
        finally:
            again.close()

    database, facts = cpu(read)
    grouping, (classes, refused) = cpu(lambda: node_classes(facts, Policy()))
    assert not refused and sum(len(names) for _, names in classes) == NODES

    def choose() -> int:
        return sum(best(p, p.request.policy.strategy) is not None for p in problems(shipped, [r for r, _ in classes]))

    choosing, fitting = cpu(choose)
    shipped.cache.clear()
    whole, answers = cpu(lambda: [solve(shipped, request) for request, _ in classes])
    print(
        f"\n{NODES:,} nodes in {len(classes)} classes, CPU s (demanded: choosing <= 3, with roads and ways back <= 8)"
    )
    print(f"  database {database:.2f}, grouping {grouping:.2f}, choosing {choosing:.2f}: {fitting} fit")
    print(f"  choosing with the database: {database + grouping + choosing:.2f}")
    print(f"  with roads, ways back and reasons: {database + grouping + whole:.2f}")
    assert sum(isinstance(a, Solution) for a in answers) <= fitting


def test_the_solver_against_clingo(requests: list[Request]) -> None:
    print()
    compiling, mine, theirs = [], [], []
    fresh = load(env={"XDG_CACHE_HOME": "/dev/null"})
    differ = 0
    for request in requests:
        took, (problem,) = cpu(lambda request=request: problems(fresh, [request]))  # type: ignore[misc]
        compiling.append(took)
        strategy = request.policy.strategy
        took, found = cpu(lambda p=problem, s=strategy: best(p, s))  # type: ignore[misc]
        mine.append(took)
        unary = propagate([c for c in problem.constraints() if len(c.variables) == 1], problem.domains())
        objective = found[2] if found else Objective(problem, unary or problem.domains(), strategy)
        took, other = cpu(lambda p=problem, o=objective: optimum(p, o))  # type: ignore[misc]
        theirs.append(took)
        differ += (found is None) != (other is None) or bool(
            found and other and objective.bound(other) != found[1]
        )  # fmt: skip
    both = [a + b for a, b in zip(compiling, mine, strict=True)]
    tell("rows to masks", compiling)
    tell("search", mine)
    tell("solver: both (demanded mean: 6 ms)", both)
    tell("clingo: facts, grounding and search", theirs)
    print(f"ratio of search: {sum(mine) / sum(theirs):.3f} of clingo (demanded: at most 0.2)")
    print(f"ratio with compiling on both sides: {sum(both) / (sum(compiling) + sum(theirs)):.3f}")
    print(f"facts for clingo: {len(PROGRAM) + len(program(problem, objective)):,} bytes in the last problem")
    assert differ == 0


def test_roads_and_explanations(shipped: Matrix, requests: list[Request]) -> None:
    print()
    roads, back, conflicts, reasons, questions = [], [], [], [], []
    for request in requests:
        shipped.cache.clear()
        took, answer = cpu(lambda r=request: solve(shipped, r))  # type: ignore[misc]
        if isinstance(answer, Conflict):
            conflicts.append(took)
            continue
        start = {c: v for c, v in request.current.items() if c in answer.stack}
        took_road, _ = cpu(lambda r=request, a=answer, s=start: road(shipped, r, a.stack, s))  # type: ignore[misc]
        roads.append(took_road)
        took_back, _ = cpu(lambda r=request, a=answer, s=start: road(shipped, r, s, a.stack))  # type: ignore[misc]
        back.append(took_back)
        reasons.append(took)
        shipped.cache.clear()
        asked = request.current["driver"]
        took, said = cpu(lambda r=request, v=asked: why_not(shipped, r, "driver", v))  # type: ignore[misc]
        assert said.reasons
        questions.append(took)
    for what, times in (
        ("road (demanded: 10 ms)", roads),
        ("way back", back),
        ("answer with roads and reasons", reasons),
        ("conflict with its core (demanded: 50 ms)", conflicts),
        ("why-not, answer included (demanded: 50 ms)", questions),
    ):
        if times:
            tell(what, times)


def test_few_sets_for_the_fleet(shipped: Matrix, requests: list[Request]) -> None:
    named = {str(i): request for i, request in enumerate(requests)}
    answers = [solve(shipped, request) for request in requests]
    apart = {repr(sorted(a.stack.items())) for a in answers if isinstance(a, Solution)}
    took, targets = cpu(lambda: converge(shipped, named))
    together = {repr(sorted(t.solution.stack.items())) for t in targets.values()}
    print(f"\n{len(targets)} classes: {len(apart)} sets apart, {len(together)} with converge ({took:.2f} CPU s)")
    assert len(together) <= len(apart)


def test_the_tables(tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    cold, _ = cpu(lambda: load(env=env))
    cached, _ = cpu(lambda: load(env=env))
    reading, _ = cpu(lambda: read_tables(files()))
    print(f"\ntables: cold {cold:.3f} CPU s (demanded 0.3), from the cache {cached:.3f} (demanded 0.05), "
          f"read and checked {reading:.3f}")  # fmt: skip
