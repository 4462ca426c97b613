"""Huawei Ascend."""

from __future__ import annotations

from drivers.ascend.read import read
from fleet.core.vendor import Vendor

VENDOR = Vendor(
    name="ascend",
    title="Huawei Ascend",
    pci_vendors=frozenset({"19e5"}),
    is_accelerator=lambda d: False,
    modules=(),
    schemes={},
    probes=(),
    read=read,
    gather=lambda s: None,
    steps=lambda c: (),
    artifact=lambda n: None,
)
