"""Which parser reads which command: by its words, whatever path, wrapper or variable stands before."""

from __future__ import annotations

import re

from drivers.ascend.bus import read_lspci
from drivers.ascend.dmi import read_dmi
from drivers.ascend.files import read_cann_info, read_install_info, read_version_cfg, read_version_info
from drivers.ascend.hccl import read_hccl
from drivers.ascend.hccn import read_hccn
from drivers.ascend.host import read_hot_reset, read_modinfo, read_packages, read_since
from drivers.ascend.installer import read_installer
from drivers.ascend.mcu import read_mcu
from drivers.ascend.sections import MAX_CHARS, read_list, read_map, read_type
from drivers.ascend.table import read_info
from drivers.ascend.upgrade_tool import read_upgrade_tool
from drivers.ascend.words import VENDOR_NAME, foreign, shell_trouble, trouble
from fleet.core.vendor import Reading, unparsed

_INSTALLERS = {"rpm", "dnf", "yum", "dpkg", "apt", "apt-get", "uninstall.sh"}
_TOOLS = {"npu-smi", "upgrade-tool", "hccn_tool", "ascend-dmi", "lspci"}
_STOPPED = {124, 134, 137, 139, 143}  # by `timeout`, abort, kill, a fault in memory, terminate
_HOST = {"ascend-packages": read_packages, "ascend-since-boot": read_since, "modinfo": read_modinfo}


def _words(command: str) -> list[str]:
    """The words of the command proper: from the first program that is known on, without its folder.

    Whatever stands before (sudo, timeout, an assignment, `docker exec`, `cd … &&`) is a wrapper.
    """
    for part in [*re.split(r"&&|\|\||;|\|", command), command]:
        words = [word.strip("'\"") for word in part.split()]
        names = [word.rpartition("/")[2] for word in words]
        start = next((i for i, name in enumerate(names) if _known(name)), None)
        if start is not None:
            return [names[start], *words[start + 1 :]]
    return command.split()


def _known(name: str) -> bool:
    return name in _TOOLS | _INSTALLERS | {"cat", *_HOST} or name.endswith((".run", "_test"))


def _option(words: list[str], name: str) -> str:
    """The value after an option; "" when it is not there."""
    return words[words.index(name) + 1] if name in words[:-1] else ""


def _npu_smi(command: str, words: list[str], text: str) -> Reading:
    if "upgrade" in words[:3]:
        return read_mcu(command, text)
    number = _option(words, "-i")
    asked = int(number) if number.isdigit() and len(number) < 6 else None
    kind = _option(words, "-t")
    if kind:
        return read_type(command, kind, text, asked)
    if "-l" in words:
        return _short(command, text) or read_list(command, text)
    if "-m" in words:
        return _short(command, text) or read_map(command, text)
    version = re.fullmatch(r"npu-smi version\s*:?\s*(\S+)", text.strip()[:200])
    if version:
        return Reading(VENDOR_NAME, command, "ok", components={"smi": version[1]})
    return read_info(command, text)


def _short(command: str, text: str) -> Reading | None:
    return unparsed(VENDOR_NAME, command, "longer than any answer of this kind") if len(text) > MAX_CHARS else None


def _file(command: str, words: list[str], text: str) -> Reading:
    name = next((word.rpartition("/")[2] for word in words[1:] if not word.startswith("-")), "")
    if name == "version.cfg":
        return read_version_cfg(command, text)
    if name == "ascend_install.info":
        return read_install_info(command, text)
    if name.endswith("_install.info"):
        return read_cann_info(command, text)
    if name == "version.info":
        return read_version_info(command, text)
    if name == "hotreset_status.log":
        return read_hot_reset(command, text)
    return unparsed(VENDOR_NAME, command, f"{name or 'this'} is no file that is known")


def read(command: str, text: str, rc: int | None) -> Reading:
    """What `text`, printed by `command` with exit status `rc`, means. Never raises.

    A command that was stopped by its limit or died by a signal has failed, unless what it printed is whole.
    """
    reading = _read(command, text, rc)
    if reading.status != "unparsed" and rc not in (126, 127) and _not_ours(command, reading, text):
        reading = unparsed(VENDOR_NAME, command, "an answer of another vendor's tool")
    if reading.status == "unparsed" and rc in _STOPPED:
        return Reading(VENDOR_NAME, command, "failed", note=f"ended with {rc}: {reading.note}")
    return reading


def _not_ours(command: str, reading: Reading, text: str) -> bool:
    """Whether an answer that seemed to fit speaks of another vendor's parts.

    Only answers of the vendor's tools are asked: a package list or lspci may name every vendor, a table its processes.
    """
    program = (_words(command) or [""])[0]
    if program not in _TOOLS - {"lspci"} and not (program.endswith("_test") and reading.status != "ok"):
        return False
    if program == "npu-smi" and reading.accelerators and reading.components.get("smi"):
        return False
    return foreign(text)


def _read(command: str, text: str, rc: int | None) -> Reading:
    words = _words(command) or [""]
    program = words[0]
    tool = program != "cat"
    refused = shell_trouble(text, rc, tool)
    if refused:
        return Reading(VENDOR_NAME, command, refused)
    if program == "hccn_tool" and (text.strip() or rc in (None, 0)):
        return read_hccn(command, text)
    if not text.strip():
        return unparsed(VENDOR_NAME, command, "empty")
    if program in _HOST:
        return _HOST[program](command, text)
    if program == "npu-smi":
        return _npu_smi(command, words, text)
    if program == "cat":
        return _file(command, words, text)
    if program == "upgrade-tool":
        return read_upgrade_tool(command, text)
    if program == "ascend-dmi":
        return read_dmi(command, text)
    if program == "lspci":
        return read_lspci(command, text)
    if any(word.endswith("_test") for word in words):
        return read_hccl(command, text)
    if program.endswith(".run") or program in _INSTALLERS or ".run" in command:
        return read_installer(command, text, rc)
    status = trouble(text)
    return (
        Reading(VENDOR_NAME, command, status)
        if status
        else unparsed(VENDOR_NAME, command, "a command that is not known")
    )
