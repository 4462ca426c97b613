"""NVIDIA data-centre GPUs: what their tools say, how a stack change becomes steps, what their faults mean."""

from __future__ import annotations

from drivers.nvidia.catalogue import FAULTS
from drivers.nvidia.checks import CHECKS
from drivers.nvidia.gather import gather, is_accelerator
from drivers.nvidia.naming import artifact
from drivers.nvidia.probes import PROBES
from drivers.nvidia.reading import read
from drivers.nvidia.steps import steps
from fleet.core.vendor import Vendor

VENDOR = Vendor(
    name="nvidia",
    title="NVIDIA",
    pci_vendors=frozenset({"10de"}),
    is_accelerator=is_accelerator,
    modules=("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem", "gdrdrv"),
    schemes={
        **dict.fromkeys(("driver", "fabricmanager", "nscq", "nvsdm", "imex"), "nvidia_driver"),
        **dict.fromkeys(("toolkit", "dcgm", "nvlsm", "container_toolkit", "gdrcopy"), "generic"),
    },
    probes=PROBES,
    read=read,
    gather=gather,
    steps=steps,
    artifact=artifact,
    checks=CHECKS,
    faults=FAULTS,
    capabilities={
        "probe": "Full",
        "install": "Full",
        "upgrade": "Full",
        "rollback": "Full",
        "firmware": "NotImplemented",
        "live_reload": "Unknown",
        "validate": "Full",
        "reset": "NotImplemented",
    },
)
