"""Two real lab nodes, a deb and an rpm system: login, builds, reboots, power, faults, and nothing left behind.

Needs root; the first run on a machine builds the base root, which takes about a minute.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from fleet.core.errors import FleetError, NotFound
from fleet.core.model import Node
from fleet.lab.lab import Lab
from fleet.lab.power import LabPower
from fleet.lab.process import recorded

pytestmark = [pytest.mark.lab, pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root")]
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    said: list[str] = []
    one = Lab(tmp_path_factory.mktemp("lab"), said.append, vendor_path=[str(HERE / "vendor")])
    try:
        one.up(HERE / "two.yaml", seed=7)
        yield one
    finally:
        one.down()


def ssh(lab: Lab, node: str, command: str, limit_s: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        lab.ssh_command(node, [command]), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s,
        check=False,
    )  # fmt: skip


def said(lab: Lab, node: str, command: str) -> str:
    done = ssh(lab, node, command)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout.strip()


def boot_id(lab: Lab, node: str) -> str:
    return said(lab, node, "cat /proc/sys/kernel/random/boot_id")


def await_boot(lab: Lab, node: str, old: str, limit_s: float = 300) -> str:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        done = ssh(lab, node, "cat /proc/sys/kernel/random/boot_id")
        if done.returncode == 0 and done.stdout.strip() != old:
            return done.stdout.strip()
        time.sleep(0.1)
    raise AssertionError(f"{node} did not come back")


@pytest.mark.smoke
def test_a_node_looks_like_its_system(lab: Lab) -> None:
    assert said(lab, "td", "uname -r; . /etc/os-release; echo $ID $VERSION_ID; hostname; id -un").splitlines() == [
        "5.15.0-119-generic", "ubuntu 22.04", "td", "root",
    ]  # fmt: skip
    assert said(lab, "tr", "uname -r; . /etc/os-release; echo $ID; id -un; sudo -n id -un").splitlines() == [
        "5.10.0-182.0.0.95.oe2203sp3.x86_64", "openEuler", "ops", "root",
    ]  # fmt: skip
    assert ssh(lab, "tr", "command -v dpkg").returncode != 0
    assert "kernel-devel-5.10.0-182" in said(lab, "tr", "rpm -q kernel-devel")
    assert "[1d0f:0001]" in said(lab, "td", "lspci -nn")


def test_the_starting_stack_is_loaded(lab: Lab) -> None:
    for node in ("td", "tr"):
        assert said(lab, node, "cat /sys/module/tiny/version; tiny-info").splitlines() == [
            "1.0.0", "driver 1.0.0 cards 2",
        ]  # fmt: skip
        kernel = said(lab, node, "uname -r")
        assert said(lab, node, "/sbin/modinfo -F vermagic tiny").split()[0] == kernel
        assert "tiny/1.0.0" in said(lab, node, "/usr/sbin/dkms status")


def test_identities_follow_from_the_seed(lab: Lab) -> None:
    cards = [lab.state(node).read()["cards"] for node in ("td", "tr")]
    uuids = {card["uuid"] for node in cards for card in node}
    assert len(uuids) == 4
    assert all(uuid.startswith("T-") for uuid in uuids)


@pytest.mark.smoke
def test_an_upgrade_shows_after_the_reboot_only(lab: Lab) -> None:
    package = lab.folder / "packages/tiny-driver-2.0.0.run"
    copied = subprocess.run(
        lab.ssh_command("td", ["cat > /tmp/new.run"]), input=package.read_bytes(), capture_output=True, check=False
    )
    assert copied.returncode == 0
    said(lab, "td", "sh /tmp/new.run --quiet")
    assert said(lab, "td", "cat /sys/module/tiny/version") == "1.0.0"
    old = boot_id(lab, "td")
    began = time.monotonic()
    assert ssh(lab, "td", "reboot").returncode in {0, 255}
    await_boot(lab, "td", old)
    assert time.monotonic() - began > 1.0
    assert said(lab, "td", "cat /sys/module/tiny/version") == "2.0.0"
    assert said(lab, "td", "cat /var/lib/fleet-lab/state.json | python3 -c 'import json,sys; print(json.load(sys.stdin)[\"power_cycles\"])'") == "0"  # noqa: E501  # fmt: skip


def test_reboot_drops_the_session(lab: Lab) -> None:
    old = boot_id(lab, "tr")
    with subprocess.Popen(
        lab.ssh_command("tr", ["sleep 100"]), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as session:
        time.sleep(0.5)
        ssh(lab, "tr", "sudo -n /sbin/reboot")
        assert session.wait(10) != 0
    assert await_boot(lab, "tr", old) != old


@pytest.mark.smoke
def test_a_power_cycle_is_not_a_reboot(lab: Lab) -> None:
    lab.state("tr").update(lambda s: s["pending"].update(firmware="9", mcu="5"))
    old = boot_id(lab, "tr")
    ssh(lab, "tr", "sudo -n /sbin/reboot")
    old = await_boot(lab, "tr", old)
    state = lab.state("tr").read()
    assert state["tiny"] == {"firmware": "9"}
    power = LabPower(lab.folder)
    node = Node("tr", "127.78.1.2")
    assert power.available(node)
    assert not power.available(Node("elsewhere", "127.0.0.1"))
    assert power.do(node, "cycle", 30) == "on"
    await_boot(lab, "tr", old)
    after = lab.state("tr").read()
    assert after["tiny"] == {"firmware": "9", "mcu": "5"}
    assert after["power_cycles"] == state["power_cycles"] + 1
    assert after["off_seconds"] == 30


def test_power_off_and_on(lab: Lab) -> None:
    power = LabPower(lab.folder)
    old = boot_id(lab, "tr")
    power.off("tr")
    assert power.status("tr") == "off"
    with pytest.raises(OSError):
        socket.create_connection(("127.78.1.2", 2222), 2).close()
    power.on("tr")
    await_boot(lab, "tr", old)


def test_modules_are_refused_as_the_kernel_refuses_them(lab: Lab) -> None:
    missing = ssh(lab, "td", "modprobe nosuch")
    assert missing.returncode == 1
    assert missing.stderr.strip().endswith("not found in directory /lib/modules/5.15.0-119-generic")
    foreign = lab.run(
        "td", ["cat", *map(str, [f"/lib/modules/5.15.0-119-generic/updates/dkms/{m}.ko" for m in ("tiny",)])]
    )
    assert foreign.returncode == 0
    subprocess.run(lab.ssh_command("tr", ["cat > /tmp/tiny2.ko"]), input=foreign.stdout, check=True)
    refused = ssh(lab, "tr", "sudo -n insmod /tmp/tiny2.ko")
    assert refused.returncode == 1
    assert "Invalid module format" in refused.stderr
    assert "version magic '5.15.0-119-generic" in said(lab, "tr", "sudo -n dmesg")
    used = ssh(lab, "tr", "sudo -n rmmod tiny")
    assert "is in use by: tiny_extra" in used.stderr


def test_headers_missing_breaks_the_build(lab: Lab) -> None:
    for node, sudo in (("td", ""), ("tr", "sudo -n ")):
        kernel = said(lab, node, "uname -r")
        lab.fault(node, "headers-missing")
        assert ssh(lab, node, "test -e /lib/modules/$(uname -r)/build/Makefile").returncode == 1
        build = ssh(lab, node, f"{sudo}/usr/sbin/dkms build -m tiny -v 1.0.0 -k {kernel} --force")
        assert build.returncode != 0
        assert "headers" in build.stderr + build.stdout
        lab.fault(node, "headers-missing", on=False)
        assert ssh(lab, node, "test -e /lib/modules/$(uname -r)/build/Makefile").returncode == 0


def test_faults_of_the_login(lab: Lab) -> None:
    address = ("127.78.1.2", 2222)
    lab.fault("tr", "ssh-refused")
    time.sleep(0.3)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, 2).close()
    lab.fault("tr", "ssh-refused", on=False)
    lab.fault("tr", "ssh-hang")
    time.sleep(0.3)
    with socket.create_connection(address, 2) as hung:
        hung.settimeout(1)
        with pytest.raises(TimeoutError):
            hung.recv(10)
    lab.fault("tr", "ssh-hang", on=False)
    lab.fault("tr", "silent")
    time.sleep(0.3)
    with pytest.raises(TimeoutError):
        socket.create_connection(address, 1).close()
    lab.fault("tr", "silent", on=False)
    assert said(lab, "tr", "echo back") == "back"


def test_a_changed_host_key_is_seen_and_taken_back(lab: Lab) -> None:
    lab.fault("tr", "host-key-changed")
    time.sleep(0.5)
    assert ssh(lab, "tr", "true").returncode == 255
    lab.fault("tr", "host-key-changed", on=False)
    time.sleep(0.5)
    assert said(lab, "tr", "echo same") == "same"


def test_no_sudo_full_disk_and_a_busy_device(lab: Lab) -> None:
    lab.fault("tr", "no-sudo")
    assert ssh(lab, "tr", "sudo -n true").returncode == 1
    lab.fault("tr", "no-sudo", on=False)
    assert ssh(lab, "tr", "sudo -n true").returncode == 0
    lab.fault("tr", "disk-full")
    assert "No space left" in ssh(lab, "tr", "sudo -n dd if=/dev/zero of=/var/lib/fleet/stage/x bs=64k count=1").stderr
    lab.fault("tr", "disk-full", on=False)
    lab.fault("td", "busy")
    assert "tiny0" in said(lab, "td", "ls -l /proc/*/fd 2>/dev/null | grep /dev/ | grep tiny")
    assert said(lab, "td", "fuser /dev/tiny0 2>/dev/null") != ""
    lab.fault("td", "busy", on=False)
    assert ssh(lab, "td", "fuser -s /dev/tiny0").returncode == 1


def test_vendor_faults_come_from_the_vendor(lab: Lab) -> None:
    assert lab.faults("tiny")["lost-card"] == "the first card is gone"
    lab.fault("td", "lost-card")
    assert said(lab, "td", "tiny-info") == "driver 2.0.0 cards 1"
    lab.fault("td", "lost-card", on=False)
    lab.fault("td", "grumpy=3")
    assert "grumpy=3" in lab.state("td").read()["faults"]
    lab.fault("td", "grumpy", on=False)
    with pytest.raises(NotFound):
        lab.fault("td", "no-such-fault")


def test_a_hung_reboot_needs_the_power_switch(lab: Lab) -> None:
    lab.fault("tr", "reboot-hangs")
    old = boot_id(lab, "tr")
    ssh(lab, "tr", "sudo -n /sbin/reboot")
    end = time.monotonic() + 120
    while lab.phase("tr") != "hung" and time.monotonic() < end:
        time.sleep(0.05)
    assert lab.phase("tr") == "hung"
    LabPower(lab.folder).cycle("tr")
    await_boot(lab, "tr", old)
    lab.fault("tr", "reboot-hangs", on=False)


def test_up_again_changes_nothing(lab: Lab) -> None:
    before = lab.status()
    assert lab.up(HERE / "two.yaml", seed=7) == before
    with pytest.raises(FleetError, match="another lab"):
        lab.up(HERE / "two.yaml", seed=8)


def test_status_keeps_its_promise(lab: Lab) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fleet.cli.main", "lab", "status", "--dir", str(lab.folder), "-o", "json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads((HERE.parents[1] / "docs/schema/LabStatus.json").read_text()))
    assert [(item["name"], item["phase"]) for item in document["items"]] == [("td", "up"), ("tr", "up")]


def test_effects_are_counted(lab: Lab) -> None:
    lines = [json.loads(line) for line in lab.state("td").effects.read_text().splitlines()]
    assert [line["version"] for line in lines if line["kind"] == "install"] == ["2.0.0"]
    assert len([line for line in lines if line["kind"] == "boot"]) == lab.state("td").read()["boots"]


def test_an_rpm_node_installs_from_a_repository_of_its_own(lab: Lab) -> None:
    """rpmbuild, createrepo_c, dnf and the rpm database are the real ones."""
    spec = (
        "Name: greeting\nVersion: 1.0\nRelease: 1\nSummary: x\nLicense: x\nBuildArch: noarch\nAutoReqProv: no\n"
        "%description\nx\n%install\nmkdir -p %{buildroot}/etc\necho hello > %{buildroot}/etc/greeting\n"
        "%files\n/etc/greeting\n"
    )
    done = lab.run("tr", ["tee", "/root/greeting.spec"], stdin=spec.encode())
    assert done.returncode == 0
    script = (
        "rpmbuild -bb --quiet --define '_topdir /root/rpm' /root/greeting.spec && createrepo_c -q /root/rpm/RPMS && "
        "printf '[own]\\nname=own\\nbaseurl=file:///root/rpm/RPMS\\ngpgcheck=0\\n' > /etc/yum.repos.d/own.repo && "
        "yum install -q -y greeting && rpm -q greeting && cat /etc/greeting"
    )
    done = lab.run("tr", ["sh", "-c", script])
    assert done.returncode == 0, done.stdout.decode()
    assert done.stdout.decode().split()[-2:] == ["greeting-1.0-1.noarch", "hello"]


def test_units_are_real_programs(lab: Lab) -> None:
    units = {
        "steady": "[Service]\nExecStart=/bin/sleep 1000\n[Install]\nWantedBy=multi-user.target\n",
        "failing": "[Service]\nType=oneshot\nExecStart=/bin/false\n",
        "once": "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n",
    }
    for name, text in units.items():
        lab.run(
            "td", ["tee", f"/etc/systemd/system/{name}.service"], stdin=f"[Unit]\nDescription={name}\n{text}".encode()
        )
    assert ssh(lab, "td", "systemctl is-active steady").stdout.strip() == "inactive"
    assert ssh(lab, "td", "systemctl enable --now steady").returncode == 0
    assert said(lab, "td", "systemctl is-active steady; systemctl is-enabled steady") == "active\nenabled"
    failed = ssh(lab, "td", "systemctl start failing")
    assert failed.returncode == 1
    assert failed.stderr.startswith("Job for failing.service failed")
    assert ssh(lab, "td", "systemctl is-failed failing").stdout.strip() == "failed"
    assert said(lab, "td", "systemctl start once; systemctl show -p ActiveState --value once") == "active"
    assert ssh(lab, "td", "systemctl start none-such").returncode == 5
    pid = said(lab, "td", "systemctl show -p MainPID --value steady")
    said(lab, "td", f"kill -9 {pid}; sleep 0.2")
    assert ssh(lab, "td", "systemctl is-active steady").stdout.strip() == "failed"
    old = boot_id(lab, "td")
    ssh(lab, "td", "systemctl reboot")
    await_boot(lab, "td", old)
    assert said(lab, "td", "systemctl is-active steady") == "active"
    said(lab, "td", "systemctl disable --now steady; rm /etc/systemd/system/failing.service")


def test_a_second_lab_on_the_same_addresses_is_refused(lab: Lab, tmp_path: Path) -> None:
    other = Lab(tmp_path / "other", lambda _: None, vendor_path=[str(HERE / "vendor")])
    try:
        with pytest.raises(FleetError, match="is taken"):
            other.up(HERE / "two.yaml", seed=7)
    finally:
        other.down()
    assert said(lab, "td", "echo mine") == "mine"


def _members(lab: Lab) -> list[int]:
    """Every process that lives in a mount of this lab."""
    out = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if str(lab.folder) in (folder / "mountinfo").read_text():
                out.append(int(folder.name))
        except OSError:
            continue
    return out


def test_a_killed_supervisor_leaves_nothing_and_up_repairs(lab: Lab) -> None:
    record = recorded(lab.folder / "nodes/td/processes.json")
    inside = _members(lab)
    assert record["init"].pid in inside
    os.kill(record["supervisor"].pid, signal.SIGKILL)
    end = time.monotonic() + 60
    while record["init"].alive and time.monotonic() < end:
        time.sleep(0.05)
    assert not record["init"].alive
    assert lab.phase("td") == "down"
    lab.up(HERE / "two.yaml", seed=7)
    assert said(lab, "td", "cat /sys/module/tiny/version") == "2.0.0"


@pytest.mark.smoke
def test_down_after_kill_leaves_no_process_and_no_mount(lab: Lab) -> None:
    for name in ("td", "tr"):
        os.kill(recorded(lab.folder / "nodes" / name / "processes.json")["supervisor"].pid, signal.SIGKILL)
    lab.down()
    assert _members(lab) == []
    assert str(lab.folder) not in Path("/proc/self/mountinfo").read_text()
    assert not (lab.folder / "nodes").exists()
    assert lab.status() == []
