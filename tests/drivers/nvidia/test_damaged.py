"""Outputs that are not what they seem: refused, mixed, cut, endless, of another tool. Values are made up."""

from __future__ import annotations

import time

import pytest

from drivers import read_output
from fleet.core.vendor import Reading

RULE = "+-----------------------------------------+------------------------+----------------------+"
BOX = "+-----------------------------------------------------------------------------------------+"


def card(index: int, *, ecc: str = "0", fan: str = "N/A", temperature: str = "37C") -> str:
    return (
        f"|   {index}  NVIDIA H20                     On  |   00000000:{index + 1}A:00.0 Off |{ecc:>21} |\n"
        f"| {fan:<4} {temperature:>5}    P0             88W /  500W |     120MiB /  97871MiB |      0%      Default |\n"
        f"|                                         |                        |             Disabled |\n{RULE}\n"
    )


def table(*cards: str, box: bool = True) -> str:
    head = (
        f"Tue Dec  1 02:03:04 2026       \n{BOX}\n"
        "| NVIDIA-SMI 577.11.02              Driver Version: 577.11.02      CUDA Version: 12.9     |\n"
        f"{RULE}\n| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
        "|=========================================+========================+======================|\n"
    )
    tail = (
        f"{' ' * 91}\n{BOX}\n| Processes:{' ' * 78}|\n|{'=' * 89}|\n|  No running processes found{' ' * 61}|\n{BOX}\n"
    )
    return head + "".join(cards) + (tail if box else "")


def read(command: str, text: str | bytes, rc: int | None = 0) -> Reading:
    return read_output("nvidia", command, text if isinstance(text, bytes) else text.encode(), rc)


def mixed(one: str, two: str) -> str:
    return "\n".join(line for pair in zip(one.split("\n"), two.split("\n"), strict=True) for line in pair)


@pytest.mark.parametrize(
    ("text", "rc", "status"),
    [
        ("bash: nvidia-smi：未找到命令\n", None, "tool-missing"),
        ("sudo: nvidia-smi：找不到命令\n", 1, "tool-missing"),
        ("zsh: command not found: nvidia-smi\n", None, "tool-missing"),
        ("timeout: failed to run command ‘nvidia-smi’: No such file or directory\n", None, "tool-missing"),
        ("\nCommand 'nvidia-smi' not found, but can be installed with:\n\nsudo apt install x\n", None, "tool-missing"),
        ("bash: /opt/bin/nvidia-smi: Is a directory\n", 126, "tool-missing"),
        ("bash: /usr/bin/nvidia-smi：权限不够\n", None, "permission-denied"),
        ("Sorry, user ops is not allowed to execute '/usr/bin/nvidia-smi' as root on n1.\n", 1, "permission-denied"),
        ("对不起，用户 ops 无权以 root 的身份在 n1 上执行 /usr/bin/nvidia-smi。\n", 1, "permission-denied"),
        ("Unable to set persistence mode for GPU 00000000:1A:00.0: Insufficient Permissions\n", 4, "permission-denied"),
        ("Unable to enable MIG Mode for GPU 00000000:1A:00.0: Not Supported\n", 3, "unsupported"),
        ("The following GPUs could not be reset:\n  GPU 00000000:1A:00.0: In use by another client\n", 255, "occupied"),
        ("ERROR: Option --frob is not recognized. Please run 'nvidia-smi -h'.\n", 2, "failed"),
        ("Segmentation fault (core dumped)\n", 139, "failed"),
        ("Terminated\n", None, "failed"),
        ("", 6, "no-devices"),
    ],
)
def test_refusals_in_any_words(text: str, rc: int | None, status: str) -> None:
    reading = read("nvidia-smi", text, rc)
    assert reading.status == status
    assert not reading.accelerators


def test_noise_of_a_login_above_a_short_answer_is_no_refusal() -> None:
    listed = "GPU 0: NVIDIA H20 (UUID: GPU-0a)\n"
    for noise in ("-bash: module: command not found\n", "sudo: unable to resolve host n1: Name or service not known\n"):
        assert len(read("sudo nvidia-smi -L", noise + listed, None).accelerators) == 1


