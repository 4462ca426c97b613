"""From a command and its output to a reading: the one entry for text of this vendor."""

from __future__ import annotations

import re

from drivers.metax import document, grid, host, mccl, sections, table
from drivers.metax.values import errors, plain, tail
from drivers.shell import read_archive_check, read_modules, refusal, words
from fleet.core.vendor import Reading, unparsed

_LISTED = re.compile(r"^[ \t]*GPU#\d+\s.*Available", re.M)


def read(command: str, text: str, rc: int | None) -> Reading:
    """What `text`, the decoded output of `command`, means. Never raises; what is not understood is `unparsed`."""
    program = (words(command) or [""])[0]
    tool = _is_tool(command)
    text = plain(tail(text) if tool else text) if tool or "&" in text[:4096] else text
    reading = _host(program, command, text, rc)
    if reading is None:
        reading = _tool(command, text, rc)
    if reading.status != "unparsed":
        return reading
    status = errors(text) if tool else None
    status = status or refusal(text, rc)
    return Reading("metax", command, status) if status else reading


def _is_tool(command: str) -> bool:
    """Whether the tool is run, possibly by a wrapper (`docker exec c mx-smi`)."""
    return any(word.rpartition("/")[2] in ("mx-smi", "ht-smi") for word in command.split())


def _host(program: str, command: str, text: str, rc: int | None) -> Reading | None:
    """The reading of a command of the host; None when it is the vendor's tool."""
    if program in ("dmesg", "journalctl") or re.search(r"/(?:kern\.log|messages|syslog)\b", command):
        return host.read_kernel_log(command, text)
    if program == "lsmod" or (program in ("cat", "grep") and "/proc/modules" in command):
        return read_modules("metax", ("metax", "mxgvm"), command, text)
    if program.endswith(".run") and "--check" in command.split():
        return read_archive_check("metax", command, text)
    if "/sys/module/" in command:
        return host.read_module_version(command, text)
    if "/var/lib/fleet/metax/flashed" in command:
        return host.read_flashed(command, text)
    if program == "modinfo":
        return host.read_module_file(command, text)
    if program in ("modprobe", "insmod", "rmmod"):
        return host.read_module_tool(command, text, rc)
    if program in ("dpkg", "dpkg-query", "rpm"):
        return host.read_packages(command, text)
    if program == "dkms":
        return host.read_dkms(command, text)
    if program == "lspci":
        return host.read_pci(command, text)
    if mccl.asked(command):
        return mccl.read(command, text)
    if re.search(r"/opt/(?:maca|hpcc)", command):
        return host.read_toolkit(command, text)
    return None if _is_tool(command) else unparsed("metax", command, "the command is not one that is read")


def _tool(command: str, text: str, rc: int | None) -> Reading:
    if rc in (126, 127):
        return unparsed("metax", command, "the tool did not run")
    if table.looks_like(text):
        return table.read(command, text)
    if '"smi_version"' in text:
        return document.read(command, text)
    if "link type matrix" in text or "Legend:" in text:
        return grid.read_topology(command, text)
    if grid.is_monitor(text):
        return grid.read_monitor(command, text)
    if "System Management Interface Log" in text:
        return sections.read_pages(command, text)
    if _LISTED.search(text):
        return sections.read_list(command, text)
    smi = sections.smi_version(text)
    if smi and len(text.split()) == 3 and re.search(r"\s(?:-v|--version)\b", command):
        return Reading("metax", command, "ok", components={"smi": smi})
    if "GPU#" in text:
        return sections.read_pages(command, text)
    return unparsed("metax", command, "no form of mx-smi is recognised")
