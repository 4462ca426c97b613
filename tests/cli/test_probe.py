"""`fleet probe` as a person runs it: against recordings, this machine and real servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import jsonschema
import pytest
import yaml

from fleet.core.model import Node
from fleet.inventory import open_inventory
from fleet.remote import Answer, Record
from fleet.remote.answer import Phase, Trouble
from tests.cli.command import Fleet
from tests.remote.conftest import client_key, sshd
from tests.remote.sshd import MISSING, Sshd

__all__ = ["client_key", "sshd"]
NONCE = "00000000000000aa"
SCHEMAS = Path(__file__).parents[2] / "docs/schema"


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


class Said:
    """A transport whose nodes said what they are made to say."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = answers

    def run(self, node: Node, script: str, *, timeout_s: float, sudo: bool) -> Answer:  # noqa: ARG002
        return self.answers[node.name]

    def close(self) -> None:
        pass


def frames(kernel: str, pci: str = "") -> bytes:
    said = {
        "os": "ID=debian\nVERSION_ID=12\n",
        "kernel": f"release={kernel}\nmachine=x86_64\nuid=0\nboot_id=b\nheaders=yes\npackages=deb\n",
        "pci": f"bus\n{pci}",
    }
    out = "".join(
        f"\x1eFLEET1 {NONCE} begin {name}\n{text}\n\x1eFLEET1 {NONCE} end {name} rc=0 t=1.0,1.1\n"
        for name, text in said.items()
    )
    return f"{out}\x1eFLEET1 {NONCE} done\n".encode()


def answered(name: str, kernel: str = "6.1.0", pci: str = "") -> Answer:
    return Answer(Node(name, "127.0.0.1"), "done", 0, frames(kernel, pci))


def failed(name: str, phase: Phase, trouble: Trouble, detail: str) -> Answer:
    return Answer(Node(name, "127.0.0.1"), phase, None, b"", b"", detail, "", trouble)


def record(folder: Path, *answers: Answer) -> str:
    transport = Record(Said({answer.name: answer for answer in answers}), folder)
    for answer in answers:
        transport.run(answer.node, f"FLEET_NONCE={NONCE}\n", timeout_s=1, sudo=False)
    return str(folder)


