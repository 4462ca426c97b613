"""A real Slurm on loopback for tests: one slurmctld and eight slurmd with fake GPUs, each in a folder of its own.

What a killed test run left of one is cleaned up by the next: each process is recorded with its start time.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.postgresql import started

PREFIX = "fleet-test-slurm-"
LIMIT_S = 60
PROGRAMS = ("slurmctld", "slurmd", "scontrol", "sinfo", "squeue", "sbatch", "scancel")
NODES = tuple(f"n{number:02}" for number in range(1, 9))
# No munge, no cgroups: nothing outside the folder is used. A rebooted node stays down until it is resumed.
_CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=0
SlurmdTimeout=300
KillWait=2
MessageTimeout=3
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
RebootProgram={folder}/reboot
NodeName={nodes} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports} CPUs=2 RealMemory=100 Gres=gpu:8
PartitionName=main Nodes={nodes} Default=YES State=UP
"""


class Cluster:
    """The daemons. `command` runs a Slurm client program against them; `environment` makes any program do so."""

    def __init__(self, folder: Path) -> None:
        missing = [name for name in PROGRAMS if program(name) is None]
        if missing:
            raise FileNotFoundError(f"{', '.join(missing)}: not installed, run scripts/setup as root")
        if os.geteuid() != 0:
            raise PermissionError("slurmd keeps jobs of several users apart and needs root")
        self.folder = folder
        self.config = folder / "slurm.conf"
        self.environment = {"SLURM_CONF": str(self.config)}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.port, *self.ports = _free_ports(1 + len(NODES))

    def start(self) -> None:
        """Write the configuration, start every daemon and wait until all nodes are idle."""
        (self.folder / "dev").mkdir()
        (self.folder / "state").mkdir()
        (self.folder / "spool").mkdir()
        for number in range(8):
            (self.folder / "dev" / f"gpu{number}").touch()
        reboot = self.folder / "reboot"
        reboot.write_text(f'#!/bin/sh\necho "$SLURM_NODE_NAME $*" >>{self.folder}/rebooted\n')
        reboot.chmod(0o755)
        text = _CONFIG.format(
            folder=self.folder, port=self.port, host=socket.gethostname().partition(".")[0], nodes=",".join(NODES),
            ports=",".join(map(str, self.ports)),
        )  # fmt: skip
        self.config.write_text(text)
        self.write_gpus({})
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        self.until(lambda: set(self.states("").values()) == {"idle"}, "all nodes idle")

    def write_gpus(self, counts: Mapping[str, int]) -> None:
        """How many cards each node finds when its slurmd starts; 8 where nothing is said."""
        rows = [f"NodeName={n} Name=gpu File={self.folder}/dev/gpu[0-{counts.get(n, 8) - 1}]\n" for n in NODES]
        (self.folder / "gres.conf").write_text("".join(rows))

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        self._spawn("slurmctld", "slurmctld", "-D", "-f", str(self.config))
        self.until(lambda: self.command("scontrol", "ping").returncode == 0, "slurmctld answers")

    def start_node(self, node: str, *, rebooted: bool = False) -> None:
        """Start a slurmd; `rebooted` = the machine has just started."""
        (self.folder / "spool" / node).mkdir(exist_ok=True)
        extra = ["-b"] if rebooted else []
        self._spawn(node, "slurmd", "-D", "-N", node, "-f", str(self.config), *extra)

    def reboot(self, node: str, true: Callable[[], bool], what: str) -> None:
        """What a reboot of the machine looks like, until Slurm has noticed it."""
        self.kill(node)
        time.sleep(2)  # Slurm compares whole seconds
        self.start_node(node, rebooted=True)
        self.until(true, what)
        self.kill(node)  # with -b it would say at each registration that it has just booted
        self.start_node(node)

    @contextlib.contextmanager
    def impatient(self, seconds: int) -> Iterator[None]:
        """Slurm holds a node for dead after so many seconds without an answer."""
        text = self.config.read_text()
        self.config.write_text(text.replace("SlurmdTimeout=300", f"SlurmdTimeout={seconds}"))
        self.must("scontrol", "reconfigure")
        try:
            yield
        finally:
            self.config.write_text(text)
            self.must("scontrol", "reconfigure")

    def kill(self, name: str) -> None:
        """What a crash of that daemon looks like."""
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def command(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a client program."""
        path = program(name)
        assert path is not None
        return subprocess.run(
            [path, *words], env={**os.environ, **self.environment}, capture_output=True, text=True, timeout=LIMIT_S,
            check=False, cwd=self.folder,
        )  # fmt: skip

    def must(self, name: str, *words: str) -> str:
        """Run a client program that must succeed; what it printed."""
        done = self.command(name, *words)
        assert done.returncode == 0, f"{name} {' '.join(words)}: {done.stderr}"
        return done.stdout.strip()

    def states(self, strip: str = "*") -> dict[str, str]:
        """What sinfo calls the state of each node, without the `*` that a resumed node has until the next ping."""
        rows = self.must("sinfo", "-h", "-N", "-o", "%N %T").splitlines()
        return {row.split()[0]: row.split()[1].rstrip(strip) for row in rows}

    def full_state(self, node: str) -> str:
        """As scontrol writes it: `DOWN+DRAIN`, which sinfo calls drained."""
        found = re.search(r" State=(\S+)", self.must("scontrol", "show", "node", node))
        assert found is not None
        return found[1]

    def reason(self, node: str) -> str:
        """The reason text as Slurm keeps it, without who and when."""
        found = re.search(r"^ +Reason=(.*?)(?: \[\S+\])?$", self.must("scontrol", "show", "node", node), re.MULTILINE)
        return found[1] if found else ""

    def job(self, *nodes: str, seconds: float = 300) -> str:
        """Submit a job on exactly these nodes and wait until it runs; its id."""
        number = self.must(
            "sbatch", "--parsable", f"--nodelist={','.join(nodes)}", f"--nodes={len(nodes)}", "--gres=gpu:1",
            "--output=/dev/null", f"--chdir={self.folder}", f"--wrap=exec sleep {seconds}",
        )  # fmt: skip
        self.until(lambda: self.must("squeue", "-h", "-j", number, "-o", "%T") == "RUNNING", f"job {number} runs")
        return number

    def cancel(self, number: str) -> None:
        """End a job and wait until it is gone."""
        self.must("scancel", number)
        self.until(lambda: not self.command("squeue", "-h", "-j", number).stdout.strip(), f"job {number} is gone")

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait for something, at most LIMIT_S."""
        end = time.monotonic() + LIMIT_S
        while not true():
            dead = [name for name, process in self.running.items() if process.poll() is not None]
            if dead or time.monotonic() > end:
                states = self.command("sinfo", "-h", "-N", "-o", "%N %T %E").stdout
                raise AssertionError(f"not so: {what}; ended: {dead}; {states}; {self._log()}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End all of it."""
        if "slurmctld" in self.running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.command("scancel", "--full", "--user=root")
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.running.clear()
        end_rest(self.folder)

    def _spawn(self, name: str, binary: str, *words: str) -> None:
        path = program(binary)
        assert path is not None
        with (self.folder / f"{name}.out").open("ab") as out:
            self.running[name] = subprocess.Popen(
                [path, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.folder,
                start_new_session=True, env={**os.environ, **self.environment},
            )  # fmt: skip
        pid = self.running[name].pid
        with (self.folder / "processes").open("a") as record:
            record.write(f"{pid} {started(pid)}\n")

    def _log(self) -> str:
        log = self.folder / "slurmctld.log"
        return log.read_text(errors="replace")[-1500:] if log.is_file() else ""


def program(name: str) -> str | None:
    """The path of a Slurm program; daemons are in /usr/sbin, which may be off the PATH."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")


def new_folder() -> Path:
    """A folder for a cluster, marked as belonging to this process. Slurm's users must be able to enter it."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    folder.chmod(0o755)
    (folder / "owner.json").write_text(json.dumps({"pid": os.getpid(), "start": started(os.getpid())}))
    return folder


def sweep() -> list[Path]:
    """End the clusters of test runs that are gone, and remove their folders; which those were."""
    gone = []
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            owner = json.loads((folder / "owner.json").read_text())
        except (OSError, ValueError):
            continue  # being made this moment
        if started(owner["pid"]) != owner["start"]:
            end_rest(folder)
            shutil.rmtree(folder, ignore_errors=True)
            gone.append(folder)
    return gone


def end_rest(folder: Path) -> None:
    """Kill the recorded daemons of a folder that still run, and the job steps that they left behind."""
    with contextlib.suppress(OSError):
        for row in (folder / "processes").read_text().splitlines():
            pid, _, start = row.partition(" ")
            if start and started(int(pid)) == start:
                _kill([int(pid)])
    _kill(left_behind(folder))


def left_behind(folder: Path) -> Sequence[int]:
    """Processes that work in that folder: job steps and jobs."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            cwd = str((entry / "cwd").readlink())
            environment = (entry / "environ").read_bytes().split(b"\0")
            ours = f"SLURM_CONF={folder}/slurm.conf".encode() in environment
            if (cwd.startswith(f"{folder}/") or ours or cwd == str(folder)) and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 10
    while any(started(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    """Ports below the range from which the kernel takes those of outgoing connections: the daemons make many."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found: list[int] = []
    for port in random.Random(os.urandom(8)).sample(range(max(1024, first - 12_000), first), 400):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"not {count} ports are free")
