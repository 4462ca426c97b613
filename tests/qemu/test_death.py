"""A guest never outlives what began it."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from fleet.lab.process import recorded
from tests.qemu.shell import Guest, until

pytestmark = [pytest.mark.qemu, pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root")]


def test_qemu_dies_with_its_supervisor_and_up_starts_it_again(guest: Guest) -> None:
    """What `fleet lab down` and the next lab's start rely on: pid and start time are recorded, and QEMU is a child."""
    folder = guest.site.lab.folder
    processes = recorded(folder / f"nodes/{guest.name}/processes.json")
    qemu, supervisor = processes["keeper"], processes["supervisor"]
    assert b"qemu-system" in (subprocess.check_output(["ps", "-o", "args=", "-p", str(qemu.pid)]))
    guest.sh("echo before-death >>/root/effects; sync")
    supervisor.signal(signal.SIGKILL)
    until("QEMU is gone", lambda: not qemu.alive, pause_s=0.05)
    assert guest.site.lab.phase(guest.name) == "down"
    guest.site.lab.up(folder.parent / "spec.yaml", 11)
    assert guest.count("before-death") == 1, "the disk is the same"
    assert guest.site.lab.phase(guest.name) == "up"
