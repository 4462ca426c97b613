#!/bin/sh
# Installs one Ascend package and looks whether it is on the disk afterwards: an installer's exit 0 can mean that
# somebody said no. Exit 0 = installed, 2 = installed and a reboot is owed, else failed. Safe to repeat.
#
#   ascend-install.sh driver|firmware|toolkit run|rpm|deb FILE VERSION USER
set -u
LC_ALL=C
export LC_ALL
PATH=${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin
export PATH
part=$1 kind=$2 file=$3 version=$4 user=$5
root=/usr/local/Ascend

fail() { printf 'FLEET: %s: %s\n' "$1" "$2"; exit 1; }
lower() { printf '%s' "$1" | tr '[:upper:]' '[:lower:]'; }

on_disk() {
    if [ "$part" != toolkit ]; then
        sed -n 's/^Version=//p' "$root/$part/version.info" 2>/dev/null
        return
    fi
    for info in "$root"/cann/*-linux/ascend_toolkit_install.info "$root"/ascend-toolkit/latest/*-linux/ascend_toolkit_install.info; do
        if [ -f "$info" ]; then sed -n 's/^version=//p' "$info"; return; fi
    done
}

[ -f "$file" ] || fail not-staged "the package $file is not on the node"
case $kind in
rpm) rpm -U --oldpackage --replacepkgs "$file" </dev/null && rc=0 || rc=1 ;;
deb) dpkg -i "$file" </dev/null && rc=0 || rc=1 ;;
*)
    bash "$file" --check </dev/null || fail bad-package "$file does not pass its own --check"
    if [ "$part" = toolkit ]; then
        set -- --install --install-for-all
    elif [ -n "$(on_disk)" ]; then
        set -- --upgrade
    elif [ "$part" = driver ]; then
        set -- --full --install-for-all
    else
        set -- --full
    fi
    if [ "$part" != toolkit ] && [ "$user" != HwHiAiUser ]; then
        set -- "$@" --install-username="$user" --install-usergroup="$user"
    fi
    bash "$file" --nox11 "$@" --quiet </dev/null
    rc=$?
    ;;
esac
case $rc in 0 | 2) ;; *) exit "$rc" ;; esac
if [ "$part" = toolkit ] && [ -L "$root/cann" ] && [ -d "$root/ascend-toolkit/$version" ]; then
    rm -f "$root/cann" # the link of the newer root would hide the older version
fi
have=$(on_disk)
[ "$(lower "$have")" = "$(lower "$version")" ] ||
    fail not-installed "the installer ended with $rc but $part on the disk is ${have:-none}, not $version"
if [ "$part" != toolkit ]; then # whatever the exit status says: the plan boots after driver and firmware
    mkdir -p /var/lib/fleet && : >/var/lib/fleet/reboot-required
fi
exit "$rc"
