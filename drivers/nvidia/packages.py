"""Package managers: what is installed, what a transaction did, what changed and when; dkms; the .run installer."""

from __future__ import annotations

import re

from drivers.nvidia.commands import Command
from drivers.nvidia.values import Draft, rows, say, version
from fleet.core.model import Json
from fleet.core.vendor import Reading

_RPM = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9+._-]*)-(?P<evr>[A-Za-z0-9:~^+._]+-[A-Za-z0-9~^+._]+)\."
    r"(?:x86_64|aarch64|noarch|ppc64le|i[3-6]86|src|\(none\))$"
)
_DPKG = re.compile(r"([a-zA-Z])([a-zA-Z])\w?\s+(\S+)\s+(\S+)\s+(\S+)(?:\s|$)")
_PLAIN = re.compile(r"([a-zA-Z0-9][A-Za-z0-9+._-]*)(?::\w+)?[ \t=]+([0-9][A-Za-z0-9:~^+._-]*)$")
_ABSENT = re.compile(r"package \S+ is not installed$|未安装软件包|dpkg-query: no packages found matching ")
_DKMS = re.compile(
    r"(?P<module>[A-Za-z0-9_+.-]+)(?:/|, )(?P<version>[A-Za-z0-9_+.:~-]+)(?:, (?P<kernel>[^, ]+), (?P<arch>[^:, ]+))?"
    r":\s*(?P<state>added|built|installed|broken)\b"
)
_NOT_ROOT = ("are you root", "Permission denied", "superuser privilege", "must be root")
_BUILD_PATH = re.compile(r"/dkms/(nvidia[A-Za-z-]*)/(\d{3}\.\d+(?:\.\d+)?)/")
_KERNEL = re.compile(
    r'Kernel version:\s{1,40}"([^"]{3,80})"'
    r"|/linux-headers-(\d[^/\s']{3,80}?)(?=[/'\s])"
    r"|/lib/modules/(\d[^/\s]{3,80})/"
    r"|DKMS make\.log for \S+ for kernel (\d\S{3,80})"
)
_MAKE_FAILED = re.compile(
    r"make(?:\[\d+\])?: \*\*\* .{0,400}(?:Error|错误) \d+|: (?:fatal )?error: |: (?:致命)?错误："
    r"|^\*\*\* Failed .{0,80}Bailing out|version check failed:|^ERROR: modpost: "
)
_RUN_DONE = re.compile(
    r"Installation of the (?:kernel module for the )?NVIDIA Accelerated Graphics Driver .{0,60}"
    r"\(version: (\d{3}[\d.]*\d)\) is now complete"
)


def rpm_list(command: str, text: str) -> Reading | None:
    """`rpm -qa`: name-version-release.arch, or `name version-release` of a query format."""
    return _packages(command, text, _RPM)


def dpkg_list(command: str, text: str) -> Reading | None:
    """`dpkg -l`: only what is installed; or `name version` lines of dpkg-query."""
    found: dict[str, Json] = {}
    table = False
    for line in rows(text):
        table |= line.startswith(("||/", "Desired="))
        match = _DPKG.match(line)
        if (
            match
            and len(match.group(1) + match.group(2)) == 2
            and match.group(1) in "uihrp"
            and match.group(2) in "ncHUFWti"
        ):
            table = True
            if match.group(2) == "i":
                found[match.group(3).split(":")[0]] = match.group(4)
    if table:
        draft = Draft(command)
        draft.more["packages"] = found
        return draft.done()
    return _packages(command, text, _PLAIN)


def _packages(command: str, text: str, form: re.Pattern[str]) -> Reading | None:
    found: dict[str, Json] = {}
    strange = 0
    asked = False
    for line in rows(text):
        words = line.strip()
        if not words:
            continue
        if _ABSENT.match(words):
            asked = True
            continue
        match = form.match(words) if len(words) < 300 else None
        if match is None and form is _RPM and len(words) < 300:
            match = _PLAIN.match(words)
        if match is None:
            strange += 1
            continue
        found[match.group(1)] = match.group(2)
    if strange > len(found) or not (found or asked):
        return None
    draft = Draft(command)
    draft.more["packages"] = found
    return draft.done()


