"""The shipped matrix, read once per run into a cache of its own; small matrices written as text."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from compat_matrix import Matrix, load
from compat_matrix.document import Problem
from compat_matrix.load import TableFile, digest_of, read_tables
from fleet.cli.main import main

HEAD = """
sources:
  book: {title: "The book", section: "1", url: "https://docs.example.com/book", seen: "2026-01-01"}
  hearsay: {title: "Hearsay", section: "1", seen: "2026-01-01"}
models:
  - {model: "M1", architecture: one, pci: ["abcd:0001"], aliases: ["M 1 80GB"], source: book, level: vendor}
  - {model: "M2", architecture: two, pci: ["abcd:0002"], flags_from_count: {nvswitch: "8"}, source: book, level: vendor}
"""
Reads = Callable[..., tuple[Matrix | None, list[Problem]]]


@pytest.fixture(scope="session")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    return load(env={"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))})


def table(text: str, vendor: str = "acme", name: str = "t.yaml", root: int = 0) -> TableFile:
    data = text.encode()
    return TableFile(vendor, f"{vendor}/{name}", data, root, len(data))


def small(*texts: str, head: str = HEAD) -> Matrix:
    """A matrix of one vendor `acme` from the texts of its files; they must be right."""
    tables = [table(head, name="head.yaml"), *(table(text, name=f"t{i}.yaml") for i, text in enumerate(texts))]
    raw, problems = read_tables(tables)
    assert [str(p) for p in problems] == []
    return Matrix.of(digest_of(tables), raw)


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., str]:
    """Writes `name -> text` below a site folder and gives its path."""

    def write(**files: str) -> str:
        for name, text in files.items():
            vendor, _, rest = name.partition("__")
            file = tmp_path / "site" / vendor / f"{rest}.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return str(tmp_path / "site")

    return write


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture
def fleet(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FLEET_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("FLEET_MATRIX_PATH", "")

    def run(*args: str) -> Ran:
        with pytest.raises(SystemExit) as stopped:
            main(list(args))
        captured = capsys.readouterr()
        return Ran(int(stopped.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "request.yaml"
        path.write_text(text)
        return str(path)

    return write
