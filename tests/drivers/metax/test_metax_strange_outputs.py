"""Outputs that are mixed, cut, very long, foreign or rare; made-up values in the captured forms."""

from __future__ import annotations

import time

import pytest

import drivers
from fleet.core.vendor import Reading
from tests.drivers.metax.test_metax_readings import FORM_A, FORM_C

PAGE = """\
mx-smi  version: 2.3.1

=================== MetaX System Management Interface Log ===================
Timestamp                                         : Thu Jan  1 02:03:04 2026

Attached GPUs                                     : 1
Device link type matrix
        GPU0    Node Affinity  CPU Affinity
GPU0    X       0              0-15
"""
ROUND = "dev die hottemp drmossoctemp power gpu\nidx idx C C W %\n"
MCCL = """\
# nThread 1 nGpus 2 minBytes 1024 maxBytes 2048
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
        1024           512  bfloat16     sum      -1    40.00    0.03    0.04      0    40.10    0.03    0.05      0
        2048          1024  bfloat16     sum      -1    41.00    0.05   11.25      0    41.10    0.05   11.00      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 5.5
"""


def read(text: str, command: str = "mx-smi", rc: int | None = 0) -> Reading:
    return drivers.read_output("metax", command, text.encode(), rc)


@pytest.mark.parametrize("offset", [0, 1, 9, 13, 15, 17])
def test_two_runs_line_by_line_are_not_one_inventory(offset: int) -> None:
    one, other = FORM_C.split("\n"), [""] * offset + FORM_C.replace("C550", "C500").split("\n")
    both = [line for i in range(max(len(one), len(other))) for line in (*one[i : i + 1], *other[i : i + 1])]
    reading = read("\n".join(both))
    assert reading.status == "unparsed" and not reading.accelerators


def test_a_watch_of_any_length_keeps_its_last_whole_table() -> None:
    for cut in range(0, len(FORM_A), 67):
        assert len(read(FORM_A + FORM_A[:cut]).accelerators) == 1, cut
    began = time.process_time()
    assert len(read(FORM_A * 15_000, "mx-smi -l 1000").accelerators) == 1
    assert time.process_time() - began < 2


def test_a_reason_inside_a_broken_table_is_no_answer() -> None:
    cut = FORM_C.replace("Not Available ", "Not Available(MetaX Kernel Driver Not Found)").partition("End of Log")[0]
    assert read(cut.replace("GPUs                                     : 2", "GPUs : 5")).status == "unparsed"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("MetaX Kernel Driver Not Found", "driver-not-loaded"),
        ("NVIDIA-SMI has failed: no devices were found", "unparsed"),
        ("| MOFFETT-SMI 9.9.9     Driver Version: 8.8.8   |", "unparsed"),
        ("bash: mx-smi: 未找到命令", "tool-missing"),
        ("bash: /usr/bin/mx-smi: 权限不够", "permission-denied"),
    ],
)
def test_single_lines(text: str, status: str) -> None:
    assert read(text + "\n", rc=None).status == status


def test_the_matrix_of_a_single_card_has_no_link() -> None:
    reading = read(PAGE, "mx-smi topo -m")
    assert (reading.status, reading.links) == ("ok", ())


def test_a_first_round_of_dmon_that_breaks_off_is_no_inventory() -> None:
    first = ROUND + "0 0 41 30 70 1\n1 0 42 30"
    assert read(first, "mx-smi dmon").status == "unparsed"
    later = ROUND + "0 0 41 30 70 1\n1 0 42 30 71 2\n0 0 51 30 80 1\n1 0 5"
    assert [card["temperature_c"] for card in read(later, "mx-smi dmon").accelerators] == [41, 42]


def test_a_list_shorter_than_its_count_is_cut() -> None:
    row = "GPU#0    MXC500      0000:2d:00.0   Available (UUID: GPU-1)\n"
    assert len(read(row, "mx-smi -L").accelerators) == 1
    assert read("Attached GPUs : 2\n" + row, "mx-smi -L").status == "unparsed"


def test_collective_tests() -> None:
    command = "/opt/maca/samples/mccl_tests/perf/mccl_perf/all_reduce_perf -b 1K -e 2K"
    good = read(MCCL, command)
    assert good.status == "ok" and good.checks == ({"name": "all_reduce", "result": "pass"},)
    assert good.measure == {"busbw_gbps": 11.25, "avg_busbw_gbps": 5.5, "wrong": 0, "max_size_bytes": 2048}
    bad = read(MCCL.replace("0    41.10", "3    41.10").replace(": 0 OK", ": 3 FAILED"), command)
    assert bad.status == "failed" and bad.measure["wrong"] == 3
    assert read(MCCL.partition("# Avg")[0], command).status == "unparsed"


def test_modules_and_the_tool_version() -> None:
    loaded = read("Module                  Size  Used by\nmetax    900  3\nttm  110  1 metax\n", "lsmod")
    assert loaded.more["modules"] == [{"name": "metax", "refcount": 3, "used_by": []}]
    assert read("Module                  Size  Used by\nxfs 1 1\n", "lsmod").status == "driver-not-loaded"
    whole = "filename:  /lib/modules/x/metax.ko\nversion:        3.11.2\nvermagic:  5.15.0 SMP\n"
    assert read(whole, "modinfo metax").components == {"driver": "3.11.2"}
    assert read("mx-smi  version: 2.4.5\n", "mx-smi --version").components == {"smi": "2.4.5"}
    good = read("Verifying archive integrity... All good.\n", "./metax-driver-1.2.3.4-deb-x86_64.run --check")
    assert good.checks == ({"name": "archive-integrity", "result": "pass"},)


def test_a_long_kernel_log_is_read_quickly() -> None:
    line = "[ 5.1] MXCD.B2D00.D0.FW.ALERT EID (xxxx:xx:xx.x): 0x110A, link\n"
    began = time.process_time()
    got = read("[ 1.0] usb 1-1: nothing to see here\n" * 400_000 + line, "dmesg")
    assert [(f["code"], f["bus_id"]) for f in got.faults] == [("0x110a", "0000:2d:00.0")]
    assert read("[ 5.1] METAX.B2D00 EID (", "dmesg").faults == ()
    assert time.process_time() - began < 2
