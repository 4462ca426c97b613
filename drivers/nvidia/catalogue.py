"""What a fault code means: severity and action, from the table `xid.csv` beside this file.

Severities and actions follow NVIDIA's Xid catalogue and the lists by which operators drain nodes.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import cast

from fleet.core.vendor import Fault, Severity

_TABLE = Path(__file__).parent / "xid.csv"


def load() -> dict[str, Fault]:
    """code -> what it means."""
    with _TABLE.open(newline="", encoding="utf-8") as handle:
        return {
            row["code"]: Fault(row["code"], cast(Severity, row["severity"]), row["action"], row["text"])
            for row in csv.DictReader(handle)
        }


FAULTS = load()


def judged(fault: dict[str, object]) -> tuple[Severity, str]:
    """(severity, action) of one fault entry; a code that is not in the table is a warning for a person."""
    known = FAULTS.get(str(fault.get("code", "")))
    return (known.severity, known.action) if known else ("warning", "contact-support")
