"""The main job with its inventory on PostgreSQL: the command is killed, and a controller carries its rollout on."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.lab.rehearsal import Rehearsal, default_spec, rehearsal
from tests.postgresql import Server

pytestmark = [
    pytest.mark.lab,
    pytest.mark.postgresql,
    pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root"),
]
NODES = ("br-a", "nv-b")
ALL = ("@all", "--strategy", "newest")


def carried_on(site: Rehearsal, rollout: str, limit_s: float = 600) -> None:
    """Have a controller of another name end the rollout, and stop it as a service manager does."""
    controller = site.begin("controller", "run", "--name", "c2")
    end = time.monotonic() + limit_s
    with site.store() as store:
        while not store.rollout(rollout).finished:
            assert controller.process.poll() is None, str(controller.ran())
            assert time.monotonic() < end, controller.err.read_text()
            time.sleep(0.2)
    controller.process.send_signal(signal.SIGTERM)
    ran = controller.ran()
    assert ran.rc == 0, str(ran)


def test_two_nodes_are_upgraded_though_the_command_dies(
    tmp_path_factory: pytest.TempPathFactory, postgresql_server: Server
) -> None:
    url = postgresql_server.url(postgresql_server.make())
    with rehearsal(tmp_path_factory.mktemp("postgresql"), default_spec("127.112.1", NODES), database=url) as site:
        before, wanted = site.current(*NODES), site.wanted(*ALL)
        assert set(wanted) == set(NODES)
        begun = site.begin("upgrade", *ALL, "--max-unavailable", "100%", "-y")
        first = site.await_phase(begun, "nv-b", "install", lambda: bool(site.runs_on("nv-b")))
        begun.kill()
        row, stored = site.rollout("nv-b")
        assert not row.finished and not stored.task.ended
        carried_on(site, row.id)

        row, stored = site.rollout("nv-b")
        with site.store() as store:
            assert {name: one.task.state for name, one in store.tasks(row.id).items()} == dict.fromkeys(NODES, "done")
            assert max(attempt.fence for attempt in store.attempts(row.id, "nv-b")) > first.fence
            assert store.claims() == {}
        after = site.current(*NODES)
        for name, moves in wanted.items():
            assert {c: after[name].get(c) for c in moves} == {c: new for c, (_, new) in moves.items()}
            assert after[name] != before[name]
            assert set(site.effects(name).values()) == {1}, site.effects(name)
            assert site.lab.state(name).read()["boots"] == 2  # the lab's own start, and one reboot
            assert site.runs_on(name) == []
        site.evidence_is_whole(row.id)
        assert "nothing to do" in site.fleet("upgrade", *ALL, "-y").err
        assert not (site.lab.folder / "fleet/inventory.db").exists()  # nothing of it was on a file
