"""The import contracts hold, and really break when they are violated."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "lint-imports"
    return subprocess.run(
        [str(program), "--no-cache", "--config", str(folder / "pyproject.toml")],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("fleet", "drivers", "compat_matrix", "pxe"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("fleet/core/model.py", "import drivers"),
        ("fleet/core/model.py", "import os"),
        ("drivers/text.py", "import subprocess"),
        ("drivers/text.py", "import compat_matrix"),
        ("fleet/probe.py", "import sqlalchemy"),
        ("fleet/probe.py", "import fleet.upgrade"),
        ("fleet/inventory/__init__.py", "import fleet.cli.main"),
    ],
)
def test_a_violation_breaks_the_contract(copy: Path, file: str, line: str) -> None:
    target = copy / file
    target.write_text(target.read_text() + f"\n{line}  # noqa\n")
    broken = lint(copy)
    assert broken.returncode == 1, broken.stdout + broken.stderr
    assert "BROKEN" in broken.stdout


def test_the_contracts_hold(copy: Path) -> None:
    kept = lint(copy)
    assert kept.returncode == 0, kept.stdout + kept.stderr
