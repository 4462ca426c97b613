"""upgrade-tool of a lab node: running firmware by component, floor, boot status. Not JSON, though it looks like it."""

import sys

import npu_node as node
import npu_text as text
from npu_node import labnode


def main(args):
    labnode.refuse_outside_lab()
    if node.live_driver() is None:
        print("Get device count failed, ret(-8005).")
        sys.exit(1)
    wanted = args[args.index("--device_index") + 1] if "--device_index" in args[:-1] else "-1"
    cards = [card for card in node.cards() if wanted in ("-1", str(card["index"]))]
    if "--boot_status" in args:
        print(text.boot_status([16 for _ in cards]), end="")
    elif "--hw_base_version" in args:
        print(text.base_version({card["index"]: node.floor() for card in cards}), end="")
    elif "--status" in args:
        for card in cards:
            pending = node.firmware(card, "installed") not in ("", node.firmware(card))
            print(f'{{"device_id":{card["index"]}, "status":{"waitting_restart" if pending else "idle"}}}')
    elif "--version" in args:
        versions = {card["index"]: {name: node.firmware(card) for name in text.KINDS} for card in cards}
        if not all(part for parts in versions.values() for part in parts.values()):
            print("Get component version failed.")
            sys.exit(1)
        print(text.components(versions), end="")
    else:
        print("invalid parameter")
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
