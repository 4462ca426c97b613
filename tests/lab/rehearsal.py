"""A lab with the `fleet` command on it, for tests that go through the product as a person does.

A rehearsal owns the addresses of its network: it first takes down what a killed test run left there (a note in the
cache folder of labs names it). Commands die with the process that runs the tests.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from fleet.core.nodeset import fold
from fleet.inventory import open_inventory
from fleet.inventory.rollouts import Attempt, Rollout, Rollouts, Stored
from fleet.lab.base import cache_dir
from fleet.lab.lab import Lab
from fleet.lab.spec import DEFAULT
from fleet.process import start_of

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "docs/schema"
CHANGES = ("install", "remove", "flash")  # effects that must not happen twice
TOUCHES = (*CHANGES, "dkms", "unload", "load", "boot")  # effects that no preflight may have
LIMIT_S = 900.0


def default_spec(network: str, names: Collection[str]) -> dict[str, Any]:
    """The lab of the demo with these of its nodes only, on a network of its own."""
    spec: dict[str, Any] = yaml.safe_load(DEFAULT.read_text())
    spec["network"] = network
    spec["nodes"] = {name: node for name, node in spec["nodes"].items() if name in names}
    used = {node["class"] for node in spec["nodes"].values()}
    spec["classes"] = {name: one for name, one in spec["classes"].items() if name in used}
    return spec


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    words: tuple[str, ...]
    rc: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"fleet {' '.join(self.words)} ended with {self.rc}\n{self.out}\n{self.err}"


@dataclass
class Begun:
    """A command under way, in a process group of its own; what it says goes into files."""

    words: tuple[str, ...]
    process: subprocess.Popen[bytes]
    out: Path
    err: Path
    limit_s: float = LIMIT_S

    def ran(self) -> Ran:
        """Wait for its end."""
        rc = self.process.wait(self.limit_s)
        return Ran(self.words, rc, self.out.read_text(), self.err.read_text())

    def kill(self) -> None:
        """SIGKILL to this one process, not to its children."""
        self.process.kill()
        self.process.wait()

    def interrupt(self) -> None:
        """What Ctrl-C at a terminal does: SIGINT to the whole group."""
        os.killpg(self.process.pid, signal.SIGINT)


@dataclass
class Rehearsal:
    """A lab in `folder`, its own inventory, artifacts and evidence.

    `database` is its URL where it is not the lab's own SQLite file; `settings` are more of the variables that each
    command gets; `limit_s` is how long one may take.
    """

    lab: Lab
    folder: Path
    said: list[str]
    vendor_path: tuple[str, ...] = ()
    database: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    limit_s: float = LIMIT_S
    counter: int = 0
    children: list[Begun] = field(default_factory=list)

    # --- the command ----------------------------------------------------------------------------------------------

    def begin(self, *words: str, env: Mapping[str, str] | None = None) -> Begun:
        """Start a command and leave it running."""
        self.counter += 1
        out, err = (self.folder / f"said/{self.counter:03}.{kind}" for kind in ("out", "err"))
        out.parent.mkdir(exist_ok=True)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("FLEET_", "ANSIBLE_")) or "LAB" in k}
        settings = {"FLEET_CONFIG": str(self.lab.folder / "fleet.toml"), "FLEET_OPERATOR": "tester", **self.settings}
        settings |= {"FLEET_DB": self.database} if self.database else {}
        settings |= env or {}
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "fleet.cli.main", *words], cwd=ROOT, env={**kept, **settings},
                stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True,
                preexec_fn=_die_with_parent,
            )  # fmt: skip
        begun = Begun(words, process, out, err, self.limit_s)
        self.children.append(begun)
        return begun

    def fleet(self, *words: str, ok: Collection[int] | None = (0,), env: Mapping[str, str] | None = None) -> Ran:
        """Run a command to its end; AssertionError with all it said when its status is not in `ok`."""
        ran = self.begin(*words, env=env).ran()
        assert ok is None or ran.rc in ok, str(ran)
        return ran

    def document(
        self, *words: str, kind: str, ok: Collection[int] = (0,), env: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The JSON document that a command prints, held against its kind and the schema promised for it."""
        ran = self.fleet(*words, "-o", "json", ok=ok, env=env)
        answer: dict[str, Any] = json.loads(ran.out)
        assert (answer["apiVersion"], answer["kind"]) == ("fleet/v1", kind), str(ran)
        schema = SCHEMAS / f"{kind}.json"
        if schema.is_file():
            jsonschema.validate(answer, json.loads(schema.read_text()))
        return answer

    def probe(self, *names: str) -> dict[str, dict[str, dict[str, str | None]]]:
        """A fresh look: node -> component -> installed, loaded, runtime."""
        report = self.document("probe", fold(names), kind="ProbeReport")
        assert {row["name"]: row["outcome"] for row in report["nodes"]} == dict.fromkeys(names, "answered"), report
        return {row["name"]: row["facts"]["components"] for row in report["nodes"]}

    def current(self, *names: str) -> dict[str, dict[str, str]]:
        """What a fresh look finds in force: node -> component -> loaded, else installed."""
        out = {}
        for name, components in self.probe(*names).items():
            values = {c: fact["loaded"] or fact["installed"] for c, fact in components.items()}
            out[name] = {c: value for c, value in values.items() if value}
        return out

    def wanted(self, *words: str) -> dict[str, dict[str, tuple[str | None, str | None]]]:
        """What a plan changes: node -> component -> (from, to)."""
        plan = self.document("plan", *words, kind="Plan")
        out: dict[str, dict[str, tuple[str | None, str | None]]] = {}
        for group in plan["groups"]:
            moves: dict[str, tuple[str | None, str | None]] = {}
            for change in (
                c for stage in group["stages"] for s in stage if s["phase"] == "verify" for c in s["changes"]
            ):
                moves[change["component"]] = (moves.get(change["component"], (change["old"],))[0], change["new"])
            out.update({name: moves for name in group["nodes"] if moves})
        return out

    # --- what is stored -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def store(self) -> Iterator[Rollouts]:
        """The rollouts of the lab's database."""
        inventory = open_inventory(self.database or f"sqlite:///{self.lab.folder / 'fleet/inventory.db'}")
        try:
            yield Rollouts(inventory.database)
        finally:
            inventory.close()

    def rollout(self, name: str) -> tuple[Rollout, Stored]:
        """The newest rollout with that node, and where the node stands in it."""
        with self.store() as store:
            for row in store.rollouts():
                tasks = store.tasks(row.id)
                if name in tasks:
                    return row, tasks[name]
        raise AssertionError(f"no rollout has {name}")

    def await_phase(
        self, begun: Begun, name: str, phase: str, also: Callable[[], bool] = lambda: True, limit_s: float = 300
    ) -> Attempt:
        """Until that phase of the node's way is under way and `also` holds; AssertionError when it went by."""
        end = time.monotonic() + limit_s
        with self.store() as store:
            while time.monotonic() < end:
                for row in store.rollouts(unfinished=True)[:1]:
                    attempts = [a for a in store.attempts(row.id, name) if a.phase == phase]
                    if attempts and attempts[-1].state == "intent" and also():
                        return attempts[-1]
                assert begun.process.poll() is None, f"it ended before {phase} was met: {begun.ran()}"
                time.sleep(0.02)
        raise AssertionError(f"{name} did not come to {phase} within {limit_s:.0f} s: {begun.err.read_text()}")

    # --- the nodes, seen from outside -----------------------------------------------------------------------------

    def runs_on(self, name: str) -> list[str]:
        """Runs of fleet-run that are under way on the node."""
        runs = self.lab.folder / "nodes" / name / "upper/var/lib/fleet/run"
        begun = [run for run in runs.glob("*") if (run / "command.pid").is_file()]
        return [run.name for run in begun if not (run / "rc").is_file()]

    def effects(self, name: str, kinds: Collection[str] = CHANGES) -> Counter[tuple[str, ...]]:
        """How often each change happened on the node since its lab came up: (kind, component, version, card)."""
        lines = map(json.loads, self.lab.state(name).effects.read_text().splitlines())
        keys = ("kind", "component", "module", "version", "card")
        return Counter(tuple(str(line[key]) for key in keys if key in line) for line in lines if line["kind"] in kinds)

    def log_in_node(self, name: str, script: str) -> str:
        """What a shell script in the node prints; it runs as root, not by ssh."""
        done = self.lab.run(name, ["sh", "-c", script])
        assert done.returncode == 0, done.stdout.decode(errors="replace")
        return done.stdout.decode()

    def playbooks(self) -> list[int]:
        """Processes of ansible-playbook that work for this lab."""
        out = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                ours = any(str(self.folder).encode() in word for word in words)
                if ours and any(word.endswith(b"ansible-playbook") for word in words[:2]):
                    out.append(int(folder.name))
        return out

    def evidence_is_whole(self, rollout: str) -> None:
        """AssertionError unless the chain of that rollout verifies and says that it is of a lab."""
        report = self.document("evidence", "verify", rollout, kind="EvidenceReport")
        assert [item["ok"] for item in report["items"]] == [True], report
        records = self.document("evidence", "show", rollout, kind="Evidence")["records"]
        assert {record["origin"] for record in records} == {"lab"}

    def down(self) -> None:
        """Nothing stays."""
        for begun in self.children:
            if begun.process.poll() is None:
                begun.kill()
        self.lab.down()


