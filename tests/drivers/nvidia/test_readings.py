"""Readings of NVIDIA outputs: forms typed anew with made-up values, and the ways in which an output is not whole."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.nvidia import VENDOR
from drivers.nvidia.commands import parse
from drivers.text import clean
from fleet.core.vendor import Reading

HEAD = "| NVIDIA-SMI 575.57.08              Driver Version: 575.57.08      CUDA Version: 12.9     |"
RULE = "+-----------------------------------------+------------------------+----------------------+"
TITLES = """\
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|"""
ROWS = """\
|   0  NVIDIA H20                     On  |   00000000:17:00.0 Off |                    0 |
| N/A   31C    P0             74W /  500W |    1204MiB /  97871MiB |     12%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA H20                     On  |   00000000:2A:00.0 Off |                    2 |
| N/A   33C    P0             71W /  500W |       0MiB /  97871MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
"""
TABLE = f"Mon Nov  2 03:04:05 2026       \n{RULE}\n{HEAD}\n{RULE}\n{TITLES}\n{ROWS}"


def read(command: str, text: str, rc: int | None = 0) -> Reading:
    cleaned = clean(text.encode())
    assert cleaned is not None
    return VENDOR.read(command, cleaned, rc)


def test_table_gives_versions_and_cards() -> None:
    reading = read("nvidia-smi", TABLE)
    assert reading.status == "ok"
    assert reading.components == {"smi": "575.57.08", "driver": "575.57.08", "cuda": "12.9"}
    assert [card["bus_id"] for card in reading.accelerators] == ["0000:17:00.0", "0000:2a:00.0"]
    assert reading.accelerators[0]["memory_used_mib"] == 1204
    assert [card["health"] for card in reading.accelerators] == ["ok", "critical"]


@pytest.mark.parametrize(
    "command",
    ["nvidia-smi", "sudo -n /usr/bin/nvidia-smi", "LC_ALL=C timeout 20 nvidia-smi", "sh -c 'nvidia-smi; true'"],
)
def test_the_way_a_command_is_called_makes_no_difference(command: str) -> None:
    assert read(command, TABLE).accelerators == read("nvidia-smi", TABLE).accelerators


def test_noise_ends_of_line_and_colours_make_no_difference() -> None:
    want = read("nvidia-smi", TABLE).accelerators
    assert read("nvidia-smi", "Authorised users only!\n" + TABLE + "logout\n").accelerators == want
    assert read("nvidia-smi", TABLE.replace("\n", "\r\n")).accelerators == want
    assert read("nvidia-smi", TABLE.replace("NVIDIA H20", "\x1b[1mNVIDIA H20\x1b[0m")).accelerators == want


def test_watch_mode_counts_each_card_once() -> None:
    later = TABLE.replace("1204MiB", "1300MiB")
    reading = read("nvidia-smi -l 5", TABLE + "\n" + later)
    assert len(reading.accelerators) == 2
    assert reading.accelerators[0]["memory_used_mib"] == 1300
    cut = TABLE + "\n" + later[: later.index("|   1  NVIDIA")]
    assert len(read("nvidia-smi -l 5", cut + "|   1  NVI").accelerators) == 2


@pytest.mark.parametrize("end", ["| N/A   33C", "|   1  NVIDIA H20", "|   0  NVIDIA"])
def test_a_table_cut_after_its_header_gives_the_header_only(end: str) -> None:
    reading = read("nvidia-smi", TABLE[: TABLE.rindex(end) + 6])
    assert reading.status == "failed"
    assert reading.components["driver"] == "575.57.08"
    assert not reading.accelerators


def test_a_header_cut_in_itself_is_not_read() -> None:
    reading = read("nvidia-smi", TABLE[: TABLE.index("Driver Version: 575") + 22])
    assert reading.status == "unparsed"
    assert not reading.components


@pytest.mark.parametrize(
    ("text", "rc", "status"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure …\n\n", 9,
         "driver-not-loaded"),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 555.42\n", 18,
         "driver-mismatch"),
        ("Failed to initialize NVML: Unknown Error\n", 255, "failed"),
        ("No devices were found\n", 6, "no-devices"),
        ("bash: nvidia-smi: command not found\n", 127, "tool-missing"),
        ("sudo: a password is required\n", 1, "permission-denied"),
        ("", 0, "unparsed"),
        ("", 9, "driver-not-loaded"),
        ("", 124, "failed"),
        ("| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|\n", 0,
         "unparsed"),
        ("| MX-SMI 2.2.3                       Kernel Mode Driver Version: 2.10.12  |\n", 0, "unparsed"),
    ],
)  # fmt: skip
def test_what_is_said_in_place_of_an_answer(text: str, rc: int, status: str) -> None:
    reading = read("nvidia-smi", text, rc)
    assert reading.status == status
    assert not reading.accelerators


def test_a_lost_gpu_is_named() -> None:
    text = "Unable to determine the device handle for GPU0: 0000:C1:00.0: Unknown Error\n"
    reading = read("nvidia-smi -q", text, 15)
    assert reading.status == "device-lost"
    assert reading.accelerators == ({"bus_id": "0000:c1:00.0", "health": "lost"},)


def test_a_killed_program_keeps_the_header_and_no_rows() -> None:
    reading = read("nvidia-smi", TABLE, 124)
    assert reading.status == "failed"
    assert reading.components["driver"] == "575.57.08"
    assert not reading.accelerators


QUERY = (
    "index, name, uuid, pci.bus_id, driver_version, memory.total [MiB], remapped_rows.pending, fabric.state, count\n"
)
ROW = "{i}, NVIDIA H20, GPU-0{i}, 00000000:{i}A:00.0, 575.57.08, 97871 MiB, {p}, {f}, 2\n"


def test_csv_columns_are_found_by_name() -> None:
    text = QUERY + ROW.format(i=0, p="No", f="Completed") + ROW.format(i=1, p="Yes", f="Completed")
    reading = read("nvidia-smi --query-gpu=<fields> --format=csv", text)
    assert reading.status == "ok"
    assert [card["health"] for card in reading.accelerators] == ["ok", "warning"]
    assert reading.accelerators[1]["bus_id"] == "0000:1a:00.0"
    assert reading.components == {"driver": "575.57.08"}


def test_csv_without_header_uses_the_columns_asked_for() -> None:
    reading = read("nvidia-smi --query-gpu=index,temperature.gpu --format=csv,noheader,nounits", "0, 41\n1, 43\n")
    assert [card["temperature_c"] for card in reading.accelerators] == [41, 43]


def test_csv_that_breaks_off_gives_nothing() -> None:
    whole = QUERY + ROW.format(i=0, p="No", f="Completed") + ROW.format(i=1, p="No", f="Completed")
    for cut in (whole[:-30], QUERY + ROW.format(i=0, p="No", f="Completed"), QUERY):
        reading = read("nvidia-smi --query-gpu=<fields> --format=csv", cut)
        assert reading.status == "failed"
        assert not reading.accelerators


def test_a_fabric_that_is_not_up_is_not_ready() -> None:
    text = QUERY + ROW.format(i=0, p="No", f="In Progress") + ROW.format(i=1, p="No", f="Completed")
    assert read("nvidia-smi --query-gpu=<fields> --format=csv", text).status == "not-ready"


LOG = """\

