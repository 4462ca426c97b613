"""`fleet upgrade` itself: its live screen, and the events of a rollout that no controller carries out."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from fleet.inventory import open_inventory
from fleet.inventory.rollouts import Rollouts
from fleet.notify import signature
from tests.observe.receiver import receiving
from tests.observe.tty import Tty
from tests.upgrade.person import Person

ROOT = Path(__file__).parents[2]


def test_a_rollout_tells_its_story_in_order_and_signed(tmp_path: Path) -> None:
    person = Person(tmp_path)
    person.packages()
    key = tmp_path / "hook.key"
    key.write_text("s3cret")
    with receiving() as receiver:
        person("upgrade", "br1", "-y", code=6, FLEET_NOTIFY_URL=receiver.url, FLEET_NOTIFY_SECRET_FILE=str(key))
        told = receiver.documents()
        assert [d["event"] for d in told] == ["rollout.started", "node.failed", "rollout.failed"]
        assert len({d["rollout"] for d in told}) == 1
        assert told[1]["detail"]["nodes"] == "br1" and "silent" in told[1]["detail"]["reason"]
        for headers, body in receiver.got:
            assert headers["Fleet-Signature"] == signature(b"s3cret", headers["Fleet-Timestamp"], body)
    inventory = open_inventory(person.fleet.url)
    plans = {entry.detail.get("plan") for entry in inventory.audit_log() if entry.what.startswith("rollout ")}
    assert plans == {Rollouts(inventory.database).rollout(told[0]["rollout"]).plan}
    inventory.close()
    dump = b"".join(file.read_bytes() for file in person.fleet.state.rglob("*") if file.is_file())
    assert b"s3cret" not in dump and b"t0ken" not in dump


def test_without_an_address_nothing_is_written_down(tmp_path: Path) -> None:
    person = Person(tmp_path)
    person.packages()
    person("upgrade", "br1", "-y", code=6)
    with receiving() as receiver:
        person("upgrade", "br2", "-y", code=6, FLEET_NOTIFY_URL=receiver.url, FLEET_NOTIFY_EVENTS="node")
        assert [(d["event"], d["detail"]["nodes"]) for d in receiver.documents()] == [("node.failed", "br2")]


def test_a_wrong_address_is_told_before_anything_is_begun(tmp_path: Path) -> None:
    person = Person(tmp_path)
    person.packages()
    for settings, slug in (
        ({"FLEET_NOTIFY_URL": "hook"}, "bad-notify-url"),
        ({"FLEET_NOTIFY_URL": "http://127.0.0.1:9/", "FLEET_NOTIFY_SECRET_FILE": "absent"}, "bad-notify-file"),
        ({"FLEET_NOTIFY_URL": "http://127.0.0.1:9/", "FLEET_NOTIFY_EVENTS": "nodes"}, "bad-setting"),
    ):
        person("upgrade", "br1", "-y", code=2, **settings)
        assert slug in person.err
    assert person.document("RolloutList", "rollout", "list", "--all")["items"] == []


def test_a_dead_receiver_does_not_keep_a_rollout(tmp_path: Path) -> None:
    person = Person(tmp_path)
    person.packages()
    with receiving("hang") as receiver:
        began = time.monotonic()
        person("upgrade", "br1", "-y", code=6, FLEET_NOTIFY_URL=receiver.url)
        assert time.monotonic() - began < 60
    with receiving() as receiver:  # what the first one owes may come before, if it is due
        person("upgrade", "br2", "-y", code=6, FLEET_NOTIFY_URL=receiver.url)
        assert [d["event"] for d in receiver.documents()][-1] == "rollout.failed"


def test_on_a_terminal_an_upgrade_is_a_screen(tmp_path: Path) -> None:
    person = Person(tmp_path)
    person.packages()
    tty = Tty()
    env = {k: v for k, v in os.environ.items() if not k.startswith("FLEET_")} | {
        **person.env, "FLEET_STATE_DIR": str(person.fleet.state), "XDG_CONFIG_HOME": str(tmp_path), "TERM": "xterm",
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    argv = [sys.executable, "-m", "fleet.cli.main", "upgrade", "br1", "-y", "-o", "json"]
    process = subprocess.Popen(
        argv, env=env, cwd=tmp_path, stdin=tty.slave, stdout=subprocess.PIPE, stderr=tty.slave, text=True
    )
    try:
        text = tty.until(lambda t: "br1  begins" in t)
        assert text.startswith("rollout r-")
        assert "1 node: " in text and "driven by this command" in text and "nobody" not in text
        out, _ = process.communicate(timeout=60)
        tty.until(lambda _: "rollout r-" in tty.plain and "is failed" in tty.plain + tty.raw)
        assert process.returncode == 6 and '"kind": "Rollout"' in out and "\x1b" not in out
        assert not tty.terminal.alternate and not tty.terminal.hidden
    finally:
        process.kill()
        process.communicate()
        tty.close()
