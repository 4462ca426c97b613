"""Installer logs: the words decide, the last run counts, a log without an end says nothing."""

from __future__ import annotations

import pytest

from drivers.ascend import VENDOR
from tests.drivers.ascend.texts import START

UPGRADE = "bash Ascend-hdk-910b-npu-driver_24.1.0.1_linux-aarch64.run --nox11 --upgrade --quiet"


@pytest.mark.parametrize(
    ("end", "rc", "result", "reason"),
    [
        ("[INFO]Driver package upgraded successfully! The new version takes effect immediately. ", 0, "live", None),
        ("[INFO]Driver package upgraded successfully! Reboot needed for installation/upgrade to take effect! ", 2,
         "reboot-required", "hot-reset-failed"),
        ("[INFO]Driver package upgraded finished!\n[WARNING]Kernel modules can not be removed, reboot needed", 2,
         "reboot-required", "old-module-loaded"),
        ("[INFO]Firmware package installed successfully! Reboot now or after driver installation for it.", 2,
         "reboot-required", "firmware-activation"),
        ("[ERROR]The list of missing tools: ifconfig,", 1, "failed", "missing-tools"),
        ("[ERROR]Drv_dkms_env_check failed, details in : /var/log/x", 1, "failed", "kernel-module-build"),
        ("[ERROR]Version check does not match, please use version 25.2.0 or later.", 1, "failed", "version-floor"),
        ("[ERROR]ERR_NO:0x0091;ERR_DES:HwHiAiUser not exists! Please add HwHiAiUser", 1, "failed", "user-missing"),
        ("[WARNING]There is no chip matching the driver package.", 1, "failed", "wrong-chip"),
        ("[ERROR]something nobody has seen", 1, "failed", None),
        ("[INFO]a version is there, do you want to continue?  [y/n] ", 0, "declined", "prompt"),
    ],
)  # fmt: skip
def test_endings(end: str, rc: int, result: str, reason: str | None) -> None:
    install = VENDOR.read(UPGRADE, START + f"[Driver] [2026-01-02 03:04:09] {end}\n", rc).more["install"]
    assert isinstance(install, dict)
    assert (install["result"], install.get("reason")) == (result, reason)


def test_held_devices_are_their_own_status() -> None:
    text = START + "[Driver] [x] [ERROR]The davinci nodes are occupied by some processes, please stop processes\n"
    assert VENDOR.read(UPGRADE, text, 1).status == "occupied"


def test_a_log_without_its_last_message_tells_nothing() -> None:
    reading = VENDOR.read(UPGRADE, START + "[Driver] [x] [INFO]upgradePercentage:30%\n", None)
    assert reading.status == "unparsed" and "install" not in reading.more


def test_the_last_run_of_a_log_counts() -> None:
    first = START + "[Driver] [x] [ERROR]The list of missing tools: lspci,\n"
    second = (
        START + "[Driver] [x] [INFO]Driver package installed successfully! The new version takes effect immediately.\n"
    )
    assert VENDOR.read(UPGRADE, first + second, 0).more["install"] == {"result": "live"}


def test_archive_check() -> None:
    good = "Verifying archive integrity...  100%   SHA256 checksums are OK. All good.\n"
    check = "./x.run --check"
    assert VENDOR.read(check, good, 0).checks == ({"name": "archive-integrity", "result": "pass"},)
    bad = VENDOR.read(check, "Verifying archive integrity...Error in SHA256 checksums: 1 is different from 2\n", 1)
    assert bad.status == "failed" and bad.checks == ({"name": "archive-integrity", "result": "fail"},)
    assert VENDOR.read(check, "hello\n", 0).status == "unparsed"
