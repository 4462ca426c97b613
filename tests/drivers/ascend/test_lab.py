"""A lab node with eight emulated cards: the upgrade and its way back through the role's scripts, and the faults."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from drivers.ascend import VENDOR
from drivers.text import clean
from fleet.core.model import OsFacts
from fleet.core.vendor import Gathered, PciDevice, Seen
from fleet.lab.lab import Lab

pytestmark = pytest.mark.lab
SCRIPTS = Path(__file__).parents[3] / "playbooks/roles/ascend/files"
SPEC = """
network: "127.79.9"
port: 2297
classes:
  asc:
    vendor: ascend
    model: "910B3"
    os: ubuntu-22.04
    kernel: 5.15.0-119-generic
    cards: {count: 4, pci_id: "19e5:d802", class: "120000", subsystem: "19e5:3000", uuid: "{HEX:8} {HEX:8}",
            serial: "99LAB{digits:6}", memory_mib: 65536}
    start: {driver: "24.1.rc2", firmware: "7.3.0.1.231", mcu: "25.50.10"}
    targets:
      - {driver: "25.2.0", firmware: "7.7.0.6.236", mcu: "25.52.29"}
nodes:
  one: {class: asc}
"""
DRIVER = {"24.1.rc2": "Ascend-hdk-910b-npu-driver_24.1.rc2_linux-x86-64.run",
          "25.2.0": "Ascend-hdk-910b-npu-driver_25.2.0_linux-x86-64.run"}  # fmt: skip
FIRMWARE = {"7.3.0.1.231": "Ascend-hdk-910b-npu-firmware_7.3.0.1.231.run",
            "7.7.0.6.236": "Ascend-hdk-910b-npu-firmware_7.7.0.6.236.run"}  # fmt: skip


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if os.geteuid() != 0:
        pytest.skip("a lab needs root")
    folder = tmp_path_factory.mktemp("ascend-lab")
    (folder / "spec.yaml").write_text(SPEC)
    made = Lab(folder / "lab", lambda _: None)
    try:
        made.up(folder / "spec.yaml", 11)
        sh(made, "mkdir -p /stage")
        for path in [*(made.folder / "packages").glob("Ascend-*"), *SCRIPTS.glob("*.sh")]:
            done = made.run("one", ["sh", "-c", f"cat > /stage/{path.name}"], stdin=path.read_bytes())
            assert done.returncode == 0
        yield made
    finally:
        made.down()


def sh(lab: Lab, command: str) -> tuple[int, str]:
    done = lab.run("one", ["sh", "-c", command])
    return done.returncode, done.stdout.decode(errors="replace")


def install(lab: Lab, part: str, name: str, version: str) -> tuple[int, str]:
    return sh(lab, f"sh /stage/ascend-install.sh {part} run /stage/{name} {version} HwHiAiUser")


def facts(lab: Lab) -> Gathered:
    readings = {}
    for probe in VENDOR.probes:
        if probe.needs and sh(lab, f"test -e {probe.needs}")[0]:
            continue
        done = lab.run("one", ["sh", "-c", probe.command])
        readings[probe.name] = VENDOR.read(probe.read_as or probe.command, clean(done.stdout) or "", done.returncode)
    rows = sh(lab, "for d in /sys/bus/pci/devices/*; do echo ${d##*/} $(cat $d/vendor $d/device $d/class); done")[1]
    pci = [row.split() for row in rows.splitlines()]
    devices = tuple(PciDevice(row[0], row[1][2:], row[2][2:], row[3][2:]) for row in pci if row[1:2] == ["0x19e5"])
    return VENDOR.gather(Seen(OsFacts(), devices, readings))


def reboot(lab: Lab) -> None:
    before = next(node.boots for node in lab.status())
    sh(lab, "reboot")
    end = time.monotonic() + 60
    while next(node.boots for node in lab.status()) == before or lab.phase("one") != "up":
        assert time.monotonic() < end, "the node does not come back"
        time.sleep(0.2)


def test_up_and_back(lab: Lab) -> None:
    for driver, firmware, mcu in (("25.2.0", "7.7.0.6.236", "25.52.29"), ("24.1.rc2", "7.3.0.1.231", "25.50.10")):
        rc, text = install(lab, "firmware", FIRMWARE[firmware], firmware)
        assert rc == 2, text
        rc, text = install(lab, "driver", DRIVER[driver], driver)
        assert rc == 2, text
        waiting = facts(lab)
        assert waiting.components["driver"].pending and waiting.components["firmware"].pending
        reboot(lab)
        rc, text = sh(lab, f"sh /stage/ascend-mcu.sh /stage/Ascend-hdk-910b-mcu_{mcu}.zip {mcu}")
        assert rc == 0, text
        rc, text = sh(lab, f"sh /stage/ascend-verify.sh driver={driver} firmware={firmware} mcu={mcu}")
        assert rc == 0, text
        done = facts(lab)
        assert {name: fact.current for name, fact in done.components.items()} == {
            "driver": driver, "firmware": firmware, "mcu": mcu, "bundle": driver,
        }  # fmt: skip
        assert done.problems == () and len({card.identity for card in done.accelerators}) == 4


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("occupied", "occupied by some processes"),
        ("dkms-fail", "Driver_ko_install failed"),
        ("prompt", "FLEET: not-installed"),
        ("floor=240", "please use version 25.3.rc1 or later"),
        ("missing-tools", "list of missing tools"),
    ],
)
def test_a_refused_installation_leaves_the_node_as_it_was(lab: Lab, fault: str, says: str) -> None:
    before = facts(lab).components
    lab.fault("one", fault, on=True)
    try:
        rc, text = install(lab, "driver", DRIVER["25.2.0"], "25.2.0")
    finally:
        lab.fault("one", fault, on=False)
    assert rc == 1 and says in text
    assert facts(lab).components == before


def test_the_look_around_names_who_holds_a_card(lab: Lab) -> None:
    assert sh(lab, "sh /stage/ascend-preflight.sh HwHiAiUser driver firmware")[0] == 0
    lab.fault("one", "occupied", on=True)
    rc, text = sh(lab, "sh /stage/ascend-preflight.sh HwHiAiUser driver")
    lab.fault("one", "occupied", on=False)
    assert rc == 1 and "FLEET: device-busy: processes hold /dev/davinci*" in text


def test_a_lost_card_an_alarm_and_a_bad_pair_are_seen(lab: Lab) -> None:
    lab.fault("one", "lost-card=2", on=True)
    assert any("lists 3 chips, the PCI bus has 4" in problem for problem in facts(lab).problems)
    lab.fault("one", "lost-card=2", on=False)
    lab.fault("one", "compat-nok", on=True)
    assert facts(lab).flags["compatibility"] == "fail"
    lab.fault("one", "compat-nok", on=False)
    lab.fault("one", "mcu-lock", on=True)
    package = "/stage/Ascend-hdk-910b-mcu_25.52.29.zip"
    rc, text = sh(lab, f"ASCEND_MCU_TRIES=2 ASCEND_MCU_PAUSE=0 sh /stage/ascend-mcu.sh {package} 25.52.29")
    lab.fault("one", "mcu-lock", on=False)
    assert rc == 1 and "FLEET: mcu-locked" in text
    lab.fault("one", "validation-fail", on=True)
    assert all(card.health == "ok" for card in facts(lab).accelerators)  # not before another driver boots
    assert install(lab, "driver", DRIVER["25.2.0"], "25.2.0")[0] in (0, 2)
    reboot(lab)
    sick = facts(lab)
    assert [card.health for card in sick.accelerators].count("critical") == 1 and sick.faults
    assert install(lab, "driver", DRIVER["24.1.rc2"], "24.1.rc2")[0] in (0, 2)
    reboot(lab)
    assert all(card.health == "ok" for card in facts(lab).accelerators)