==============NVSMI LOG==============

Timestamp                                 : Mon Nov  2 03:04:05 2026
Driver Version                            : 612.10.01 [Deprecated; use KMD Version]
KMD Version                               : 612.10.01
CUDA UMD Version                          : 13.4

Attached GPUs                             : 1
GPU 00000000:17:00.0
    Product Name                          : NVIDIA H20
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    GPU UUID                              : GPU-aa
    VBIOS Version                         : 96.00.AF.00.01
    GPU Recovery Action                   : {action}
    FB Memory Usage
        Total                             : 97871 MiB
        Used                              : 3 MiB
    Fabric
        State                             : {state}
    Processes                             : None

"""


def test_details_are_read_by_indentation() -> None:
    reading = read("nvidia-smi -q", LOG.format(action="None", state="Completed"))
    assert reading.status == "ok"
    assert reading.components == {"driver": "612.10.01", "cuda": "13.4"}
    (card,) = reading.accelerators
    assert (card["index"], card["memory_used_mib"], card["fabric_state"], card["health"]) == (0, 3, "Completed", "ok")


def test_details_say_what_is_wrong() -> None:
    assert read("nvidia-smi -q", LOG.format(action="Reset", state="N/A")).accelerators[0]["health"] == "critical"
    assert read("nvidia-smi -q", LOG.format(action="None", state="In Progress")).status == "not-ready"
    cut = LOG.format(action="None", state="Completed")
    reading = read("nvidia-smi -q", cut[: cut.index("    Processes")])
    assert (reading.status, reading.accelerators) == ("failed", ())


def test_xml_survives_noise_and_refuses_halves() -> None:
    xml = (
        "<nvidia_smi_log><driver_version>552.10.02</driver_version><attached_gpus>3</attached_gpus>"
        '<gpu id="00000000:17:00.0"><uuid>GPU-aa</uuid><mig_devices><mig_device><uuid>MIG-1</uuid></mig_device>'
        "</mig_devices></gpu></nvidia_smi_log>"
    )
    reading = read("nvidia-smi -q -x", f"motd\n<?xml version='1.0' ?>\n{xml}\nbye\n")
    assert reading.status == "ok"
    assert reading.accelerators == ({"bus_id": "0000:17:00.0", "uuid": "GPU-aa"},)
    assert reading.more["attached"] == 3
    assert read("nvidia-smi -q -x", "<?xml?>" + xml[:-30]).status == "unparsed"
    bomb = f'<!DOCTYPE x [<!ENTITY a "b">]>{xml.replace("GPU-aa", "&a;")}'
    assert read("nvidia-smi -q -x", bomb).status == "unparsed"


def test_kernel_log_joins_wrapped_messages() -> None:
    text = """\
