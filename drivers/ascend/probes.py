"""What a probe of an Ascend node asks: read-only, one vendor tool at a time, every card by its own id.

NPU ids need not be 0..n-1, so the loops take them from `npu-smi info -l` (and the chips from `-m`). A query with `-c`
does not print its card: the loop prints that line itself.
"""

from __future__ import annotations

from fleet.core.vendor import Probe

_TOOL = "/usr/local/Ascend/driver/tools/upgrade-tool"
_IDS = "$(npu-smi info -l 2>/dev/null | sed -n 's/.*NPU ID *: *\\([0-9][0-9]*\\).*/\\1/p')"
_CHIPS = (
    "npu-smi info -m 2>/dev/null | awk 'tolower($NF) != \"mcu\" && $1 ~ /^[0-9]+$/ {print $1, $2}' | "
    "while read -r n c; do"
)
_CARD_LINE = "printf '\\tNPU ID                         : %s\\n' \"$n\""
_TOOLKIT = (
    "for f in /usr/local/Ascend/cann/*-linux/ascend_toolkit_install.info"
    " /usr/local/Ascend/ascend-toolkit/latest/*-linux/ascend_toolkit_install.info"
    " /usr/local/Ascend/ascend-toolkit/latest/ascend_toolkit_install.info;"
    ' do if [ -f "$f" ]; then cat "$f"; break; fi; done'
)
_PACKAGES = (
    "{ rpm -qa --qf 'rpm %{NAME} %{VERSION}\\n' 2>/dev/null;"
    " dpkg-query -W -f '${db:Status-Abbrev} deb ${Package} ${Version}\\n' 2>/dev/null | sed -n 's/^ii *//p'; }"
    " | grep -i ' ascend' ; echo end"
)
_SINCE = (
    "b=$(sed -n 's/^btime //p' /proc/stat); for p in driver firmware; do"
    ' f=/usr/local/Ascend/$p/version.info; [ -f "$f" ] || continue; t=$(stat -c %Y "$f");'
    ' if [ "$t" -ge "$b" ]; then echo "$p since-boot"; else echo "$p before-boot"; fi; done; echo end'
)


def _each_card(query: str) -> str:
    return f"for i in {_IDS}; do npu-smi {query}; done"


PROBES: tuple[Probe, ...] = (
    Probe("smi", "npu-smi info", 30),
    Probe("map", "npu-smi info -m", 20),
    Probe("boards", _each_card("info -t board -i $i"), 60, "npu-smi info -t board"),
    Probe("chips", f"{_CHIPS} npu-smi info -t board -i $n -c $c; done", 60, "npu-smi info -t board -c"),
    Probe("health", f"{_CHIPS} {_CARD_LINE}; npu-smi info -t health -i $n -c $c; done", 60, "npu-smi info -t health"),
    Probe("hccs", f"{_CHIPS} {_CARD_LINE}; npu-smi info -t hccs -i $n -c $c; done", 60, "npu-smi info -t hccs"),
    Probe("spod", "npu-smi info -t spod-info -i 0 -c 0", 20),
    Probe("firmware", f"{_TOOL} --device_index -1 --component -1 --version", 60, needs=_TOOL),
    Probe("floor", f"{_TOOL} --device_index -1 --hw_base_version", 30, needs=_TOOL),
    Probe("boot", f"{_TOOL} --device_index -1 --boot_status", 30, needs=_TOOL),
    Probe("mcu", _each_card("upgrade -b mcu -i $i"), 60, "npu-smi upgrade -b mcu"),
    Probe("driver_info", "cat /usr/local/Ascend/driver/version.info", 10),
    Probe("firmware_info", "cat /usr/local/Ascend/firmware/version.info", 10),
    Probe("install_info", "cat /etc/ascend_install.info", 10, needs="/etc/ascend_install.info"),
    Probe("toolkit", _TOOLKIT, 10, "cat ascend_toolkit_install.info", needs="/usr/local/Ascend"),
    Probe("module", "modinfo -F version drv_pcie_host", 10),
    Probe("packages", _PACKAGES, 20, "ascend-packages"),
    Probe("since", _SINCE, 10, "ascend-since-boot"),
    Probe("lspci", "lspci -Dnn", 20),
)
