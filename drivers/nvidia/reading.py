"""From a command line and what it printed to a `Reading`: by the program first, then by the content."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from drivers.nvidia import bench, commands, dcgm, details, devices, fabric, history, kernel, links, packages, query, smi
from drivers.nvidia.commands import Command
from drivers.nvidia.values import Draft, nothing
from fleet.core.vendor import Reading, Status

_REFUSED = re.compile(
    r"^sudo: |is not in the sudoers file|Permission denied\s*$|Operation not permitted\s*$", re.MULTILINE
)
# timeout's two, and what the shell reports for INT, ABRT, SEGV and TERM
_KILLED = (124, 130, 134, 137, 139, 143)
_DIED = re.compile(
    r"(?:^|[\s:])(?:Terminated|Killed|Aborted|Segmentation fault|Bus error|已终止|已杀死|已放弃|段错误)"
    r"(?: ?\([^()]*\))?\s*$"
)
_SMI_CODES: dict[int, Status] = {
    3: "unsupported", 4: "permission-denied", 6: "no-devices", 9: "driver-not-loaded", 12: "tool-missing",
    15: "device-lost",
}  # fmt: skip
_SUDO = re.compile(
    r"^sudo: (?!unable to resolve host|无法解析主机|setrlimit)|is not in the sudoers file"
    r"|^Sorry, user \S+ (?:is not allowed|may not run)|^对不起，用户 .* 无权",
    re.MULTILINE,
)
_LONG = 2_000_000  # characters: no tool says more in one answer; logs may be longer
_LOGS = frozenset({"dmesg", "journalctl", "cat", "tail", "head", "grep", "zgrep", "zcat", ""})
# Commands whose empty answer our own probes print as `(none)`.
_LISTS = {"rpm": "packages", "dpkg": "packages", "dkms": "", "modinfo": "", "ls": "switches"}
Attempt = Callable[[], Reading | None]


def read(command: str, text: str, rc: int | None) -> Reading:
    """The meaning of one output. What is not understood is `unparsed`; this never raises.

    An output of a killed program (124, 137) keeps the components of its header and no rows.
    """
    parsed = commands.parse(command)
    if len(text) > _LONG and parsed.program not in _LOGS:
        text = _ends(text)
    if not text.strip():
        return _silence(parsed, rc)
    if text.strip() == "(none)" and parsed.program in _LISTS:
        return _empty_list(parsed)
    reading = _shell(parsed, text, rc) or _first(_attempts(parsed, text, rc))
    if reading is None:
        if rc in _KILLED:
            return Draft(command, "failed", note="killed or timed out").done()
        return nothing(command, "the output is not of a form that is known")
    if reading.status == "unparsed" and rc not in _KILLED:
        return reading
    if parsed.program not in _LOGS and _mixed(text):
        return nothing(command, "two runs are mixed line by line")
    if rc in _KILLED:
        return (
            Draft(command, "failed", note="killed or timed out").done()
            if not reading.components
            else replace(
                reading, status="failed", accelerators=(), checks=(), links=(), measure={}, note="killed or timed out"
            )
        )
    if parsed.program == "nvidia-smi":
        reading = smi.with_inforom(reading, text)
        if rc == 15 and reading.status == "ok":
            return replace(reading, status="device-lost", note="exit status 15")
    return reading


def _ends(text: str) -> str:
    """The first and the last whole lines of an endless output: a header stands at its start, the last answer counts."""
    head, tail = text[: _LONG // 16], text[-_LONG:]
    return head[: head.rfind("\n") + 1] + tail[tail.find("\n") + 1 :]


def _mixed(text: str) -> bool:
    """Two runs came through one pipe in turns: nearly every line stands twice, one below the other."""
    lines = [line for line in text[:400_000].split("\n") if line.strip()]
    pairs = list(zip(lines[0::2], lines[1::2], strict=False))
    return len(pairs) >= 3 and sum(a == b for a, b in pairs) * 4 >= len(pairs) * 3


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
    if rc == 127 or (rc == 126 and re.search(r": Is a directory\s*$", text, re.MULTILINE | re.IGNORECASE)):
        return Draft(command.text, "tool-missing", note=note).done()
    if rc == 126:
        return Draft(command.text, "permission-denied", note=note).done()
    alone = "\n" not in text.strip()
    # Above an answer such a line may come from a login script: there it has to name the program.
    if command.program and _names_missing(command.program, text):
        return Draft(command.text, "tool-missing", note=note).done()
    if (alone or not command.program) and re.search(r"command not found(?:\.\.\.)?\s*$", text, re.MULTILINE):
        return Draft(command.text, "tool-missing", note=note).done()
    if _SUDO.search(text):
        return Draft(command.text, "permission-denied", note=note).done()
    if command.program and re.search(rf"[/ ]{re.escape(command.program)}: Permission denied\s*$", text, re.MULTILINE):
        return Draft(command.text, "permission-denied", note=note).done()
    if text.strip().count("\n") <= 1 and _DIED.search(note):
        return Draft(command.text, "failed", note=note).done()
    return _unread(command, text, note)


def _names_missing(program: str, text: str) -> bool:
    """A shell, env, timeout or a distribution's hint says that there is no such program."""
    name, quote, end = re.escape(program), "['\"‘’“”]?", r"(?=\W|$)"
    forms = (
        rf"(?:^|[/ :]){name}: (?:command )?not found\s*$",
        rf"(?:^|[\s/'\"‘“]){name}{quote}: (?:No such file or directory|Is a directory)\s*$",
        rf"command not found:? {quote}(?:\S*/)?{name}{end}",
        rf"^Command {quote}{name}{quote} not found,",
    )
    return any(re.search(form, text, re.MULTILINE) for form in forms)


