"""Outputs that are mixed, foreign, localised, refused or of a rarer command; made-up values in the real forms."""

from __future__ import annotations

import time

import pytest

import drivers
from drivers.ascend import VENDOR
from fleet.core.vendor import Reading
from tests.drivers.ascend.texts import A3, DUO, START, TABLE, lines

UPGRADE = "bash Ascend-hdk-910b-npu-driver_24.1.0.1_linux-aarch64.run --nox11 --upgrade --quiet"
TOOL = "/usr/local/Ascend/driver/tools/upgrade-tool --device_index -1"


def read(command: str, text: str, rc: int | None = 0) -> Reading:
    return drivers.read_output("ascend", command, text.encode(), rc)


@pytest.mark.parametrize("offset", [0, 1, 5, 7, 9])
def test_two_runs_line_by_line_are_not_one_inventory(offset: int) -> None:
    one, other = TABLE.split("\n"), [""] * offset + TABLE.replace("910B2", "910B4").split("\n")
    both = [
        line
        for i in range(max(len(one), len(other)))
        for line in (*one[i : i + 1], *other[i : i + 1])
    ]  # fmt: skip
    reading = read("npu-smi info", "\n".join(both))
    assert reading.status == "unparsed" and not reading.accelerators


def test_a_watch_that_was_stopped_keeps_its_last_whole_table() -> None:
    for cut in range(0, len(TABLE), 53):
        if TABLE[:cut].rpartition("\n")[2].strip() != "|":  # that may be the start of anything
            assert len(read("npu-smi info", TABLE + TABLE[:cut]).accelerators) == 2, cut


@pytest.mark.parametrize("text", [A3, DUO])
def test_a_card_of_which_one_chip_was_printed_is_half(text: str) -> None:
    rows = text.split("\n")
    assert read("npu-smi info", "\n".join(rows[:9])).status == "unparsed"
    assert len(read("npu-smi info", text).accelerators) == 2


@pytest.mark.parametrize(
    ("text", "rc", "status"),
    [
        ("bash: npu-smi: 未找到命令", 127, "tool-missing"),
        ("-bash: npu-smi：未找到命令", None, "tool-missing"),
        ("bash: /usr/local/sbin/npu-smi: 是一个目录", 126, "tool-missing"),
        ("bash: /usr/local/sbin/npu-smi: 权限不够", None, "permission-denied"),
        ("bash: /usr/local/sbin/npu-smi: 没有那个文件或目录", None, "tool-missing"),
        ("sudo: 需要密码", 1, "permission-denied"),
        ("sudo: a terminal is required to read the password", 1, "permission-denied"),
        ("Failed to upgrade. ret is -9002", 214, "permission-denied"),
        ("Failed to upgrade. ret is -9021", 195, "not-ready"),
        ("Failed to query. ret is -9255", 217, "unsupported"),
    ],
)
def test_refusals(text: str, rc: int | None, status: str) -> None:
    assert read("npu-smi info", text + "\n", rc).status == status


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("npu-smi info", "Unable to determine the device handle for GPU 0000:1A:00.0: Not Found"),
        ("npu-smi info -t topo", "NVLink is not supported on this device"),
        ("npu-smi info -t usages -i 0", "GPU 00000000:1A:00.0\n    Temperature\n        Memory Temp : 40 C\n"),
        ("npu-smi info -t common -i 0", "# Avg bus bandwidth    : 101.5\n"),
        ("hccn_tool -i 0 -link -g", "Failed to initialize NVML: Unknown Error"),
        (UPGRADE, "[Jan 02 2026 03:04:05] [ERROR] [tid 9] a fatal error on port 7\n"),
        ("cat /usr/local/Ascend/driver/version.info", "GPU#0 show Sysfs error: No such file or directory\nEnd\n"),
    ],
)
def test_what_another_vendor_prints_is_not_read(command: str, text: str) -> None:
    assert read(command, text).status == "unparsed"


def test_a_list_printed_twice_is_read_once() -> None:
    once = lines(("Total Count", 2), None, ("NPU ID", 3), ("Chip Count", 1), None, ("NPU ID", 6), ("Chip Count", 1))
    for text in (once, once + once, once + once[:40]):
        assert [card["index"] for card in read("npu-smi info -l", text).accelerators] == [3, 6]
    doubled = "\n".join(line for line in once.split("\n") for _ in range(2))
    assert read("npu-smi info -l", doubled).status == "unparsed"


def test_sections_with_rarer_labels_and_a_controller_at_the_end() -> None:
    flash = lines(("NPU ID", 2), ("Chip Count", 1), None, ("Flash Count", 1), ("Size(MB)", 32), ("Chip ID", 0))
    assert read("npu-smi info -t flash -i 2", flash).measure == {"flash_count": 1, "size_mb": 32}
    opened = lines(
        ("NPU ID", 1), ("Chip Count", 2), None, ("Chip ID", 0), ("Memory Usage Rate(%)", 7), None, ("Chip ID", 1),
        ("Memory Usage Rate(%)", 8), None, ("Chip Name", "mcu"),
    )  # fmt: skip
    assert len(read("npu-smi info -t usages -i 1", opened).accelerators) == 2


