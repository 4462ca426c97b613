"""The read-only commands of one probe. `(none)` is printed where a list is empty: silence is no answer."""

from __future__ import annotations

from fleet.core.vendor import Probe

_BASE = (
    "index,name,uuid,serial,pci.bus_id,pci.device_id,driver_version,vbios_version,memory.total,count,"
    "ecc.errors.uncorrected.volatile.total,retired_pages.pending,remapped_rows.pending,remapped_rows.failure"
)
_NEWER = "gpu_recovery_action,fabric.state"
_PACKAGES = "nvidia|cuda-drivers|cuda-toolkit|datacenter-gpu-manager|libnvsdm|nvlsm|gdrcopy|gdrdrv|libgdrapi"

PROBES = (
    Probe("proc_version", "cat /proc/driver/nvidia/version", needs="/proc/driver/nvidia/version"),
    Probe("modinfo", "modinfo nvidia 2>/dev/null || modinfo nvidia-current 2>/dev/null || echo '(none)'"),
    # An unknown field fails the whole query, so a driver without the newer ones is asked again without them.
    Probe(
        "cards",
        f"out=$(nvidia-smi --query-gpu={_BASE},{_NEWER} --format=csv 2>&1)"
        f" && printf '%s\\n' \"$out\" || nvidia-smi --query-gpu={_BASE} --format=csv",
        timeout_s=60,
        read_as="nvidia-smi --query-gpu=<fields> --format=csv",
        needs="/usr/bin/nvidia-smi",
    ),
    Probe("table", "nvidia-smi", timeout_s=30, needs="/usr/bin/nvidia-smi"),
    Probe("links", "nvidia-smi nvlink -s", timeout_s=30, needs="/usr/bin/nvidia-smi"),
    Probe(
        "dpkg",
        f"dpkg -l 2>/dev/null | grep -E '^Desired|{_PACKAGES}'",
        read_as="dpkg -l",
        needs="/usr/bin/dpkg",
    ),
    Probe(
        "rpm",
        f"rpm -qa --qf '%{{NAME}} %{{VERSION}}-%{{RELEASE}}\\n' 2>/dev/null | grep -E '{_PACKAGES}' || echo '(none)'",
        read_as="rpm -qa",
        needs="/usr/bin/rpm",
    ),
    Probe(
        "switches",
        "ls /proc/driver/nvidia-nvswitch/devices | grep . || echo '(none)'",
        needs="/proc/driver/nvidia-nvswitch/devices",
    ),
    Probe("fabricmanager", "nv-fabricmanager --version", needs="/usr/bin/nv-fabricmanager"),
    Probe("toolkit", "cat /usr/local/cuda/version.json", needs="/usr/local/cuda/version.json"),
    Probe(
        "kernel_log",
        "dmesg 2>&1 | { grep -E 'NVRM|nvidia|not permitted|denied' || echo 'nvidia: no message'; } | tail -n 400",
        read_as="dmesg",
    ),
)
