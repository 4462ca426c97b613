"""Readings of the tools around nvidia-smi: typed anew with made-up values."""

from __future__ import annotations

import json

import pytest

from drivers import read_output
from fleet.core.vendor import Reading


def read(command: str, text: str, rc: int | None = 0) -> Reading:
    return read_output("nvidia", command, text.encode(), rc)


def test_unreadable_values_warn() -> None:
    query = "nvidia-smi --query-gpu=<fields> --format=csv"
    text = "index, power.draw [W], ecc.errors.uncorrected.volatile.total\n0, [Unknown Error], 0\n1, 70.10 W, 0\n"
    assert [card["health"] for card in read(query, text).accelerators] == ["warning", "ok"]
    xml = (
        "<nvidia_smi_log><driver_version>577.11.02</driver_version><attached_gpus>1</attached_gpus>"
        '<gpu id="00000000:1A:00.0"><fan_speed>ERR!</fan_speed></gpu></nvidia_smi_log>'
    )
    assert read("nvidia-smi -q -x", xml).accelerators[0]["health"] == "warning"


def test_columns_with_one_known_title_are_a_header() -> None:
    text = "index, mig.mode.current, ecc.mode.current\n0, Disabled, Enabled\n1, Enabled, Enabled\n"
    assert len(read("nvidia-smi --query-gpu=<fields> --format=csv", text).accelerators) == 2


def test_processes_and_pages_name_each_gpu_once() -> None:
    apps = "gpu_uuid, pid, used_gpu_memory [MiB]\nGPU-0a, 41, 9 MiB\nGPU-0a, 42, 9 MiB\nGPU-0b, 43, [N/A]\n"
    reading = read("nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv", apps)
    assert (reading.status, [card["uuid"] for card in reading.accelerators]) == ("ok", ["GPU-0a", "GPU-0b"])
    idle = "pid, process_name, used_gpu_memory [MiB]\n"
    assert read("nvidia-smi --query-compute-apps=pid,name --format=csv", idle).status == "ok"
    pages = "gpu_uuid, retired_pages.address, retired_pages.cause\nGPU-0a, 0x1, A\nGPU-0a, 0x2, B\n"
    assert len(read("nvidia-smi --query-retired-pages=<fields> --format=csv", pages).accelerators) == 1


def test_link_capabilities_and_counters() -> None:
    gpu = "GPU 0: NVIDIA H20 (UUID: GPU-0a)\n"
    assert read("nvidia-smi nvlink -c", gpu + "\t Link 0, P2P is supported: true\n").accelerators[0]["index"] == 0
    text = (
        "| NVLINK Error Counts          |\n| GPU 5                        |\n| Link 0      |         |\n"
        "| -> CRC FLIT Error           | 0      |\n| -> Replay Error             | 4      |\n+----------+\n"
    )
    assert read("dcgmi nvlink -g 5 -e", text).links == (
        {"index": 5, "link": 0, "crc_flit_errors": 0, "replay_errors": 4},
    )


def test_the_host_engine_knows_cards() -> None:
    row = "| {i}      | Name: NVIDIA H20 |\n|        | PCI Bus ID: 00000000:{i}A:00.0 |\n"
    row += "|        | Device UUID: GPU-0{i} |\n"
    text = f"2 GPUs found.\n{row.format(i=0)}{row.format(i=1)}2 NvSwitches found.\n| Switch ID |\n| 8         |\n"
    reading = read("dcgmi discovery -l", text)
    assert reading.status == "ok"
    assert [card["bus_id"] for card in reading.accelerators] == ["0000:0a:00.0", "0000:1a:00.0"]
    assert read("dcgmi discovery -l", "0 GPUs found.\n0 NvSwitches found.\n").status == "no-devices"
    lost = "Error: unable to establish a connection to the specified host: h\nError: x. Return: (-21) disconnected\n"
    assert read("dcgmi diag -r 1", lost, 235).status == "not-ready"


def test_confidential_computing() -> None:
    assert read("nvidia-smi conf-compute -f", "CC status: ON\n").status == "ok"
    waiting = "Confidential Compute GPUs Ready state: not-ready\n"
    assert read("nvidia-smi conf-compute -grs", waiting).status == "not-ready"


def test_container_view() -> None:
    text = (
        "NVRM version:   577.11.02\nCUDA version:   12.9\n\nDevice Index:   0\nModel:          NVIDIA H20\n"
        "GPU UUID:       GPU-0a\nBus Location:   00000000:1A:00.0\n"
    )
    reading = read("nvidia-container-cli info", text)
    assert reading.components == {"driver": "577.11.02", "cuda": "12.9"}
    assert reading.accelerators[0]["bus_id"] == "0000:1a:00.0"
    for words, status in (("driver not loaded", "driver-not-loaded"), ("unknown error", "failed")):
        refused = f"nvidia-container-cli: initialization error: nvml error: {words}\n"
        assert read("nvidia-container-cli info", refused, 1).status == status


