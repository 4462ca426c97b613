"""The light population: one process, many addresses, answers of recordings under the nonce of the day."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.core.errors import BadInput
from fleet.core.model import Node
from fleet.inventory import intake
from fleet.lab import population
from fleet.remote import Ssh, build, sweep
from fleet.remote.script import Section

COUNT = 20


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = ["--count", str(COUNT), "--port", str(port), "--folder", str(tmp_path / "site")]
    with subprocess.Popen(
        [sys.executable, "-m", "fleet.lab.population", *argv], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield tmp_path / "site", port
        finally:
            process.terminate()
            process.wait(10)


def test_every_address_answers_with_its_frames(site: tuple[Path, int]) -> None:
    folder, port = site
    entries = intake.read((folder / "nodes.yaml").read_bytes(), "nodes.yaml")
    assert len(entries) == COUNT
    key = " ".join((folder / "host.pub").read_text().split()[:2])
    nodes = [Node(str(e.values["name"]), str(e.values["address"]), port, "root") for e in entries]
    transport = Ssh(str(folder / "client"), host_keys={node.name: key for node in nodes})
    try:
        script = build([Section("os", "true")], "0011223344556677")
        answers = list(sweep(transport, nodes, script, fanout=8, timeout_s=30))
    finally:
        transport.close()
    assert sorted(a.node.name for a in answers) == sorted(n.name for n in nodes)
    assert all(a.rc == 0 and b"0011223344556677 done" in a.stdout for a in answers), answers[0]


def test_a_recording_is_given_under_the_new_nonce(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        population.recorded_answers(tmp_path)
    text = "\x1eFLEET1 aaaabbbb begin os\nID=x\n\x1eFLEET1 aaaabbbb done\n"
    (tmp_path / "a.json").write_text(json.dumps({"kind": "Recording", "nonce": "aaaabbbb", "stdout": {"text": text}}))
    recordings = population.recorded_answers(tmp_path)
    script = build([], "ccccdddd")
    assert population.answer(script, 5, recordings) == text.replace("aaaabbbb", "ccccdddd")


def test_addresses_are_loopback_and_distinct() -> None:
    many = population.addresses(100_000)
    assert len(set(many)) == 100_000
    assert all(a.startswith("127.") and all(0 <= int(p) <= 255 for p in a.split(".")) for a in many)
