"""A step under a real systemd: a named unit that outlives whoever began it, and that the next one attaches to."""

from __future__ import annotations

import os

import pytest

from tests.qemu.shell import LIMIT_S, Guest, killed, until

pytestmark = [pytest.mark.qemu, pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root")]
SLOW = (
    "echo begun >>/root/effects; while [ ! -e /run/go-on ]; do sleep 0.2; done; "
    "echo ended >>/root/effects; echo said; exit 4"
)


@pytest.mark.smoke
def test_a_step_is_a_unit_and_the_next_start_attaches_after_kill_9(guest: Guest) -> None:
    """One-way, so that a second run of the command would be told from an attached one by its status too."""
    step = guest.step("r-1.f1.1-abc", SLOW, "one_way")
    with guest.session(f"echo $$ >/run/session; exec {step}") as first:
        until("the step has begun", lambda: guest.count("begun") == 1, first)
        unit = guest.properties("fleet-r-1.f1.1-abc")
        assert (unit["LoadState"], unit["ActiveState"], unit["Transient"]) == ("loaded", "active", "yes")
        assert unit["ControlGroup"] == "/system.slice/fleet-r-1.f1.1-abc.service"
        inside = guest.sh(f"cat /sys/fs/cgroup{unit['ControlGroup']}/cgroup.procs").split()
        command = guest.sh("cat /var/lib/fleet/run/r-1.f1.1-abc/command.pid").split()[0]
        assert {unit["MainPID"], command} <= set(inside)
        killed(first)  # the controller's end …
    guest.sh("kill -9 $(cat /run/session)")  # … and what it had begun on the node
    assert guest.properties("fleet-r-1.f1.1-abc")["ActiveState"] == "active"
    with guest.session(step) as second:
        guest.sh("touch /run/go-on")
        out, _ = second.communicate(timeout=LIMIT_S)
    assert (second.returncode, out) == (4, b"said\n")
    assert (guest.count("begun"), guest.count("ended")) == (1, 1)
    until("the unit is gone", lambda: guest.properties("fleet-r-1.f1.1-abc")["LoadState"] == "not-found")
    assert guest.sh(step, ok=(4,)) == "said\n"
    assert guest.count("begun") == 1


@pytest.mark.smoke
def test_it_is_probed_like_any_node(guest: Guest) -> None:
    facts = guest.site.document("probe", guest.name, kind="ProbeReport")["nodes"][0]["facts"]
    loaded = {name: fact["loaded"] or fact["installed"] for name, fact in facts["components"].items()}
    assert {loaded[name] for name in ("driver", "firmware", "toolkit")} == {"1.9.0", "10.1", "3.0"}
    assert len(facts["accelerators"]) == 2
    assert facts["bootId"] == guest.boot_id()
