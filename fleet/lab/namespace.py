"""Linux namespaces and mounts for one node: its own root, /proc, /sys, /dev, process tree and host name.

All mounts live in a private mount namespace, so they vanish with its last process, however that one died.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import shutil
import signal
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleet.core.errors import FleetError, Refused

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID = 0x00020000, 0x04000000, 0x08000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
# What a program in a node finds in its environment when the lab starts it.
ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
_libc = ctypes.CDLL(None, use_errno=True)
_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}


@dataclass(frozen=True)
class Rootfs:
    """How a node's root is put together. `lowers` from top to ground; `binds` node path -> host path (read-only
    when the node path stands in `read_only`); `files` are laid over existing files of /proc, node path -> text."""

    mountpoint: Path
    lowers: Sequence[Path]
    upper: Path
    work: Path
    hostname: str
    binds: Mapping[str, Path] = field(default_factory=dict)
    read_only: frozenset[str] = frozenset()
    files: Mapping[str, str] = field(default_factory=dict)


def proc_files(kernel: str, boot_id: str) -> dict[str, str]:
    """What a node's /proc says about its kernel."""
    return {
        "/proc/sys/kernel/osrelease": f"{kernel}\n",
        "/proc/sys/kernel/random/boot_id": f"{boot_id}\n",
        "/proc/version": f"Linux version {kernel} (builder@fleet-lab) (gcc) #1 SMP\n",
        "/proc/cmdline": f"BOOT_IMAGE=/boot/vmlinuz-{kernel} root=UUID=00000000-0000-4000-8000-000000000000 ro quiet\n",
        "/proc/modules": "",
    }


def require() -> None:
    """Refused, with the reason, where a lab cannot run: not Linux, not root, no OverlayFS, no namespaces."""
    if sys.platform != "linux":
        raise Refused("the lab needs Linux", cause=f"this is {sys.platform}", slug="lab-unusable")
    if os.geteuid() != 0:
        raise Refused("the lab needs root", hint="sudo fleet lab up", slug="lab-unusable")
    if platform.machine() not in _PIVOT_ROOT:
        raise Refused(f"the lab does not know the machine type {platform.machine()!r}", slug="lab-unusable")
    if "overlay" not in Path("/proc/filesystems").read_text():
        raise Refused("this kernel has no OverlayFS", hint="modprobe overlay", slug="lab-unusable")
    pid = os.fork()
    if pid == 0:
        os._exit(0 if _libc.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID) == 0 else 1)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise Refused(
            "namespaces cannot be made here",
            cause="unshare() is forbidden, as in an unprivileged container",
            slug="lab-unusable",
        )


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def mount(source: str, target: str | Path, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2); OSError with the target in its text."""
    _check(
        _libc.mount(source.encode(), os.fsencode(target), kind.encode() or None, flags, data.encode() or None),
        f"mount {kind or 'bind'} at {target}",
    )


def die_with_parent() -> None:
    """Be killed as soon as the process that forked this one is gone."""
    parent = os.getppid()
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def spawn(root: Rootfs, argv: Sequence[str], env: Mapping[str, str], started: Callable[[int], None]) -> int:
    """Run `argv` as process 1 of fresh namespaces in that root; returns its exit status (negative = signal).

    Call it in a process of its own: it unshares the caller. `started` is told the pid, as the host counts. When the
    caller dies, so does everything inside.
    """
    _check(_libc.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID), "unshare")
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    _assemble(root)
    host = root.hostname.encode()
    _check(_libc.sethostname(host, len(host)), "sethostname")
    gate, release = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent()
            os.close(release)
            os.read(gate, 1)
            os.close(gate)
            _inside(root)
            os.execve(argv[0], list(argv), dict(env))
        except BaseException as error:
            sys.stderr.write(f"lab node {root.hostname}: {error}\n")
            sys.stderr.flush()
        os._exit(126)
    # pivot_root moves this process too: what it still has to do with the host's files comes before.
    started(pid)
    os.close(release)
    while True:
        with contextlib.suppress(InterruptedError):
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _assemble(root: Rootfs) -> None:
    """Everything but /proc, which only a process of the new PID namespace can mount."""
    lowers = ":".join(str(path) for path in root.lowers)
    for path in (root.mountpoint, root.upper, root.work):
        path.mkdir(parents=True, exist_ok=True)
    try:
        mount("overlay", root.mountpoint, "overlay", 0, f"lowerdir={lowers},upperdir={root.upper},workdir={root.work}")
    except OSError as error:
        raise FleetError(
            "an OverlayFS cannot be mounted here",
            where=str(root.upper),
            cause=str(error),
            hint="keep the lab on ext4, xfs or btrfs: FLEET_LAB_DIR, FLEET_LAB_CACHE",
            slug="lab-unusable",
        ) from error
    top = root.mountpoint
    for name, data in (("dev", "mode=755,size=4m"), ("run", "mode=755,size=64m"), ("sys", "mode=755,size=16m")):
        (top / name).mkdir(exist_ok=True)
        mount("tmpfs", top / name, "tmpfs", MS_NOSUID, data)
    _fill_dev(top / "dev")
    _fill_sys(top / "sys")
    for inside, outside in root.binds.items():
        target = top / inside.lstrip("/")
        if outside.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        mount(str(outside), target, flags=MS_BIND)
        if inside in root.read_only:
            mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def _fill_dev(dev: Path) -> None:
    for name, (major, minor) in _DEVICES.items():
        os.mknod(dev / name, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
        (dev / name).chmod(0o666)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (dev / name).symlink_to(target)
    for name in ("pts", "shm"):
        (dev / name).mkdir()
    mount("devpts", dev / "pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=620")
    (dev / "ptmx").symlink_to("pts/ptmx")
    mount("tmpfs", dev / "shm", "tmpfs", 0, "mode=1777,size=64m")


def _fill_sys(sys_root: Path) -> None:
    """A sysfs of our own: nothing of the host's devices shows, but for the processors."""
    for name in ("module", "bus/pci/devices", "bus/pci/drivers", "class/infiniband", "class/net", "firmware", "kernel"):
        (sys_root / name).mkdir(parents=True)
    cpu = Path("/sys/devices/system")
    if cpu.is_dir():
        (sys_root / "devices/system").mkdir(parents=True)
        mount(str(cpu), sys_root / "devices/system", flags=MS_BIND)


