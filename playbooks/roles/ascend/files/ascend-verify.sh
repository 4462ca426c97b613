#!/bin/sh
# What runs after the change, not what lies on the disk: waits for the chips to be up, then compares.
#
#   ascend-verify.sh COMPONENT=VERSION...    an empty version = it must be gone
# shellcheck disable=SC2317  # driver, firmware, mcu and toolkit are called by the name of the component
set -u
LC_ALL=C
export LC_ALL
PATH=${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin
export PATH
root=/usr/local/Ascend
tool=$root/driver/tools/upgrade-tool
limit=${ASCEND_UP_LIMIT:-300}
bad=0

say() { printf 'FLEET: %s: %s\n' "$1" "$2"; bad=1; }
lower() { printf '%s' "$1" | tr '[:upper:]' '[:lower:]'; }
driver() { npu-smi info </dev/null 2>/dev/null | sed -n 's/.*npu-smi .*Version: *\([^ |]*\).*/\1/p' | head -n 1; }
firmware() {
    "$tool" --device_index -1 --component -1 --version </dev/null 2>/dev/null |
        sed -n 's/^{"device_id".*"version":"\{0,1\}\([0-9.]*\).*/\1/p' | sort -u | tr '\n' ' ' | sed 's/ $//'
}
mcu() {
    for card in $(npu-smi info -l </dev/null | sed -n 's/.*NPU ID *: *\([0-9][0-9]*\).*/\1/p'); do
        npu-smi upgrade -b mcu -i "$card" </dev/null
    done | sed -n 's/^[[:space:]]*Version *: *//p' | sort -u | tr '\n' ' ' | sed 's/ $//'
}
toolkit() {
    for info in "$root"/cann/*-linux/ascend_toolkit_install.info "$root"/ascend-toolkit/latest/*-linux/ascend_toolkit_install.info; do
        if [ -f "$info" ]; then sed -n 's/^version=//p' "$info"; return; fi
    done
}
up() {
    [ -n "$(driver)" ] || return 1
    [ -x "$tool" ] || return 0
    states=$("$tool" --device_index -1 --boot_status </dev/null 2>/dev/null | sed -n 's/.*boot.status: *//p' | sort -u)
    [ "$states" = 16 ]
}

for pair in "$@"; do
    case $pair in
    driver=?* | firmware=?* | mcu=?*)
        while ! up; do
            limit=$((limit - 5))
            [ "$limit" -gt 0 ] || { say not-ready "the chips are not up: npu-smi does not answer or a boot status is not 16"; exit 1; }
            sleep 5
        done
        ;;
    esac
done
for pair in "$@"; do
    part=${pair%%=*} want=${pair#*=}
    case $part in
    driver | firmware | mcu | toolkit) have=$($part) ;;
    *) continue ;;
    esac
    [ "$(lower "$have")" = "$(lower "$want")" ] || say "$part-not-live" "$part runs ${have:-none}, the plan says ${want:-none}"
done
[ $bad -eq 0 ] && rm -f /var/lib/fleet/reboot-required
exit $bad
