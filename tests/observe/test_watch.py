"""Watching as a person does: on a terminal, in a pipe, with Ctrl-C; and the words of why."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import pytest

from fleet.cli.watch import Observer, showing, tell
from fleet.core.errors import FleetError
from fleet.core.task import LIMIT_ENDS
from fleet.inventory import Inventory, open_inventory
from fleet.inventory.forecast import Forecast
from fleet.inventory.history import Head
from tests.cli.command import Fleet
from tests.observe.receiver import receiving
from tests.observe.site import Site
from tests.observe.terminal import Terminal
from tests.observe.tty import Tty
from tests.remote.sshd import make_key

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "docs/schema"


@pytest.fixture
def tty() -> Iterator[Tty]:
    found = Tty()
    yield found
    found.close()


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


@pytest.fixture
def site(fleet: Fleet) -> Iterator[Site]:
    inventory = open_inventory(fleet.url)
    yield Site(inventory)
    inventory.close()


@pytest.fixture
def started(fleet: Fleet) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []

    def start(*args: str, **more: object) -> subprocess.Popen[str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("FLEET_")} | {
            "FLEET_STATE_DIR": str(fleet.state), "XDG_CONFIG_HOME": str(fleet.folder), "TERM": "xterm",
            "PYTHONPATH": str(ROOT), **more.pop("env", {}),  # type: ignore[dict-item]  # words, as given by a test
        }  # fmt: skip
        argv = [sys.executable, "-m", "fleet.cli.main", *args]
        more.setdefault("process_group", 0)  # as a shell does: a group without a parent outside it cannot be stopped
        process = subprocess.Popen(argv, env=env, cwd=fleet.folder, text=True, **more)  # type: ignore[call-overload]
        running.append(process)
        return process  # type: ignore[no-any-return]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_a_terminal_shows_it_live_and_is_given_back(
    site: Site, tty: Tty, started: Callable[..., subprocess.Popen[str]]
) -> None:
    lease, now = site.lease("elsewhere:1:1"), site.store.clock()
    site.put(lease, site.names[1:3], state="draining", cursor=1, since=now, limit_s=900)
    site.step(lease, site.names[1:3], "drain", 1.0, "waiting")
    process = started("rollout", "watch", stdin=tty.slave, stdout=tty.slave, stderr=subprocess.PIPE)
    text = tty.until(lambda t: "2 draining" in t)
    assert "driven by elsewhere:1:1" in text and "10 nodes: 8 waiting, 2 draining" in text
    assert re.search(r"gpu00001 +draining +drain +\d+ s of 15 min", text)
    assert tty.terminal.alternate and tty.terminal.hidden
    site.put(lease, site.names[1:2], state="failed", since=now, reason="驱动安装失败", next_action="look at it")
    assert "驱动安装失败" in tty.until(lambda t: "1 failed" in t)
    tty.terminal = Terminal(60, 15)
    tty.terminal.alternate = True
    tty.resize(60, 15)
    tty.until(lambda t: t.startswith("rollout r-1: running"))
    site.put(lease, site.names, state="done", cursor=6, since=now)
    site.store.set_state(lease, "done", "", "2031-05-01T09:00:00Z")
    tty.until(lambda _: not tty.terminal.alternate and not tty.terminal.hidden)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0 and "rollout r-1 is done: 10 done" in err


def test_a_stopped_watcher_gives_the_terminal_back_and_comes_again(
    site: Site, tty: Tty, started: Callable[..., subprocess.Popen[str]]
) -> None:
    assert site.names
    process = started("rollout", "watch", "r-1", stdin=tty.slave, stdout=tty.slave, stderr=subprocess.PIPE)
    tty.until(lambda t: "10 waiting" in t)
    process.send_signal(signal.SIGTSTP)
    tty.until(lambda _: not tty.terminal.alternate and not tty.terminal.hidden)
    end = time.monotonic() + 10
    while " T " not in Path(f"/proc/{process.pid}/stat").read_text() and time.monotonic() < end:
        time.sleep(0.05)
    assert " T " in Path(f"/proc/{process.pid}/stat").read_text()
    process.send_signal(signal.SIGCONT)
    tty.until(lambda t: tty.entered == 2 and "10 waiting" in t)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_watching_only(
    site: Site, tty: Tty, started: Callable[..., subprocess.Popen[str]], number: int
) -> None:
    process = started("rollout", "watch", "r-1", stdin=tty.slave, stdout=tty.slave, stderr=subprocess.PIPE)
    text = tty.until(lambda t: "10 waiting" in t)
    assert "nobody drives it: fleet rollout resume r-1" in text
    process.send_signal(number)
    tty.until(lambda _: not tty.terminal.alternate and not tty.terminal.hidden)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "only the watching has ended" in err and "fleet rollout watch r-1 comes back" in err
    row = site.store.rollout("r-1")
    assert (row.state, row.request) == ("running", "")


def test_a_pipe_gets_a_line_a_transition_and_the_exit_code_of_the_rollout(fleet: Fleet, site: Site) -> None:
    lease = site.lease()
    site.put(lease, site.names[:9], state="done", cursor=6, since=1000.0)

    def end() -> None:
        time.sleep(1.5)
        site.put(lease, site.names[9:], state="failed", since=2000.0, reason="it \x1b[31msmokes")
        site.store.set_state(lease, "failed", "", "2031-05-01T09:00:00Z")

    thread = threading.Thread(target=end)
    thread.start()
    done = fleet("rollout", "watch", "r-1")
    thread.join()
    lines = done.out.splitlines()
    assert lines[0].startswith("rollout r-1 is running: 1 waiting, 9 done; left: unknown: ")
    assert re.fullmatch(r"\d\d:\d\d:\d\dZ gpu00009  waiting -> failed  it \\x1b\[31msmokes", lines[1])
    assert re.fullmatch(r"\d\d:\d\d:\d\dZ rollout r-1 is failed", lines[2])
    assert len(lines) == 3 and done.code == 6 and "\x1b" not in done.out


def test_nothing_to_watch(fleet: Fleet, inventory: Inventory) -> None:
    assert inventory.nodes() == []
    done = fleet("rollout", "watch")
    assert done.code == 2 and "no rollout is under way" in done.err
    assert fleet("rollout", "watch", "r-9").code == 2


def test_nobody_left_to_drive_ends_the_lines(inventory: Inventory) -> None:
    observer = Observer(Site(inventory).store, "r-1", 4)
    out: list[str] = []
    with pytest.raises(FleetError) as caught:
        tell(observer, out.append, look_s=0.0, lost_looks=3, sleep=lambda _: None)
    assert caught.value.slug == "controller-lost" and len(out) == 1


def test_a_database_that_is_away_for_a_moment_is_waited_for(inventory: Inventory) -> None:
    site = Site(inventory)
    lease, out, fails = site.lease("elsewhere:1:1"), list[str](), [3]

    class Shaky(Observer):
        def driver(self, head: Head, at: float) -> str:
            if out and fails[0]:
                fails[0] -= 1
                raise FleetError("the database cannot be reached", slug="database-unreachable")
            return super().driver(head, at)

    def sleep(_: float) -> None:
        if not fails[0]:
            site.store.set_state(lease, "done", "", "2031-05-01T09:00:00Z")

    tell(Shaky(site.store, "r-1", 4), out.append, sleep=sleep)
    assert out[1] == "waiting: the database cannot be reached" and out[2].endswith("rollout r-1 is done")
    fails[0] = 3
    with pytest.raises(FleetError):
        tell(Shaky(site.store, "r-1", 4), out.append, lost_looks=2, sleep=sleep)


def test_every_transition_is_told_on_both_databases(inventory: Inventory) -> None:
    site = Site(inventory)
    lease, out = site.lease("elsewhere:1:1"), list[str]()
    moves = [("draining", 100.0), ("installing", 200.0), ("done", 300.0)]

    def sleep(_: float) -> None:
        if moves:
            state, at = moves.pop(0)
            site.put(lease, site.names, state=state, cursor=1, since=at)
        else:
            site.store.set_state(lease, "paused", "by hand", "")
            site.store.drop(lease)

    tell(Observer(site.store, "r-1", 4), out.append, sleep=sleep)
    for name in site.names:
        told = [line.split("  ")[1] for line in out if name in line]
        assert told == ["waiting -> draining", "draining -> installing", "installing -> done"]
    assert out[-1].endswith("rollout r-1 is paused: by hand") and len(out) == 32


def test_a_panel_shows_while_this_process_drives(
    inventory: Inventory, tty: Tty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    site = Site(inventory)
    with os.fdopen(os.dup(tty.slave), "w") as stream:
        with showing(site.store, "r-1", 4, "this command", stream) as place:
            place.tell("the running steps end first")
            text = tty.until(lambda t: "10 waiting" in t and "the running steps end first" in t)
            assert text.startswith("rollout r-1: running")
            site.store.set_state(site.lease("elsewhere:1:1"), "paused", "two failed", "")
            tty.until(lambda t: "two failed" in t)
        tty.read()
        assert not tty.terminal.alternate and not tty.terminal.hidden
        monkeypatch.setenv("TERM", "dumb")
        before = tty.terminal.written
        with showing(site.store, "r-1", 4, "this command", stream) as place:
            assert place.tell is not None
        tty.read()
        assert tty.terminal.written == before


def test_why_says_the_same_words_in_both_places(fleet: Fleet, site: Site) -> None:
    lease, now = site.lease(), site.store.clock()
    (name,) = site.names[:1]
    site.put(lease, (name,), state="draining", cursor=1, since=now - 4000, limit_s=3600, reason="job 17 runs")
    site.step(lease, (name,), "drain", 40.0, "waiting")
    one, other, named = (
        fleet(*words, "-o", "json")
        for words in (("node", "why", name), ("rollout", "why", name), ("rollout", "why", "r-1", name))
    )
    assert one.out == other.out == named.out and one.code == other.code == 0
    body = json.loads(one.out)
    jsonschema.validate(body, json.loads((SCHEMAS / "NodeWhy.json").read_text()))
    part = body["rollout"]
    assert part["overdue"] and part["limitS"] == 3600 and part["atLimit"] == LIMIT_ENDS["draining"]
    assert body["summary"].endswith(f"it is past its limit of 3600 s: {LIMIT_ENDS['draining']}")
    assert [(a["phase"], a["state"], a["seconds"]) for a in part["attempts"]] == [("drain", "waiting", 40)]
    assert fleet("node", "why", name).out == fleet("rollout", "why", name).out
    text = fleet("rollout", "why", name).out
    assert "job 17 runs" in text and "until" in text and re.search(r"forward +drain +waiting +40", text)


def test_why_of_a_node_elsewhere(fleet: Fleet, site: Site) -> None:
    for words, what in (
        (("gpu9",), "any rollout"),
        (("r-1", "gpu9"), "rollout r-1"),
        (("a", "b", "c"), "a rollout and"),
    ):
        done = fleet("rollout", "why", *words)
        assert done.code == 2 and what in done.err
    site.store.set_state(site.lease(), "aborted", "by hand", "2031-05-01T09:00:00Z")
    body = json.loads(fleet("rollout", "why", site.names[0], "-o", "json").out)
    assert body["rollout"]["until"] == "" and body["rollout"]["finished"]


def test_show_has_the_time_left(fleet: Fleet, site: Site) -> None:
    body = json.loads(fleet("rollout", "show", "r-1", "-o", "json").out)
    jsonschema.validate(body, json.loads((SCHEMAS / "Rollout.json").read_text()))
    assert body["eta"]["seconds"] is None and "nothing is known" in body["eta"]["why"]
    lease = site.lease()
    for phase in ("preflight", "drain", "install", "reboot", "validate", "uncordon"):
        site.step(lease, site.names, phase, 60.0)
    body = json.loads(fleet("rollout", "show", "r-1", "-o", "json").out)
    assert body["eta"]["seconds"] == body["eta"]["worst"] == 24 * 60 and body["eta"]["basis"] == 10
    assert Forecast(site.store).of_plan(site.plan, site.store.clock()).seconds == 24 * 60
    assert "left: about 24 min\n" in fleet("rollout", "show", "r-1").out


def test_a_controller_gives_metrics_and_sends_events(
    fleet: Fleet, site: Site, started: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    lease = site.lease()
    site.store.set_state(lease, "paused", "by hand", "")
    site.store.drop(lease)
    with receiving() as receiver:
        file = tmp_path / "fleet.prom"
        env = {"FLEET_NOTIFY_URL": receiver.url, "FLEET_METRICS_FILE": str(file)}
        env["FLEET_SSH_KEY"] = str(make_key(tmp_path, "key"))
        process = started("controller", "run", "--metrics", "0", env=env, stderr=subprocess.PIPE)
        assert process.stderr is not None
        said = ""
        while "metrics at" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/metrics", said)[1])  # type: ignore[index]
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
        assert 'fleet_rollout_state{rollout="r-1",state="paused"} 1' in text
        assert "fleet_controller_heartbeat_age_seconds{" in text
        assert fleet("rollout", "abort", "r-1", "-y", env=env).code in (0, 1)
        end = time.monotonic() + 30
        while not any(d["event"] == "rollout.aborted" for d in receiver.documents()) and time.monotonic() < end:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 0
        assert [d["event"] for d in receiver.documents()][-1] == "rollout.aborted"
        assert 'state="aborted"} 1' in file.read_text()
