"""The node's state as NVIDIA's tools see it: versions in force, cards, fabric. Used by the programs beside it."""

from __future__ import annotations

import sys

sys.path.insert(0, "/opt/fleet-lab")
import labnode

# CUDA that each branch offers (NVIDIA's release notes).
CUDA = {
    470: "11.4", 510: "11.6", 515: "11.7", 520: "11.8", 525: "12.0", 530: "12.1", 535: "12.2", 545: "12.3", 550: "12.4",
    555: "12.5", 560: "12.6", 565: "12.7", 570: "12.8", 575: "12.9", 580: "13.0", 590: "13.1", 595: "13.2", 610: "13.3",
}  # fmt: skip
# model in the lab's words -> name that nvidia-smi prints, power limit, NVLinks, their speed, VBIOS
MODELS = {
    "H100-SXM5-80GB": ("NVIDIA H100 80GB HBM3", 700, 18, "26.562 GB/s", "96.00.A5.00.03"),
    "H200-SXM-141GB": ("NVIDIA H200", 700, 18, "26.562 GB/s", "96.00.BC.00.02"),
    "H20-96GB": ("NVIDIA H20", 500, 18, "26.562 GB/s", "96.00.AF.00.01"),
    "B200": ("NVIDIA B200", 1000, 18, "53.125 GB/s", "97.00.88.00.0F"),
    "A100-SXM4-80GB": ("NVIDIA A100-SXM4-80GB", 400, 12, "25 GB/s", "92.00.45.00.06"),
    "A800-SXM4-80GB": ("NVIDIA A800-SXM4-80GB", 400, 8, "25 GB/s", "92.00.45.00.05"),
    "L40S": ("NVIDIA L40S", 350, 0, "", "95.02.66.00.03"),
    "T4": ("Tesla T4", 70, 0, "", "90.04.96.00.02"),
    "V100-SXM2-32GB": ("Tesla V100-SXM2-32GB", 300, 6, "25.781 GB/s", "88.00.4F.00.09"),
}
CLOSED_ONLY = ("V100", "P100", "P40")
OPEN_ONLY = ("B200", "B300", "GB200", "GH200")


def own(state=None):
    """This vendor's own part of the state."""
    return dict((labnode.state() if state is None else state).get("nvidia", {}))


def change(**values):
    labnode.update(lambda s: s.setdefault("nvidia", {}).update(values))


def userland():
    """Version of the libraries on disk; the fault module-mismatch moves them alone."""
    return own().get("userland") or labnode.state().get("packages", {}).get("driver", "")


def flavour():
    """Flavour of the module on disk, `open` or `proprietary`."""
    return own().get("flavour", "open")


def loaded():
    return labnode.loaded("nvidia")


def model_row():
    model = str(labnode.state().get("model", ""))
    for name, row in MODELS.items():
        if model.upper().startswith(name.upper()) or name.upper().startswith(model.upper()):
            return row
    return (f"NVIDIA {model}", 300, 0, "", "90.00.00.00.01")


def usable():
    """False where the module's flavour does not fit the chip: the driver then finds no device."""
    model = str(labnode.state().get("model", ""))
    wrong = (flavour() == "open" and model.startswith(CLOSED_ONLY)) or (
        flavour() == "proprietary" and model.startswith(OPEN_ONLY)
    )
    return not wrong


def switched():
    return bool(labnode.state().get("nvswitch"))


def fabric():
    """What the driver says of the fabric on this node."""
    if not switched():
        return "N/A"
    return "Completed" if own().get("fabric") == loaded() and not labnode.fault("fabric-stuck") else "In Progress"


def sick(index):
    """Does this card report memory errors? Only GPU 0, only with a driver other than at the time of the fault."""
    return index == 0 and labnode.fault("validation-fail") and loaded() != own().get("healthy_with")


def is_lost(index):
    return index == 0 and labnode.fault("xid79")


def cuda():
    version = userland() or loaded() or "0"
    branch = int(version.split(".")[0])
    return CUDA.get(branch, CUDA[max((b for b in CUDA if b <= branch), default=535)])


def long_bus(bus_id):
    """0000:0b:00.0 -> 00000000:0B:00.0"""
    domain, rest = bus_id.split(":", 1)
    return f"{domain:0>8}:{rest}".upper()


def cards():
    """The cards as render.py wants them."""
    name, limit, _, _, vbios = model_row()
    out = []
    for card in labnode.state().get("cards", []):
        index = int(card["index"])
        flash = card.get("flash", {}).get("firmware", {})
        fuse = sum(card["uuid"].encode()) % 7  # cards of a node differ a little, and always in the same way
        out.append(
            {
                "index": index,
                "name": card.get("name", name),
                "bus_id": long_bus(card["bus_id"]),
                "pci_id": card["pci_id"],
                "subsystem": card.get("subsystem", "10de:0000"),
                "uuid": card["uuid"] if card["uuid"].startswith("GPU-") else "GPU-" + card["uuid"],
                "serial": card.get("serial", ""),
                "vbios": flash.get("running") or vbios,
                "fan": "N/A",
                "temperature": 33 + fuse,
                "pstate": "P0",
                "power": limit // 10 + fuse,
                "limit": limit,
                "used": 0,
                "total": int(card.get("memory_mib", 0)),
                "utilisation": "0%",
                "compute": "Default",
                "persistence": "On",
                "display": "Off",
                "ecc": "3" if sick(index) else "0",
                "mig": "Disabled" if limit >= 400 else "N/A",
                "sick": sick(index),
            }
        )
    return out
