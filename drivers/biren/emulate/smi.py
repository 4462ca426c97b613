"""brsmi for the lab: the table and the CSV query, on the node's emulated cards."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
sys.path.insert(0, str(Path(__file__).parent))
import labnode
import node
import render


def chosen(argv):
    cards = node.cards()
    if "-i" not in argv:
        return cards
    wanted = argv[argv.index("-i") + 1 :][:1]
    return [card for card in cards if str(card["index"]) in ",".join(wanted).split(",")]


def query(argv):
    word = next((a for a in argv if a.startswith("--query-gpu=")), "")
    form = next((a for a in argv if a.startswith("--format=")), "")
    options = form.removeprefix("--format=").split(",")
    if not word or "csv" not in options:
        print(f"brsmi: unknown arguments: {' '.join(argv)}", file=sys.stderr)
        return 1
    fields = word.removeprefix("--query-gpu=").split(",")
    sys.stdout.write(render.query(fields, chosen(argv), "noheader" not in options, "nounits" not in options))
    return 0


def main():
    labnode.refuse_outside_lab()
    argv = sys.argv[1:]
    if not node.loaded():
        print("Failed to initialize BRML: Driver Not Loaded")
        return 7
    if argv[:1] == ["gpu"]:
        return query(argv[1:])
    if argv:
        print(f"brsmi: unknown arguments: {' '.join(argv)}", file=sys.stderr)
        return 1
    version = node.installed() or node.loaded()
    supa = ".".join(version.split(".")[:2])
    sys.stdout.write(render.table(time.strftime("%a %b %e %H:%M:%S %Y"), version, node.loaded(), supa, node.cards()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
