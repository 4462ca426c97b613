"""The read-only commands of a probe: sysfs first, then the module file, DKMS, packages, the tool."""

from __future__ import annotations

from fleet.core.vendor import Probe

# /usr/bin/brsmi is a link into the driver's folder; `biren-smi` there is a folder.
_TOOL = '"$(command -v brsmi || command -v /usr/local/birensupa/driver/biren-smi/bin/brsmi || echo brsmi)"'
QUERY = "index,memory.used,memory.free,name,serial,temperature.gpu,svi.mode.current"

PROBES: tuple[Probe, ...] = (
    Probe("loaded", "cat /sys/module/biren/version", timeout_s=5),
    Probe("module_file", "modinfo -F version biren", timeout_s=10),
    Probe("dkms", "dkms status", timeout_s=15, needs="/var/lib/dkms/biren"),
    Probe(
        "packages",
        "dpkg-query -W -f '${db:Status-Abbrev}\\t${Package}\\t${Version}\\n' dpkg 'biren*' 'sudcgm*' 2>/dev/null; "
        "rpm -qa rpm 'biren*' 'sudcgm*' 2>/dev/null; true",
        timeout_s=20,
        read_as="dpkg-query -W",
    ),
    Probe(
        "toolkit",
        "readlink -f /usr/local/birensupa/sdk/latest",
        timeout_s=5,
        needs="/usr/local/birensupa/sdk/latest",
    ),
    Probe("smi", _TOOL, timeout_s=20, read_as="brsmi"),
    Probe(
        "query",
        f"{_TOOL} gpu --query-gpu={QUERY} --format=csv,noheader,nounits",
        timeout_s=20,
        read_as=f"brsmi gpu --query-gpu={QUERY} --format=csv,noheader,nounits",
    ),
    Probe("log", "dmesg | sed -n -e 1p -e /biren/p | tail -n 400", timeout_s=10, read_as="dmesg"),
)
