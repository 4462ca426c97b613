"""Logs of the Ascend installers: driver and firmware .run and .rpm, CANN .run.

The words decide, not the exit status alone: 0 may mean that somebody said no, 2 that a reboot is owed. Colours are
stripped before. Of several runs in one log the last one counts. A log that ends before its last message tells nothing.
"""

from __future__ import annotations

import re

from drivers.ascend.words import VENDOR_NAME, VERSION, foreign
from fleet.core.model import Json
from fleet.core.vendor import Reading, Status, unparsed

_TAIL = 1 << 18  # real logs are shorter; the end is at the end
_MARK = re.compile(r"\[(?:Driver|Firmware|Toolkit|Nnae|Nnrt|Kernels|Opp|Runtime|Compiler|Hccl|Mcu|Toolbox|Ops)\]", re.I)
_SELF = re.compile(r"Verifying archive integrity|Makeself|Uncompressing ASCEND", re.I)
_RPM = re.compile(r"^(?:Preparing\.\.\.|Updating / installing|Verifying\.\.\.|Running transaction|Setting up )", re.M)
_DATED = re.compile(r"^\[\w{3} \d+ \d{4} [\d:]+\] \[\w+\]", re.M)  # lines of another service's log
_CHECKSUM_BAD = re.compile(r"Error in (?:SHA256|MD5|CRC|check)|checksum.{0,80}?(?:fail|mismatch|different)", re.I)

# (pattern, result, reason). The first that matches wins: refusals before endings, since a refusal ends the run.
_RULES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern, re.I), result, reason)
    for pattern, result, reason in (
        (r"list of missing tools", "failed", "missing-tools"),
        (r"nodes are occupied|npu is busy|device is (?:used|busy)|has used by", "failed", "occupied"),
        (r"version check does not match|crc_error|hardware base version", "failed", "version-floor"),
        (r"ko_install failed|dkms_env_check failed|dkms.{0,80}?\b(?:failed|error)\b|modprobe failed",
         "failed", "kernel-module-build"),
        (r"no chip matching|(?:chip|device type|product|board).{0,120}?(?:do(?:es)? not match|mismatch)"
         r"|not applicable to|package.{0,80}?not (?:match|support).{0,80}?(?:chip|device|product|board|hardware)",
         "failed", "wrong-chip"),
        (r"0x009[156]|(?:user|group).{0,80}?not exist", "failed", "user-missing"),
    )
)  # fmt: skip
_ENDINGS: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern, re.I), result, reason)
    for pattern, result, reason in (
        (r"kernel modules can ?not be removed", "reboot-required", "old-module-loaded"),
        (r"package \w+ finished!", "reboot-required", "old-module-loaded"),
        (r"reboot needed", "reboot-required", "hot-reset-failed"),
        (r"reboot now or after driver", "reboot-required", "firmware-activation"),
        (r"need active mcu", "reboot-required", "mcu-activate"),
        (r"takes? effect immediately", "live", ""),
        (r"\b(?:un)?install(?:ed|ation)? success(?:fully)?|\bupgraded? success(?:fully)?|package \w+ successfully",
         "live", ""),
    )
)  # fmt: skip
_ERROR = re.compile(
    r"\[ERROR\]|failed to install|please retry after uninstall|scriptlet failed|^error:|^dpkg: error"
    r"|^Errors were encountered",
    re.I | re.M,
)
_END_TIME = re.compile(r"^.*\]\s*End time.*$", re.I | re.M)
_CHIPS = re.compile(r"some chips not ready|firmware of \[(\d+)\] chips? (?:are|is)? ?(?:failed|not)", re.I)


def _last_run(text: str) -> str:
    """From the last `Start time` on; the whole when there is none, or nothing decisive after it."""
    start = text.rfind("]Start time")
    return text[text.rfind("\n", 0, start) + 1 :] if start > 0 else text


def _verdict(text: str, rc: int | None) -> tuple[str, str] | None:
    """(result, reason) of one run; None when its last message is missing."""
    refusal = next(((result, reason) for pattern, result, reason in _RULES if pattern.search(text)), None)
    ending = next(((result, reason) for pattern, result, reason in _ENDINGS if pattern.search(text)), None)
    if rc == 1 or (refusal and not ending):
        return refusal or ("failed", "")
    if ending:
        if _CHIPS.search(text):
            return "reboot-required", "chips-missing"
        if ending[0] == "live" and rc == 2:
            return "reboot-required", "hot-reset-failed"
        return ending
    _, prompt, answer = text.lower().rpartition("y/n")
    answer = _END_TIME.sub("", answer)
    if prompt and not _MARK.search(answer) and not answer.lstrip("])? :\n\t").startswith("y"):
        return "declined", "prompt"
    if _CHIPS.search(text):
        return "reboot-required", "chips-missing"
    if _ERROR.search(text):
        return "failed", ""
    return ("reboot-required", "") if rc == 2 else None


def read_installer(command: str, text: str, rc: int | None) -> Reading:
    """The end of an installation: `install` = {result, reason}; for --check the check `archive-integrity`."""
    if len(text) > 2 * _TAIL:
        text = text[-_TAIL:]
    words = set(command.split())
    ours = _MARK.search(text) or _SELF.search(text) or _RPM.search(text) or "ERR_NO" in text
    ours = ours or ("[ERROR]" in text and not _DATED.search(text))
    ours = ours or (not foreign(text) and any(pattern.search(text) for pattern, _, _ in (*_RULES, *_ENDINGS)))
    if "--version" in words and VERSION.fullmatch(text.strip().rpartition("\n")[2].strip()):
        return Reading(VENDOR_NAME, command, "ok", measure={"version": text.strip().rpartition("\n")[2].strip()})
    if not ours:
        return unparsed(VENDOR_NAME, command, "not the log of an Ascend installer")
    if _CHECKSUM_BAD.search(text):
        bad: dict[str, Json] = {"name": "archive-integrity", "result": "fail"}
        return Reading(VENDOR_NAME, command, "failed", checks=(bad,))
    if words & {"--check"}:
        if "All good" not in text:
            return unparsed(VENDOR_NAME, command, "the archive check has no end")
        good: dict[str, Json] = {"name": "archive-integrity", "result": "pass"}
        return Reading(VENDOR_NAME, command, "ok", checks=(good,))
    verdict = _verdict(_last_run(text), rc)
    if verdict is None:
        return unparsed(VENDOR_NAME, command, "the log ends before its last message")
    result, reason = verdict
    status: Status = "ok" if result in {"live", "reboot-required"} else "occupied" if reason == "occupied" else "failed"
    install: dict[str, Json] = {"result": result}
    if reason:
        install["reason"] = reason
    return Reading(VENDOR_NAME, command, status, more={"install": install})
