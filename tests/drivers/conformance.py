"""What every vendor must be able to do, as data for the suite in test_conformance.py. A new vendor adds a row here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import drivers
from fleet.core.model import Json, OsFacts, VersionChange
from fleet.core.vendor import Change, Vendor

ROOT = Path(__file__).parents[2]
ACME = ROOT / "tests/acme"
VENDOR_PATH = (str(ACME),)
VENDORS: Mapping[str, Vendor] = drivers.vendors(VENDOR_PATH)


def folder(vendor: str, kind: str) -> Path:
    """The vendor's folder of that kind: `drivers`, `compat_matrix` or `playbooks/roles`."""
    own = ROOT / kind / vendor
    return own if own.is_dir() else ACME / kind / vendor


@dataclass(frozen=True)
class Case:
    """One node class of a vendor: what its plain tool prints, and versions between which it can move."""

    tool: str  # the command of the plain table
    table: str  # a whole answer of it
    model: str
    moves: tuple[tuple[str, str, str], ...]  # component, older version, newer version
    flags: Mapping[str, Json] = field(default_factory=dict)

    def change(self, *, back: bool = False, first: bool = False, reboot: str = "reboot", kind: str = "deb") -> Change:
        """All moves in one stage, forwards or back, or as a first installation."""
        pairs = [(c, new, old) if back else (c, old, new) for c, old, new in self.moves]
        moves = tuple(VersionChange(c, None if first else old, new) for c, old, new in pairs)
        return Change(
            model=self.model,
            count=8,
            os=OsFacts("ubuntu", "22.04", "5.15.0-119-generic", "x86_64"),
            now={} if first else {c: old for c, old, _ in pairs},
            changes=moves,
            reboot=reboot,  # type: ignore[arg-type]
            flags=self.flags,
            package_kind=kind,  # type: ignore[arg-type]
        )


CASES: Mapping[str, Case] = {
    "nvidia": Case(
        "nvidia-smi",
        """\
Wed Mar  4 05:06:07 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 571.10.01              Driver Version: 571.10.01      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA L40S                    On  |   00000000:3B:00.0 Off |                    0 |
| N/A   33C    P8             35W /  350W |       1MiB /  46068MiB |      0%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+
""",
        "H100-SXM5-80GB",
        (("driver", "570.158.01", "580.95.05"), ("fabricmanager", "570.158.01", "580.95.05")),
        {"nvswitch": True},
    ),
    "ascend": Case(
        "npu-smi info",
        """\
+------------------------------------------------------------------------------------------------+
| npu-smi 25.2.9                   Version: 25.2.9                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 91.5        41                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3391 / 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| No running processes found in NPU 0                                                            |
+===========================+===============+====================================================+
""",
        "910B3",
        (("driver", "24.1.0", "25.2.0"), ("firmware", "7.5.0.3.220", "7.7.0.6.236")),
    ),
    "metax": Case(
        "mx-smi",
        """\
+---------------------------------------------------------------------------------+
| MX-SMI 2.2.5                        Kernel Mode Driver Version: 2.15.9          |
| MACA Version: 2.32.0.6              BIOS Version: 1.25.1.0                      |
|------------------------------------+---------------------+----------------------+
| GPU         NAME                   | Bus-id              | GPU-Util             |
| Temp        Pwr:Usage/Cap          | Memory-Usage        | GPU-State            |
|====================================+=====================+======================|
| 0           MetaX C550             | 0000:4f:00.0        | 1%                   |
| 30C         54W / 450W             | 858/65536 MiB       | Available            |
+------------------------------------+---------------------+----------------------+
""",
        "C500",
        (
            ("driver", "3.4.4", "3.8.30"),
            ("firmware", "1.30.0.0", "1.33.5.0"),
            ("toolkit", "3.3.0.15", "3.7.1.5"),
        ),
    ),
    "biren": Case(
        "brsmi",
        """\
Wed Mar  4 05:06:07 2026
+------------------------------------------------------------------------------+
| BR-SMI 1.11.2          Driver Version: 1.11.2          SUPA Version: 1.11    |
+----------------------------+-----------------------+-------------------------+
|   GPU                 Name |                Bus-Id |    Volatile Uncorr. ECC |
|  Temp  Perf  Pwr:Usage/Cap |          Memory-Usage |    GPU-Util  Compute M. |
|              Persistence-M |                       |                  SVI M. |
+============================+=======================+=========================+
|     0            Biren106C |      00000000:4B:00.0 |                       0 |
|    35    P0     45W / 300W |       0MiB / 32512MiB |          0%     Default |
|                        Off |                       |                Disabled |
+----------------------------+-----------------------+-------------------------+
+------------------------------------------------------------------------------+
| Processes:                                                                   |
| GPU   SVI Dev        PID   Process Name                     GPU Memory Usage |
+==============================================================================+
|  No running process found.                                                   |
+------------------------------------------------------------------------------+
""",
        "Biren106M",
        (("driver", "1.6.0", "1.11.0"), ("toolkit", "1.6", "1.11")),
    ),
    "acme": Case(
        "acmectl",
        "ACMECTL 1.0\ndriver 2.0.0\n"
        "card 0 0000:1b:00.0 ACME-1 serial A7 memory 16384 firmware 10.1 next 10.2 state ok\ncards 1\n",
        "ACME-1",
        (("driver", "1.9.0", "2.0.0"), ("firmware", "10.1", "10.2"), ("toolkit", "3.0", "3.1")),
    ),
}

# Other people's tools under names that vendors use too: nobody may read them.
STRANGERS = (
    "+-----------------------------+\n| MOFFETT-SMI 3.1.0   Driver Version: 3.1.0 |\n| 0  S30 | 0000:1b:00.0 |\n",
    "usage: tool [-h]\n",
    "{}",
    "<html><body>502 Bad Gateway</body></html>",
)