def test_two_tables_mixed_line_by_line_are_not_read() -> None:
    one, two = table(card(0), card(1)), table(card(0, temperature="39C"), card(1))
    assert read("nvidia-smi", mixed(one, two)).status == "unparsed"
    assert not read("nvidia-smi", mixed(one, two)).components
    assert len(read("nvidia-smi", one + two).accelerators) == 2


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("nvidia-smi -L", "GPU 0: NVIDIA H20 (UUID: GPU-0a)\nGPU 1: NVIDIA H20 (UUID: GPU-0b)\n"),
        ("nvidia-smi nvlink -s", "GPU 0: NVIDIA H20 (UUID: GPU-0a)\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n"),
        ("nvidia-smi --query-gpu=<fields> --format=csv", "index, name, uuid\n0, NVIDIA H20, GPU-0a\n"),
        ("lspci -nn", "".join(f"{i}a:00.0 3D controller [0302]: NVIDIA Corporation X [10de:2329]\n" for i in range(4))),
    ],
)
def test_lists_mixed_line_by_line_are_not_read(command: str, text: str) -> None:
    assert read(command, text).status == "ok"
    assert read(command, mixed(text, text)).status == "unparsed"
    assert len(read("nvidia-smi -L", "GPU 0: A (UUID: GPU-0a)\nGPU 1: A (UUID: GPU-0b)\n" * 2).accelerators) == 2


def test_a_table_is_whole_to_the_end_of_its_processes() -> None:
    whole = table(card(0), card(1))
    assert read("nvidia-smi", whole).status == "ok"
    assert read("nvidia-smi", table(card(0), box=False)).status == "ok"  # people leave the box out
    for end in (whole.index("| Processes") + 30, whole.index("No running")):
        reading = read("nvidia-smi", whole[:end])
        assert (reading.status, reading.accelerators) == ("failed", ())
        assert reading.components["driver"] == "577.11.02"
    # The second table of a watch is cut between two cards: the first one counts.
    cut = table(card(0, temperature="39C"), box=False)
    assert [c["temperature_c"] for c in read("nvidia-smi -l 1", whole + cut).accelerators] == [37, 37]


def test_a_card_with_half_of_its_lines_spoils_the_table() -> None:
    lines = table(card(0), card(1)).split("\n")
    reading = read("nvidia-smi", "\n".join(lines[:7] + lines[10:]))
    assert (reading.status, reading.accelerators) == ("failed", ())


def test_what_stands_below_any_output_makes_the_card_critical() -> None:
    warning = "WARNING: infoROM is corrupted at gpu 0000:1A:00.0\n"
    csv = "index, pci.bus_id\n0, 00000000:1A:00.0\n1, 00000000:2A:00.0\n"
    for command, text in (("nvidia-smi", table(card(0))), ("nvidia-smi --query-gpu=<fields> --format=csv", csv)):
        reading = read(command, text + warning, 14)
        assert reading.accelerators[0]["health"] == "critical"
        assert reading.faults == ({"code": "infoROM", "bus_id": "0000:1a:00.0", "count": 1},)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("nvidia-smi nvlink -s", "GPU 0: NVIDIA H20 (UUID: GPU-0a)\n"),
        ("nvidia-smi nvlink -s", "GPU 0: NVIDIA H20 (UUID: GPU-0a)\n\t Link 0: 25 GB/s\n\t Link 1: 2"),
        ("nvidia-smi nvlink -e", "GPU 0: NVIDIA H20 (UUID: GPU-0a)\n\t Link 0: Replay Errors: 0\n\t Link 0: Reco"),
        ("nvidia-smi --query-gpu=<fields> --format=csv", "index, name, uuid, serial\n0, A, GPU-0a\n1, A, GPU-0b, 7\n"),
        ("lsmod", "Module                  Size  Used by\nnvidia_uvm           1000  2\nnvidia_drm             77"),
        (
            "lspci -nn",
            "1a:00.0 3D controller [0302]: NVIDIA Corporation X [10de:2329]\n2a:00.0 3D controller [0302]: NV",
        ),
        ("dcgmi nvlink -s", "|  NvLink Link Status  |\nGPUs:\n    gpuId 0:\n        U U\n"),
        ("dcgmi discovery -l", "2 GPUs found.\n| 0      | Name: A |\n|        | Device UUID: GPU-0a |\n"),
        ("nvidia-container-cli info", "NVRM version:   577.11.02\n\nDevice Index:   0\nModel:          A\n"),
        ("cat /var/log/nvidia-installer.log", "nvidia-installer log file '/x'\ninstaller version: 577.11.02\n"),
    ],
)
def test_cut_outputs_give_no_rows(command: str, text: str) -> None:
    reading = read(command, text)
    assert reading.status == "failed"
    assert not (reading.accelerators or reading.links or "modules" in reading.more or "switches" in reading.more)


