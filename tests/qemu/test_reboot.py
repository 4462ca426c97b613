"""Real reboots and cuts of power in the middle of steps: each step is found as it is."""

from __future__ import annotations

import os

import pytest

from tests.qemu.shell import RUN, Guest, until

pytestmark = [pytest.mark.qemu, pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root")]
SECOND = "/var/lib/fleet-second"  # a state folder beside the first: one run at a time holds for each


def cut(number: int) -> str:
    """A step that hangs at its first run, for longer than any wait of a test, and ends well at any later one."""
    return (
        f"echo begun-{number} >>/root/effects; sync; [ $(grep -c begun-{number} /root/effects) -gt 1 ] || sleep 9000; "
        f"echo ended-{number} >>/root/effects; echo well"
    )


def test_a_step_cut_by_a_reboot_is_repeated_and_a_one_way_step_is_ambiguous(guest: Guest) -> None:
    before, boots = guest.boot_id(), guest.site.lab.state(guest.name).read()["boots"]
    again = guest.step("cut-idempotent", cut(1))
    one_way = guest.step("cut-one-way", cut(2), "one_way", state=SECOND)
    with guest.session(again) as first, guest.session(one_way) as second:
        until("both have begun", lambda: guest.count("begun-1") == guest.count("begun-2") == 1, first, second)
        guest.sh("systemctl reboot", ok=(0, 255))
        guest.rebooted(before)
    assert guest.boot_id() != before
    assert guest.site.lab.state(guest.name).read()["boots"] == boots + 1
    assert guest.sh(f"{RUN} --running") == ""
    assert guest.sh(again) == "well\n"
    assert (guest.count("begun-1"), guest.count("ended-1")) == (2, 1)
    assert "ambiguous" in guest.sh(one_way, ok=(76,))
    assert (guest.count("begun-2"), guest.count("ended-2")) == (1, 0)
    assert "ambiguous" in guest.sh(one_way, ok=(76,)), "the answer stays"
    assert before in guest.sh("cat /var/lib/fleet/run/cut-idempotent/cut"), "what was cut is kept"


def test_power_is_cut_in_the_middle_of_a_step(guest: Guest) -> None:
    """No unit is told, nothing is flushed: QEMU is killed. What was done before the cut is known after it."""
    done = guest.step("before-the-cut", "echo done-before >>/root/effects; echo kept")
    assert guest.sh(done) == "kept\n"
    before, cycles = guest.boot_id(), guest.site.lab.state(guest.name).read()["power_cycles"]
    process = guest.qemu()
    with guest.session(guest.step("power", cut(3), "one_way")) as controller:
        until("it has begun", lambda: guest.count("begun-3") == 1, controller)
        guest.site.fleet("lab", "power", "--dir", str(guest.site.lab.folder), guest.name, "cycle")
        guest.rebooted(before)
    assert guest.qemu() != process
    assert guest.site.lab.state(guest.name).read()["power_cycles"] == cycles + 1
    assert guest.sh(done) == "kept\n"
    assert guest.count("done-before") == 1
    assert "ambiguous" in guest.sh(guest.step("power", cut(3), "one_way"), ok=(76,))
    assert guest.count("begun-3") == 1


def test_a_guest_that_powers_off_stays_off_until_it_is_given_power(guest: Guest) -> None:
    lab = guest.site.lab
    before = guest.boot_id()
    guest.sh("systemctl poweroff", ok=(0, 255))
    until("the power is off", lambda: lab.phase(guest.name) == "off")
    power = ("lab", "power", "--dir", str(lab.folder), guest.name)
    assert guest.site.fleet(*power, "status").out.split()[-1] == "off"
    guest.site.fleet(*power, "on")
    lab.wait_ready([guest.name])
    assert guest.boot_id() != before
