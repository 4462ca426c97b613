"""Measurements, printed and never judged: `pytest -m bench -s tests/matrix`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from compat_matrix import Matrix, load, parse_request, solve
from compat_matrix.case import cases
from compat_matrix.load import files, read_tables

FOLDER = Path(__file__).resolve().parents[1] / "cases" / "matrix"


@pytest.mark.bench
def test_what_solving_costs(matrix: Matrix, tmp_path: Path) -> None:
    requests = [parse_request((c / "request.yaml").read_text(), str(c)) for c in cases(FOLDER)]
    times = []
    for request in requests:
        matrix.cache.clear()
        began = time.process_time()
        solve(matrix, request)
        times.append((time.process_time() - began) * 1000)
    began = time.process_time()
    read_tables(files())
    tables = time.process_time() - began
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    load(env=env)
    began = time.process_time()
    load(env=env)
    cached = time.process_time() - began
    print(
        f"\nsolve with road and way back, CPU: mean {sum(times) / len(times):.1f} ms, max {max(times):.1f} ms "
        f"over {len(times)} classes; tables from YAML {tables:.3f} s, from the cache {cached:.3f} s"
    )
