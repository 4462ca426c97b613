"""The tables answer every case under tests/cases/matrix, and a wrong expectation is noticed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest

from compat_matrix import Matrix, parse_request, solve
from compat_matrix.case import cases, run_case
from fleet.cli.answer import as_dict

FOLDER = Path(__file__).resolve().parents[1] / "cases" / "matrix"
CASES = cases(FOLDER)
SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schema"


@pytest.mark.parametrize("case", CASES, ids=[str(c.relative_to(FOLDER)) for c in CASES])
def test_case(matrix: Matrix, case: Path) -> None:
    assert [str(p) for p in run_case(matrix, case)] == []


def test_there_are_cases() -> None:
    assert len([c for c in CASES if c.name.startswith("nvidia-")]) >= 20


@pytest.mark.parametrize(
    ("old", "new", "slug"),
    [
        ('"580.178.04"', '"580.95.05"', "driver is 580.178.04"),
        ("kind: Solution", "kind: Conflict", "the answer is a Solution"),
        ("level: vendor", "level: community", "the level is vendor"),
        ("absent: [fabricmanager]", "absent: [driver]", "driver is in the stack"),
        ("up to branch 580", "up to branch 999", "no reason of driver says"),
        ("level: vendor", "levle: vendor", "'levle' is not known"),
    ],
)
def test_a_wrong_expectation_is_noticed(matrix: Matrix, tmp_path: Path, old: str, new: str, slug: str) -> None:
    case = tmp_path / "case"
    shutil.copytree(FOLDER / "nvidia-v100-ends-at-580", case)
    file = case / "expect.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    assert any(slug in p.text for p in run_case(matrix, case))


@pytest.mark.parametrize("case", CASES, ids=[str(c.relative_to(FOLDER)) for c in CASES])
def test_every_answer_follows_its_schema(matrix: Matrix, case: Path) -> None:
    answer = solve(matrix, parse_request((case / "request.yaml").read_text(), str(case)))
    document = json.loads(json.dumps(as_dict(answer)))
    schema = json.loads((SCHEMAS / f"{document['kind']}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(document)
