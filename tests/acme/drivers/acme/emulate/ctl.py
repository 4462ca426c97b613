"""acmectl for the lab: prints the cards; `acmectl flash FILE` stores a firmware that runs after the next boot."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
import labnode


def flash_of(card):
    return card.setdefault("flash", {}).setdefault("firmware", {"installed": "1.0", "running": "1.0"})


def sick(index):
    well = labnode.state().get("acme", {}).get("healthy_with")
    return index == 0 and labnode.fault("validation-fail") and labnode.loaded("acme") != well


def flash(path):
    match = re.match(r"ACMEFW (\S+)\n", Path(path).read_bytes()[:80].decode("ascii", "replace"))
    if not match:
        print("acmectl: not a firmware file")
        return 1

    def store(document):
        for card in document["cards"]:
            if flash_of(card)["installed"] != match[1]:
                flash_of(card)["installed"] = match[1]

    before = [flash_of(card)["installed"] for card in labnode.state()["cards"]]
    labnode.update(store)
    if any(version != match[1] for version in before):
        labnode.effect("flash", component="firmware", version=match[1])
    return 0


def main():
    labnode.refuse_outside_lab()
    version = labnode.loaded("acme")
    if version is None:
        print("acmectl: no driver")
        return 1
    if sys.argv[1:2] == ["flash"]:
        return flash(sys.argv[2])
    cards = labnode.state().get("cards", [])
    print(f"ACMECTL 1.0\ndriver {version}")
    for card in cards:
        firmware = flash_of(card)
        print(
            f"card {card['index']} {card['bus_id']} {labnode.state()['model']} serial {card['serial']} "
            f"memory {card['memory_mib']} firmware {firmware['running']} next {firmware['installed']} "
            f"state {'critical' if sick(card['index']) else 'ok'}"
        )
    print(f"cards {len(cards)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
