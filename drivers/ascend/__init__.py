"""Huawei Ascend (昇腾): npu-smi, HDK driver and firmware, MCU, CANN. Facts, limits and sources: README.md."""

from __future__ import annotations

from drivers.ascend.checks import CHECKS
from drivers.ascend.fault_codes import FAULTS
from drivers.ascend.gather import gather, is_accelerator
from drivers.ascend.packages import artifact
from drivers.ascend.probes import PROBES
from drivers.ascend.read import read
from drivers.ascend.steps import steps
from fleet.core.vendor import Vendor

VENDOR = Vendor(
    name="ascend",
    title="Huawei Ascend",
    pci_vendors=frozenset({"19e5"}),
    is_accelerator=is_accelerator,
    modules=("drv_pcie_host", "drv_seclib_host"),
    schemes={
        "driver": "ascend_hdk",
        "bundle": "ascend_hdk",
        "firmware": "firmware",
        "toolkit": "cann",
        "mcu": "firmware",
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
        "rollback": "Versioned",  # as far as the flash floor of the chips allows
        "firmware": "Full",
        "live_reload": "Unsupported",  # the installer tries a hot reset; fleet always boots after it
        "validate": "Full",
        "reset": "NotImplemented",
    },
)