def follows_schema(document: dict[str, object]) -> None:
    schema = json.loads((SCHEMAS / f"{document['kind']}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)


def test_equal_nodes_share_a_line_and_failures_are_named(fleet: Fleet, tmp_path: Path) -> None:
    recordings = record(
        tmp_path / "rec",
        *(answered(f"gpu{i}") for i in range(1, 5)),
        answered("gpu5", "6.8.0"),
        failed("gpu6", "banner", "timeout", "no SSH banner within 8 s"),
        failed("gpu7", "banner", "timeout", "no SSH banner within 8 s"),
        failed("gpu8", "hostkey", "unknown-key", "it shows SHA256:x"),
    )
    done = fleet("probe", "--replay", recordings)
    assert done.code == 6
    lines = done.out.splitlines()
    assert lines[1].split() == ["gpu[1-4]", "answered", "none", "debian", "12", "6.1.0", "-", "-", "-"]
    assert lines[2].startswith("gpu5 ")
    assert any(line.split()[:3] == ["gpu[6-7]", "silent", "banner"] for line in lines)
    assert "8 nodes: 5 answered, 2 silent, 1 unknown-key" in done.err
    assert "fleet node trust gpu8" in done.err


def test_forms_of_the_answer(fleet: Fleet, tmp_path: Path) -> None:
    lost = failed("b", "connect", "unreachable", "refused")
    recordings = record(tmp_path / "rec", answered("a"), lost)
    document = json.loads(fleet("probe", "--replay", recordings, "-o", "json").out)
    follows_schema(document)
    assert (document["apiVersion"], document["kind"]) == ("fleet/v1", "ProbeReport")
    assert document["summary"] == {"answered": 1, "silent": 1}
    a, b = document["nodes"]
    assert (a["name"], a["outcome"], a["facts"]["os"]["kernel"]) == ("a", "answered", "6.1.0")
    assert (b["outcome"], b["phase"], b["detail"], b["facts"]) == ("silent", "connect", "refused", None)
    assert yaml.safe_load(fleet("probe", "--replay", recordings, "-o", "yaml").out)["summary"] == document["summary"]
    assert fleet("probe", "--replay", recordings, "-o", "name").out == "a\n"
    lines = [json.loads(line) for line in fleet("probe", "--replay", recordings, "-o", "jsonl").out.splitlines()]
    for line in lines:
        follows_schema(line)
    assert {line["name"] for line in lines} == {"a", "b"}
    assert {line["kind"] for line in lines} == {"Probed"}


def test_a_replay_is_shown_and_not_recorded(fleet: Fleet, tmp_path: Path) -> None:
    fleet("node", "add", "a", "--address", "127.0.0.1")
    recordings = record(tmp_path / "rec", answered("a"))
    assert fleet("probe", "a", "--replay", recordings).code == 0
    with_inventory = open_inventory(fleet.url)
    assert with_inventory.facts() == {}
    with_inventory.close()


def test_problems_are_shown_with_who_has_them(fleet: Fleet, tmp_path: Path) -> None:
    strange = "0000:01:00.0 0xcccc 0x0007 0x120000 - - \n"
    recordings = record(tmp_path / "rec", *(answered(f"n{i}", pci=strange) for i in (1, 2)))
    done = fleet("probe", "--replay", recordings)
    assert done.code == 0
    assert any(line.startswith("n[1-2]") and "cccc:0007" in line for line in done.out.splitlines())


def test_this_machine(fleet: Fleet) -> None:
    done = fleet("probe", "--local", "-o", "json")
    assert done.code == 0
    follows_schema(json.loads(done.out))
    (node,) = json.loads(done.out)["nodes"]
    assert node["facts"]["os"]["kernel"] == os.uname().release
    assert "not recorded" in done.err
    fleet("node", "add", node["name"], "--address", "127.0.0.1")
    assert "not recorded" not in fleet("probe", "--local").err
    inventory = open_inventory(fleet.url)
    assert inventory.facts()[node["name"]].os.kernel == os.uname().release
    inventory.close()


def test_wrong_use(fleet: Fleet, tmp_path: Path) -> None:
    empty = fleet("probe")
    assert (empty.code, "fleet node add" in empty.err) == (0, True)
    assert fleet("probe", "nope").code == 2
    assert fleet("probe", "--local", "gpu1").code == 2
    assert fleet("probe", "--fanout", "0").code == 2
    assert fleet("probe", "--replay", str(tmp_path / "nowhere")).code == 2
    fleet("node", "add", "a", "--address", "127.0.0.1")
    keyless = fleet("probe", "a", env={"FLEET_SSH_KEY": str(tmp_path / "none")})
    assert (keyless.code, "bad-ssh-key" in keyless.err) == (2, True)
    assert fleet("probe", "a", env={"FLEET_HOST_KEYS": "never"}).code == 2


@pytest.fixture
def site(fleet: Fleet, sshd: Callable[..., Sshd], client_key: Path) -> tuple[Fleet, Sshd, dict[str, str]]:
    """Two nodes behind one real server."""
    if MISSING:
        pytest.skip(MISSING)
    server = sshd("127.1.6.1", "127.1.6.2")
    for i in (1, 2):
        fleet("node", "add", f"gpu{i}", "--address", f"127.1.6.{i}", "--port", str(server.port), "--rack", f"r{i}")
    return fleet, server, {"FLEET_SSH_KEY": str(client_key), "FLEET_SSH_USER": "root"}


def test_from_first_contact_to_facts(site: tuple[Fleet, Sshd, dict[str, str]], tmp_path: Path) -> None:
    fleet, server, env = site
    first = fleet("probe", env=env)
    assert first.code == 6
    assert "unknown-key" in first.out
    assert "fleet node trust gpu[1-2]" in first.err
    assert fleet("node", "trust", "gpu1", "--key", server.key, "-y", env=env).code == 0
    one = fleet("probe", "@rack:r1", "--record", str(tmp_path / "kept"), env=env)
    assert (one.code, one.out.count("answered")) == (0, 1), one.err
    both = fleet("probe", "-o", "json", env={**env, "FLEET_HOST_KEYS": "tofu"})
    assert both.code == 0, both.err
    inventory = open_inventory(fleet.url)
    assert set(inventory.facts()) == {"gpu1", "gpu2"}
    assert inventory.host_keys() == {"gpu1": server.key, "gpu2": server.key}
    assert [entry.detail["node"] for entry in inventory.audit_log() if entry.what == "first-contact"] == ["gpu2"]
    inventory.close()
    again = fleet("probe", "gpu1", "--replay", str(tmp_path / "kept"), "-o", "json")
    facts = [json.loads(text)["nodes"][0]["facts"] for text in (again.out, both.out)]
    assert [{**f, "at": ""} for f in facts[:1]] == [{**f, "at": ""} for f in facts[1:]]


def test_a_changed_key_is_an_incident_and_is_not_overwritten(site: tuple[Fleet, Sshd, dict[str, str]]) -> None:
    fleet, server, env = site
    old = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    inventory = open_inventory(fleet.url)
    inventory.trust("gpu1", old, "li", "2026-01-01T00:00:00Z")
    done = fleet("probe", "gpu1", env={**env, "FLEET_HOST_KEYS": "tofu", "FLEET_OPERATOR": "wang"})
    assert done.code == 6
    assert "key-changed" in done.out
    assert "incident" in done.err
    assert inventory.host_keys()["gpu1"] == old
    (entry,) = [entry for entry in inventory.audit_log() if entry.what == "host-key-changed"]
    assert (entry.who, entry.detail["shown"]) == ("wang", server.key)
    assert inventory.facts() == {}
    inventory.close()


def test_interrupt_keeps_what_was_seen(fleet: Fleet, sshd: Callable[..., Sshd], client_key: Path) -> None:
    if MISSING:
        pytest.skip(MISSING)
    good, hung = sshd("127.1.6.3"), sshd("127.1.6.4", options=["ForceCommand sleep 60"])
    for name, server in (("good", good), ("hung", hung)):
        fleet("node", "add", name, "--address", server.addresses[0], "--port", str(server.port))
        fleet("node", "trust", name, "--key", server.key, "-y")
    env = {**os.environ, "FLEET_SSH_KEY": str(client_key), "FLEET_STATE_DIR": str(fleet.state)}
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet.cli.main", "probe", "-o", "jsonl"],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["name"] == "good"
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert time.monotonic() - started < 15
    assert (out, "1 nodes were not looked at" in err) == ("", True), err
    assert "Traceback" not in err
    inventory = open_inventory(fleet.url)
    assert set(inventory.facts()) == {"good"}
    inventory.close()


def test_a_node_removed_while_it_was_looked_at_costs_the_others_nothing(fleet: Fleet) -> None:
    from fleet.cli.probe import _Book
    from fleet.config import load
    from fleet.core.model import Facts, OsFacts
    from fleet.probe import Probed

    inventory = open_inventory(fleet.url)
    try:
        inventory.add([Node("a", "10.0.0.1"), Node("b", "10.0.0.2")])
        book = _Book(inventory, load({}, {}), {}, ["a", "b"])
        inventory.remove(["b"])
        for name in ("a", "b"):
            book.keep(Probed(Node(name, ""), "answered", "done", Facts(name, OsFacts("debian", "12", "6.1"))))
        book.write()
        assert list(inventory.facts()) == ["a"]
    finally:
        inventory.close()