def _unread(command: Command, text: str, note: str) -> Reading | None:
    """A file or log that could not be opened."""
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
        yield lambda: _failed(words, text, r"^(?:lspci|pcilib): ")
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
        yield lambda: packages.dkms_error(words, text)
    elif program in ("apt-get", "apt", "dnf", "yum"):
        if "history" in command.args:
            yield lambda: history.dnf(words, text)
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
        yield lambda: devices.firmware_update(words, text)
    elif program == "nvbandwidth":
        yield lambda: bench.bandwidth(words, text)
        yield lambda: bench.broken(words, text)
    elif program in ("gpu_burn", "gpu-burn"):
        yield lambda: bench.burn(words, text, rc)
        yield lambda: bench.broken(words, text)
    elif program.endswith(("_perf", "_perf_mpi")):
        yield lambda: bench.collective(words, text, rc)
        yield lambda: bench.broken(words, text)
    elif program == "bandwidthTest":
        yield lambda: bench.copy_test(words, text)
        yield lambda: bench.broken(words, text)
    elif program in ("nvidia-ctk", "nvidia-container-cli"):
        yield lambda: devices.container_toolkit(words, text)
        yield lambda: devices.container_info(words, text)
    elif program == "nv-hostengine":
        yield lambda: dcgm.dcgm_version(words, text)
    elif program == "ofed_info":
        yield lambda: devices.ofed(words, text)
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
    if "upported: " in text:
        yield lambda: links.capabilities(words, text)
    if "nvlink" in command.args or "Link" in text:
        yield lambda: links.speeds(words, text)
    if "Affinity" in text:
        yield lambda: links.topology(words, text)
    if "dmon" in command.args or "# gpu" in text[:2000]:
        yield lambda: smi.dmon(words, text)
    if "conf-compute" in command.args:
        yield lambda: smi.confidential(words, text)
    yield lambda: query.csv_form(command, text)
    if "UUID: GPU-" in text:
        yield lambda: smi.listing(words, text)


def _dcgm(command: Command, text: str, rc: int | None) -> Iterator[Attempt]:
    words = command.text
    if "nvlink" in command.args:
        yield lambda: links.dcgm_states(words, text)
        yield lambda: links.dcgm_counters(words, text)
        yield lambda: links.dcgm_counter_table(words, text)
    if "discovery" in command.args:
        yield lambda: dcgm.discovery(words, text)
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
    elif "/sys/module/nvidia/version" in words:
        yield lambda: kernel.module_version(words, text)
    elif "nvidia-nvswitch" in words:
        yield lambda: fabric.switch_devices(words, text)
    elif "/proc/modules" in words:
        yield lambda: kernel.lsmod(words, text)
    elif "kmsg" in words or "kern.log" in words or "dmesg" in words or "/messages" in words or "syslog" in words:
        yield lambda: kernel.kernel_log(words, text)
    elif "fabricmanager" in words:
        yield lambda: fabric.log(command, text)
    elif "history.log" in words:
        yield lambda: history.apt(words, text)
    elif "dpkg.log" in words:
        yield lambda: history.dpkg(words, text)
    elif "make.log" in words:
        yield lambda: packages.make_log(command, text)
    elif "nvidia-installer" in words:
        yield lambda: packages.installer_log(words, text)
    elif "version.json" in words or "version.txt" in words:
        yield lambda: devices.toolkit(words, text)
    else:
        yield lambda: kernel.proc_version(words, text)
        yield lambda: history.apt(words, text)
        if "NVIDIA-SMI" in text or "NVSMI LOG" in text or "<nvidia_smi_log" in text:
            yield from _smi(command, text)
        if "DCGM" in text:
            yield from _dcgm(command, text, rc)
        if "NVRM:" in text:
            yield lambda: kernel.kernel_log(words, text)
        if "busbw" in text:
            yield lambda: bench.collective(words, text, rc)
