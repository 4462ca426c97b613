"""Random kills: `python -m tests.engine.chaos [KILLS [SEED [PART]]]`; fails when anything was lost or done twice.

PART is `leases` or `dbos`: rollouts of 60 simulated nodes are carried out by controllers that are killed at a random
place, or after a random time, until KILLS have died; on a SQLite file and on PostgreSQL by turns, and there another
controller takes over. PART `lab` does it with the command and with controllers over eight lab nodes, `lab-postgresql`
the same with a server (tests/engine/chaos_lab.py). `all`, the default, is three eighths of the kills on each engine and
an eighth in each lab. The seed is printed first; the same seed kills in the same places again, the random times apart.
The last line of each part is JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.engine.hosted import Hosted
from tests.postgresql import PREFIX, Server, started, sweep

NODES, RACKS = 60, 6
LIMITS = {"fleet": "30%", "rack": "40%"}
EACH = 25  # kills of one rollout at most: what is left of it then goes on undisturbed
POINTS = (
    "intend-before", "intend-after", "finish-before", "finish-after", "preflight-after", "cordon-before",
    "cordon-after", "drain-before", "stage-before", "stage-after", "stop-before", "stop-after", "install-before",
    "install-after", "reboot-before", "reboot-after", "uncordon-before", "uncordon-after",
)  # fmt: skip


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """A PostgreSQL server for one part."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    (folder / "owner.json").write_text(json.dumps({"pid": os.getpid(), "start": started(os.getpid())}))
    one = Server(folder)
    try:
        one.create()
        one.start()
        yield one
    finally:
        one.stop()
        shutil.rmtree(folder, ignore_errors=True)


def rollout(folder: Path, url: str, left: int, dice: random.Random, engine: str) -> tuple[int, Counter[str]]:
    """Carry out one rollout to its end, killing at most `left` controllers: (how many died, what went wrong)."""
    host = Hosted(folder, url, engine)
    names = [f"n{i:02}" for i in range(NODES)]
    killed = turn = 0
    try:
        host.begin(names, limits=LIMITS, racks=RACKS)
        while not host.store.rollout("r-1").finished:
            turn += 1
            # On one file there is one controller; on a server the next of two names takes over from the dead one.
            name = f"c{turn % 2}" if url.startswith("postgresql") else "c1"
            if killed >= min(left, EACH):
                process = host.controller(name)
            elif dice.random() < 0.3:
                process = host.controller(name)
                time.sleep(0.8 + 2 * dice.random())
                process.send_signal(signal.SIGKILL)
            else:
                process = host.controller(name, dice.choice(POINTS), str(dice.randint(1, 8)))
            status, said = host.ended(process)
            assert status in (0, -signal.SIGKILL), said
            killed += status == -signal.SIGKILL
        return killed, Counter(host.proven(names).numbers)
    finally:
        host.close()


def simulated(kills: int, dice: random.Random, engine: str) -> dict[str, object]:
    """Kill controllers over simulated nodes until so many have died."""
    died, rollouts = 0, {"sqlite": 0, "postgresql": 0}
    wrong: Counter[str] = Counter()
    with server() as database:
        while died < kills:
            kind = "postgresql" if sum(rollouts.values()) % 2 else "sqlite"
            with tempfile.TemporaryDirectory(prefix="fleet-chaos-") as name:
                folder = Path(name)
                url = database.url(database.make()) if kind == "postgresql" else f"sqlite:///{folder}/chaos.db"
                more, found = rollout(folder, url, kills - died, dice, engine)
            died += more
            wrong.update(found)
            rollouts[kind] += 1
    return {"kills": died, "rollouts": rollouts, "nodes": NODES * sum(rollouts.values()), "wrong": dict(wrong)}


def part(name: str, kills: int, seed: int) -> None:
    """One part, and its line."""
    from tests.engine import chaos_lab

    print(f"{name}: seed {seed}", flush=True)
    dice = random.Random(f"{seed} {name}")
    began = time.monotonic()
    if name == "lab":
        said = chaos_lab.killed(kills, dice)
    elif name == "lab-postgresql":
        with server() as database:
            said = chaos_lab.killed(kills, dice, database.url(database.make()))
    else:
        said = simulated(kills, dice, name)
    line = {"part": name, "seed": seed, **said, "seconds": round(time.monotonic() - began)}
    print(json.dumps(line), flush=True)


def main(kills: str = "200", seed: str = "", name: str = "all") -> None:
    """Kill, and print what came of it."""
    chosen = int(seed) if seed else random.SystemRandom().randrange(1_000_000)
    total = int(kills)
    engines, lab = total * 3 // 8, total // 8
    every = {"leases": engines, "dbos": engines, "lab": lab, "lab-postgresql": total - 2 * engines - lab}
    parts = every if name == "all" else {name: total}
    for each, number in parts.items():
        part(each, number, chosen)


if __name__ == "__main__":
    main(*sys.argv[1:])
