"""The whole probe, script and all: this machine behind a made-up PCI bus, and real SSH servers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import drivers
from fleet.core.model import Facts, Node
from fleet.probe import Probed, probe
from fleet.remote import Local, Record, Replay, Ssh, Transport
from tests.remote.sshd import MISSING, SUDO_DENIED, Sshd

needs_namespace = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root, to lay a PCI bus over this machine's"
)
SETUP = """\
set -e
mount -t tmpfs tmpfs /sys/bus/pci/devices
mount -t tmpfs tmpfs /sys/module
cp -r {bus}/. /sys/bus/pci/devices/
mkdir -p {modules}/.; cp -r {modules}/. /sys/module/
exec {shell} "$@"
"""


def behind(folder: Path, cards: dict[str, str], modules: dict[str, str] | None = None, shell: str = "sh") -> Local:
    """This machine with other PCI functions: bus id -> `vendor device class subsystem_vendor subsystem_device`."""
    for bus_id, words in cards.items():
        device = folder / "bus" / bus_id
        device.mkdir(parents=True)
        names = ("vendor", "device", "class", "subsystem_vendor", "subsystem_device")
        for name, word in zip(names, words.split(), strict=True):
            (device / name).write_text(f"0x{word}\n")
    (folder / "bus").mkdir(exist_ok=True)
    (folder / "modules").mkdir()
    for name, version in (modules or {}).items():
        (folder / "modules" / name).mkdir()
        (folder / "modules" / name / "version").write_text(f"{version}\n")
    setup = folder / "setup.sh"
    setup.write_text(SETUP.format(bus=folder / "bus", modules=folder / "modules", shell=shell))
    return Local(("unshare", "--mount", "--propagation", "private", "sh", str(setup)))


def look(transport: Transport, *nodes: Node, sudo: bool = False, timeout_s: float = 60) -> dict[str, Probed]:
    models: Callable[[str, str], str | None] = lambda vendor, name: f"{vendor} {name}" if ":" in name else None  # noqa: E731
    try:
        found = probe(
            nodes, transport, drivers.vendors(), models, lambda: "2026-01-01T00:00:00+00:00",
            fanout=8, timeout_s=timeout_s, sudo=sudo,
        )  # fmt: skip
        return {result.name: result for result in found}
    finally:
        transport.close()


def facts_of(transport: Transport) -> Facts:
    result = look(transport, Node("here", "127.0.0.1"))["here"]
    assert result.outcome == "answered", result.detail
    assert result.facts is not None
    return result.facts


@needs_namespace
@pytest.mark.parametrize("shell", [s for s in ("dash", "bash", "busybox sh") if shutil.which(s.split()[0])])
@pytest.mark.parametrize(
    ("vendor", "card"),
    [
        ("nvidia", "10de 2330 030200 10de 16c1"),
        ("ascend", "19e5 d802 120000 19e5 4000"),
        ("metax", "9999 4001 030200 9999 0000"),
        ("biren", "1ee0 0010 120000 1ee0 0001"),
    ],
)
def test_cards_are_identified_by_the_bus_without_any_driver(tmp_path: Path, vendor: str, card: str, shell: str) -> None:
    noise = "8086 1237 060000 0000 0000"
    cards = {"0000:00:00.0": noise, "0000:3b:00.0": card, "0000:d8:00.0": card}
    facts = facts_of(behind(tmp_path, cards, shell=shell))
    assert facts.vendor == vendor
    assert sorted(c.bus_id for c in facts.accelerators) == ["0000:3b:00.0", "0000:d8:00.0"]
    assert {c.pci_id for c in facts.accelerators} == {":".join(card.split()[:2])}
    assert all(c.model.startswith(vendor) for c in facts.accelerators)
    assert "driver" not in facts.current()
    assert facts.os.kernel == os.uname().release
    assert facts.os.arch == os.uname().machine
    assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@needs_namespace
def test_a_loaded_module_is_seen_in_sysfs(tmp_path: Path) -> None:
    card = "9999 4001 030200 9999 0000"
    facts = facts_of(behind(tmp_path, {"0000:3b:00.0": card}, {"metax": "3.1.4"}))
    assert facts.components["driver"].loaded == "3.1.4"


@needs_namespace
def test_a_machine_without_accelerators(tmp_path: Path) -> None:
    facts = facts_of(behind(tmp_path, {"0000:00:00.0": "8086 1237 060000 0000 0000"}))
    assert (facts.vendor, facts.accelerators, facts.problems) == ("", (), ())


def test_recorded_and_replayed_facts_are_equal(tmp_path: Path) -> None:
    here = Node("here", "127.0.0.1")
    live = look(Record(Local(), tmp_path), here)["here"]
    again = look(Replay(tmp_path), here, Node("gone", "127.0.0.1"))
    assert again["here"].facts == live.facts
    assert again["here"].outcome == live.outcome
    assert (again["gone"].outcome, again["gone"].facts) == ("silent", None)


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_over_ssh_each_node_is_what_it_is(tmp_path: Path, sshd: Callable[..., Sshd], client_key: Path) -> None:
    good = sshd("127.1.5.1", "127.1.5.2", "127.1.5.3", "127.1.5.4", sudo=SUDO_DENIED)
    liar = sshd("127.1.5.5", options=[f"ForceCommand {_liar(tmp_path)}"])
    hung = sshd("127.1.5.6", options=["ForceCommand sleep 60"])
    at = {server.addresses[0]: server for server in (good, liar, hung)}
    nodes = [
        Node("good", "127.1.5.1", good.port, "root"),
        Node("noisy", "127.1.5.2", good.port, "noisy"),
        Node("strange", "127.1.5.3", good.port, "root"),
        Node("changed", "127.1.5.4", good.port, "root"),
        Node("liar", "127.1.5.5", liar.port, "root"),
        Node("hung", "127.1.5.6", hung.port, "root"),
        Node("closed", "127.1.5.7", 9, "root"),
    ]
    keys = {node.name: at[node.address].key for node in nodes if node.address in at}
    keys |= {"noisy": good.key, "changed": liar.key}
    found = look(Ssh(str(client_key), host_keys=keys), *nodes, timeout_s=8)
    assert {name: result.outcome for name, result in found.items()} == {
        "good": "answered",
        "noisy": "answered",
        "strange": "unknown-key",
        "changed": "key-changed",
        "liar": "garbled",
        "hung": "silent",
        "closed": "silent",
    }
    assert found["good"].facts is not None
    assert found["noisy"].facts is not None
    assert found["noisy"].facts.content() == found["good"].facts.content()
    denied = look(Ssh(str(client_key), host_keys=keys), Node("good", "127.1.5.1", good.port, "plain"), sudo=True)
    assert denied["good"].outcome == "no-sudo"


def _liar(folder: Path) -> Path:
    """Answers the script with frames of its own invention, under a nonce of its own."""
    file = folder / "liar"
    lie = r"\036FLEET1 0123456789abcdef begin os\nID=evil\n\036FLEET1 0123456789abcdef end os rc=0 t=1,2\n"
    file.write_text(f"#!/bin/sh\ncat >/dev/null\nprintf '{lie}'\n")
    file.chmod(0o755)
    for parent in (folder, *folder.parents[:3]):
        if parent.name.startswith(("pytest", "test_")):
            parent.chmod(0o755)
    return file
