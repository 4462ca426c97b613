"""What a phase costs on the controller, by fleet and by `ansible-playbook` called directly, on the same lab nodes.

`pytest -m bench -s tests/bench/bench_real_path.py` prints CPU seconds a node, the peak memory of the whole process tree
(PSS: memory shared by forks counts once), the largest number of processes, and the files that a run leaves on disk.
Three ways run by turns: through `fleet.playbook.AnsiblePlaybook`; `ansible-playbook --forks N` with the same role, the
same extra variables and the same ssh settings; and the same with Ansible's own defaults (no pipelining). The CPU of the
nodes themselves, which are processes of the same machine here, is in none of them.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

import playbooks
from fleet.config import Settings, load
from fleet.inventory import open_inventory
from fleet.playbook import _SSH_ARGS, AnsiblePlaybook, Play
from tests.lab.rehearsal import Rehearsal, default_spec, rehearsal

pytestmark = [pytest.mark.bench, pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root")]
ROOT = Path(__file__).parents[2]
NODES = int(os.environ.get("BENCH_LAB_NODES", "8"))
ROUNDS = 3
PHASES = ("preflight", "stage")
HOME = Path(playbooks.__file__).resolve().parent


@dataclass(frozen=True)
class Cost:
    """One run. `cpu` in seconds, with all children; `peak` in MiB; `own` is the controller's part of it."""

    cpu: float
    own: float
    wall: float
    peak: float
    processes: int
    files: int


