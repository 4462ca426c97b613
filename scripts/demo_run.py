#!/usr/bin/env python3
"""The demo itself: every step is a `fleet` command that is printed before it runs. Called by scripts/demo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LAB = Path(os.environ.get("FLEET_LAB_DIR", "/var/lib/fleet-lab")) / "demo"  # the demo's own: made anew each time
RESCUED, FAULT = "as-b", "validation-fail"  # the node that is broken on purpose, and how
NOT_OURS = {"os", "kernel", "gcc"}  # what an upgrade of accelerators leaves alone
STARTED = time.monotonic()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def title(text: str) -> None:
    say(f"\n== {text}  ({time.monotonic() - STARTED:.0f} s)")


def fleet(*words: str, show: bool = True, accept: tuple[int, ...] = (0,)) -> str:
    """Run one command, its output shown on stderr; its stdout. Ends the demo when its status is not accepted."""
    say(f"\n$ fleet {' '.join(words)}")
    run = subprocess.run(["fleet", *words], stdout=subprocess.PIPE, text=True, check=False)
    if show:
        sys.stderr.write(run.stdout)
    if run.returncode not in accept:
        say(f"demo: that ended with status {run.returncode}; the lab stays as it is (fleet lab status, fleet lab down)")
        sys.exit(1)
    return run.stdout


def document(*words: str, accept: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """The JSON document that a command prints, not shown."""
    answer: dict[str, Any] = json.loads(fleet(*words, "-o", "json", show=False, accept=accept))
    return answer


def stacks() -> dict[str, dict[str, Any]]:
    """node -> {vendor, current: component -> version} as the inventory has it."""
    found = {}
    for name in fleet("node", "list", "-o", "name", show=False).split():
        facts = document("node", "show", name)["facts"]
        now = {c: f["loaded"] or f["installed"] for c, f in facts["components"].items() if c not in NOT_OURS}
        found[name] = {"vendor": facts["vendor"], "current": {c: v for c, v in now.items() if v}}
    return found


def main() -> int:
    title("A lab of eight nodes")
    os.environ["FLEET_LAB_DIR"] = str(LAB)
    if LAB.exists():
        fleet("lab", "down")
    fleet("lab", "up")
    os.environ["FLEET_CONFIG"] = str(LAB / "fleet.toml")

    title("Into the inventory, with their host keys; vendor packages into the artifact store")
    fleet("node", "import", str(LAB / "nodes.yaml"))
    fleet("node", "trust", "@all", "-y")
    fleet("artifact", "add", str(LAB / "packages"), show=False)

    title("A first look")
    fleet("probe", "@all")
    before = stacks()

    title("What the matrix would choose, and the road there")
    fleet("plan", "@all", "--strategy", "newest")

    title(f"One node is broken on purpose: after its upgrade {RESCUED} will fail validation")
    fleet("lab", "fault", RESCUED, FAULT)

    title("The upgrade")
    fleet("upgrade", "@all", "--strategy", "newest", "--max-unavailable", "50%", "-y", accept=(0, 6))

    title("Validated, and looked at again: the end state is proven, never assumed")
    fleet("lab", "fault", RESCUED, FAULT, "--off")
    fleet("probe", "@all")
    fleet("validate", "@all", "--suite", "smoke")
    after = stacks()
    rollout = document("rollout", "list", "--all")["items"][0]
    states = {task["name"]: task["state"] for task in rollout["nodes"]}

    title("Before and after")
    rows = [("NODE", "VENDOR", "COMPONENT", "BEFORE", "AFTER", "STATE")]
    for name, was in sorted(before.items()):
        for component in sorted({*was["current"], *after[name]["current"]}):
            old, new = was["current"].get(component, "-"), after[name]["current"].get(component, "-")
            state = states.get(name, "unchanged")
            rows.append((name, was["vendor"], component, old, new if new != old else "=", state))
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    for row in rows:
        say("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())

    nodes = [
        {
            "name": name,
            "vendor": was["vendor"],
            "before": was["current"],
            "after": after[name]["current"],
            "state": states.get(name, "unchanged"),
        }
        for name, was in sorted(before.items())
    ]
    upgraded = [n for n in nodes if n["state"] == "done" and n["before"] != n["after"]]
    rescued = [n for n in nodes if n["state"] == "rolled-back" and n["before"] == n["after"]]
    ok = len(nodes) == 8 and len(upgraded) == 7 and [n["name"] for n in rescued] == [RESCUED]
    say(f"""
{len(upgraded)} nodes upgraded, {len(rescued)} rolled back to where it was.  ({time.monotonic() - STARTED:.0f} s)

The lab is still up. Look around:
  export FLEET_LAB_DIR={LAB} FLEET_CONFIG={LAB}/fleet.toml PATH={Path.cwd()}/.venv/bin:$PATH
  fleet node list -o wide
  fleet rollout list --all
  fleet why {RESCUED} driver
  fleet evidence list
  fleet lab ssh nv-a
Remove it:  fleet lab down""")
    if "--json" in sys.argv:
        print(json.dumps({"apiVersion": "fleet/v1", "kind": "Demo", "nodes": nodes, "ok": ok}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
