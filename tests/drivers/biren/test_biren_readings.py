"""What brsmi, the test suites and the host print, typed anew from the captured forms with made-up values."""

from __future__ import annotations

import time

import pytest

import drivers
from fleet.core.vendor import Reading

TABLE = """\
Mon Feb  2 03:04:05 2026
+------------------------------------------------------------------------------+
| BR-SMI 1.12.3          Driver Version: 1.12.4          SUPA Version: 1.12    |
+----------------------------+-----------------------+-------------------------+
|   GPU                 Name |                Bus-Id |    Volatile Uncorr. ECC |
|  Temp  Perf  Pwr:Usage/Cap |          Memory-Usage |    GPU-Util  Compute M. |
|              Persistence-M |                       |                  SVI M. |
+============================+=======================+=========================+
|     0            Biren166M |      00000000:0D:00.0 |                       0 |
|    51    P2    250W / 550W |     512MiB / 65024MiB |         43%     Default |
|                        Off |                       |                Disabled |
+----------------------------+-----------------------+-------------------------+
|     1            Biren166M |      00000001:0E:00.0 |                       4 |
|   N/A    P2    N/A  / 550W |         N/A / 65024MiB|          0%     Default |
|                        Off |                       |                 Enabled |
+----------------------------+-----------------------+-------------------------+
|     2            Biren166M |      00000001:0F:00.0 |                     N/A |
|    53    P0     99W / 550W |       0MiB / 65024MiB |          0%     Default |
|                        Off |                       |                Disabled |
+----------------------------+-----------------------+-------------------------+
+------------------------------------------------------------------------------+
| Processes:                                                                   |
| GPU   SVI Dev        PID   Process Name                     GPU Memory Usage |
+==============================================================================+
|     0                999   python3                                    512MiB |
+------------------------------------------------------------------------------+
"""
QUERY = "brsmi gpu --query-gpu=index,memory.used,memory.free,name,serial,temperature.gpu,svi.mode.current"


def read(text: str, command: str = "brsmi", rc: int | None = 0) -> Reading:
    return drivers.read_output("biren", command, text.encode(), rc)


def test_three_lines_make_a_card() -> None:
    got = read(TABLE)
    assert got.components == {"smi": "1.12.3", "driver": "1.12.4", "toolkit": "1.12"}
    one, two, three = got.accelerators
    assert (one["index"], one["name"], one["bus_id"], one["power_w"], one["memory_used_mib"]) == (
        0, "Biren166M", "0000:0d:00.0", 250, 512,
    )  # fmt: skip
    assert (two["health"], two["temperature_c"], two["power_w"], two["svi"]) == ("critical", None, None, "Enabled")
    assert (two["memory_used_mib"], two["memory_total_mib"], two["bus_id"]) == (None, 65024, "0001:0e:00.0")
    assert "health" not in three  # no count of errors is no good health


@pytest.mark.parametrize("cut", [3, 5, 8, 9, 10, 11, 13, 18])
def test_a_cut_table_is_unparsed(cut: int) -> None:
    got = read("\n".join(TABLE.splitlines()[:cut]))
    assert (got.status, got.accelerators) == ("unparsed", ())


def test_a_table_cut_between_two_cards_is_unparsed() -> None:
    lines = TABLE.splitlines()
    assert read("\n".join(lines[:16])).status == "unparsed"
    assert read("\n".join(lines[:22])).status == "ok"
    assert read("\n".join(lines[:16]), rc=124).status == "failed"


def test_watch_mode_and_mixed_runs() -> None:
    later = TABLE.replace("|    51", "|    66")
    assert read(TABLE + later).accelerators[0]["temperature_c"] == 66
    assert read(TABLE + "\n".join(later.splitlines()[:10])).accelerators[0]["temperature_c"] == 51
    mixed = [line for pair in zip(TABLE.splitlines(), later.splitlines(), strict=True) for line in pair]
    assert read("\n".join(mixed)).status == "unparsed"


def test_noise_line_ends_and_colours() -> None:
    noisy = "Warning: slow\n" + TABLE.replace("Biren166M", "\x1b[1mBiren166M\x1b[0m")
    data = b"\xef\xbb\xbf" + noisy.replace("\n", "\r\n").encode()
    assert drivers.read_output("biren", "brsmi", data, 0).accelerators == read(TABLE).accelerators


def test_an_unknown_header_is_unparsed() -> None:
    assert read(TABLE.replace("SVI M.", "XVI M.")).status == "unparsed"


