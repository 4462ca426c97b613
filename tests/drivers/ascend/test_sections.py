"""`-t TYPE`, lists, maps and the answers of the other tools."""

from __future__ import annotations

import pytest

from drivers.ascend import VENDOR
from fleet.core.vendor import Reading
from tests.drivers.ascend import texts


def read(command: str, text: str, rc: int | None = None) -> Reading:
    return VENDOR.read(command, text, rc)


def test_blocks_that_the_chip_id_closes() -> None:
    reading = read("npu-smi info -t usages -i 6", texts.USAGES)
    measures = [chip["measure"] for chip in reading.accelerators]
    assert measures == [
        {"hbm_capacity_mb": 65536, "hbm_usage_rate": 3},
        {"hbm_capacity_mb": 65536, "hbm_usage_rate": 9},
    ]
    assert reading.measure == {}


def test_blocks_that_the_chip_id_opens_and_the_controller_is_no_chip() -> None:
    reading = read("npu-smi info -t common -i 1", texts.COMMON)
    assert reading.measure == {"aicore_usage_rate": 12, "temperature_c": 44, "npu_real_time_power_w": 71.5}
    assert reading.accelerators == ({"index": 1, "temperature_c": 44, "power_w": 71.5},)


def test_a_count_larger_than_the_chips_that_follow() -> None:
    cut = texts.USAGES[: texts.USAGES.index("HBM Usage Rate(%)", 200)]
    for text in (cut, texts.USAGES.rpartition("\tHBM Capacity")[0]):
        assert read("npu-smi info -t usages -i 6", text).status == "unparsed"


def test_health_codes_lose_their_prefix_and_case() -> None:
    reading = read("npu-smi info -t health -i 4 -c 0", texts.HEALTH)
    assert reading.accelerators == ({"index": 4, "health": "critical"},)
    assert [fault["code"] for fault in reading.faults] == ["80E01801", "81AF8000"]


@pytest.mark.parametrize(
    ("word", "result", "status"),
    [
        ("OK", "pass", "ok"), ("NOK", "fail", "driver-mismatch"), ("UNKNOWN", "warn", "ok"),
        ("NOT SUPPORT", "unsupported", "ok"),
    ],
)  # fmt: skip
def test_compatibility_words(word: str, result: str, status: str) -> None:
    reading = read("npu-smi info -t board -i 2", texts.board(2, word))
    assert reading.status == status and reading.checks == ({"name": "compatibility", "result": result},)
    assert reading.accelerators[0]["pci_id"] == "19e5:d802"


def test_boards_of_several_cards_must_agree() -> None:
    same = read("npu-smi info -t board", texts.board(0) + texts.board(1))
    assert same.status == "ok" and same.components == {"driver": "24.1.0.1", "firmware": "7.5.0.4.220"}
    other = read("npu-smi info -t board", texts.board(0) + texts.board(1, firmware="7.3.0.1.231"))
    assert other.status == "driver-mismatch" and other.components == {"driver": "24.1.0.1"}


def test_a_lost_card_among_boards() -> None:
    text = texts.board(0) + "Invalid card id.\nError parameter of -i\n" + texts.board(2)
    reading = read("npu-smi info -t board", text)
    assert reading.status == "device-lost" and len(reading.accelerators) == 2


def test_list_and_map() -> None:
    card = texts.lines(("NPU ID", 3), ("Chip Count", 1), None)
    assert read("npu-smi info -l", texts.lines(("Total Count", 1), None) + card).accelerators[0]["index"] == 3
    assert read("npu-smi info -l", texts.lines(("Total Count", 2), None) + card).status == "unparsed"
    head = "".join(f"{word:<31}" for word in ("\tNPU ID", "Chip ID", "Chip Logic ID", "Chip Name")) + "\n"
    rows = "\t7      0      0      Ascend 910B4\n\t7      1      -      Mcu\n"
    assert read("npu-smi info -m", head + rows).accelerators == ({"index": 7, "npu": 7, "name": "Ascend 910B4"},)


def test_hccs_lists() -> None:
    def block(state: str, lanes: str) -> str:
        return texts.lines(
            ("NPU ID", 0), ("hccs health status", state), ("hccs lane mode", lanes), ("hccs link speed", "[224 112]"),
            ("hccs retry count", "[0 9]"), ("hccs error count", "[0 1]"), ("hccs first error lane", "NA"),
        )  # fmt: skip

    reading = read("npu-smi info -t hccs", block("OK", "[4 2]") + block("NOK", "[4 4]"))
    assert len(reading.links) == 4 and reading.links[1]["lanes"] == 2 and reading.checks[0]["result"] == "fail"
    assert read("npu-smi info -t hccs -i 0 -c 0", block("OK", "[4 4 4]")).status == "unparsed"


