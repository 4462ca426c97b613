"""Random kills: `python -m tests.engine.chaos [KILLS [SEED [ENGINE]]]`; fails when anything was lost or done twice.

Rollouts of 60 simulated nodes on a SQLite file are carried out by controllers that are killed at a random place, or
after a random time, until KILLS have died. The seed is printed first; the same seed kills in the same places again, the
random times apart.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.engine.hosted import Hosted

NODES = 60
POINTS = (
    "intend-before", "intend-after", "finish-before", "finish-after", "preflight-after", "stage-before", "stage-after",
    "stop-before", "stop-after", "install-before", "install-after", "reboot-before", "reboot-after",
)  # fmt: skip


def rollout(folder: Path, number: int, left: int, dice: random.Random, engine: str) -> int:
    """Carry out one rollout to its end, killing at most `left` controllers; how many died."""
    host = Hosted(folder, f"sqlite:///{folder}/chaos.db", engine)
    names = [f"n{number:02}-{i:02}" for i in range(NODES)]
    killed = 0
    try:
        host.begin(names, limits={"fleet": "30%"})
        while not host.store.rollout("r-1").finished:
            if killed >= left:
                process = host.controller("c1")
            elif dice.random() < 0.3:
                process = host.controller("c1")
                time.sleep(0.8 + 2 * dice.random())
                process.send_signal(signal.SIGKILL)
            else:
                process = host.controller("c1", dice.choice(POINTS), str(dice.randint(1, 8)))
            status, said = host.ended(process)
            assert status in (0, -signal.SIGKILL), said
            killed += status == -signal.SIGKILL
        host.proven(names)
    finally:
        host.close()
    return killed


def main(kills: str = "200", seed: str = "", engine: str = "leases") -> None:
    """Kill, and print what came of it as one JSON line."""
    chosen = int(seed) if seed else random.SystemRandom().randrange(1_000_000)
    print(f"seed {chosen}", flush=True)
    dice = random.Random(chosen)
    died = rollouts = 0
    began = time.monotonic()
    while died < int(kills):
        with tempfile.TemporaryDirectory(prefix="fleet-chaos-") as folder:
            died += rollout(Path(folder), rollouts, int(kills) - died, dice, engine)
        rollouts += 1
    took = round(time.monotonic() - began)
    said = {"seed": chosen, "engine": engine, "kills": died, "rollouts": rollouts, "nodes": NODES * rollouts}
    print(json.dumps({**said, "seconds": took}))


if __name__ == "__main__":
    main(*sys.argv[1:])