def test_a_version_that_is_cut_is_no_version() -> None:
    assert read("cat /proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  577.1").status == (
        "unparsed"
    )


def test_a_killed_program_failed_whatever_is_left_of_its_answer() -> None:
    assert read("nvidia-smi -q -x", "<nvidia_smi_log><driver_version>577", 124).status == "failed"
    assert read("nvidia-smi -q -x", "<nvidia_smi_log><driver_version>577").status == "unparsed"


def test_matrices_and_rows_of_other_vendors_are_not_read() -> None:
    matrix = "  GPU0 GPU1 Node Affinity CPU Affinity\nGPU0 X MX 0 0-31\nGPU1 MX X 0 0-31\n"
    assert read("nvidia-smi topo -m", matrix).status == "unparsed"
    rows = f"| IX-ML: 4.4.1 Driver Version: 4.4.1 CUDA Version: 10.2 |\n{card(0)}"
    assert read("nvidia-smi", rows).status == "unparsed"
    assert read("nvidia-smi -L", "PPU 0: PPU (UUID: GPU-0a)\n    MIG g1 Device 0 (UUID: MIG-0b)\n").status == "unparsed"


def test_xml_that_is_endless_deep_or_declares_entities_is_refused() -> None:
    gpu = '<gpu id="00000000:1A:00.0"><uuid>&c;</uuid></gpu>'
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;"><!ENTITY c "&b;&b;&b;">]>'
    texts = (
        f"{bomb}<nvidia_smi_log><attached_gpus>1</attached_gpus>{gpu}</nvidia_smi_log>",
        f"<nvidia_smi_log>{'<a>' * 200_000}{'</a>' * 200_000}</nvidia_smi_log>",
        f"<nvidia_smi_log>{'x' * 20_000_000}</nvidia_smi_log>",
        "<nvidia_smi_log>" * 100_000,
    )
    for text in texts:
        began = time.process_time()
        assert read("nvidia-smi -q -x", text).status == "unparsed"
        assert time.process_time() - began < 4


def test_a_long_loop_is_read_from_its_header_and_its_last_rows() -> None:
    head = "index, name, temperature.gpu\n"
    text = head + "0, NVIDIA H20, 40\n1, NVIDIA H20, 40\n" * 80_000 + "0, NVIDIA H20, 51\n1, NVIDIA H20, 52\n"
    reading = read("nvidia-smi --query-gpu=<fields> --format=csv -l 1", text)
    assert [c["temperature_c"] for c in reading.accelerators] == [51, 52]


@pytest.mark.parametrize("command", ["nvidia-smi -L", "nvidia-smi nvlink -s", "nvidia-smi nvlink -e"])
def test_lines_that_nearly_name_a_gpu_cost_little(command: str) -> None:
    text = ("GPU 0: " + " " * 3900 + "(UUID: GPU-\n") * 500
    began = time.process_time()
    assert read(command, text).status in ("unparsed", "failed")
    assert time.process_time() - began < 2
