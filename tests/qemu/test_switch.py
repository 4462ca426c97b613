"""The dead man's switch as a timer of a real systemd: it fires when nobody is left to disarm it."""

from __future__ import annotations

import os

import pytest

from tests.qemu.shell import RUN, Guest, until

pytestmark = [pytest.mark.qemu, pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root")]

ARMED_S = 60


def timers(guest: Guest) -> str:
    return guest.sh("systemctl list-units --all --no-legend --plain 'fleet-switch-*'").strip()


def test_it_brings_back_a_node_that_a_step_has_cut_off(guest: Guest) -> None:
    """The step takes the network away; with it go the connection and the controller. The switch brings it back.

    It is armed for longer than a busy host may take from there to the cut: a switch that fires before that brings back
    what is not gone yet.
    """
    back = "ip link set eth0 up; echo flipped >>/root/effects; touch /var/log/fleet-lab/flipped"
    step = (
        f"{RUN} --arm flip 1 {ARMED_S} '{back}' && "
        "systemctl list-units --plain --no-legend 'fleet-switch-*' >/root/seen && echo cut-off >>/root/effects && "
        "sync && ip link set eth0 down && touch /var/log/fleet-lab/cut-off && sleep 9000"
    )
    with guest.session(guest.step("cut-off", step, "one_way")) as controller:
        until("the step has cut the node off", lambda: guest.marked("cut-off"), controller)
        assert not guest.marked("flipped")
        controller.kill()
    until("the switch has fired", lambda: guest.marked("flipped"))
    assert guest.count("flipped") == 1
    assert guest.count("cut-off") == 1
    assert ".timer" in guest.sh("cat /root/seen")
    assert "fired" in guest.sh(f"{RUN} --disarm flip 1", ok=(78,))
    assert timers(guest) == ""
    guest.sh("systemctl stop fleet-cut-off")


def test_a_step_that_ends_well_disarms_it(guest: Guest) -> None:
    """Nothing is left that could fire: neither timer nor command. (That a disarmed one stays silent is
    waited for in tests/upgrade/test_fleet_run.py, where the time is the host's own.)"""
    assert guest.sh(f"{RUN} --arm well 1 7200 'echo went-off >>/root/effects'") == ""
    assert guest.sh(f"{RUN} --armed").startswith("well ")
    assert guest.sh(f"{RUN} --arm well 1 3600 'echo went-off >>/root/effects'") == ""
    assert int(guest.sh(f"{RUN} --armed").split()[1]) <= 3600
    assert timers(guest).count(".timer") == 1, "the time began anew, and the old timer is gone"
    assert guest.sh(guest.step("well", "echo fine")) == "fine\n"
    assert guest.sh(f"{RUN} --disarm well 1") == ""
    assert timers(guest) == ""
    assert guest.sh("ls /var/lib/fleet/switch").split() in ([], ["flip"])
    assert guest.count("went-off") == 0


def test_a_reboot_disarms_it(guest: Guest) -> None:
    before = guest.boot_id()
    guest.sh(f"{RUN} --arm gone 1 3600 'echo after-boot >>/root/effects'")
    guest.sh("systemctl reboot", ok=(0, 255))
    guest.rebooted(before)
    assert guest.sh(f"{RUN} --armed") == ""
    assert timers(guest) == ""
    assert guest.sh(f"{RUN} --disarm gone 1") == ""
    assert guest.count("after-boot") == 0
