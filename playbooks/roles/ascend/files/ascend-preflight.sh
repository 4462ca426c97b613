#!/bin/sh
# What would stop a change of the Ascend stack on this node. Reads only; one line `FLEET: <slug>: <sentence>` for each.
#
#   ascend-preflight.sh USER COMPONENT...
set -u
LC_ALL=C
export LC_ALL
PATH=${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin
user=$1
shift
wanted=" $* "
root=/usr/local/Ascend
found=0

say() { printf 'FLEET: %s: %s\n' "$1" "$2"; found=1; }
wants() { case $wanted in *" $1 "*) return 0 ;; esac; return 1; }

[ "$(id -u)" -eq 0 ] || say not-root "this needs root or sudo, it runs as $(id -un)"

if wants driver || wants firmware; then
    id "$user" >/dev/null 2>&1 || say user-missing "the user $user that the driver belongs to does not exist"
    before=$(sed -n 's/^UserName=//p' /etc/ascend_install.info 2>/dev/null)
    if [ -n "$before" ] && [ "$before" != "$user" ]; then
        say user-differs "the driver was installed for $before, the plan says $user"
    fi
    for path in /usr/local/sbin/npu-smi /usr/local/bin/npu-smi; do
        [ -d "$path" ] && say tool-is-directory "$path is a directory (a container's mount made it): remove it first"
    done
    if [ -f /etc/ascend_install.info ] && grep -q '^Driver_Install_Type=' /etc/ascend_install.info &&
        [ ! -f $root/driver/version.info ]; then
        say broken-uninstall "/etc/ascend_install.info names a driver but $root/driver/version.info is gone"
    fi
    free=$(df -Pk /usr/local | awk 'NR == 2 { print $4 }')
    [ "${free:-0}" -ge 409600 ] || say disk-full "/usr/local has $((${free:-0} / 1024)) MiB free, 400 are needed"
fi

if wants driver; then
    kernel=$(uname -r)
    [ -e "/lib/modules/$kernel/build/Makefile" ] ||
        say headers-missing "the headers of the running kernel $kernel are not installed"
    lacking=
    for tool in make gcc dkms lspci; do
        command -v $tool >/dev/null 2>&1 || lacking="$lacking $tool"
    done
    [ -z "$lacking" ] || say missing-tools "the driver's installer needs:$lacking"
fi

if wants driver || wants firmware || wants mcu; then
    # What only watches the cards is stopped by the phase `stop`; a job is not.
    holders=
    for fd in /proc/[0-9]*/fd/*; do
        case $(readlink "$fd" 2>/dev/null) in
        /dev/davinci*)
            pid=${fd#/proc/}
            pid=${pid%%/*}
            name=$(cat "/proc/$pid/comm" 2>/dev/null)
            case $name in npu-exporter | ascend-device* | device-plugin) continue ;; esac
            case " $holders " in *" $pid($name) "*) ;; *) holders="$holders $pid($name)" ;; esac
            ;;
        esac
    done
    [ -z "$holders" ] || say device-busy "processes hold /dev/davinci*:$holders"
fi
exit $found
