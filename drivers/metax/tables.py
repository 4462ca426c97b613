"""The data files of this folder: fault codes, package trains, VBIOS builds. Read once, at import."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from importlib.resources import files
from typing import cast

from fleet.core.vendor import Fault, Severity


def _rows(name: str) -> list[dict[str, str]]:
    text = files("drivers.metax").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


FAULTS: Mapping[str, Fault] = {
    row["code"]: Fault(row["code"], cast(Severity, row["severity"]), row["action"], row["text"])
    for row in _rows("eid.csv")
}
"""EID -> what it means. Source: the vendor's EID page and mxExporter (MetaX-MACA/mxExporter, log_monitor.py)."""

TRAIN_OF: Mapping[str, str] = {row["kmd"]: row["package"] for row in _rows("trains.csv")}
"""KMD -> version of the driver package that holds it. Only pairs that somebody saw."""

KMD_OF: Mapping[str, str] = {package: kmd for kmd, package in TRAIN_OF.items()}

BUILD_OF: Mapping[tuple[str, str], str] = {(row["vbios"], row["model"]): row["build"] for row in _rows("builds.csv")}
"""(VBIOS version, chip) -> build number in the file's name. Only names that somebody saw."""
