"""`fleet upgrade` with a living controller: the rollout is handed over, followed, and ends as if done by itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from fleet.core import planfile
from fleet.inventory import open_inventory
from fleet.inventory.rollouts import Rollouts
from tests.upgrade.person import Person

ROOT = Path(__file__).parents[2]
LIMIT_S = 180.0  # of anything that takes seconds: on a busy machine it takes many more


class Service:
    """`fleet controller run` on a person's fleet, as a process of its own."""

    def __init__(self, person: Person, *more: str) -> None:
        env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("FLEET_")}, **person.env,
            "FLEET_STATE_DIR": str(person.fleet.state), "XDG_CONFIG_HOME": str(person.folder / "config"),
        }  # fmt: skip
        argv = [sys.executable, "-m", "fleet.cli.main", "controller", "run", "--name", "c1", *more]
        self.process = subprocess.Popen(argv, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + LIMIT_S
        while person("controller", "list", "-o", "name") != "c1\n":
            assert time.monotonic() < end, "it never sat down"
            assert self.process.poll() is None, self.process.communicate()[1]
            time.sleep(0.2)

    def end(self) -> str:
        """Stop it as systemd does; what it said."""
        self.process.send_signal(signal.SIGTERM)
        _, err = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == 0, err
        return err


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


@pytest.fixture
def services() -> Iterator[list[Service]]:
    made: list[Service] = []
    yield made
    for service in made:
        service.process.kill()
        service.process.communicate()


@pytest.mark.parametrize("engine", ["leases", "dbos"])
def test_an_upgrade_is_handed_over_and_followed(person: Person, services: list[Service], engine: str) -> None:
    person.packages()
    services.append(Service(person, "--engine", engine))
    body = json.loads(person("controller", "list", "-o", "json"))
    jsonschema.validate(body, json.loads((ROOT / "docs/schema/ControllerList.json").read_text()))
    assert "c1" in person("controller", "list")
    row = person.document("Rollout", "upgrade", "br1", "-y", code=6)
    assert "controller c1 carries out rollout" in person.err and "br1 failed: silent" in person.err
    assert (row["state"], row["nodes"][0]["state"]) == ("failed", "failed")
    said = services[0].end()
    assert f"rollout {row['id']} is taken up" in said and "silent" in said
    assert person("controller", "list", "-o", "name") == ""
    person("upgrade", "br2", "-y", code=6)  # without a controller the command does it itself
    assert "carries out rollout" not in person.err


def test_resume_and_abort_are_left_to_the_controller_too(person: Person, services: list[Service]) -> None:
    person.packages()
    inventory = open_inventory(person.fleet.url)
    store = Rollouts(inventory.database)
    for rollout, node in (("r-1", "br1"), ("r-2", "br2")):
        raw = json.loads(person("plan", node, "-o", "json"))
        made = planfile.load({key: value for key, value in raw.items() if key != "apiVersion"}, "plan")
        store.create(rollout, made, "", (), "tester", "2031-05-01T08:00:00Z")
        store.request(rollout, "pause")
    services.append(Service(person))
    # A rollout is paused a moment before its lease is given back, and until then it belongs to the controller.
    end = time.monotonic() + LIMIT_S
    while {row.state for row in store.rollouts()} != {"paused"} or any(
        store.leases()[rollout].owner for rollout in ("r-1", "r-2")
    ):
        assert time.monotonic() < end
        time.sleep(0.1)
    person("rollout", "resume", "r-1", code=6)
    assert "controller c1 carries out rollout r-1" in person.err and "br1 failed: silent" in person.err
    person("rollout", "abort", "r-2", "-y", code=1)
    assert "controller c1 carries out rollout r-2" in person.err and store.rollout("r-2").state == "aborted"
    services[0].end()
    inventory.close()


def test_a_controller_of_another_protocol_takes_nothing(person: Person) -> None:
    person.packages()
    inventory = open_inventory(person.fleet.url)
    store = Rollouts(inventory.database)
    store.acquire("controller:old", "elsewhere:1:1:seat0:protocol=0", 600.0, time.time(), lambda _: False)
    store.heartbeat("controller:old", "0.9", time.time())
    person("upgrade", "br1", "-y", code=1)
    assert "controller-protocol" in person.err and "0.9 with protocol 0" in person.err
    assert store.rollouts() == []
    inventory.close()
