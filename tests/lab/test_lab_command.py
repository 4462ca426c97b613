"""The lab command without a lab: what it says when nothing is up, when it cannot run, and when a name is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from fleet.core.errors import Refused
from fleet.lab.namespace import require

SCHEMA = Path(__file__).parents[2] / "docs/schema/LabStatus.json"


def fleet(*argv: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "FLEET_LAB_DIR": str(folder), "FLEET_STATE_DIR": str(folder / "state")}
    return subprocess.run(
        [sys.executable, "-m", "fleet.cli.main", "lab", *argv], env=env, capture_output=True, text=True, check=False
    )


def test_status_and_down_without_a_lab(tmp_path: Path) -> None:
    done = fleet("status", "-o", "json", folder=tmp_path / "none")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert document["kind"] == "LabStatus"
    assert document["items"] == []
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    down = fleet("down", folder=tmp_path / "none")
    assert down.returncode == 0
    assert "no lab is up" in down.stderr


@pytest.mark.parametrize("argv", [("power", "nv-z", "cycle"), ("fault", "nv-z", "busy"), ("ssh", "nv-z")])
def test_an_unknown_node_is_named(argv: tuple[str, ...], tmp_path: Path) -> None:
    done = fleet(*argv, folder=tmp_path)
    assert done.returncode == 2
    assert "'nv-z'" in done.stderr
    assert "fleet lab status" in done.stderr


def test_a_lab_needs_root() -> None:
    """In a child that has given root up: `require` refuses, with the next command as its hint."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            require()
            os.write(writer, b"no error")
        except Refused as error:
            os.write(writer, f"{error.what} | {error.hint} | {error.exit_code}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader) as said:
        assert said.read() == "the lab needs root | sudo fleet lab up | 5"
