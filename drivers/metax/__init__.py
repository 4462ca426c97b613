"""MetaX (沐曦): cards of the C, N and X series, also sold as Mars with `ht-smi`."""

from __future__ import annotations

from drivers.metax.artifacts import artifact
from drivers.metax.checks import CHECKS
from drivers.metax.gather import PCI_VENDORS, gather, is_accelerator
from drivers.metax.parse import read
from drivers.metax.probes import PROBES
from drivers.metax.steps import steps
from drivers.metax.tables import FAULTS
from fleet.core.vendor import Vendor

VENDOR = Vendor(
    name="metax",
    title="MetaX",
    pci_vendors=PCI_VENDORS,
    is_accelerator=is_accelerator,
    modules=("metax", "mxgvm"),
    schemes={"driver": "dotted", "firmware": "dotted", "mcu": "dotted", "toolkit": "dotted"},
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
        "firmware": "Full",
        "live_reload": "Full",
        "validate": "Full",
        "reset": "Versioned",  # warm reset is certified by the vendor on one server model only
    },
)