def transaction(command: str, text: str, rc: int | None) -> Reading | None:
    """What apt, dpkg, dnf, yum or rpm said while it installed or removed."""
    lines = [line.strip() for line in rows(text) if line.strip()]
    errors = [line for line in lines if re.match(r"(?:E|Error|error|ERROR):(?:\s|$)|dpkg: error|Err:\d", line)]
    done = [
        line
        for line in lines
        if re.match(
            r"(?:Setting up |Unpacking |Removing |Complete!|Nothing to do)|\d+ upgraded, |\S.*#{9,} ?\[100%\]", line
        )
    ]
    if not errors and not done:
        return None
    draft = Draft(command)
    if errors or rc:
        draft.status, draft.note = "failed", (errors or lines)[-1]
        install: dict[str, Json] = {"result": "failed"}
        words = " ".join(errors)
        if "held broken packages" in words or "unmet dependencies" in text:
            install["reason"] = "dependencies"
        elif any(said in words for said in _NOT_ROOT):
            install["reason"] = "permission"
            draft.status = "permission-denied"
        elif "Could not get lock" in words or "frontend lock" in words or "transaction lock" in words:
            install["reason"] = "locked"
        elif "No space left" in text or "enough free space" in words:
            install["reason"] = "disk-full"
        elif "Bad return status for module build" in text or "kernel headers" in text.lower():
            install["reason"] = "kernel-module-build"
    else:
        idle = any(line.startswith("Nothing to do") for line in done)
        changed = not idle and any(not re.match(r"\d+ upgraded, ", line) for line in done)
        install = {"result": "installed" if changed else "unchanged"}
    draft.more["install"] = install
    return draft.done()


def dkms_status(command: str, text: str) -> Reading | None:
    """`dkms status`, both its forms (`module/version` and `module, version`)."""
    entries: list[Json] = []
    for line in rows(text):
        match = _DKMS.match(line.strip())
        if match:
            entry: dict[str, Json] = {key: value for key, value in match.groupdict().items() if value}
            entries.append(entry)
    if not entries:
        return None
    draft = Draft(command)
    draft.more["install"] = {"dkms": entries}
    return draft.done()


def dkms_error(command: str, text: str) -> Reading | None:
    """What `dkms build`, `install` or `autoinstall` says when it fails, and of which driver and kernel."""
    said = re.search(r"^(?:Error! .+|Bad return status.*)$", text[:200_000], re.MULTILINE)
    if not said:
        return None
    draft = Draft(command, "failed", note=said.group())
    path = _BUILD_PATH.search(text[:200_000])
    kernel = re.search(r"kernel:? (\d+\.\d+\S*?)[ )]", text[:200_000])
    say(draft.components, "driver", path.group(2) if path else None)
    say(draft.components, "kernel", kernel.group(1) if kernel else None)
    headers = "kernel headers" in text
    draft.more["install"] = {"result": "failed", "reason": "kernel-headers" if headers else "kernel-module-build"}
    return draft.done()


def make_log(command: Command, text: str) -> Reading | None:
    """`/var/lib/dkms/<module>/<version>/build/make.log`: did the module build, for which kernel."""
    lines = rows(text)
    if not any(line.lstrip().startswith(("CC [M]", "LD [M]", "make", "DKMS make.log")) for line in lines):
        return None
    draft = Draft(command.text)
    path = _BUILD_PATH.search(command.text)
    kernel = None
    failed = False
    linked = False
    for line in lines:
        path = path or (_BUILD_PATH.search(line) if "/dkms/" in line else None)
        match = _KERNEL.search(line) if kernel is None else None
        if match:
            kernel = next(group for group in match.groups() if group)
        if _MAKE_FAILED.search(line):
            failed = True
        linked |= line.lstrip().startswith("LD [M]")
    if path:
        say(draft.components, "driver", path.group(2))
    say(draft.components, "kernel", kernel.removesuffix("-common") if kernel else None)
    if failed:
        draft.status, draft.note = "failed", "the module did not build"
        draft.more["install"] = {"result": "failed", "reason": "kernel-module-build"}
    elif not linked:
        draft.status, draft.note = "failed", "the log breaks off"
    return draft.done()


def installer_log(command: str, text: str) -> Reading | None:
    """`/var/log/nvidia-installer.log` or what the .run file printed: the exit status alone says too little."""
    if (
        "nvidia-installer" not in text
        and "NVIDIA Accelerated Graphics Driver" not in text
        and "NVIDIA-Linux" not in text
    ):
        return None
    draft = Draft(command)
    done = _RUN_DONE.search(text)
    if done:
        say(draft.components, "driver", version(done.group(1)))
        draft.more["install"] = {"result": "installed"}
    elif "Installation has failed" in text or "ERROR:" in text:
        draft.status, draft.note = "failed", "the installer says that it failed"
        reason = "failed"
        if "appears to already be loaded" in text or "is in use" in text:
            reason, draft.status = "occupied", "occupied"
        elif "Unable to build the NVIDIA kernel module" in text or "Unable to find the kernel source" in text:
            reason = "kernel-module-build"
        elif "Nouveau" in text:
            reason = "nouveau"
        draft.more["install"] = {"result": "failed", "reason": reason}
    elif "User aborted" in text or "Installation aborted" in text:
        draft.status, draft.note = "failed", "the installer was told to stop"
        draft.more["install"] = {"result": "declined"}
    elif "nvidia-installer log file" in text:
        draft.status, draft.note = "failed", "the log breaks off"
    else:
        return None
    return draft.done()