def test_query_reads_the_fields_asked_for() -> None:
    text = "0, 12, 65012, Biren166M, BR01, 40, Disabled\n1, 0, 65024, Biren166M, [N/A], 41, Enabled\n"
    got = read(text, f"{QUERY} --format=csv,noheader,nounits")
    one, two = got.accelerators
    assert (one["index"], one["memory_used_mib"], one["serial"], one["temperature_c"]) == (0, 12, "BR01", 40)
    assert (two["serial"], two["svi"]) == (None, "Enabled")
    assert read(text + "2, 0, 65", f"{QUERY} --format=csv,noheader,nounits").status == "unparsed"
    assert read(text + text, f"{QUERY} --format=csv,noheader,nounits").status == "unparsed"
    short = read("index, memory.used [MiB]\n3, 7 MiB\n", "brsmi gpu --query-gpu=index,memory.used --format=csv")
    assert short.accelerators == ({"index": 3, "memory_used_mib": 7},)


def test_loaded_version_and_missing_module() -> None:
    assert read("1.12.4\n", "cat /sys/module/biren/version").components == {"driver": "1.12.4"}
    gone = "cat: /sys/module/biren/version: No such file or directory\n"
    assert read(gone, "cat /sys/module/biren/version", 1).status == "driver-not-loaded"
    assert read("", "cat /sys/module/biren/version", 0).status == "unparsed"


def test_suvs_markers_and_a_summary_that_lies() -> None:
    log = "[Test Pass] [test_pciebw] ok\nmembw = 1502.25 GB/s\n[Test Pass] [test_membw] ok\nTest result summary: PASS\n"
    got = read(log, "suvs -c conf/base.conf")
    assert (got.status, got.measure) == ("ok", {"membw_gbps": 1502.25})
    assert [(check["name"], check["result"]) for check in got.checks] == [("pciebw", "pass"), ("membw", "pass")]
    failed = read(log.replace("[Test Pass] [test_pciebw", "[Test Fail] [test_pciebw"), "suvs -c conf/base.conf")
    assert failed.status == "failed"
    lying = read("[gm_start] gm, gpu3: power:40\ngm gpu3 fail\n" + log, "suvs -c conf/base.conf")
    assert lying.status == "failed"
    assert {"name": "gm", "result": "fail", "gpus": [3]} in lying.checks


def test_collectives() -> None:
    text = (
        "  allreduce:       OK   algbw  31.50 GB/s  busbw  59.06 GB/s  @ 64 MiB   float\n"
        "  alltoall:        FAILED   rc 139\n"
    )
    got = read(text, "succl-tests summary")
    assert got.status == "failed"
    assert got.measure == {"allreduce_algbw_gbps": 31.5, "allreduce_busbw_gbps": 59.06}
    assert [check["result"] for check in got.checks] == ["pass", "fail"]
    assert read("  allreduce:       OK   algbw  31.5", "succl-tests summary").status == "unparsed"


@pytest.mark.parametrize(
    ("text", "rc", "status"),
    [
        ("", 0, "unparsed"),
        ("sh: 1: brsmi: not found\n", 127, "tool-missing"),
        ("sh: 1: brsmi: Permission denied\n", 126, "permission-denied"),
        ("Failed to initialize BRML: Driver Not Loaded\n", 7, "driver-not-loaded"),
        ("BRML error: DRIVER_VERSION_MISMATCH\n", 16, "driver-mismatch"),
        ("", 137, "failed"),
        ("| BIREN GPU | N/A | 45°C | 250W | 32GB/64GB |\n", 0, "unparsed"),
    ],
)
def test_what_is_said_in_place_of_an_answer(text: str, rc: int, status: str) -> None:
    got = read(text, "brsmi", rc)
    assert (got.status, got.components, got.accelerators) == (status, {}, ())


def test_host_files() -> None:
    assert read("/usr/local/birensupa/sdk/1.12.0.0.rc1\n", "readlink -f x").components == {"toolkit": "1.12.0.0.rc1"}
    assert read("/usr/local/birensupa/sdk/latest\n", "readlink -f x").status == "failed"
    assert read("rmmod: ERROR: Module biren is in use\n", "rmmod biren", 1).status == "occupied"
    assert (
        read("modprobe: ERROR: could not insert 'biren': Exec format error\n", "modprobe biren", 1).status == "failed"
    )
    pci = "0000:0d:00.0 Processing accelerators [1200]: Device [1ee0:0042]\n"
    assert read(pci, "lspci -nn").accelerators == ({"bus_id": "0000:0d:00.0", "pci_id": "1ee0:0042"},)
    flood = "[    1.000000] biren 0000:0d:00.0: pcie_replay_count increment exceed max_pcie_replays!\n"
    assert read(flood * 3, "dmesg").faults == ({"code": "pcie-replay", "count": 3},)


@pytest.mark.parametrize("unit", ["| ", " ", "\n", "gm gpu1 fai fail ", "0, 1\n", "allreduce: OK\n"])
def test_long_junk_costs_little(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    began = time.process_time()
    for command in ("brsmi", QUERY, "suvs -t", "succl-tests", "dmesg"):
        read(text, command)
    assert time.process_time() - began < 4
