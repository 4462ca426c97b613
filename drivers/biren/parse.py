"""From a command and its output to a reading: the one entry for text of this vendor."""

from __future__ import annotations

import re

from drivers.biren import host, query, suites, table
from drivers.shell import read_archive_check, read_modules, refusal, words
from fleet.core.vendor import Reading, Status, unparsed


def read(command: str, text: str, rc: int | None) -> Reading:
    """What `text`, the decoded output of `command`, means. Never raises; what is not understood is `unparsed`."""
    program = (words(command) or [""])[0]
    reading = _host(program, command, text, rc)
    if reading is None:
        reading = _tool(command, text, rc)
    if reading.status != "unparsed":
        return reading
    status = (_errors(text) if _is_tool(command) else None) or refusal(text, rc)
    return Reading("biren", command, status) if status else reading


def _is_tool(command: str) -> bool:
    return any(word.rpartition("/")[2] == "brsmi" for word in command.split())


def _errors(text: str) -> Status | None:
    """What the library's named errors mean (BRML: 7 DRIVER_NOT_LOADED, 16 DRIVER_VERSION_MISMATCH, 17 IN_USE)."""
    if len(text) > 4096 or "|" in text or _FOREIGN.search(text):
        return None
    lowered = re.sub(r"[_-]", " ", text.lower())
    for words_, status in _ERROR_WORDS:
        if words_ in lowered:
            return status
    return None


_TAIL = 1 << 20
_FOREIGN = re.compile(
    r"nvidia|\bnvml|nvlink|nvswitch|\bdcgm|\bnpu\b|npu-smi|\bdcmi|metax|mx-?smi|hygon|\bhy-smi|\brocm|cnmon|cambricon"
    r"|ixsmi|iluvatar|mthreads|efsmi|enflame|xpu-?smi|kunlun|ppu-smi",
    re.I,
)
_ERROR_WORDS: tuple[tuple[str, Status], ...] = (
    ("driver not loaded", "driver-not-loaded"),
    ("driver is not loaded", "driver-not-loaded"),
    ("driver version mismatch", "driver-mismatch"),
    ("library version mismatch", "driver-mismatch"),
    ("no devices were found", "no-devices"),
    ("no device found", "no-devices"),
    ("in use", "occupied"),
    ("no permission", "permission-denied"),
    ("not supported", "unsupported"),
    ("gpu is lost", "device-lost"),
    ("error while loading shared libraries", "tool-missing"),
    ("library not found", "tool-missing"),
    ("brml error", "failed"),
)


def _host(program: str, command: str, text: str, rc: int | None) -> Reading | None:
    """The reading of a command of the host; None when it is one of the vendor's tools."""
    if program in ("dmesg", "journalctl") or re.search(r"/(?:kern\.log|messages|syslog)\b", command):
        return host.read_kernel_log(command, text)
    if program == "lsmod" or (program in ("cat", "grep") and "/proc/modules" in command):
        return read_modules("biren", ("biren",), command, text)
    if program.endswith(".run") and "--check" in command.split():
        return read_archive_check("biren", command, text)
    if "/sys/module/" in command or program == "modinfo":
        return host.read_version(command, text)
    if program in ("modprobe", "insmod", "rmmod"):
        return host.read_module_tool(command, text, rc)
    if program in ("dpkg", "dpkg-query", "rpm"):
        return host.read_packages(command, text)
    if program == "dkms":
        return host.read_dkms(command, text)
    if program == "lspci":
        return host.read_pci(command, text)
    if program in ("realpath", "readlink"):
        return host.read_toolkit(command, text)
    if _is_tool(command) or "suvs" in command or "succl" in command:
        return None
    return unparsed("biren", command, "the command is not one that is read")


def _tool(command: str, text: str, rc: int | None) -> Reading:
    if rc in (126, 127):
        return unparsed("biren", command, "the tool did not run")
    if len(text) > 4 * _TAIL and "|" in text[-4096:]:  # a long watch: only its end matters
        end = text[-_TAIL:]
        start = end.find("| BR-SMI ")
        text = end[start:] if start >= 0 else ""
    if table.looks_like(text):
        return table.read(command, text)
    if query.asked(command):
        return query.read(command, text)
    if "succl" in command:
        return suites.read_succl(command, text)
    if "suvs" in command and suites.looks_like_suvs(text):
        return suites.read_suvs(command, text)
    return unparsed("biren", command, "no form of brsmi is recognised")
