"""What mx-smi and the host print, typed anew from the captured forms with made-up values."""

from __future__ import annotations

import time

import pytest

import drivers
from fleet.core.vendor import Reading

FORM_A = """\
mx-smi  version: 2.1.3

=================== MetaX System Management Interface Log ===================
Timestamp                                         : Mon Jan  6 07:08:09 2025

Attached GPUs                                     : 1
+---------------------------------------------------------------------------------+
| MX-SMI 2.1.3                        Kernel Mode Driver Version: 2.4.007         |
| MACA Version: 2.20.1.9              BIOS Version: 1.12.3.0                      |
|------------------------------------+---------------------+----------------------+
| GPU         NAME                   | Bus-id              | GPU-Util             |
| Temp        Power                  | Memory-Usage        |                      |
|====================================+=====================+======================|
| 0           MXC500                 | 0000:2c:00.0        | 3%                   |
| 41C         77W                    | 1200/65536 MiB      |                      |
+------------------------------------+---------------------+----------------------+
"""

FORM_C = """\
Attached GPUs                                     : 2
+---------------------------------------------------------------------------------+
| MX-SMI 2.2.7                        Kernel Mode Driver Version: 2.18.1          |
| MACA Version: 3.0.1.2               BIOS Version: 1.27.0.0                      |
|------------------------------------+---------------------+----------------------+
| GPU     NAME         Persistence-M | Bus-id              | GPU-Util      sGPU-M |
| Temp    Pwr:Usage/Cap         Perf | Memory-Usage        | GPU-State            |
|====================================+=====================+======================|
| 0       MetaX C550              On | 0001:02:00.0        | 12%           Native |
| 44C     101W / 450W             P2 | 4000/65536 MiB      | Available            |
+------------------------------------+---------------------+----------------------+
| 1       MetaX C550              On | 0001:03:00.0        | N/A           Native |
| N/A     N/A / 450W             N/A | N/A                 | Not Available        |
+------------------------------------+---------------------+----------------------+

End of Log
"""

FORM_D = """\
ht-smi  version: 2.3.2
Attached GPUs                                     : 2
+---------------------------------------------------------------------------------+
| HT-SMI 2.3.2                       Kernel Mode Driver Version: 3.9.1            |
| HPCC Version: N/A                  BIOS Version: 1.32.2.0                       |
|------------------+-----------------+---------------------+----------------------|
| Board       Name | GPU   Persist-M | Bus-id              | GPU-Util      sGPU-M |
| Pwr:Usage/Cap    | Temp       Perf | Memory-Usage        | GPU-State            |
|==================+=================+=====================+======================|
| 0      Mars X203 | 4           Off | 0000:98:00.0        | 0%           Enabled |
| 38W / 350W       | 44C          P0 | 858/65536 MiB       | Available            |
+------------------+-----------------+---------------------+----------------------+
| 1      Mars X203 | 5           Off | 0000:99:00.0        | 0%          Disabled |
| 39W / 350W       | 45C          P0 | 859/65536 MiB       | Available            |
+------------------+-----------------+---------------------+----------------------+
"""

PAGE = """\
mx-smi  version: 2.2.11

=================== MetaX System Management Interface Log ===================
Timestamp                                         : Sun Mar  1 01:02:03 2026

Attached GPUs                                     : 2
GPU#0  MXC550  0000:0a:00.0
    Version
        MACA                                      : 3.4.0.1 
        BIOS                                      : 1.32.0.0 
        KMD                                       : 3.7.2 
GPU#1  MXC550  0000:0b:00.0
    Version
        MACA                                      : 3.4.0.1 
        BIOS                                      : 1.31.9.0 
        KMD                                       : 3.7.2 

End of Log
"""

LIST = """\
mx-smi  version: 2.2.11
GPU#0    MXC550      0000:0a:00.0   Available (UUID: GPU-11111111-2222-3333-4444-555555555555)
  SGPU#1   50% 31.25gb   Available (UUID: GPU-66666666-2222-3333-4444-555555555555) sgpu-7
GPU#1    MXC550      0000:0b:00.0   Not Available(MetaX Sysfs File Unaccessible)
GPU#2    MXC550      0000:0c:00.0   Not Available(Layout Node Not Found)
"""

