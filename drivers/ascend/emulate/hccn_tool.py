"""hccn_tool of a lab node: -ip, -link, -net_health and -tls of each card's network port."""

import sys

import npu_node as node
from npu_node import labnode


def main(args):
    labnode.refuse_outside_lab()
    number = args[args.index("-i") + 1] if "-i" in args[:-1] else ""
    card = next((c for c in node.cards() if str(c["index"]) == number), None)
    if node.live_driver() is None or card is None:
        print("Get device info failed.")
        sys.exit(1)
    down = labnode.fault("link-down") and card["index"] == 0
    if "-ip" in args:
        print(f"ipaddr:192.0.2.{10 + card['index']}\nnetmask:255.255.255.0")
    elif "-link" in args:
        print(f"link status: {'DOWN' if down else 'UP'}")
    elif "-net_health" in args:
        print(f"net health status: {'Socket failed' if down else 'Success'}")
    elif "-tls" in args:
        print(
            f"dev_id:{card['index']}, tls switch[0](0:disable, 1:enable), tls preconfigured[1](0:non-preset, 1:preset)"
        )
    else:
        print("Command execute failed.")
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
