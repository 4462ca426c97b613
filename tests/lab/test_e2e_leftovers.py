"""A test run that is killed leaves a lab behind; the next one on the same network takes it down first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from fleet.lab.process import recorded
from fleet.process import start_of
from tests.lab.rehearsal import ROOT, rehearsal

pytestmark = [pytest.mark.lab, pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root")]
HERE = Path(__file__).parent
KILLED = """
import os, signal, sys
from pathlib import Path
import yaml
from tests.lab.rehearsal import rehearsal
spec = {**yaml.safe_load(Path(sys.argv[1]).read_text()), "network": "127.92.7"}
with rehearsal(Path(sys.argv[2]), spec, [sys.argv[3]], known=False) as one:
    begun = one.begin("lab", "ssh", "--dir", str(one.lab.folder), "td", "--", "sleep", "1000")
    print(begun.process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_next_run_takes_down_what_a_killed_one_left(tmp_path: Path) -> None:
    vendor, file, first = str(HERE / "vendor"), HERE / "two.yaml", tmp_path / "first"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(file), str(first), vendor], cwd=ROOT, capture_output=True, text=True,
        check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = [recorded(first / "lab/nodes" / name / "processes.json")["supervisor"] for name in ("td", "tr")]
    assert all(process.alive for process in left)
    end = time.monotonic() + 30
    while start_of(int(done.stdout)):
        assert time.monotonic() < end, "a command outlived the test run"
        time.sleep(0.05)

    spec = {**yaml.safe_load(file.read_text()), "network": "127.92.7"}
    with rehearsal(tmp_path / "second", spec, [vendor], known=False) as one:
        assert not any(process.alive for process in left)
        assert not first.exists()
        assert {node.phase for node in one.lab.status()} == {"up"}
        with (
            pytest.raises(AssertionError, match="another test run"),
            rehearsal(tmp_path / "third", spec, [vendor], known=False),
        ):
            pass
        assert {node.phase for node in one.lab.status()} == {"up"}
