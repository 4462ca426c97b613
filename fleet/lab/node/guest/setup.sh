#!/bin/sh
# Runs once in the node's root, over its stack: `setup.sh DEBS` installs the real systemd from those packages, in place
# of the lab's small one, and leaves only the units that a node needs: each more costs an emulated processor time.
set -eu
# systemd-sysv demands a systemd that is configured, and brings the real reboot and poweroff.
for deb in "$1"/*.deb; do
    case $deb in */systemd-sysv_*) ;; *) printf '%s\n' "$deb" ;; esac
done | xargs dpkg --force-unsafe-io -i
dpkg --force-unsafe-io -i "$1"/systemd-sysv_*.deb
cp /opt/fleet-lab/guest/*.service /etc/systemd/system/
systemctl enable fleet-lab.service fleet-lab-ready.service ssh.service
systemctl set-default multi-user.target
systemctl mask getty.target serial-getty@.service console-getty.service e2scrub_reap.service e2scrub_all.timer \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer systemd-tmpfiles-clean.timer \
    systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-pstore.service \
    systemd-network-generator.service networking.service dkms.service modprobe@.service systemd-modules-load.service \
    kmod-static-nodes.service dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
    systemd-random-seed.service systemd-sysusers.service systemd-hwdb-update.service ldconfig.service \
    systemd-journal-flush.service systemd-machine-id-commit.service systemd-remount-fs.service \
    proc-sys-fs-binfmt_misc.automount systemd-firstboot.service sys-fs-fuse-connections.mount sys-kernel-config.mount
: >/etc/fstab
