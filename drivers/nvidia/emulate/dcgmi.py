"""dcgmi of a lab node: `--version`, `diag -r N [-j]`, `nvlink -s`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
sys.path.insert(0, str(Path(__file__).parent))
import labnode
import node

RULE = "+---------------------------+------------------------------------------------+"
OLD_TESTS = (
    "Denylist", "NVML Library", "CUDA Main Library", "Permissions and OS Blocks", "Persistence Mode",
    "Environment Variables", "Page Retirement/Row Remap", "Graphics Processes", "Inforom",
)  # fmt: skip


def row(name, result):
    return f"| {name:<25} | {result:<46} |"


def table(version, driver, cards, level):
    bad = [card["index"] for card in cards if card["sick"]]
    ids = ", ".join(card["pci_id"].split(":")[1] for card in cards)
    lines = [
        "Successfully ran diagnostic for group.",
        RULE,
        row("Diagnostic", "Result"),
        "+===========================+================================================+",
        "|-----  Metadata  ----------+------------------------------------------------|",
        row("DCGM Version", version),
        row("Driver Version Detected", driver),
        row("GPU Device IDs Detected", ids[:46]),
        "|-----  Deployment  --------+------------------------------------------------|",
    ]
    if int(version.split(".")[0]) >= 4:
        lines.append(row("software", "Fail" if bad else "Pass"))
        lines += [row("", f"GPU{card['index']}: {'Fail' if card['sick'] else 'Pass'}") for card in cards]
    else:
        for name in OLD_TESTS:
            lines.append(row(name, "Fail" if bad and name.startswith("Page") else "Pass"))
    for index in bad:
        lines.append(row("Warning", f"GPU {index} has row remappings pending"))
    if level >= 2:
        lines.append("+-----  Hardware  ----------+------------------------------------------------+")
        if int(version.split(".")[0]) >= 4:
            lines.append(row("memory", "Fail" if bad else "Pass"))
            lines += [row("", f"GPU{card['index']}: {'Fail' if card['sick'] else 'Pass'}") for card in cards]
        else:
            lines.append(row("GPU Memory", f"Fail - GPU: {bad[0]}" if bad else "Pass - All"))
    return "\n".join([*lines, RULE]) + "\n"


def document(version, driver, cards):
    results = [
        {
            "entity_group": "GPU",
            "entity_group_id": 1,
            "entity_id": card["index"],
            "status": "Fail" if card["sick"] else "Pass",
        }
        for card in cards
    ]
    bad = any(card["sick"] for card in cards)
    test = {"name": "software", "results": results, "test_summary": {"status": "Fail" if bad else "Pass"}}
    return {
        "DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [test]}]},
        "metadata": {"Driver Version Detected": driver, "version": version},
    }


def main():
    labnode.refuse_outside_lab()
    argv = sys.argv[1:]
    version = labnode.state().get("packages", {}).get("dcgm", "")
    if "--version" in argv or "-v" in argv:
        print(f"\ndcgmi  version: {version}\n")
        return 0
    driver = node.loaded()
    if driver is None or driver != node.userland():
        print("Error: unable to establish a connection to the specified host: localhost")
        print("Error: Unable to connect to host engine. Host engine connection invalid/disconnected.")
        return 35
    cards = node.cards() if node.usable() else []
    if argv[:1] == ["nvlink"]:
        count = node.model_row()[2]
        state = "D" if node.fabric() == "In Progress" else "U"
        print("+----------------------+\n|  NvLink Link Status  |\n+----------------------+\nGPUs:")
        for card in cards:
            print(f"    gpuId {card['index']}:\n        {' '.join([state] * count or ['_'])}")
        print("NvSwitches:\n    No NvSwitches found.\n\nKey: Up=U, Down=D, Disabled=X, Not Supported=_")
        return 0
    if argv[:1] == ["diag"]:
        level = next((int(argv[i + 1]) for i, a in enumerate(argv[:-1]) if a == "-r" and argv[i + 1].isdigit()), 1)
        if "-j" in argv:
            print(json.dumps(document(version, driver, cards)))
        else:
            sys.stdout.write(table(version, driver, cards, level))
        return 226 if any(card["sick"] for card in cards) else 0
    print("Error: Missing subcommand.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
