"""Laws over any input: no parser raises, junk is `unparsed` and empty, and the largest input is answered quickly."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.ascend import VENDOR
from fleet.core.model import OsFacts
from fleet.core.vendor import PciDevice, Seen
from tests.drivers.ascend import texts

COMMANDS = (
    "npu-smi info", "npu-smi info -m", "npu-smi info -l", "npu-smi info -t board -i 0", "npu-smi info -t usages -i 0",
    "npu-smi info -t health -i 0", "npu-smi info -t hccs -i 0 -c 0", "npu-smi info -t topo",
    "npu-smi info -t event -i 0",
    "npu-smi upgrade -b mcu -i 0", "cat /usr/local/Ascend/driver/version.info", "cat /etc/ascend_install.info",
    "cat ascend_toolkit_install.info", "cat version.cfg", "x.run --full --quiet", "x.run --check",
    "upgrade-tool --version", "upgrade-tool --boot_status", "upgrade-tool --hw_base_version",
    "hccn_tool -i 0 -ip -g", "hccn_tool -i 0 -optical -g", "hccn_tool -i 0 -link_stat -g", "ascend-dmi -c",
    "ascend-dmi --dg -i hbm", "ascend-dmi --bw -t p2p", "lspci", "all_reduce_test -p 8", "modinfo -F version x",
    "ascend-packages", "ascend-since-boot", "", "sudo", "what is this",
)  # fmt: skip
SAMPLES = (
    texts.TABLE, texts.A3, texts.DUO, texts.A5, texts.USAGES, texts.COMMON, texts.HEALTH, texts.board(1),
    texts.VERSION_INFO, texts.CANN_INFO, texts.COMPONENTS, texts.START,
)  # fmt: skip
PIECES = st.sampled_from(
    [*"|+-=:/[]{}\n\t ", "NPU ID", " : ", "0", "ret is -8001", "[y/n]", "Version=", "| npu-smi 1.0 "]
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(COMMANDS), st.one_of(st.text(max_size=300), st.lists(PIECES, max_size=80).map("".join)),
       st.sampled_from([None, 0, 1, 2, 124, 126, 127, 191, 255]))  # fmt: skip
def test_no_text_makes_a_parser_raise(command: str, text: str, rc: int | None) -> None:
    reading = VENDOR.read(command, text, rc)
    if reading.status == "unparsed":
        assert not reading.components and not reading.accelerators and reading.note
    reading.as_dict()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(SAMPLES), st.sampled_from(COMMANDS), st.integers(0, 4000), st.integers(0, 200), st.text(max_size=5)
)
def test_no_damage_makes_a_parser_or_the_gathering_raise(
    sample: str, command: str, at: int, gone: int, put: str
) -> None:
    text = sample[:at] + put + sample[at + gone :]
    reading = VENDOR.read(command, text, None)
    device = PciDevice("0000:2a:00.0", "19e5", "d802", "120000")
    readings = {probe.name: reading for probe in VENDOR.probes}
    VENDOR.gather(Seen(OsFacts(), (device,), readings, {"drv_pcie_host": "x"}))
    for check in VENDOR.checks:
        check.judge(readings, 8)


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz \n", min_size=1, max_size=200), st.sampled_from(COMMANDS))
@settings(max_examples=60, deadline=None)
def test_words_are_no_inventory(text: str, command: str) -> None:
    reading = VENDOR.read(command, text, 0)
    assert not reading.accelerators and not reading.components and not reading.faults


@pytest.mark.parametrize("unit", ["| a | b |\n", "\tNPU ID : 1\n", "{", "[", "+----+\n", "\n", "ret is ", "a / b "])
def test_ten_megabytes_are_answered_quickly(unit: str) -> None:
    text = unit * (10_000_000 // len(unit))
    for command in ("npu-smi info", "npu-smi info -t usages -i 0", "x.run --full", "hccn_tool -i 0 -optical -g",
                    "ascend-dmi --bw -t p2p", "upgrade-tool --version", "lspci"):  # fmt: skip
        began = time.process_time()
        reading = VENDOR.read(command, text, 0)
        assert time.process_time() - began < 2.0, command
        assert not reading.accelerators