def _inside(root: Rootfs) -> None:
    """In the new PID namespace: /proc with its faked files, then the root becomes the node's own."""
    top = root.mountpoint
    mount("proc", top / "proc", "proc", MS_NOSUID | MS_NODEV)
    mount("tmpfs", top / "proc/driver", "tmpfs", 0, "mode=755,size=4m")
    faked = top / "run/fleet-lab/faked"
    faked.mkdir(parents=True)
    for number, (inside, text) in enumerate(root.files.items()):
        target = top / inside.lstrip("/")
        if target.exists():
            (faked / str(number)).write_text(text)
            mount(str(faked / str(number)), target, flags=MS_BIND)
    os.chdir(top)
    _check(_libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount of the old root")
    os.chdir("/")


def run(root: Rootfs, argv: Sequence[str], env: Mapping[str, str], log: int, limit_s: float = 600.0) -> int:
    """Run one command in a root that no node is using, to its end; output to the file descriptor `log`.

    Returns its exit status; FleetError when it takes longer than `limit_s` (everything in it is then killed).
    """
    pid = os.fork()
    if pid == 0:
        code = 125
        try:
            die_with_parent()
            signal.alarm(max(1, int(limit_s)))
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            code = spawn(root, argv, env, lambda _: None) & 0xFF
        except BaseException as error:
            os.write(2, f"{error}\n".encode())
        os._exit(code)
    result = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if result == -signal.SIGALRM:
        raise FleetError(f"{argv[0]} took longer than {limit_s:.0f} s in the lab", slug="lab-slow")
    return result


def discard(*folders: Path) -> None:
    """Remove folders of an overlay; its work folder holds one without any permission bits."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            raise FleetError(f"{folder} cannot be removed", hint="is it still mounted? see /proc/mounts")