TOPOLOGY = """\
Attached GPUs                                     : 3
Device link type matrix
        GPU0    GPU1    GPU2    Node Affinity  CPU Affinity
GPU0    X       MX      SYS     0              0-7
GPU1    MX      X       PIX     0              0-7
GPU2    SYS     PIX     X       1              8-15

Legend:
  X    = Self
"""

MONITOR = """\
dev die hottemp drmossoctemp drmoscoretemp power gpu vpue vpud visvram vram xtt
idx idx C       C            C             W     %   %    %    %       %    %
0   0   51      31           29            88    97  0    0    23      23   0
1   0   52      31           29            -     96  0    0    23      23   0
"""

DOCUMENT = """\
mx-smi  version: 2.2.13
{
  "timestamp": "x", "smi_version": "2.2.13", "maca_version": "3.6.0.2", "driver_version": "3.9.0", "attached_gpus": 2,
  "0000:0e:00.0": {"device_id": 1, "vbios_version": "1.34.0.0", "unavailable_reason": "", "hotspot": "44.250"},
  "0000:0f:00.0": {"device_id": 0, "vbios_version": "1.34.0.0",
                   "unavailable_reason": "Driver And Vbios Compatibility Check Failed"}
}
"""


def read(text: str, command: str = "mx-smi", rc: int | None = 0) -> Reading:
    return drivers.read_output("metax", command, text.encode(), rc)


def test_oldest_form_has_no_cap_and_no_state() -> None:
    got = read(FORM_A)
    assert got.components == {"smi": "2.1.3", "driver": "2.4.007", "toolkit": "2.20.1.9", "firmware": "1.12.3.0"}
    (card,) = got.accelerators
    assert (card["temperature_c"], card["power_w"], card["memory_used_mib"]) == (41, 77, 1200)
    assert "health" not in card


def test_third_form_and_a_card_that_is_not_available() -> None:
    got = read(FORM_C)
    assert [card["health"] for card in got.accelerators] == ["ok", "critical"]
    assert got.accelerators[0]["bus_id"] == "0001:02:00.0"
    assert got.accelerators[1]["memory_used_mib"] is None
    assert got.accelerators[1]["power_w"] is None


def test_four_columns_give_the_gpu_number_and_the_oem_name() -> None:
    got = read(FORM_D, "ht-smi")
    assert [(card["index"], card["name"]) for card in got.accelerators] == [(4, "Mars X203"), (5, "Mars X203")]
    assert "toolkit" not in got.components  # N/A is no version
    assert got.accelerators[0]["sgpu"] == "Enabled"


def test_a_web_copy_with_character_references() -> None:
    assert read(FORM_A.replace("   ", "&emsp;&thinsp; ")).accelerators == read(FORM_A).accelerators


@pytest.mark.parametrize("cut", range(8, 15))
def test_a_cut_table_is_unparsed(cut: int) -> None:
    assert read("\n".join(FORM_A.splitlines()[:cut])).status == "unparsed"


def test_a_count_that_does_not_agree_is_unparsed() -> None:
    assert read(FORM_A.replace("Attached GPUs                                     : 1", "Attached GPUs : 8")).note


def test_the_last_whole_table_counts_and_mixed_runs_do_not() -> None:
    second = FORM_A.replace("41C", "55C")
    assert read(FORM_A + second).accelerators[0]["temperature_c"] == 55
    assert read(FORM_A + "\n".join(second.splitlines()[:14])).accelerators[0]["temperature_c"] == 41
    mixed = [line for pair in zip(FORM_A.splitlines(), second.splitlines(), strict=True) for line in pair]
    assert read("\n".join(mixed)).status == "unparsed"


def test_noise_line_ends_and_colours() -> None:
    noisy = "warning: something\n" + FORM_A.replace("MXC500", "\x1b[32mMXC500\x1b[0m") + "bye\n"
    data = b"\xef\xbb\xbf" + noisy.replace("\n", "\r\n").encode()
    assert drivers.read_output("metax", "mx-smi", data, 0).accelerators == read(FORM_A).accelerators


def test_an_unknown_header_is_unparsed() -> None:
    assert read(FORM_A.replace("GPU-Util ", "GPU-Load ")).status == "unparsed"


