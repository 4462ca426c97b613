"""Outputs that are mixed, cut, very long, foreign or rare; made-up values in the captured forms."""

from __future__ import annotations

import time

import pytest

import drivers
from fleet.core.vendor import Reading
from tests.drivers.biren.test_biren_readings import TABLE

QUERY = "brsmi gpu --query-gpu=index,name --format=csv,noheader"


def read(text: str, command: str = "brsmi", rc: int | None = 0) -> Reading:
    return drivers.read_output("biren", command, text.encode(), rc)


@pytest.mark.parametrize("offset", [0, 1, 8, 12, 16, 20, 22])
def test_two_runs_line_by_line_are_not_one_inventory(offset: int) -> None:
    one, other = TABLE.split("\n"), [""] * offset + TABLE.replace("166M", "106B").split("\n")
    both = [line for i in range(max(len(one), len(other))) for line in (*one[i : i + 1], *other[i : i + 1])]
    reading = read("\n".join(both))
    assert reading.status == "unparsed" and not reading.accelerators


def test_a_watch_of_any_length_keeps_its_last_whole_table() -> None:
    for cut in range(0, len(TABLE), 61):
        assert len(read(TABLE + TABLE[:cut]).accelerators) == 3, cut
    began = time.process_time()
    assert len(read(TABLE * 8_000).accelerators) == 3
    assert read("0, Biren\n" * 2_000_000, QUERY).status == "unparsed"
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("BRML_ERROR_DRIVER_NOT_LOADED", "driver-not-loaded"),
        ("Driver/library version mismatch", "driver-mismatch"),
        ("BRML_ERROR_NO_PERMISSION", "permission-denied"),
        ("BRML_ERROR_NOT_SUPPORTED", "unsupported"),
        ("BRML_ERROR_IN_USE", "occupied"),
        ("BRML_ERROR_TIMEOUT", "failed"),
        ("brsmi: error while loading shared libraries: libbiren-ml.so.1: cannot open it", "tool-missing"),
        ("ERROR: Module nvidia is in use", "unparsed"),
        ("bash: brsmi: 未找到命令", "tool-missing"),
        ("bash: /usr/bin/brsmi: 是一个目录", "tool-missing"),
    ],
)
def test_single_lines(text: str, status: str) -> None:
    assert read(text + "\n", rc=1).status == status
    assert read(text + "\n", QUERY, 1).status == status


def test_a_warning_before_a_query_is_no_card() -> None:
    got = read("Warning: Permanently added 192.0.2.1, whatever\n0, Biren106B\n", QUERY)
    assert [card["index"] for card in got.accelerators] == [0]


def test_the_module_by_lsmod_and_by_all_of_modinfo() -> None:
    loaded = read("Module                  Size  Used by\nbiren    900  2 helper\n", "lsmod")
    assert loaded.more["modules"] == [{"name": "biren", "refcount": 2, "used_by": ["helper"]}]
    assert read("Module                  Size  Used by\nxfs 1 1\n", "lsmod").status == "driver-not-loaded"
    whole = "filename:  /lib/modules/x/biren.ko.xz\nversion:        1.13.2\nvermagic:  5.15.0 SMP\n"
    assert read(whole, "modinfo biren").components == {"driver": "1.13.2"}
    gone = read("cat: /sys/module/biren/version: 没有那个文件或目录\n", "cat /sys/module/biren/version", 1)
    assert gone.status == "driver-not-loaded"


def test_any_collective_with_its_rates_is_a_check() -> None:
    row = "  alltoall_single:  OK   algbw  10.5 GB/s  busbw  9.5 GB/s  @ 64 MiB   float\n"
    got = read(row, "succl-tests summary")
    assert got.checks == ({"name": "alltoall_single", "result": "pass"},)
    bad = read(
        "Verifying archive integrity... Error in MD5 checksums: 1 is different\n", "./biren-driver.run --check", 1
    )
    assert bad.status == "failed" and bad.checks[0]["result"] == "fail"
