"""What the emulated cards do at a boot: flash that was written takes effect, chips start with it.

Called by the lab as `boot.py reboot|power_cycle`, after the modules were loaded.
"""

import npu_node as node
from npu_node import labnode


def activate():
    """Written firmware becomes the running one, on every card."""
    moved = set()

    def change(state):
        for card in state.get("cards", []):
            written = card.setdefault("flash", {}).setdefault("firmware", {})
            if written.get("installed") and written.get("running") != written["installed"]:
                written["running"] = written["installed"]
                moved.add(written["installed"])
        state.get("pending", {}).pop("ascend", None)

    labnode.update(change)
    for version in sorted(moved):
        labnode.effect("activate", component="firmware", version=version)


if __name__ == "__main__":
    labnode.refuse_outside_lab()
    activate()
    if node.live_driver():
        labnode.kernel_log(f"{node.MODULE}: all {len(node.cards())} devices are up")
