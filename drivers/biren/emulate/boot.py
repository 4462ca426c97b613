"""At each boot, after the modules. With the fault dkms-old-returns, DKMS has built the former driver again."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
sys.path.insert(0, str(Path(__file__).parent))
import labnode
import node


def main():
    labnode.refuse_outside_lab()
    labnode.update(lambda s: s.update(holders=[]))
    old = node.own().get("healthy_with", "")
    if labnode.fault("dkms-old-returns") and old and node.loaded() not in (None, old):
        bring_back(old, node.loaded())
    if node.loaded():
        labnode.effect("activate", component="driver", version=node.loaded())
    return 0


def bring_back(old, new):
    """The former driver's sources were left in DKMS: its autoinstall put that module over the new one."""
    source = Path(f"/usr/src/biren-{new}")
    kept = labnode.write_module_source(f"/usr/src/biren-{old}", "biren", old)
    labnode.unload_module("biren")
    for file in labnode.module_files("biren"):
        file.unlink()
    if source.exists():
        labnode.dkms("biren", old, kept)
    labnode.load_module("biren")
    labnode.kernel_log(f"biren: driver {node.loaded()} probes {len(node.cards())} devices")


if __name__ == "__main__":
    sys.exit(main())
