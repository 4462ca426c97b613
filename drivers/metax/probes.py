"""The read-only commands of a probe. Host facts come from sysfs; the tool is asked once for each page."""

from __future__ import annotations

from fleet.core.vendor import Probe

# The tool's place differs between releases and the OEM name; without any the shell's own 127 says so.
_TOOL = (
    '"$(command -v mx-smi || command -v /opt/mxdriver/bin/mx-smi || command -v ht-smi || '
    'command -v /opt/mxdriver/bin/ht-smi || echo mx-smi)"'
)
FLASHED = "/var/lib/fleet/metax/flashed"
_PACKAGES = "'metax*' 'mxsmt*' 'mxfw*' 'mxgvm*' 'maca*' 'mxmaca*'"

PROBES: tuple[Probe, ...] = (
    Probe("kmd", "cat /sys/module/metax/version", timeout_s=5),
    Probe("module_file", "modinfo -F version metax", timeout_s=10),
    Probe("dkms", "dkms status", timeout_s=15, needs="/var/lib/dkms/metax"),
    Probe(
        "packages",
        # dpkg and rpm name themselves too, so that "none of ours" is an answer and not silence
        f"dpkg-query -W -f '${{db:Status-Abbrev}}\\t${{Package}}\\t${{Version}}\\n' dpkg {_PACKAGES} 2>/dev/null; "
        f"rpm -qa rpm {_PACKAGES} 2>/dev/null; true",
        timeout_s=20,
        read_as="dpkg-query -W",
    ),
    # What our own role flashed and nobody has seen running yet: no tool tells what the next cold start will bring.
    Probe("flashed", f"cat {FLASHED}", timeout_s=5, needs=FLASHED),
    Probe("toolkit", "readlink -f /opt/maca", timeout_s=5, needs="/opt/maca"),
    Probe("smi", _TOOL, timeout_s=20, read_as="mx-smi"),
    Probe("list", f"{_TOOL} -L", timeout_s=20, read_as="mx-smi -L"),
    Probe("version", f"{_TOOL} --show-version", timeout_s=20, read_as="mx-smi --show-version"),
    Probe("hwinfo", f"{_TOOL} --show-hwinfo", timeout_s=20, read_as="mx-smi --show-hwinfo"),
    Probe(
        "log",
        "dmesg | sed -n -e 1p -e '/METAX\\./p' -e '/MXCD\\./p' -e '/MXGVM\\./p' -e '/HTCD\\./p' | tail -n 400",
        timeout_s=10,
        read_as="dmesg",
    ),
)
