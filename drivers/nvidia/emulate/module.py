"""Called by the lab after a module came or went: keeps /proc/driver/nvidia and the NVSwitch devices true."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
sys.path.insert(0, str(Path(__file__).parent))
import labnode
import node
import render

PROC = Path("/proc/driver")
COMPILER = "gcc version 12.2.0 (Debian 12.2.0-14+deb12u1) "


def main():
    labnode.refuse_outside_lab()
    verb, name, version = [*sys.argv[1:], "", "", ""][:3]
    if name != "nvidia":
        return 0
    for folder in (PROC / "nvidia", PROC / "nvidia-nvswitch"):
        shutil.rmtree(folder, ignore_errors=True)
    if verb != "load":
        node.change(fabric="")
        return 0
    flavour = node.flavour()
    built = "Thu Sep 18 20:02:11 UTC 2025"
    if flavour == "open":
        built = f"Release Build  (dvs-builder@lab)  {built}"
    (PROC / "nvidia/gpus").mkdir(parents=True)
    (PROC / "nvidia/version").write_text(render.proc_version(version, flavour, built, COMPILER))
    for card in labnode.state().get("cards", []):
        (PROC / "nvidia/gpus" / card["bus_id"]).mkdir()
    if not node.usable():
        refuse(version, flavour)
    switches = labnode.state().get("switches", [])
    if node.switched():
        devices = PROC / "nvidia-nvswitch/devices"
        devices.mkdir(parents=True)
        for switch in switches:
            (devices / switch["bus_id"]).mkdir()
    labnode.kernel_log(f"nvidia: module license '{'Dual MIT/GPL' if flavour == 'open' else 'NVIDIA'}' taints kernel.")
    labnode.kernel_log(f"NVRM: loading NVIDIA UNIX {'Open ' if flavour == 'open' else ''}Kernel Module {version}")
    return 0


def refuse(version, flavour):
    for card in labnode.state().get("cards", []):
        labnode.kernel_log(f"NVRM: The NVIDIA GPU {card['bus_id']} (PCI ID: {card['pci_id']})")
        if flavour == "open":
            labnode.kernel_log("NVRM: installed in this system is not supported by open")
            labnode.kernel_log("NVRM: nvidia.ko because it does not include the required GPU")
            labnode.kernel_log("NVRM: System Processor (GSP).")
        else:
            labnode.kernel_log("NVRM: installed in this system is not supported by the")
            labnode.kernel_log(f"NVRM: NVIDIA {version} driver release.")


if __name__ == "__main__":
    sys.exit(main())
