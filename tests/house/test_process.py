"""A process is named by pid and start time, whatever its program calls itself."""

from __future__ import annotations

import os
import subprocess
import sys

from fleet.process import start_of

RENAMED = "import sys; open('/proc/self/comm', 'wb').write(b'x) \\xff (y'); print('ready', flush=1); sys.stdin.read()"


def test_a_name_of_any_bytes_hides_nothing_and_an_ended_process_has_no_start() -> None:
    with subprocess.Popen([sys.executable, "-c", RENAMED], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert int(start_of(child.pid)) >= int(start_of(os.getpid()))
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie: dead, and not yet waited for
        assert start_of(child.pid) == ""
    assert start_of(child.pid) == ""
