"""This machine as a node."""

from __future__ import annotations

import subprocess
import threading
import time

import pytest

from fleet.core.model import Node
from fleet.remote import Local

HERE = Node("here", "127.0.0.1")


def test_status_and_outputs() -> None:
    answer = Local().run(HERE, "echo out; echo err >&2; exit 5", timeout_s=10, sudo=False)
    assert (answer.phase, answer.rc, answer.stdout, answer.stderr) == ("done", 5, b"out\n", b"err\n")


def test_limit_ends_the_whole_process_group() -> None:
    answer = Local().run(HERE, "echo begun; sleep 4242 & sleep 4242", timeout_s=1, sudo=False)
    assert (answer.phase, answer.trouble, answer.rc, answer.stdout) == ("run", "timeout", None, b"begun\n")
    time.sleep(0.2)
    left = subprocess.run(["pgrep", "-f", "^sleep 4242"], capture_output=True, text=True, check=False).stdout
    assert left == ""


def test_output_cap() -> None:
    answer = Local(output_cap=5000).run(HERE, "yes", timeout_s=20, sudo=False)
    assert (answer.trouble, len(answer.stdout)) == ("output-cap", 5000)


def test_a_script_larger_than_any_pipe_and_much_output_do_not_block_each_other() -> None:
    script = "\n".join(f"echo {'x' * 100} {i}" for i in range(8000))
    answer = Local(output_cap=10_000_000).run(HERE, script, timeout_s=60, sudo=False)
    assert answer.rc == 0
    assert answer.stdout.count(b"\n") == 8000


def test_a_shell_that_does_not_read_its_input() -> None:
    answer = Local(("sh", "-c", "echo early; exit 2")).run(HERE, "x" * 1_000_000, timeout_s=10, sudo=False)
    assert (answer.rc, answer.stdout) == (2, b"early\n")


def test_a_leftover_that_holds_the_output_open_does_not_hold_the_run() -> None:
    answer = Local().run(HERE, "echo x; sleep 8 & exit 0", timeout_s=30, sudo=False)
    assert (answer.phase, answer.rc, answer.stdout) == ("done", 0, b"x\n")
    assert answer.seconds < 7


def test_missing_shell() -> None:
    answer = Local(("/no/such/shell",)).run(HERE, "", timeout_s=5, sudo=False)
    assert (answer.phase, answer.trouble) == ("session", "internal")


@pytest.mark.parametrize("delay", [0.0, 0.5])
def test_close_ends_what_runs(delay: float) -> None:
    local = Local()
    threading.Timer(delay, local.close).start()
    answer = local.run(HERE, "sleep 30", timeout_s=60, sudo=False)
    assert answer.trouble == "closed"
    assert answer.seconds < 10
