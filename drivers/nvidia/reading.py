"""From a command line and what it printed to a `Reading`: by the program first, then by the content."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from drivers.nvidia import bench, commands, dcgm, details, devices, fabric, kernel, links, packages, query, smi
from drivers.nvidia.commands import Command
from drivers.nvidia.values import Draft, nothing
from fleet.core.vendor import Reading, Status

_NOT_FOUND = re.compile(r"(?:command )?not found\s*$|No such file or directory\s*$|cannot execute", re.MULTILINE)
_REFUSED = re.compile(
    r"^sudo: |is not in the sudoers file|Permission denied\s*$|Operation not permitted\s*$", re.MULTILINE
)
_KILLED = (124, 137)
_SMI_CODES: dict[int, Status] = {4: "permission-denied", 9: "driver-not-loaded", 12: "tool-missing", 15: "device-lost"}
# Commands whose empty answer our own probes print as `(none)`.
_LISTS = {"rpm": "packages", "dpkg": "packages", "dkms": "", "modinfo": "", "ls": "switches"}
Attempt = Callable[[], Reading | None]


def read(command: str, text: str, rc: int | None) -> Reading:
    """The meaning of one output. What is not understood is `unparsed`; this never raises.

    An output of a killed program (124, 137) keeps the components of its header and no rows.
    """
    parsed = commands.parse(command)
    if not text.strip():
        return _silence(parsed, rc)
    if text.strip() == "(none)" and parsed.program in _LISTS:
        return _empty_list(parsed)
    reading = _shell(parsed, text, rc) or _first(_attempts(parsed, text, rc))
    if reading is None:
        if rc in _KILLED:
            return Draft(command, "failed", note="killed or timed out").done()
        return nothing(command, "the output is not of a form that is known")
    if reading.status == "unparsed":
        return reading
    if rc in _KILLED:
        return (
            Draft(command, "failed", note="killed or timed out").done()
            if not reading.components
            else replace(
                reading, status="failed", accelerators=(), checks=(), links=(), measure={}, note="killed or timed out"
            )
        )
    if parsed.program == "nvidia-smi" and rc == 15 and reading.status == "ok":
        return replace(reading, status="device-lost", note="exit status 15")
    return reading


def _empty_list(command: Command) -> Reading:
    draft = Draft(command.text)
    if command.program == "ls":
        draft.more["switches"] = []
    elif _LISTS[command.program]:
        draft.more[_LISTS[command.program]] = {}
    return draft.done()


def _first(attempts: Iterator[Attempt]) -> Reading | None:
    for attempt in attempts:
        reading = attempt()
        if reading is not None:
            return reading
    return None


def _silence(command: Command, rc: int | None) -> Reading:
    if rc in (None, 0):
        return nothing(command.text, "the output is empty")
    status: Status = "failed"
    if rc == 127:
        status = "tool-missing"
    elif rc == 126:
        status = "permission-denied"
    elif command.program == "nvidia-smi":
        status = _SMI_CODES.get(rc, "failed") if rc is not None else "failed"
    return Draft(command.text, status, note=f"no output, exit status {rc}").done()


def _shell(command: Command, text: str, rc: int | None) -> Reading | None:
    """What the shell or sudo said in place of the program."""
    if len(text) > 2000:
        return None
    note = text.strip().splitlines()[-1]
    if rc == 127 or (rc != 0 and re.search(r"command not found\s*$", text, re.MULTILINE)):
        return Draft(command.text, "tool-missing", note=note).done()
    program = re.escape(command.program)
    if command.program and re.search(rf"(?:^|[/ :]){program}: (?:command )?not found\s*$", text, re.MULTILINE):
        return Draft(command.text, "tool-missing", note=note).done()
    missing = re.search(rf"(?:^|[\s/'\"]){program}['\"]?: No such file or directory\s*$", text, re.MULTILINE)
    if command.program and missing:
        return Draft(command.text, "tool-missing", note=note).done()
    if rc == 126 or re.search(r"^sudo: ", text, re.MULTILINE) or "is not in the sudoers file" in text:
        return Draft(command.text, "permission-denied", note=note).done()
    reader = command.program in ("cat", "tail", "head", "grep", "dmesg", "journalctl", "ls", "")
    if reader and _REFUSED.search(text) and text.count("\n") <= 2:
        return Draft(command.text, "permission-denied", note=note).done()
    if command.program in ("cat", "tail", "head", "grep", "ls") and text.count("\n") <= 2:
        return kernel.missing(command, text)
    return None


def _attempts(command: Command, text: str, rc: int | None) -> Iterator[Attempt]:
    words, program = command.text, command.program
    if program == "nvidia-smi":
        yield from _smi(command, text)
    elif program == "dcgmi":
        yield from _dcgm(command, text, rc)
    elif program in ("lspci",):
        yield lambda: devices.lspci(words, text)
    elif program == "lsmod":
        yield lambda: kernel.lsmod(words, text)
    elif program == "modinfo":
        yield lambda: kernel.modinfo(command, text)
        yield lambda: _failed(words, text, r"^modinfo: ERROR|^modinfo: could not")
    elif program in ("modprobe", "rmmod", "insmod"):
        yield lambda: kernel.loading(words, text, rc)
    elif program in ("dmesg", "journalctl"):
        yield from _logs(command, text)
    elif program == "dkms":
        yield lambda: packages.dkms_status(words, text)
        yield lambda: packages.make_log(command, text)
        yield lambda: _failed(words, text, r"Error! |Bad return status")
    elif program in ("apt-get", "apt", "dnf", "yum"):
        yield lambda: packages.transaction(words, text, rc)
    elif program == "rpm":
        if not any(re.fullmatch(r"-q\w*|--query", arg) for arg in command.args):
            yield lambda: packages.transaction(words, text, rc)
        yield lambda: packages.rpm_list(words, text)
    elif program in ("dpkg", "dpkg-query"):
        if not command.has("-l", "--list", "-W", "--show") and program == "dpkg":
            yield lambda: packages.transaction(words, text, rc)
        yield lambda: packages.dpkg_list(words, text)
    elif program == "nv-fabricmanager":
        yield lambda: fabric.manager_version(words, text)
        yield lambda: fabric.log(command, text)
    elif program == "nvfwupd":
        yield lambda: devices.firmware_table(words, text)
    elif program == "nvbandwidth":
        yield lambda: bench.bandwidth(words, text)
    elif program in ("gpu_burn", "gpu-burn"):
        yield lambda: bench.burn(words, text, rc)
    elif program.endswith(("_perf", "_perf_mpi")):
        yield lambda: bench.collective(words, text, rc)
    elif program == "nvidia-ctk":
        yield lambda: devices.container_toolkit(words, text)
    elif program == "nvcc":
        yield lambda: devices.toolkit(words, text)
    elif program == "nvidia-installer" or program.startswith("NVIDIA-Linux-"):
        yield lambda: packages.installer_log(words, text)
    else:
        yield from _files(command, text, rc)


def _failed(command: str, text: str, words: str) -> Reading | None:
    match = re.search(words + r".*", text[:20_000], re.MULTILINE)
    return Draft(command, "failed", note=match.group().strip()).done() if match else None


def _smi(command: Command, text: str) -> Iterator[Attempt]:
    words = command.text
    yield lambda: smi.failure(words, text)
    if "<nvidia_smi_log" in text or "nvsmi_device" in text[:2000] or text.lstrip().startswith("<?xml"):
        yield lambda: details.xml_form(words, text)
        return
    yield lambda: smi.table(words, text)
    if "NVSMI LOG" in text or "Attached GPUs" in text:
        yield lambda: details.text_form(command, text)
    if "version  :" in text or "ersion   " in text:
        yield lambda: smi.versions(words, text)
    if "Errors:" in text:
        yield lambda: links.counters(words, text)
    if "nvlink" in command.args or "Link" in text:
        yield lambda: links.speeds(words, text)
    if "Affinity" in text:
        yield lambda: links.topology(words, text)
    if "dmon" in command.args or "# gpu" in text[:2000]:
        yield lambda: smi.dmon(words, text)
    yield lambda: query.csv_form(command, text)
    if "UUID: GPU-" in text:
        yield lambda: smi.listing(words, text)


def _dcgm(command: Command, text: str, rc: int | None) -> Iterator[Attempt]:
    words = command.text
    if "nvlink" in command.args:
        yield lambda: links.dcgm_states(words, text)
        yield lambda: links.dcgm_counters(words, text)
    yield lambda: dcgm.diag(words, text, rc)
    if command.has("--version", "-v"):
        yield lambda: dcgm.dcgm_version(words, text)


def _logs(command: Command, text: str) -> Iterator[Attempt]:
    if "fabricmanager" in command.text or "fabric-manager" in command.text:
        yield lambda: fabric.log(command, text)
        return
    yield lambda: kernel.kernel_log(command.text, text)


def _files(command: Command, text: str, rc: int | None) -> Iterator[Attempt]:
    """A file that was printed, or a program that we do not know: the path tells, else the content."""
    words = command.text
    if "/proc/driver/nvidia/version" in words:
        yield lambda: kernel.proc_version(words, text)
    elif "nvidia-nvswitch" in words:
        yield lambda: fabric.switch_devices(words, text)
    elif "/proc/modules" in words:
        yield lambda: kernel.lsmod(words, text)
    elif "kmsg" in words or "kern.log" in words or "dmesg" in words or "/messages" in words or "syslog" in words:
        yield lambda: kernel.kernel_log(words, text)
    elif "fabricmanager" in words:
        yield lambda: fabric.log(command, text)
    elif "history.log" in words:
        yield lambda: packages.history(words, text)
    elif "make.log" in words:
        yield lambda: packages.make_log(command, text)
    elif "nvidia-installer" in words:
        yield lambda: packages.installer_log(words, text)
    elif "version.json" in words or "version.txt" in words:
        yield lambda: devices.toolkit(words, text)
    else:
        yield lambda: kernel.proc_version(words, text)
        yield lambda: packages.history(words, text)
        if "NVIDIA-SMI" in text or "NVSMI LOG" in text or "<nvidia_smi_log" in text:
            yield from _smi(command, text)
        if "DCGM" in text:
            yield from _dcgm(command, text, rc)
        if "NVRM:" in text:
            yield lambda: kernel.kernel_log(words, text)
        if "busbw" in text:
            yield lambda: bench.collective(words, text, rc)