def test_list_names_reasons_and_leaves_slices_out() -> None:
    got = read(LIST, "mx-smi -L")
    assert [card["health"] for card in got.accelerators] == ["ok", "unknown", "critical"]
    assert got.accelerators[0]["uuid"] == "GPU-11111111-2222-3333-4444-555555555555"
    assert read(LIST.replace("Layout Node Not Found)", "Layout Node"), "mx-smi -L").status == "unparsed"
    verdict = LIST.replace("Layout Node Not Found", "Driver And Vbios Compatibility Check Failed")
    assert read(verdict, "mx-smi -L").status == "driver-mismatch"
    gone = LIST.replace("Layout Node Not Found", "MetaX Kernel Driver Not Found")
    assert read(gone, "mx-smi -L").status == "driver-not-loaded"


def test_pages_of_several_cards_keep_what_is_common() -> None:
    got = read(PAGE, "mx-smi --show-version")
    assert got.components == {"smi": "2.2.11", "toolkit": "3.4.0.1", "driver": "3.7.2"}
    assert [card["firmware"] for card in got.accelerators] == ["1.32.0.0", "1.31.9.0"]
    assert got.measure == {}
    cut = PAGE[: PAGE.rindex("        BIOS")]
    assert read(cut, "mx-smi --show-version").status == "unparsed"
    assert read(PAGE[: PAGE.index("GPU#1")], "mx-smi --show-version").status == "unparsed"


def test_page_of_one_card_is_measured() -> None:
    page = PAGE.replace(": 2\n", ": 1\n", 1)
    page = page[: page.index("    Version")] + "    Chip\n        hotspot(sensor7)          :  61.50 C\n\nEnd of Log\n"
    got = read(page, "mx-smi --show-temperature")
    assert got.measure == {"hotspot_c": 61.5}
    failed = page.replace("    Chip\n", "GPU#0 show-temperature Sysfs error: No such device\n")
    assert read(failed, "mx-smi --show-temperature").status == "failed"


def test_topology_gives_each_pair_once() -> None:
    got = read(TOPOLOGY, "mx-smi topo -m")
    assert [(link["from"], link["to"], link["type"]) for link in got.links] == [
        ("GPU0", "GPU1", "MX"), ("GPU0", "GPU2", "SYS"), ("GPU1", "GPU2", "PIX"),
    ]  # fmt: skip
    assert read(TOPOLOGY.replace("GPU2    SYS", "     SYS"), "mx-smi topo -m").status == "unparsed"


def test_monitor_takes_the_last_whole_round() -> None:
    got = read(MONITOR + "0   0   61 31 29 88 97 0 0 23 23 0\n", "mx-smi dmon -c 2")
    assert [card["temperature_c"] for card in got.accelerators] == [51, 52]
    assert got.accelerators[1]["power_w"] is None


def test_document_skips_its_first_line_and_judges_reasons() -> None:
    got = read(DOCUMENT, "mx-smi -j")
    assert got.status == "driver-mismatch"
    assert got.components == {"smi": "2.2.13", "toolkit": "3.6.0.2", "driver": "3.9.0", "firmware": "1.34.0.0"}
    assert [(c["bus_id"], c["index"], c["health"]) for c in got.accelerators] == [
        ("0000:0e:00.0", 1, "ok"), ("0000:0f:00.0", 0, "critical"),
    ]  # fmt: skip
    assert got.accelerators[0]["temperature_c"] == 44.25
    assert read(DOCUMENT[:-3], "mx-smi -j").status == "unparsed"
    assert read(DOCUMENT.replace('"attached_gpus": 2', '"attached_gpus": 3'), "mx-smi -j").status == "unparsed"


@pytest.mark.parametrize(
    ("text", "rc", "status"),
    [
        ("", 0, "unparsed"),
        ("sh: 1: mx-smi: not found\n", 127, "tool-missing"),
        ("sh: 1: /opt/mxdriver: Is a directory\n", 126, "tool-missing"),
        ("sh: 1: mx-smi: Permission denied\n", 126, "permission-denied"),
        ("sudo: a password is required\n", 1, "permission-denied"),
        ("", 124, "failed"),
        ("PARSE ERROR: Argument: -x\n             Couldn't find match for argument\n", 1, "unsupported"),
        ("mx-smi  version: 2.2.9\nMetaX Kernel Driver Not Found\n", 1, "driver-not-loaded"),
        ("+-----+\n| MOFFETT-SMI 1.0   Driver Version: 2.0 |\n+-----+\n", 0, "unparsed"),
        ("\x01\x02junk", 0, "unparsed"),
    ],
)
def test_what_is_said_in_place_of_an_answer(text: str, rc: int, status: str) -> None:
    got = read(text, "mx-smi", rc)
    assert (got.status, got.components, got.accelerators) == (status, {}, ())


