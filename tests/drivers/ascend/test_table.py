"""The table of `npu-smi info`: dialects, and the ways in which it is not whole."""

from __future__ import annotations

import pytest

from drivers import read_output
from drivers.ascend import VENDOR
from fleet.core.vendor import Reading
from tests.drivers.ascend import texts


def read(text: str, command: str = "npu-smi info") -> Reading:
    return VENDOR.read(command, text, None)


def test_cards_are_read_by_header_words() -> None:
    reading = read(texts.TABLE + texts.PROCESSES)
    assert reading.status == "ok"
    assert reading.components == {"smi": "24.1.0.1", "driver": "24.1.0.1"}
    first, second = reading.accelerators
    assert first["index"] == 2 and first["bus_id"] == "0000:2a:00.0" and first["memory_total_mib"] == 65536
    assert second["health"] == "warning" and second["memory_used_mib"] == 30710 and second["power_w"] == 90.0


def test_dual_die_cards_use_the_physical_id_and_have_no_second_power() -> None:
    reading = read(texts.A3)
    assert reading.components["driver"] == "24.1.rc3.8"
    assert [chip["index"] for chip in reading.accelerators] == [10, 11]
    assert reading.accelerators[1]["power_w"] is None and reading.accelerators[1]["health"] == "critical"


def test_two_chips_on_one_card_use_the_device_number() -> None:
    chips = read(texts.DUO).accelerators
    assert [(chip["index"], chip["memory_total_mib"], chip["power_w"]) for chip in chips] == [
        (0, 44280, None),
        (1, 44280, None),
    ]


def test_four_cells_and_no_bus_id() -> None:
    (chip,) = read(texts.A5).accelerators
    assert chip["index"] == 1 and chip["name"] == "Ascend950" and chip["bus_id"] is None
    assert chip["memory_total_mib"] == 86016


def test_an_unfinished_driver_is_flagged() -> None:
    text = texts.TABLE + "[WARNING]The driver package may not be completely installed, which may cause trouble.\n"
    assert {"name": "driver-install-complete", "result": "fail"} in read(text).checks


def test_noise_carriage_returns_colours_and_a_byte_order_mark_change_nothing() -> None:
    plain = read(texts.TABLE)
    coloured = "\x1b[32m" + texts.TABLE.replace("\n", "\x1b[0m\r\n")
    noisy = "\ufeffLast login: yesterday\r\n[WARNING] a: b\r\n" + coloured + "kernel: oops\r\n"
    got = read_output_here(noisy.encode())
    assert (got.status, got.components, got.accelerators) == ("ok", plain.components, plain.accelerators)


def read_output_here(data: bytes) -> Reading:
    from drivers.text import clean

    text = clean(data)
    assert text is not None
    return read(text)


def test_of_two_tables_the_last_whole_one_counts() -> None:
    later = texts.TABLE.replace("88.4", "99.9")
    assert read(texts.TABLE + later).accelerators[0]["power_w"] == 99.9
    assert read(texts.TABLE + later[: len(later) // 2]).accelerators[0]["power_w"] == 88.4


def test_two_runs_mixed_line_by_line_say_nothing() -> None:
    mixed = "".join(f"{line}\n{line}\n" for line in texts.TABLE.splitlines())
    reading = read(mixed)
    assert reading.status == "unparsed" and not reading.components and not reading.accelerators


def test_a_cut_anywhere_inside_a_card_says_nothing() -> None:
    card = texts.TABLE.index(texts.CARD_3)
    for end in range(card + 1, len(texts.TABLE) - 1):
        reading = read(texts.TABLE[:end])
        assert reading.status == "unparsed" and not reading.accelerators, texts.TABLE[card:end]


@pytest.mark.parametrize(
    "header", ["| NPU   Alias               | Health        |", "| Slot  Name   | Health        | Power(W) |"]
)
def test_an_unknown_header_says_nothing(header: str) -> None:
    assert read(texts.TABLE.replace(texts.HEAD.split("\n")[0], header)).status == "unparsed"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (-8001, "driver-mismatch"), (-8002, "permission-denied"), (-8005, "not-ready"), (-8008, "no-devices"),
        (-8012, "not-ready"), (-8017, "not-ready"), (-8020, "occupied"), (-8255, "unsupported"), (-8010, "failed"),
    ],
)  # fmt: skip
def test_return_codes(code: int, status: str) -> None:
    assert read(f"dcmi module initialize failed. ret is {code}\n").status == status


@pytest.mark.parametrize(
    ("text", "rc", "status"),
    [
        ("sh: 1: npu-smi: not found", 127, "tool-missing"),
        ("bash: /usr/local/sbin/npu-smi: Is a directory", 126, "tool-missing"),
        ("bash: /usr/local/sbin/npu-smi: Permission denied", 126, "permission-denied"),
        ("", 0, "unparsed"),
        ("| NVIDIA-SMI 575.57.08   Driver Version: 575.57.08 |", 0, "unparsed"),
    ],
)
def test_the_shell_in_place_of_the_tool(text: str, rc: int, status: str) -> None:
    assert VENDOR.read("sudo -n timeout 20 /usr/local/sbin/npu-smi info", text, rc).status == status


def test_the_one_entry_for_text_finds_this_vendor() -> None:
    assert read_output("ascend", "npu-smi info", texts.TABLE.encode()).as_dict()["status"] == "ok"
