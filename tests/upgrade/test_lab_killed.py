"""On lab nodes: `fleet upgrade` killed at five different steps and run again. Every node right, no effect doubled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import fleet.lab
from fleet.inventory import open_inventory
from fleet.inventory.rollouts import Rollouts

pytestmark = pytest.mark.lab
COMMAND = [sys.executable, "-m", "fleet.cli.main"]
NODES = ("as-b", "br-a")
STEPS = ("stage", "firmware", "install", "reboot", "verify")
ONCE = ("flash", "install", "remove", "dkms")  # what must not happen twice; a boot is counted by itself


class LabSite:
    """Two nodes of the default lab, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        spec = yaml.safe_load((Path(fleet.lab.__file__).parent / "specs/default.yaml").read_text())
        spec["network"] = "127.91.7"
        spec["nodes"] = {name: spec["nodes"][name] for name in NODES}
        (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
        self.lab = ["--dir", str(folder / "lab")]
        self.run("lab", "up", "--nodes", str(folder / "spec.yaml"), *self.lab)
        self.env = {"FLEET_CONFIG": str(folder / "lab/fleet.toml")}
        self.run("node", "import", str(folder / "lab/nodes.yaml"), "-y")
        self.run("probe")
        self.run("artifact", "add", str(folder / "lab/packages"))

    env: dict[str, str] = {}  # noqa: RUF012  # until the lab has written its settings

    def run(self, *args: str, ok: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(
            [*COMMAND, *args], env={**os.environ, **self.env}, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode in ok, f"{args}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def start(self) -> subprocess.Popen[bytes]:
        argv = [*COMMAND, "upgrade", ",".join(NODES), "--max-unavailable", "100%", "-y"]
        with (self.folder / "upgrade.log").open("ab") as log:
            return subprocess.Popen(
                argv, env={**os.environ, **self.env}, stdout=log, stderr=log, start_new_session=True
            )

    def store(self) -> Rollouts:
        return Rollouts(open_inventory(f"sqlite:///{self.folder / 'lab/fleet/inventory.db'}").database)

    def effects(self, node: str) -> list[dict[str, Any]]:
        said = self.run("lab", "ssh", *self.lab, node, "--", "cat /var/log/fleet-lab/effects.jsonl")
        return [json.loads(line) for line in said.splitlines()]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LabSite]:
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    site = LabSite(tmp_path)
    yield site
    site.run("lab", "down", *site.lab)


def test_killed_at_five_steps(lab: LabSite) -> None:
    before = {name: len(lab.effects(name)) for name in NODES}
    store = lab.store()
    for step in STEPS:
        process = lab.start()
        deadline = time.monotonic() + 400
        while not any(
            attempt.phase == step and attempt.state == "intent"
            for row in store.rollouts()
            for attempt in store.attempts(row.id)
        ):
            assert process.poll() is None and time.monotonic() < deadline, (lab.folder / "upgrade.log").read_text()
            time.sleep(0.2)
        time.sleep(1.5)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    final = lab.start()
    assert final.wait(timeout=600) == 0, (lab.folder / "upgrade.log").read_text()
    (row,) = store.rollouts()
    assert row.state == "done" and {s.task.state for s in store.tasks(row.id).values()} == {"done"}
    plan = store.plan(row.plan)
    lab.run("probe")
    for group in plan.groups:
        for name in group.nodes:
            current = open_inventory(store.database.shown).facts([name])[name].current()
            assert {c: current.get(c) for c in group.target} == dict(group.target), name
            made = lab.effects(name)[before[name] :]
            seen = Counter(
                (e["kind"], e.get("component", e.get("module")), e.get("version"), e.get("card"))
                for e in made
                if e["kind"] in ONCE
            )
            assert seen and max(seen.values()) == 1, seen
            assert [e["kind"] for e in made].count("boot") == 1, made
    lab.run("evidence", "verify")
    lab.run("validate", *NODES)