[   11.100000] NVRM: The NVIDIA GPU 0000:17:00.0
[   11.100001] NVRM: (PCI ID: 10de:2329) installed in this system has
[   11.100002] NVRM: fallen off the bus and is not responding to commands.
[   12.000000] NVRM: Xid (PCI:0000:2a:00): 31, pid=77, name=python3, MMU Fault
[   13.000000] NVRM: Xid (PCI:0000:2a:00): 31, pid=78, name=python3, MMU Fault
[   14.000000] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 1
"""
    reading = read("dmesg", text)
    assert reading.status == "device-lost"
    assert [(fault["code"], fault["count"]) for fault in reading.faults] == [("31", 2), ("SXid 12028", 1), ("79", 1)]
    assert reading.accelerators == ({"bus_id": "0000:17:00.0", "pci_id": "10de:2329", "health": "lost"},)


def test_kernel_log_names_both_versions_of_a_mismatch() -> None:
    text = (
        "Nov  2 03:04:05 n1 kernel: [ 9.1] NVRM: API mismatch: the client has the version 555.42.06, but\n"
        "Nov  2 03:04:05 n1 kernel: [ 9.1] NVRM: this kernel module has the version 555.42.02.  Please\n"
    )
    reading = read("journalctl -k", text)
    assert reading.status == "driver-mismatch"
    assert reading.components == {"client": "555.42.06", "driver": "555.42.02"}


def test_module_files() -> None:
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  571.11.02  Release Build  (x@y)\nGCC: 1\n"
    reading = read("cat /proc/driver/nvidia/version", text)
    assert reading.components == {"driver": "571.11.02", "driver_flavour": "open"}
    gone = read("cat /proc/driver/nvidia/version", "cat: /proc/driver/nvidia/version: No such file or directory\n", 1)
    assert gone.status == "driver-not-loaded"
    info = "filename:  /lib/modules/6.8.0-1/updates/nvidia.ko\nversion:   571.11.02\nlicense:   NVIDIA\n"
    info += "vermagic:  6.8.0-1 SMP \n"
    assert read("modinfo nvidia", info).components == {
        "driver": "571.11.02", "driver_flavour": "proprietary", "kernel": "6.8.0-1",
    }  # fmt: skip
    assert read("modinfo metax", info.replace("nvidia", "metax")).status == "unparsed"
    busy = read("rmmod nvidia", "rmmod: ERROR: Module nvidia is in use by: gdrdrv nvidia_uvm\n", 1)
    assert busy.status == "occupied"


def test_package_lists_hold_what_is_installed() -> None:
    text = (
        "Desired=Unknown/Install/Remove/Purge/Hold\n||/ Name  Version  Architecture Description\n"
        "ii  nvidia-driver-555-open    555.42.06-1  amd64  driver\n"
        "hi  libnvidia-nscq-555:amd64  555.42.06-1  amd64  library\n"
        "rc  nvidia-driver-545         545.29.06-1  amd64  old\n"
        "iF  cuda-drivers              571.11.02-1  amd64  half configured\n"
    )
    assert read("dpkg -l", text).more["packages"] == {
        "nvidia-driver-555-open": "555.42.06-1", "libnvidia-nscq-555": "555.42.06-1",
    }  # fmt: skip
    assert read("rpm -qa", "nvidia-open-581.10.02-1.el9.x86_64\nbash-5.1.8-6.el9.x86_64\n").more["packages"] == {
        "nvidia-open": "581.10.02-1.el9", "bash": "5.1.8-6.el9",
    }  # fmt: skip
    assert read("rpm -qa", "(none)\n").more["packages"] == {}
    assert read("dkms status", "nvidia/581.10.02, 5.14.0-1.el9, x86_64: installed\n").status == "ok"


def test_diagnostic_tables_keep_gpus_of_a_result() -> None:
    text = """\
Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 3.1.8                                          |
+-----  Hardware  ----------+------------------------------------------------+
| GPU Memory                | Pass - GPUs: 0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 1  |
|                           |1, 12, 13                                       |
|                           | Fail - GPU: 7                                  |
| Warning                   | GPU 7 has bad memory                           |
| Inforom                   | Skip - All                                     |
+---------------------------+------------------------------------------------+
"""
    reading = read("dcgmi diag -r 2", text)
    assert reading.status == "failed"
    assert reading.components == {"dcgm": "3.1.8"}
    assert [check["result"] for check in reading.checks] == ["pass", "fail", "skip"]
    assert reading.checks[1]["gpus"] == [7]


def test_diagnostic_json_of_version_4() -> None:
    test = {
        "name": "memory",
        "results": [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": 5, "status": "Skip"}],
        "test_summary": {"status": "Skip"},
    }
    document = {
        "DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [test]}]},
        "metadata": {"version": "4.9.1", "Driver Version Detected": "581.10.02"},
    }
    reading = read("dcgmi diag -r 2 -j", "warming up\n" + json.dumps(document), 0)
    assert reading.status == "ok"
    assert reading.components == {"dcgm": "4.9.1", "driver": "581.10.02"}
    assert reading.checks[1] == {"name": "memory", "result": "skip", "gpus": [5]}
    assert read("dcgmi diag -r 2 -j", json.dumps(document), 226).status == "failed"
    assert read("dcgmi diag -j", json.dumps(document)[:-9]).status == "unparsed"


def test_links_and_topology() -> None:
    text = "GPU 0: NVIDIA H20 (UUID: GPU-aa)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
    assert read("nvidia-smi nvlink -s", text).links == (
        {"index": 0, "links_total": 2, "links_up": 1, "speed_gbps": 26.562},
    )
    matrix = (
        "\t\x1b[4mGPU0\tGPU1\tmlx5_0\tCPU Affinity\tNUMA Affinity\x1b[0m\n"
        "GPU0\t X \tNV18\tPIX\t0-31\t0\nGPU1\tNV18\t X \tSYS\t0-31\t0\nmlx5_0\tPIX\tSYS\t X \n\nLegend:\n"
    )
    assert read("nvidia-smi topo -m", matrix).links == ({"from": "GPU0", "to": "GPU1", "type": "NV18"},)


def test_fabric_manager_of_another_version() -> None:
    text = (
        "Nov 02 03:04:05 n1 nv-fabricmanager[9]: fabric manager NVIDIA GPU driver interface version 555.42.02 "
        "don't match with driver version 555.42.06. Please update with matching NVIDIA driver package.\n"
    )
    reading = read("journalctl -u nvidia-fabricmanager", text)
    assert reading.status == "driver-mismatch"
    assert reading.components == {"fabricmanager": "555.42.02", "driver": "555.42.06"}


def test_collective_results_count_wrong_values() -> None:
    head = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
    row = "[1,0]<stdout>: 1048576 262144 float sum -1 10.0 90.1 170.2 {w} 11.0 80.1 150.2 0\n"
    good = read("mpirun -np 8 all_reduce_perf -b 1M", head + row.format(w=0) + "# Out of bounds values : 0 OK\n")
    assert good.status == "ok"
    assert good.measure["busbw_gbps"] == 170.2
    assert read("all_reduce_perf", head + row.format(w=3)).status == "failed"


COMMANDS = (
    "nvidia-smi", "nvidia-smi -q", "nvidia-smi -q -x", "nvidia-smi -L", "nvidia-smi --version", "nvidia-smi topo -m",
    "nvidia-smi nvlink -s", "nvidia-smi --query-gpu=index,name --format=csv", "cat /proc/driver/nvidia/version",
    "modinfo nvidia", "lsmod", "dmesg", "journalctl -u nvidia-fabricmanager", "dcgmi diag -r 1", "dcgmi nvlink -s",
    "lspci -nn", "dpkg -l", "rpm -qa", "dkms status", "apt-get install x", "cat /var/log/apt/history.log",
    "cat /var/lib/dkms/nvidia/1/build/make.log", "nvfwupd show_version", "all_reduce_perf", "nvbandwidth", "gpu_burn 9",
    "nv-fabricmanager --version", "cat /usr/local/cuda/version.json", "something else", "",
)  # fmt: skip


@given(st.sampled_from(COMMANDS), st.text(max_size=300), st.one_of(st.none(), st.integers(0, 255)))
@settings(max_examples=400, deadline=None)
def test_a_reader_never_raises_and_unparsed_is_empty(command: str, text: str, rc: int | None) -> None:
    reading = VENDOR.read(command, clean(text.encode("utf-8", "replace")) or "", rc)
    if reading.status == "unparsed":
        assert not (reading.components or reading.accelerators or reading.checks or reading.links)
    json.dumps(reading.as_dict())


@given(st.integers(0, len(TABLE)), st.integers(0, len(TABLE)), st.binary(max_size=6))
@settings(max_examples=300, deadline=None)
def test_a_damaged_table_never_gains_a_card(start: int, length: int, junk: bytes) -> None:
    damaged = TABLE[:start].encode() + junk + TABLE[start + length % 40 :].encode()
    text = clean(damaged)
    reading = VENDOR.read("nvidia-smi", text or "", 0)
    assert len(reading.accelerators) <= 2


@pytest.mark.parametrize(
    "junk", ["x", "lorem ipsum dolor\n" * 9, "\ufffd" * 50, '{"a": 1}', "<a/>", "0 0 0\n", "a,b,c\n"]
)
def test_junk_is_unparsed(junk: str) -> None:
    for command in COMMANDS:
        reading = VENDOR.read(command, junk, 0)
        assert reading.status == "unparsed", command


def test_long_outputs_cost_little_cpu() -> None:
    for command, unit in (
        ("nvidia-smi", "|" + " " * 3000),
        ("dmesg", "NVRM: Xid (PCI:"),
        ("lspci -nn", "00:00.0 a [0302]: "),
    ):
        text = unit * (4_000_000 // len(unit))
        began = time.process_time()
        VENDOR.read(command, text, 0)
        assert time.process_time() - began < 4


def test_commands_are_taken_apart() -> None:
    assert parse("env A=1 ionice -c3 /opt/x/nvidia-smi -q -d ECC | tail").args == ("-q", "-d", "ECC")
    assert parse("kubectl exec pod -- nvidia-smi --query-gpu=a,b").value("--query-gpu") == "a,b"
    assert parse("dmesg 2>&1 | grep NVRM").program == "dmesg"
    assert parse("npu-smi info").program == ""