class Meter:
    """Looks at a process and its descendants ten times a second: memory and number at their highest."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.peak = 0.0
        self.processes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            tree = self._tree()
            kib = sum(self._pss(pid) for pid in tree)
            self.peak, self.processes = max(self.peak, kib / 1024), max(self.processes, len(tree))

    def _tree(self) -> set[int]:
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text(errors="replace")
            except OSError:
                continue
            parents[int(fields.split()[0])] = int(fields.rpartition(")")[2].split()[1])
        found, more = {self.pid}, True
        while more:
            fresh = {pid for pid, parent in parents.items() if parent in found} - found
            found, more = found | fresh, bool(fresh)
        return found

    @staticmethod
    def _pss(pid: int) -> int:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def play(phase: str, number: str) -> Play:
    """What both ways are asked to do."""
    return Play("nvidia", phase, "r-bench", f"r-bench.f0.{number}", 1, arguments={"kind": "deb", "free_mib": 100})


def by_fleet(config: str, phase: str, number: str) -> dict[str, Any]:
    """One run through fleet, in this process, which has everything imported as a controller has."""
    import ansible_runner  # noqa: F401

    settings = load(env={**os.environ, "FLEET_CONFIG": config})
    inventory = open_inventory(settings.database)
    keys, nodes = inventory.host_keys(), inventory.nodes()
    runner = AnsiblePlaybook(settings, lambda: keys)
    began, wall = used(), time.monotonic()
    played = runner.run(play(phase, number), nodes)
    after = used()
    assert all(one.ok for one in played.values()), {name: one.message for name, one in played.items() if not one.ok}
    inventory.close()
    return {"cpu": sum(after) - sum(began), "own": after[0] - began[0], "wall": time.monotonic() - wall}


def used() -> tuple[float, float]:
    """CPU seconds of this process, and of the children it has waited for."""
    found = []
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        spent = resource.getrusage(who)
        found.append(spent.ru_utime + spent.ru_stime)
    return found[0], found[1]


def left(*folders: Path) -> int:
    """Files that lie in those folders."""
    return sum(sum(file.is_file() for file in folder.rglob("*")) for folder in folders if folder.exists())


def fleet_run(site: Rehearsal, settings: Settings, phase: str, number: str) -> Cost:
    """The same in a process of its own, watched."""
    argv = [sys.executable, "-m", "tests.bench.bench_real_path", str(site.lab.folder / "fleet.toml"), phase, number]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    meter = Meter(process.pid)
    out, err = process.communicate(timeout=600)
    meter.end()
    assert process.returncode == 0, err[-3000:]
    found = json.loads(out.splitlines()[-1])
    sockets = Path(tempfile.gettempdir()).glob(f"fleet-cp-{process.pid}-*")
    files = left(Path(settings.state_dir) / "playbook", *sockets)
    return Cost(found["cpu"], found["own"], found["wall"], meter.peak, meter.processes, files)


def direct_run(folder: Path, settings: Settings, phase: str, number: str, env: Mapping[str, str]) -> Cost:
    """`ansible-playbook` on an inventory of its own."""
    inventory = open_inventory(settings.database)
    keys, nodes = inventory.host_keys(), inventory.nodes()
    inventory.close()
    folder.mkdir()
    known = folder / "known_hosts"
    known.write_text("".join(f"{name} {key}\n" for name, key in keys.items()))
    hosts = {
        node.name: {
            "ansible_host": node.address, "ansible_port": node.port, "ansible_user": node.user or settings.ssh_user,
            "ansible_ssh_private_key_file": settings.ssh_key, "ansible_python_interpreter": "auto_silent",
            "ansible_ssh_common_args": f"-F /dev/null -o UserKnownHostsFile={known} -o HostKeyAlias={node.name}"
                                       " -o StrictHostKeyChecking=yes -o BatchMode=yes -o IdentitiesOnly=yes",
            "fleet_now": {},
        }
        for node in nodes
    }  # fmt: skip
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    wanted = play(phase, number)
    extra = {
        "fleet_vendor": wanted.vendor, "fleet_phase": phase, "fleet_rollout": wanted.rollout,
        "fleet_step": wanted.step, "fleet_fence": wanted.fence, "fleet_effect": wanted.effect,
        "fleet_limit": wanted.limit_s, "fleet_changes": [], "fleet_artifacts": [],
        "fleet_arguments": dict(wanted.arguments),
    }  # fmt: skip
    (folder / "extra.json").write_text(json.dumps(extra))
    (folder / "ansible.cfg").touch()
    before = left(folder)
    argv = [
        str(Path(sys.executable).parent / "ansible-playbook"), "--forks", str(len(nodes)), "-i",
        str(folder / "hosts.json"), "-e", f"@{folder / 'extra.json'}", str(HOME / "phase.yml"),
    ]  # fmt: skip
    whole = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "ANSIBLE_ROLES_PATH": str(HOME / "roles"), **env,
    }  # fmt: skip
    began = time.monotonic()
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(argv, cwd=folder, env=whole, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
        meter = Meter(process.pid)
        _, status, spent = os.wait4(process.pid, 0)
    wall = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    meter.end()
    assert process.returncode == 0, (folder / "said").read_text()[-3000:]
    files = left(folder) - before - 1
    return Cost(spent.ru_utime + spent.ru_stime, 0.0, wall, meter.peak, meter.processes, files)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    """Equal nodes, known and trusted."""
    spec = default_spec("127.113.6", ("nv-a",))
    spec["nodes"] = {f"b{number}": {**spec["nodes"]["nv-a"]} for number in range(1, NODES + 1)}
    with rehearsal(tmp_path_factory.mktemp("path"), spec) as one:
        yield one


def test_a_phase_by_fleet_and_by_ansible_alone(site: Rehearsal, tmp_path: Path) -> None:
    settings = load(env={**os.environ, "FLEET_CONFIG": str(site.lab.folder / "fleet.toml")})
    same = {"ANSIBLE_PIPELINING": "True", "ANSIBLE_SSH_ARGS": _SSH_ARGS, "ANSIBLE_GATHERING": "explicit"}
    print(f"\n{NODES} nodes of a lab     {'CPU s/node':>11}{'own':>7}{'wall s':>8}{'peak MiB':>10}{'processes':>11}"
          f"{'files left':>12}")  # fmt: skip
    serial = 0
    for phase in PHASES:
        costs: dict[str, list[Cost]] = {"fleet": [], "ansible-playbook": [], "its defaults": []}
        for _ in range(ROUNDS):
            for way, found in costs.items():
                serial += 1
                if way == "fleet":
                    found.append(fleet_run(site, settings, phase, str(serial)))
                else:
                    env = same if way == "ansible-playbook" else {}
                    found.append(direct_run(tmp_path / str(serial), settings, phase, str(serial), env))
        middle = {way: {key: statistics.median(asdict(one)[key] for one in found) for key in asdict(found[0])}
                  for way, found in costs.items()}  # fmt: skip
        for way, one in middle.items():
            print(f"{phase:10}{way:17}{one['cpu'] / NODES:8.3f}{one['own'] / NODES:7.3f}{one['wall']:8.1f}"
                  f"{one['peak']:10.0f}{one['processes']:11.0f}{one['files']:12.0f}")  # fmt: skip
        ratio = middle["fleet"]["cpu"] / middle["ansible-playbook"]["cpu"]
        other = middle["fleet"]["cpu"] / middle["its defaults"]["cpu"]
        print(f"{phase:10}fleet / ansible-playbook: {ratio:.2f}; / with its defaults: {other:.2f}")
        assert all(one.files == 0 for one in costs["fleet"])
        assert ratio < 2.0


if __name__ == "__main__":
    print(json.dumps(by_fleet(*sys.argv[1:])))
