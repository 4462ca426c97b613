#!/bin/sh
# Upgrades the microcontrollers of all cards, strictly one after the other, and looks at each afterwards. Cards that
# already run the version are left alone. A held lock is waited for: two operations at once lock each other out.
#
#   ascend-mcu.sh ZIP VERSION
set -u
LC_ALL=C
export LC_ALL
PATH=${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin
export PATH
zip=$1 version=$2
tries=${ASCEND_MCU_TRIES:-4}
pause=${ASCEND_MCU_PAUSE:-15}

fail() { printf 'FLEET: %s: %s\n' "$1" "$2"; exit 1; }
runs() { npu-smi upgrade -b mcu -i "$1" </dev/null | sed -n 's/^[[:space:]]*Version *: *//p'; }

[ -f "$zip" ] || fail not-staged "the package $zip is not on the node"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
if command -v unzip >/dev/null 2>&1; then
    unzip -q -o "$zip" -d "$work" || fail bad-package "$zip cannot be unpacked"
else
    python3 -m zipfile -e "$zip" "$work" || fail bad-package "$zip cannot be unpacked"
fi
image=$(find "$work" -name '*.hpm' | head -n 1)
[ -n "$image" ] || fail bad-package "$zip holds no .hpm"

attempt() { # SENTENCE COMMAND...: until the lock is free
    what=$1
    shift
    left=$tries
    while :; do
        answer=$("$@" </dev/null)
        rc=$?
        printf '%s\n' "$answer"
        case $answer in
        *mcu_get_lock*)
            left=$((left - 1))
            [ "$left" -gt 0 ] || fail mcu-locked "$what: the lock is held by somebody else"
            sleep "$pause"
            ;;
        *) return $rc ;;
        esac
    done
}

cards=$(npu-smi info -l </dev/null | sed -n 's/.*NPU ID *: *\([0-9][0-9]*\).*/\1/p')
[ -n "$cards" ] || fail no-cards "npu-smi lists no card"
for card in $cards; do
    [ "$(runs "$card")" = "$version" ] && continue
    attempt "card $card" npu-smi upgrade -t mcu -i "$card" -f "$image" || fail mcu-failed "card $card did not take the image"
    attempt "card $card" npu-smi upgrade -a mcu -i "$card" || fail mcu-failed "card $card did not activate it"
    left=12 # the controller restarts, about a minute
    while [ "$(runs "$card")" != "$version" ]; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || fail mcu-failed "card $card runs $(runs "$card") after the upgrade, not $version"
        sleep 10
    done
done
exit 0