def test_kernel_logs_in_any_stamp() -> None:
    xid = "NVRM: Xid (PCI:0000:1a:00): 31, pid=7, name=x, MMU Fault\n"
    for stamp in ("2026-12-01T02:03:04,123456+08:00 ", "kern  :err   : [  10.123456] ", ""):
        assert [fault["code"] for fault in read("dmesg", stamp + xid).faults] == ["31"]
    fallen = "[    9.000001] NVRM: GPU 0000:1a:00.0: GPU has fallen off the bus.\n"
    coded = "[    9.000000] NVRM: Xid (PCI:0000:1a:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
    for text in (fallen, coded + fallen):
        reading = read("dmesg", text)
        assert reading.status == "device-lost"
        assert reading.faults == ({"code": "79", "bus_id": "0000:1a:00.0", "count": 1},)


def test_modules_that_cannot_be_moved() -> None:
    busy = "rmmod: ERROR: could not remove module nvidia: Resource temporarily unavailable\n"
    assert read("rmmod nvidia", busy, 1).status == "occupied"


def test_pci_lists_without_numbers_and_with_quotes() -> None:
    assert len(read("lspci", "0000:1a:00.0 3D controller: NVIDIA Corporation X (rev a1)\n").accelerators) == 1
    text = '1a:00.0 "3D controller [0302]" "NVIDIA Corporation [10de]" "X [Y] [2329]" -ra1 "" ""\n'
    assert read("lspci -mmnn", text).accelerators == ({"bus_id": "0000:1a:00.0", "pci_id": "10de:2329"},)


def test_the_fabric_manager_counts_as_it_is_last() -> None:
    failed = "Dec 01 02:03:04 n1 systemd[1]: Failed to start NVIDIA fabric manager service.\n"
    started = "Dec 01 02:13:04 n1 systemd[1]: Started NVIDIA fabric manager service.\n"
    unit = "journalctl -u nvidia-fabricmanager"
    assert read(unit, failed).status == "not-ready"
    assert read(unit, failed + started).status == "ok"
    assert read(unit, started + failed).status == "not-ready"
    assert read(unit, "-- No entries --\n").status == "ok"
    log = "[Dec 01 2026 02:03:04] [INFO] [tid 9] Fabric Manager version 577.11.02 is running\n"
    reading = read("cat /var/log/fabricmanager.log", log)
    assert (reading.status, reading.components) == ("ok", {"fabricmanager": "577.11.02"})


@pytest.mark.parametrize(
    ("command", "text", "rc", "status", "result"),
    [
        ("dnf install x", "Error: \n Problem: cannot install the best candidate\n", 1, "failed", "failed"),
        ("apt-get install x", "E: Could not get lock /l. It is held by process 9 (apt)\n", 100, "failed", "failed"),
        ("apt-get install x", "E: Unable to acquire the dpkg frontend lock (/l), are you root?\n", 100,
         "permission-denied", "failed"),
        ("dpkg -i x.deb", "dpkg: error: requested operation requires superuser privilege\n", 2, "permission-denied",
         "failed"),
        ("rpm -Uvh x.rpm", "   1:nvidia-open-3:581.2.3-1     ################################# [100%]\n", 0, "ok",
         "installed"),
        ("dnf install x", "Nothing to do.\nComplete!\n", 0, "ok", "unchanged"),
        ("dkms autoinstall", "Error! Your kernel headers for kernel 6.8.0-9 cannot be found at /x.\n", 1, "failed",
         "failed"),
    ],
)  # fmt: skip
def test_transactions_say_how_they_ended(command: str, text: str, rc: int, status: str, result: str) -> None:
    reading = read(command, text, rc)
    install = reading.more["install"]
    assert isinstance(install, dict)
    assert (reading.status, install["result"]) == (status, result)


def test_builds_that_never_began() -> None:
    text = "DKMS make.log for nvidia-577.11.02 for kernel 6.8.0-9-generic (x86_64)\nCompiler version check failed:\n"
    reading = read("cat /var/lib/dkms/nvidia/577.11.02/build/make.log", text)
    assert (reading.status, reading.components) == ("failed", {"driver": "577.11.02", "kernel": "6.8.0-9-generic"})


