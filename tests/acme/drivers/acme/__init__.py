"""ACME: a vendor that exists only in tests, complete in three folders, found through the setting `vendor_path`."""

from __future__ import annotations

from fleet.core.vendor import Fault, PciDevice, Probe, Vendor

from .parse import read
from .stack import CHECKS, artifact, gather, steps

PCI_VENDOR = "acce"


def is_accelerator(device: PciDevice) -> bool:
    """Any processing accelerator of the vendor."""
    return device.vendor == PCI_VENDOR and device.pci_class.startswith("12")


VENDOR = Vendor(
    name="acme",
    title="ACME (tests only)",
    pci_vendors=frozenset({PCI_VENDOR}),
    is_accelerator=is_accelerator,
    modules=("acme",),
    schemes={"driver": "dotted", "firmware": "dotted", "toolkit": "dotted"},
    probes=(
        Probe("module_file", "modinfo -F version acme", timeout_s=10),
        Probe("toolkit", "cat /opt/acme/version", timeout_s=5, needs="/opt/acme/version"),
        Probe("ctl", "acmectl", timeout_s=10),
    ),
    read=read,
    gather=gather,
    steps=steps,
    artifact=artifact,
    checks=CHECKS,
    faults={"E17": Fault("E17", "critical", "replace-card", "a card has lost its mind")},
    capabilities={
        "probe": "Full", "install": "Full", "upgrade": "Full", "rollback": "Full", "firmware": "Full",
        "live_reload": "NotImplemented", "validate": "Full", "reset": "Unsupported",
    },
)  # fmt: skip