def test_topology_above_the_diagonal() -> None:
    matrix = "\t   NPU0   NPU1   CPU Affinity\nNPU0   X   HCCS   0-3\nNPU1   HCCS   X   4-7\n"
    assert read("npu-smi info -t topo", matrix).links == ({"from": "NPU0", "to": "NPU1", "type": "HCCS"},)
    assert read("npu-smi info -t topo", matrix.rpartition("NPU1")[0]).status == "unparsed"


def test_files_tell_versions_and_ranges() -> None:
    driver = read("cat /usr/local/Ascend/driver/version.info", texts.VERSION_INFO)
    assert driver.components == {"driver": "24.1.0.1", "innerversion": "V100R001C20SPC009B111"}
    ranges = driver.more["ranges"]
    assert isinstance(ranges, dict) and ranges["firmware"] == [["7.0.0", "7.6.99"]]
    assert ranges["innerversion"] == [["V100R001C18", "V100R001C18"], ["V100R001C19", "V100R001C20"]]
    firmware = read("cat /usr/local/Ascend/firmware/version.info", texts.FIRMWARE_INFO)
    assert firmware.components == {"firmware": "7.5.0.4.220"}
    assert read("cat ascend_toolkit_install.info", texts.CANN_INFO).components["toolkit"] == "8.0.0"
    cfg = "# version: 1.0\nruntime_running_version=[7.6.0.1.9:8.0.0]\ntoolkit_running_version=[7.6.0.1.9:8.0.1]\n"
    assert read("cat version.cfg", cfg).components == {"toolkit": "8.0.1"}


@pytest.mark.parametrize(
    ("text", "rc", "status"),
    [
        ("cat: /usr/local/Ascend/driver/version.info: No such file or directory", 1, "failed"),
        ("NAME=Ubuntu\nVERSION_ID=22.04\n", 0, "unparsed"),
        (texts.VERSION_INFO + "Version=24.1.0.2\n", 0, "unparsed"),
        (texts.VERSION_INFO.rpartition("99]")[0], 0, "unparsed"),
    ],
)
def test_missing_foreign_and_cut_files(text: str, rc: int, status: str) -> None:
    assert read("cat /usr/local/Ascend/driver/version.info", text, rc).status == status


def test_install_info_says_whether_the_driver_is_complete() -> None:
    info = "UserName=HwHiAiUser\nDriver_Install_Type=full\n"
    assert read("cat /etc/ascend_install.info", info).checks == ()
    done = read("cat /etc/ascend_install.info", info + "Driver_Install_Status=complete\n")
    assert done.checks == ({"name": "driver-install-complete", "result": "pass"},)


def test_firmware_of_every_chip() -> None:
    command = "/usr/local/Ascend/driver/tools/upgrade-tool --device_index -1 --component -1 --version"
    reading = read(command, texts.COMPONENTS)
    assert reading.components == {"firmware": "7.5.0.4.220"} and [c["index"] for c in reading.accelerators] == [2, 3]
    mixed = read(
        command,
        texts.COMPONENTS.replace('"uefi", "version":7.5.0.4.220', "").replace(
            'uefi, "version":7.5.0.4', 'uefi, "version":7.3.0.4'
        ),
    )
    assert mixed.status == "driver-mismatch" and not mixed.components
    assert read(command, texts.COMPONENTS.rpartition("}")[0]).status == "unparsed"


def test_floor_and_boot_status() -> None:
    tool = "upgrade-tool --device_index -1"
    floors = '{"device_id":0, "hw_base_version":238}\n{"device_id":1, "hw_base_version":240}\n'
    assert read(f"{tool} --hw_base_version", floors).measure == {"hw_base_version": 240}
    broken = read(f"{tool} --hw_base_version", floors.replace("238", "crc_error"))
    assert broken.measure == {} and broken.checks[0]["result"] == "fail"
    assert read(f"{tool} --boot_status", "boot status:16\nboot status:16\n").status == "ok"
    assert read(f"{tool} --boot_status", "boot status:16\nboot status:2\n").status == "not-ready"


