"""Outputs of Ascend tools, typed anew in their captured forms with made-up values."""

from __future__ import annotations

RULE = "+" + "-" * 96 + "+"
THIN = "+---------------------------+---------------+----------------------------------------------------+"
DOUBLE = "+===========================+===============+====================================================+"
HEAD = """\
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |"""
CARD_2 = """\
| 2     910B2               | OK            | 88.4        33                0    / 0             |
| 0                         | 0000:2A:00.0  | 4           0    / 0          2911 / 65536         |"""
CARD_3 = """\
| 3     910B2               | Warning            | 90.0        61                0    / 0             |
| 0                         | 0000:2B:00.0  | 0           0    / 0          30710/ 65536         |"""


def banner(smi: str = "24.1.0.1", driver: str = "24.1.0.1") -> str:
    return f"| npu-smi {smi:<25}Version: {driver:<53}|"


TABLE = "\n".join([RULE, banner(), THIN, HEAD, DOUBLE, CARD_2, DOUBLE, CARD_3, DOUBLE]) + "\n"
PROCESSES = (
    "\n".join(
        [
            THIN,
            "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |",
            DOUBLE,
            "| 2       0                 | 41234         | python3                  | 2711                    |",
            DOUBLE,
            f"{'| No running processes found in NPU 3':<97}|",
            DOUBLE,
        ]
    )
    + "\n"
)
A3 = (
    "\n".join(
        [
            RULE,
            banner("24.1.rc3.9", "24.1.rc3.8"),
            THIN,
            "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|",
            "| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |",
            DOUBLE,
            "| 5     Ascend910           | OK            | 170.1       35                0    / 0             |",
            "| 0     10                  | 0000:8D:00.0  | 0           0    / 0          3001 / 65536         |",
            RULE,
            "| 5     Ascend910           | Alarm         | -           36                0    / 0             |",
            "| 1     11                  | 0000:8F:00.0  | 0           0    / 0          3002 / 65536         |",
            DOUBLE,
        ]
    )
    + "\n"
)
DUO = """\
+--------------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc1                                 Version: 24.1.rc1                                     |
+-------------------------------+-----------------+------------------------------------------------------+
| NPU     Name                  | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |
+===============================+=================+======================================================+
| 8       310P3                 | OK              | NA           41                0     / 0             |
| 0       0                     | 0000:04:00.0    | 0            1510 / 44280                            |
+-------------------------------+-----------------+------------------------------------------------------+
| 8       310P3                 | OK              | NA           42                0     / 0             |
| 1       1                     | 0000:04:00.1    | 0            1511 / 44280                            |
+===============================+=================+======================================================+
"""
A5 = """\
+-------------------------------------------------------------------------------------------------+
| npu-smi 26.1.1                          Version: 26.1.1                                         |
+---------------------------+---------------+-----------------------------------------------------+
| NPU ID | Name             | Health        | Power(W)    Temp(C)           Hugepages-Usage(page) |
|        |                  | Bus-Id        | NPU Util(%) Memory-Usage(MB)  HBM-Usage(MB)         |
+========+==================+===============+=====================================================+
| 1      | Ascend950        | OK            | 190.0       50                0     / 0             |
|        |                  | NA            | 3           0    / 0          4001  / 86016         |
+========+==================+===============+=====================================================+
"""


def lines(*pairs: tuple[str, object] | None, width: int = 30) -> str:
    """`key : value` lines as npu-smi indents them; None = an empty line."""
    return "".join("\n" if pair is None else f"\t{pair[0]:<{width}} : {pair[1]}\n" for pair in pairs)


def board(npu: int, compatibility: str = "OK", driver: str = "24.1.0.1", firmware: str = "7.5.0.4.220") -> str:
    return lines(
        ("NPU ID", npu),
        ("Product Name", "IT99TEST"),
        ("Serial Number", f"99TEST{npu:04}"),
        ("Software Version", driver),
        ("Firmware Version", firmware),
        ("Compatibility", compatibility),
        ("PCIe Bus Info", f"0000:{0x28 + npu:02X}:00.0"),
        ("PCI Vendor ID", "0x19E5"),
        ("PCI Device ID", "0xD802"),
        ("Subsystem Vendor ID", "0x19E5"),
        ("Subsystem Device ID", "0x3004"),
        ("Chip Count", 1),
    )


USAGES = lines(
    ("NPU ID", 6), ("Chip Count", 2), None,
    ("HBM Capacity(MB)", 65536), ("HBM Usage Rate(%)", 3), ("Chip ID", 0), None,
    ("HBM Capacity(MB)", 65536), ("HBM Usage Rate(%)", 9), ("Chip ID", 1), None,
)  # fmt: skip
COMMON = lines(
    ("NPU ID", 1), ("Chip Count", 1), None, ("Chip ID", 0), ("Aicore Usage Rate(%)", 12), ("Temperature(C)", 44),
    ("NPU Real-time Power(W)", 71.5), None, ("Chip Name", "mcu"), ("Temperature(C)", 29),
)  # fmt: skip
HEALTH = lines(
    ("NPU ID", 4), ("Health Status", "Critical"), ("Error Code", "80E01801 0x81af8000"), ("Error Information", "HBM")
)
VERSION_INFO = """\
Version=24.1.0.1
ascendhal_version=7.35.24
Innerversion=V100R001C20SPC009B111
compatible_version=[V100R001C18],[V100R001C19,V100R001C20]
compatible_version_fw=[7.0.0,7.6.99]
package_version=24.1.0.1
"""
FIRMWARE_INFO = """\
Version=7.5.0.4.220
firmware_version=1.0
package_version=24.1.0.1
compatible_version_drv=[24.0,24.0.],[24.1,24.1.]
"""
CANN_INFO = """\
package_name=Ascend-cann-toolkit
version=8.0.0
innerversion=V100R001C20SPC009B111
compatible_version=[V100R001C18,V100R001C20]
arch=aarch64
"""
COMPONENTS = """\
{
Get component version(7.5.0.4.220) succeed for deviceId(2), componentType(0).
{"device_id":2, "component":nve, "version":7.5.0.4.220}
Get component version(7.5.0.4.220) succeed for deviceId(3), componentType(3).
{"device_id":3, "component":uefi, "version":7.5.0.4.220}
}
"""
START = "[Driver] [2026-01-02 03:04:05] [INFO]Start time: 2026-01-02 03:04:05\n"