def _record(network: str) -> Path:
    return cache_dir() / "rehearsals" / network


@contextlib.contextmanager
def rehearsal(
    folder: Path,
    spec: Mapping[str, Any],
    vendor_path: Sequence[str] = (),
    *,
    seed: int = 11,
    known: bool = True,
    database: str = "",
    settings: Mapping[str, str] | None = None,
    limit_s: float = LIMIT_S,
) -> Iterator[Rehearsal]:
    """A lab of that spec, up; with `known`, its nodes are trusted, imported and probed, its packages in the store.

    `database` is the URL of an empty one to use instead of the lab's own file; see `Rehearsal` for the rest.
    """
    record = _record(str(spec["network"]))
    if record.is_file():
        left = json.loads(record.read_text())
        assert start_of(left["pid"]) != left["started"], (
            f"another test run has the lab {left['folder']} on {spec['network']}"
        )
        Lab(Path(left["folder"]) / "lab", lambda _: None).down()  # a test run was killed here
        shutil.rmtree(left["folder"], ignore_errors=True)
    record.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps({"pid": os.getpid(), "started": start_of(os.getpid()), "folder": str(folder)}))
    file = folder / "spec.yaml"
    file.write_text(yaml.safe_dump(dict(spec), sort_keys=False))
    said: list[str] = []
    lab = Lab(folder / "lab", said.append, vendor_path=vendor_path)
    one = Rehearsal(lab, folder, said, tuple(vendor_path), database, settings or {}, limit_s)
    try:
        one.lab.up(file, seed)
        if known:
            one.fleet("node", "import", str(one.lab.folder / "nodes.yaml"))
            one.fleet("node", "trust", "@all", "-y")
            packages = sorted(p for p in (one.lab.folder / "packages").iterdir() if not p.name.startswith("."))
            one.fleet("artifact", "add", *map(str, packages))
            one.fleet("probe", "@all")
        yield one
    finally:
        one.down()
        record.unlink(missing_ok=True)