@pytest.mark.parametrize(
    ("word", "status"),
    [("idle", "ok"), ("upgrading", "not-ready"), ("failed", "failed"), ("waitting_restart", "ok"),
     ("not support", "unsupported")],
)  # fmt: skip
def test_progress_of_the_firmware(word: str, status: str) -> None:
    text = "".join(f'{{"device_id":{i}, "status":{word}}}\n' for i in range(2))
    assert read(f"{TOOL} --status", text).status == status


def test_a_component_list_that_breaks_off_is_no_firmware() -> None:
    def record(device: int, name: str, kind: int) -> str:
        return (
            f"Get component version(7.5.0.9.220) succeed for deviceId({device}), componentType({kind}).\n"
            f'{{"device_id":{device}, "component":{name}, "version":7.5.0.9.220}}\n'
        )

    text = "".join(record(d, name, k) for d in range(3) for k, name in enumerate(("nve", "imu")))
    whole = read(f"{TOOL} --component -1 --version", text)
    assert whole.components == {"firmware": "7.5.0.9.220"} and len(whole.accelerators) == 3
    for cut in range(10, len(text) - 2, 7):
        reading = read(f"{TOOL} --component -1 --version", text[:cut])
        if not text[:cut].rstrip().endswith("}"):  # a list of whole records does not show that it is cut
            assert reading.status == "unparsed", cut


@pytest.mark.parametrize(
    ("command", "text", "links"),
    [
        ("-vnic -g", "vnic ipaddr:192.0.2.7\nvnic netmask:255.255.0.0\n",
         [{"ip": "192.0.2.7", "netmask": "255.255.0.0"}]),
        ("-lldp -g", "Port ID TLV\n\tIfname: 200GE2/0/9\nSystem Name TLV\n\tleaf-7\nEnd of LLDPDU TLV\n",
         [{"neighbour": "leaf-7", "port": "200GE2/0/9"}]),
        ("-ip -g", "Warning: Permanently added 192.0.2.9 to the list of known hosts.\n", []),
    ],
)  # fmt: skip
def test_ports(command: str, text: str, links: list[object]) -> None:
    reading = read(f"hccn_tool -i 1 {command}", text)
    assert (reading.status, [dict(link) for link in reading.links]) == ("ok", links)


def test_no_address_is_ok_only_when_the_tool_ended_well() -> None:
    assert read("hccn_tool -i 1 -ip -g", "\n", 0).status == "ok"
    assert read("hccn_tool -i 1 -ip -g", "", 124).status == "failed"


@pytest.mark.parametrize(
    ("end", "rc", "result", "reason"),
    [
        ("[ERROR]ERR_NO:0x0095;ERR_DES:the user is not the one of the last installation", 1, "failed", "user-missing"),
        ("[ERROR]ERR_NO:0x0096;ERR_DES:the user is not in the group", 1, "failed", "user-missing"),
        ("[INFO]a version is there, do you want to continue?  [y/n] \n[Driver] [x] [INFO]End time: x", 0, "declined",
         "prompt"),
    ],
)  # fmt: skip
def test_more_endings(end: str, rc: int, result: str, reason: str) -> None:
    install = VENDOR.read(UPGRADE, START + f"[Driver] [x] {end}\n", rc).more["install"]
    assert install == {"result": result, "reason": reason}


def test_a_deb_that_fails_and_the_hot_reset_log() -> None:
    log = "Setting up ascend910b-driver (25.9.1) ...\ndpkg: error processing package ascend910b-driver (--install):\n"
    assert read("dpkg -i x.deb", log, None).more["install"] == {"result": "failed"}
    status = "cat /var/log/hotreset_status.log"
    assert read(status, "start\nscan_success.1700000000\n").more["install"] == {"result": "live"}
    assert read(status, "start\nko_abort\n").more["install"] == {
        "result": "reboot-required", "reason": "old-module-loaded",
    }  # fmt: skip
    assert read(status, "start\n").status == "not-ready"


def test_a_controller_whose_file_did_not_arrive() -> None:
    text = lines(("Validity", "success"), ("transfile", "fail"))
    assert read("npu-smi upgrade -t mcu -i 0 -f x.hpm", text, 1).more["install"] == {"result": "failed"}


def test_twenty_megabytes_of_escapes_are_binary_and_quick() -> None:
    began = time.process_time()
    assert read("npu-smi info", "\x1b[" * 10_000_000).status == "unparsed"
    assert time.process_time() - began < 2