@pytest.mark.parametrize(
    ("command", "text", "status", "install"),
    [
        ("npu-smi upgrade -t mcu -i 0 -f x.hpm", "call mcu_get_lock failed. ret is -8005\n", "occupied", None),
        ("npu-smi upgrade -t mcu -i 0 -f x.hpm", texts.lines(("Status", "OK"), ("Message", "need active mcu")), "ok",
         {"result": "reboot-required", "reason": "mcu-activate"}),
        ("npu-smi upgrade -t mcu -i 0 -f x.hpm",
         texts.lines(("Status", "fail"), ("Message", "Start device upgrade fail[3]")), "failed", {"result": "failed"}),
        ("npu-smi upgrade -a mcu -i 0",
         texts.lines(("Status", "OK"), ("Message", "The upgrade has taken effect after reboot.")), "ok",
         {"result": "live"}),
        ("npu-smi upgrade -q mcu -i 0", texts.lines(("Conclusion", "Running"), ("Schedule", 40)), "not-ready", None),
    ],
)  # fmt: skip
def test_controllers(command: str, text: str, status: str, install: object) -> None:
    reading = read(command, text)
    assert reading.status == status and reading.more.get("install") == install


def test_network_tool() -> None:
    assert read("hccn_tool -i 3 -ip -g", "\n").as_dict()["links"] == []
    assert (
        read("hccn_tool -i 3 -ip -g", "ipaddr:198.51.100.7\nnetmask:255.255.255.0\n").links[0]["ip"] == "198.51.100.7"
    )
    assert read("hccn_tool -i 3 -ip -g", "ipaddr:198.51.100").status == "unparsed"
    assert read("hccn_tool -i 3 -net_health -g", "net health status: Socket failed\n").checks[0]["result"] == "fail"
    old = (
        "[devid 3]link up count   : 4\n[devid 3]link down count : 5\n[devid 3]link change records :\n"
        "[devid 3]    Mon Jan 5    LINK DOWN\n[devid 3]    Sun Jan 4    LINK UP\n"
    )
    history = read("hccn_tool -i 3 -link_stat -g", old)
    assert history.links == ({"state": "down"},) and history.measure == {"link_up_count": 4, "link_down_count": 5}


def test_diagnosis_tool() -> None:
    assert read("ascend-dmi --bw -t d2d -q -fmt json", '{"error":{"code":9}}', 0).status == "failed"
    gap = '{"item_name":"aiflops","item_result":"FAIL","item_info":"Read threshold failed from configuration file!"}'
    assert read("ascend-dmi --dg -i aiflops -q -fmt json", gap).status == "unsupported"
    table = (
        "Bandwidth Test\nID  Size(Bytes)  Execute Times  Bandwidth(GB/s)\n0   64           5              0.5\n"
        "0   4096         5              40.5\n1   4096         5              39.5\n"
    )
    assert read("ascend-dmi --bw -t d2h", table).measure == {"min_gbps": 39.5, "max_gbps": 40.5}
    assert read("ascend-dmi --dg -i hbm -q -fmt json", '{"DiagnosisItems":[{"sub_items":[').status == "unparsed"


def test_collective_test_fails_with_one_wrong_row() -> None:
    head = "data_size(Bytes): | aveg_time(us): | alg_bandwidth(GB/s): | check_result:\n"
    good = head + "8192 | 700.0 | 0.01 | success\n16384 | 701.0 | 0.02 | success\n"
    command = "mpirun -n 8 ./bin/all_reduce_test -b 8K -e 16K -p 8"
    assert read(command, good).measure == {"algbw_gbps": 0.02}
    wrong = read(command, good.replace("0.01 | success", "0.01 | failed"))
    assert wrong.checks == ({"name": "all_reduce", "result": "fail"},)


def test_bus() -> None:
    text = (
        "0000:2a:00.0 Processing accelerators [1200]: Huawei Technologies Co., Ltd. Device [19e5:d802] (rev 20)\n"
        "0000:2b:00.0 Ethernet controller [0200]: Huawei Technologies Co., Ltd. Hi1822 [19e5:1822] (rev 45)\n"
    )
    assert read("lspci -Dnn", text).accelerators == ({"bus_id": "0000:2a:00.0", "pci_id": "19e5:d802"},)
    assert read("lspci", "00:00.0 Host bridge: Somebody Bridge\n").status == "no-devices"
