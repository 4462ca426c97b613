"""ascend-dmi of a lab node: -v, -c, --dg -s healthCheck, --bw -t d2d. Ends with 0 even when it failed."""

import json
import sys

import npu_node as node
from npu_node import labnode


def main(args):
    labnode.refuse_outside_lab()
    if args[:1] == ["-v"]:
        print("ascend-dmi version: 7.0.0")
        return
    if node.live_driver() is None or labnode.fault("dmi-error"):
        print(json.dumps({"error": {"code": 2, "description": "internal error"}}))
        return
    cards = node.cards()
    if "-c" in args or "--compatible" in args:
        states = {node.compatibility(card) for card in cards}
        state = "OK" if states == {"OK"} else "INCOMPATIBLE PACKAGE"
        print(f"| npu-driver   | {node.live_driver()} | {state} | - |")
        print(f"| npu-firmware | {node.firmware(cards[0])} | {state} | - |")
    elif "--dg" in args:
        bad = node.alarmed() is not None
        items = [("driver", "HEALTH"), ("cann", "PASS"), ("hbm", "FAIL" if bad else "PASS"), ("device", "HEALTH")]
        rows = [{"item_name": name, "item_result": result} for name, result in items]
        print(json.dumps({"DiagnosisItems": [{"group_name": "Hardware", "sub_items": rows}]}, separators=(",", ":")))
    elif "--bw" in args:
        rows = [
            {
                "type": "Device to Device Test",
                "device_id": card["index"],
                "results": [{"size": "536870912 Bytes", "bandwidth": f"{1500 + card['index']} GB/s"}],
            }
            for card in cards
        ]
        print(json.dumps({"bandwidths": rows}, separators=(",", ":")))
    else:
        print(json.dumps({"error": {"code": 1, "description": "invalid parameter"}}))


if __name__ == "__main__":
    main(sys.argv[1:])
