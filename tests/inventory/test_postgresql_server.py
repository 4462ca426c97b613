"""The tests' own server: a killed test run leaves one behind, and the next run ends it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgresql import started, sweep

SCRIPT = """
import json, os, signal, sys, tempfile
from pathlib import Path
from tests.postgresql import PREFIX, Server, started
folder = Path(tempfile.mkdtemp(prefix=PREFIX))
(folder / "owner.json").write_text(json.dumps({"pid": os.getpid(), "start": started(os.getpid())}))
server = Server(folder)
server.create()
server.start()
print(folder, server.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.postgresql
def test_the_server_of_a_killed_run_is_ended() -> None:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    folder, pid = run.stdout.split()
    assert run.returncode == -9 and started(int(pid)), run.stderr
    sweep()
    assert not Path(folder).exists()
    assert not started(int(pid))