def test_what_was_changed_and_when() -> None:
    dpkg = (
        "2026-12-01 02:03:04 upgrade libx-577:amd64 577.10.01-1 577.11.02-1\n"
        "2026-12-01 02:03:05 status installed libx-577:amd64 577.11.02-1\n"
        "2026-12-01 02:03:06 install nvidia-y:amd64 <none> 1.2-3\n"
    )
    assert read("cat /var/log/dpkg.log", dpkg).more["changes"] == [
        {"package": "libx-577", "from": "577.10.01-1", "to": "577.11.02-1"},
        {"package": "nvidia-y", "to": "1.2-3"},
    ]
    dnf = (
        "Transaction ID : 4\nPackages Altered:\n    Upgrade  nvidia-x-3:577.11.02-1.el9.x86_64 @cuda\n"
        "    Upgraded nvidia-x-3:577.10.01-1.el9.x86_64 @@System\n"
    )
    assert read("dnf history info 4", dnf).more["changes"] == [
        {"package": "nvidia-x", "to": "3:577.11.02-1.el9", "from": "3:577.10.01-1.el9"}
    ]
    assert read("rpm -q nvidia-x", "package nvidia-x is not installed\n", 1).more["packages"] == {}


def test_collective_results_behind_any_prefix_and_as_json() -> None:
    head = "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
    row = "{p}1048576 262144 float sum -1 10.0 90.1 170.2 0 11.0 80.1 150.2 N/A\n"
    for prefix in ("", "worker-0: ", "2026-12-01T02:03:04.5Z ", "[1,0]<stdout>:"):
        assert read("all_reduce_perf", head + row.format(p=prefix)).measure["busbw_gbps"] == 170.2
    half = {"time": 1.0, "alg_bw": 90.1, "bus_bw": 170.2, "nwrong": 0}
    document = {
        "results": [{"size": 1048576, "out_of_place": half, "in_place": {**half, "bus_bw": 171.0, "nwrong": None}}],
        "out_of_bounds": {"count": 0},
        "average_bus_bandwidth": {"bandwidth": 170.6},
    }
    assert read("all_reduce_perf -J out.json", json.dumps(document)).measure == {
        "busbw_gbps": 171.0, "max_size_bytes": 1048576, "wrong": 0, "avg_busbw_gbps": 170.6, "out_of_bounds": 0,
    }  # fmt: skip
    assert read("all_reduce_perf", "n1: Test NCCL failure common.cu:7 'remote error'\n", 3).status == "failed"


def test_bandwidths_leave_out_only_the_diagonal() -> None:
    text = "Running d2d_x.\nmemcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n   0  1\n 0 0.00 9.50\n 1 0.00 0.00\n"
    assert read("nvbandwidth", text).measure == {"min_gbps": 0.0, "max_gbps": 9.5, "test": "d2d_x"}
    sample = "[CUDA Bandwidth Test] - Starting...\n   32000000\t\t\t55.3\n   32000000\t\t\t54.1\n\nResult = PASS\n"
    assert read("bandwidthTest", sample).measure == {"min_gbps": 54.1, "max_gbps": 55.3}


def test_ofed() -> None:
    assert read("ofed_info -s", "MLNX_OFED_LINUX-24.11-0.1.2.3:\n").components == {"ofed": "24.11-0.1.2.3"}


def test_measuring_tools_that_end_without_a_result() -> None:
    waits = "n1: Test CUDA failure common.cu:9 'system not yet initialized'\n"
    assert read("all_reduce_perf", waits, 2).status == "not-ready"
    assert read("nvbandwidth", "CUDA_ERROR_SYSTEM_NOT_READY\n", 1).status == "not-ready"
    assert read("gpu_burn 60", "No clients are alive!  Aborting\n", 1).status == "failed"
    assert read("gpu_burn 60", "10.0%  proc'd: 9 (500 Gflop/s)   errors: 0\n", None).status == "failed"


def test_firmware_updates_and_single_values() -> None:
    good = "TaskState: Running\nTaskState: Completed\nFirmware update successful!\nError Code: 0\n"
    assert read("nvfwupd update_fw -p a.fwpkg", good).more["install"] == {"result": "installed"}
    assert read("nvfwupd update_fw -p a.fwpkg", "TaskState: Exception\nError Code: 1\n", 1).status == "failed"
    assert read("cat /sys/module/nvidia/version", "577.11.02\n").components == {"driver": "577.11.02"}
    assert read("modinfo nvidia | grep ^version", "version:   577.11.02\n").components == {"driver": "577.11.02"}


def test_a_loop_over_an_index_alone_keeps_one_row_for_each_card() -> None:
    text = "index, temperature.gpu\n0, 40\n1, 41\n0, 42\n1, 43\n"
    reading = read("nvidia-smi --query-gpu=index,temperature.gpu --format=csv -l 1", text)
    assert [card["temperature_c"] for card in reading.accelerators] == [42, 43]
