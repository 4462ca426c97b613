"""Phases through ansible-runner against a real OpenSSH server, with the roles of a vendor that exists only here."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.config import Settings
from fleet.playbook import AnsiblePlaybook, Play, Played, Staged
from tests.remote.sshd import MISSING
from tests.upgrade.livenode import LiveNode

INSTALL = """\
- name: Install
  ansible.builtin.include_role: {name: common, tasks_from: run}
  vars:
    run_id: "{{ fleet_step }}"
    run_command: "echo begun >>{{ fleet_arguments.log }}; sleep {{ fleet_arguments.sleep | default(0) }};
      echo ended >>{{ fleet_arguments.log }}; echo said $PPID; exit {{ fleet_arguments.rc | default(0) }}"
    run_ok: [0, 2]
"""
PREFLIGHT = """\
- name: Refuse
  ansible.builtin.fail:
    msg: "FLEET: headers-missing: no kernel headers for {{ fleet_now.kernel }}"
"""


class World:
    """A live node and the playbooks that reach it."""

    def __init__(self, folder: Path) -> None:
        self.live = LiveNode(folder / "node", "127.11.7.1")
        roles = folder / "vendor/playbooks/roles/acme/tasks"
        roles.mkdir(parents=True)
        (roles / "install.yml").write_text(INSTALL)
        (roles / "preflight.yml").write_text(PREFLIGHT)
        self.settings = Settings(
            state_dir=str(folder / "state"), ssh_key=str(self.live.client_key), vendor_path=(str(folder / "vendor"),)
        )
        self.log = self.live.shared / "effects"

    def playbook(self, key: str = "") -> AnsiblePlaybook:
        return AnsiblePlaybook(self.settings, lambda: {"live-1": key or self.live.host_key}, cpus=1)

    def run(self, phase: str, step: str = "r.f0.1", fence: int = 1, **more: object) -> Played:
        arguments = {"log": str(self.log), **more}
        artifacts = arguments.pop("artifacts", ())
        play = Play(
            "acme", phase, "r", step, fence, arguments=arguments,  # type: ignore[arg-type]
            artifacts=artifacts,  # type: ignore[arg-type]
            now={"live-1": {"kernel": "6.1.0-9"}}, limit_s=60,
        )  # fmt: skip
        return self.playbook().run(play, [self.live.node])["live-1"]

    def words(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if MISSING:
        pytest.skip(MISSING)
    world = World(tmp_path_factory.mktemp("world"))
    yield world
    world.live.stop()


@pytest.fixture
def world(shared: World) -> World:
    shared.log.unlink(missing_ok=True)
    return shared


def test_a_step_runs_once_however_often_it_is_started(world: World) -> None:
    first = world.run("install", step="once")
    again = world.run("install", step="once", fence=2)
    assert first.ok and again.ok, (first.message, again.message)
    assert world.words() == ["begun", "ended"]
    assert "said" in first.transcript
    assert list((Path(world.settings.state_dir) / "playbook").iterdir()) == []


def test_exit_statuses_are_judged_by_the_role_and_fences_by_the_node(world: World) -> None:
    assert world.run("install", step="two", fence=5, rc=2).ok
    failed = world.run("install", step="three", fence=5, rc=3)
    assert (failed.ok, failed.slug, failed.lost) == (False, "command-failed", False)
    stale = world.run("install", step="four", fence=4)
    assert (stale.ok, stale.slug) == (False, "fenced")
    assert world.words().count("begun") == 2


def test_a_refusal_of_a_role_keeps_its_name(world: World) -> None:
    played = world.run("preflight")
    assert (played.slug, played.message) == ("headers-missing", "no kernel headers for 6.1.0-9")


def test_packages_are_staged_whole_or_refused(world: World) -> None:
    content = b"a package"
    file = world.live.shared / "store-file"
    file.write_bytes(content)
    good = Staged("acme-1.run", str(file), hashlib.sha256(content).hexdigest(), len(content))
    assert world.run("stage", artifacts=(good,)).ok
    bad = Staged("acme-1.run", str(file), "0" * 64, len(content))
    assert world.run("stage", artifacts=(bad,)).slug == "bad-sha256"
    huge = Staged("acme-2.run", str(file), good.sha256, 10**15)
    assert world.run("stage", artifacts=(huge,)).slug == "disk-full"


def test_a_wrong_or_missing_host_key_is_named_and_nothing_runs(world: World) -> None:
    other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ5Vg0000000000000000000000000000000000000000000"
    play = Play("acme", "install", "r", "keys", 1, arguments={"log": str(world.log)})
    wrong = world.playbook(other).run(play, [world.live.node])["live-1"]
    assert not wrong.ok and wrong.slug in ("unknown-key", "unreachable")
    none = AnsiblePlaybook(world.settings, dict).run(play, [world.live.node])["live-1"]
    assert none.slug == "unknown-key" and "fleet node trust live-1" in none.message
    assert world.words() == []


def test_a_killed_controller_leaves_no_playbook_and_the_next_one_attaches(world: World, tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        from pathlib import Path
        from fleet.config import Settings
        from fleet.core.model import Node
        from fleet.playbook import AnsiblePlaybook, Play
        settings = Settings(state_dir={str(tmp_path)!r}, ssh_key={world.settings.ssh_key!r},
                            vendor_path={world.settings.vendor_path!r})
        play = Play("acme", "install", "r", "long", 9, arguments={{"log": {str(world.log)!r}, "sleep": 6}})
        node = Node("live-1", {world.live.node.address!r}, {world.live.node.port}, "root")
        AnsiblePlaybook(settings, lambda: {{"live-1": {world.live.host_key!r}}}).run(play, [node])
        """
    )
    root = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-c", program], cwd=root, start_new_session=True)
    deadline = time.monotonic() + 60
    while "begun" not in world.words():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    again = world.run("install", step="long", fence=10, sleep=6)
    assert again.ok, again.message
    assert world.words() == ["begun", "ended"]
    assert not [
        pid
        for pid in Path("/proc").glob("[0-9]*")
        if str(tmp_path).encode() in _cmdline(pid) and b"ansible-playbook" in _cmdline(pid)
    ]


def _cmdline(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""
