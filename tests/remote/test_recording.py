"""Recordings: what was said once is said again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.core.errors import BadInput
from fleet.core.model import Node
from fleet.remote import Answer, Local, Record, Replay, Section, build, parse

NODE = Node("rack/1 gpu", "127.0.0.1", 2200)
OLD, NEW = "1111111111111111", "2222222222222222"


class Fixed:
    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def run(self, node: Node, script: str, *, timeout_s: float, sudo: bool) -> Answer:  # noqa: ARG002
        return self.answer

    def close(self) -> None:
        pass


def test_replay_gives_the_same_sections_under_the_new_nonce(tmp_path: Path) -> None:
    sections = [Section("a", r"printf 'caf\303\251 \377'", 5), Section("b", "echo 2; exit 3", 5)]
    real = Record(Local(), tmp_path).run(NODE, build(sections, OLD), timeout_s=20, sudo=False)
    again = Replay(tmp_path).run(NODE, build(sections, NEW), timeout_s=20, sudo=False)
    assert parse(again.stdout, NEW) == parse(real.stdout, OLD)
    assert (again.phase, again.rc) == (real.phase, real.rc)
    assert [(n.name, n.port) for n in Replay(tmp_path).nodes()] == [(NODE.name, NODE.port)]
    assert not list(tmp_path.glob("*.part"))


def test_failures_are_recorded_too(tmp_path: Path) -> None:
    answer = Answer(NODE, "hostkey", None, b"", b"", "it shows …", "ssh-ed25519 AAAA", "key-changed", 1.0)
    Record(Fixed(answer), tmp_path).run(NODE, "x", timeout_s=1, sudo=False)
    again = Replay(tmp_path).run(NODE, "x", timeout_s=1, sudo=False)
    assert (again.phase, again.trouble, again.detail, again.host_key) == (
        "hostkey", "key-changed", "it shows …", "ssh-ed25519 AAAA",
    )  # fmt: skip


def test_a_node_that_was_not_recorded(tmp_path: Path) -> None:
    answer = Replay(tmp_path).run(NODE, "x", timeout_s=1, sudo=False)
    assert (answer.phase, answer.trouble) == ("connect", "not-recorded")


@pytest.mark.parametrize("spoil", ["{", "[]", '{"kind": "Recording"}', "digest", "phase"])
def test_a_spoilt_recording_is_named(tmp_path: Path, spoil: str) -> None:
    Record(Fixed(Answer(NODE, "done", 0, b"hello")), tmp_path).run(NODE, "x", timeout_s=1, sudo=False)
    (file,) = tmp_path.glob("*.json")
    if spoil in ("digest", "phase"):
        document = json.loads(file.read_text())
        document["stdout" if spoil == "digest" else "phase"] = {"text": "forged"} if spoil == "digest" else "nowhere"
        spoil = json.dumps(document)
    file.write_text(spoil)
    with pytest.raises(BadInput) as caught:
        Replay(tmp_path).run(NODE, "x", timeout_s=1, sudo=False)
    assert str(file) in caught.value.where
    assert caught.value.slug == "bad-recording"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        Replay(tmp_path / "none")


@pytest.mark.parametrize(
    "change",
    [
        {"rc": "0"},
        {"port": "x"},
        {"node": ["a"]},
        {"trouble": "none"},
        {"phase": []},
        {"node": "another"},
        {"detail": 5},
    ],
)
def test_a_recording_of_the_wrong_types_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    Record(Fixed(Answer(NODE, "done", 0, b"x")), tmp_path).run(NODE, "", timeout_s=1, sudo=False)
    file = next(tmp_path.glob("*.json"))
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(BadInput) as caught:
        list(Replay(tmp_path).nodes())
    assert caught.value.slug == "bad-recording"


def test_a_folder_that_cannot_be_written_is_said_before_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput) as caught:
        Record(Fixed(Answer(NODE, "done", 0)), tmp_path / "file")
    assert caught.value.slug == "bad-recording"