def test_kernel_log_takes_the_address_from_the_word_when_it_must() -> None:
    log = (
        "[   12.000001] METAX.B30818.D0.CORE.ERROR EID (xxxx:xx:xx.x): 0x110A, link 3 down\n"
        "[   13.000001] METAX.B4F00.SMI.ERROR no number here\n"
        "Jan  1 00:00:01 node kernel: MXCD.B4F00.IOCTL.ALERT EID (0002:03:04.5): 0x2202, nothing\n"
    )
    got = read(log, "dmesg")
    assert [(f["code"], f["bus_id"]) for f in got.faults] == [("0x110a", "0003:08:03.0"), ("0x2202", "0002:03:04.5")]
    assert read("[    0.000000] Linux version 5\n", "dmesg").faults == ()
    assert read("dmesg: read kernel buffer failed: Operation not permitted\n", "dmesg", 1).status == "permission-denied"


def test_host_files_and_packages() -> None:
    assert read("3.9.2\n", "cat /sys/module/metax/version").components == {"driver": "3.9.2"}
    gone = "cat: /sys/module/metax/version: No such file or directory\n"
    assert read(gone, "cat /sys/module/metax/version", 1).status == "driver-not-loaded"
    assert read("/opt/maca-3.6.0.9\n", "readlink -f /opt/maca").components == {"toolkit": "3.6.0.9"}
    assert read("/opt/maca\n", "readlink -f /opt/maca").status == "failed"
    listed = "ii \tdpkg\t1.21\nii \tmetax-linux\t3.8.0.2\nrc \tmxfw\t1.0\nmxsmt-2.3.1-1.x86_64\nbash-5.1-2.el9.x86_64\n"
    assert read(listed, "dpkg-query -W").more == {"packages": {"metax-linux": "3.8.0.2", "mxsmt": "2.3.1-1"}}
    status = "metax/3.9.2, 5.15.0-9-generic, x86_64: installed\nmetax/3.8.0: added\n"
    assert read(status, "dkms status").more["modules"] == [
        {"name": "metax", "version": "3.9.2", "kernel": "5.15.0-9-generic", "state": "installed"},
        {"name": "metax", "version": "3.8.0", "kernel": "", "state": "added"},
    ]
    pci = "0000:37:00.0 Display controller [0380]: Device [9999:4001] (rev 01)\n00:1f.0 ISA [0601]: Device [8086:1]\n"
    assert read(pci, "lspci -nn").accelerators == ({"bus_id": "0000:37:00.0", "pci_id": "9999:4001"},)


@pytest.mark.parametrize(
    "unit", ["{\n", " ", "|", "GPU#0 \n", '"smi_version"\n{"a":\n', "METAX.B1.X EID (", "0 0 1\ndev die power\n", "="]
)
def test_long_junk_costs_little(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    began = time.process_time()
    for command in ("mx-smi", "mx-smi -j", "dmesg", "rpm -qa"):
        read(text, command)
    assert time.process_time() - began < 4


def test_units_of_measures_and_memory_in_kilobytes() -> None:
    head = PAGE[: PAGE.index("GPU#0")].replace(": 2\n", ": 1\n", 1) + "GPU#0  MXC550  0000:0a:00.0\n"
    memory = head + "    Memory\n        vram total          : 67108864 KB\n        vram used : 1024 KB\n\nEnd of Log\n"
    (card,) = read(memory, "mx-smi --show-memory").accelerators
    assert (card["memory_total_mib"], card["memory_used_mib"]) == (65536, 1)
    usage = head + "    Usage\n        GPU             : 12 %\n        VPUE : 0 %\n\nEnd of Log\n"
    assert read(usage, "mx-smi --show-usage").measure == {"gpu": 12, "vpue": 0}
    power = head + "    Power\n        Total : 62.5 W\n        Limit : 350.000 W\n\nEnd of Log\n"
    got = read(power, "mx-smi --show-board-power")
    assert (got.measure, got.accelerators[0]["power_w"]) == ({"total_w": 62.5, "limit_w": 350.0}, 62.5)
