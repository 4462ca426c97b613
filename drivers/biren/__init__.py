"""Biren (壁仞): cards of the br1xx family."""

from __future__ import annotations

from drivers.biren.artifacts import artifact
from drivers.biren.checks import CHECKS, FAULTS
from drivers.biren.gather import PCI_VENDORS, gather, is_accelerator
from drivers.biren.parse import read
from drivers.biren.probes import PROBES
from drivers.biren.steps import steps
from fleet.core.vendor import Vendor

VENDOR = Vendor(
    name="biren",
    title="Biren",
    pci_vendors=PCI_VENDORS,
    is_accelerator=is_accelerator,
    modules=("biren",),
    schemes={"driver": "dotted", "toolkit": "release"},
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
        "firmware": "Unsupported",  # the procedure is not public
        "live_reload": "Full",
        "validate": "Full",
        "reset": "Unknown",
    },
)
