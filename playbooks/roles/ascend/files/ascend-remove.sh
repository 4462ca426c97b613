#!/bin/sh
# Removes driver, firmware or toolkit by the way it came. Exit 0 = gone, 2 = gone and a reboot is owed. Safe to repeat.
#
#   ascend-remove.sh driver|firmware|toolkit [VERSION]
set -u
LC_ALL=C
export LC_ALL
PATH=${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin
export PATH
part=$1 version=${2:-}
root=/usr/local/Ascend

if [ "$part" = toolkit ]; then
    for folder in "$root/cann-$version" "$root/ascend-toolkit/$version"; do
        [ -d "$folder" ] || continue
        for script in "$folder/cann_uninstall.sh" "$folder/script/uninstall.sh"; do
            if [ -x "$script" ]; then "$script" --quiet </dev/null; exit $?; fi
        done
        echo "FLEET: no-uninstaller: $folder holds no uninstall script"
        exit 1
    done
    exit 0
fi
if command -v rpm >/dev/null 2>&1; then
    name=$(rpm -qa --qf '%{NAME}\n' 2>/dev/null | grep -i "^ascend.*-$part\$" | head -n 1)
    if [ -n "$name" ]; then rpm -e "$name" </dev/null; exit $?; fi
fi
if command -v dpkg-query >/dev/null 2>&1; then
    # shellcheck disable=SC2016  # the fields are dpkg's, not the shell's
    name=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 2>/dev/null | sed -n 's/^ii *//p' |
        grep -i "^ascend.*-$part\$" | head -n 1)
    if [ -n "$name" ]; then dpkg -r "$name" </dev/null; exit $?; fi
fi
if [ -x "$root/$part/script/uninstall.sh" ]; then "$root/$part/script/uninstall.sh" --quiet </dev/null; exit $?; fi
[ ! -f "$root/$part/version.info" ] || { echo "FLEET: no-uninstaller: $root/$part has no uninstall script"; exit 1; }
exit 0
