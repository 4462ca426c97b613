"""What a QEMU guest boots from: kernel and initrd, and the image of its layers with a real systemd on top.

Packages come once from the host's own apt sources into the lab's cache; afterwards a guest is built and booted
offline. The kernel is Debian's, unpacked on the host: its own decompressor would cost the emulated processor seconds.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.core.errors import FleetError, Refused
from fleet.core.model import digest
from fleet.lab.base import NODE, Say
from fleet.lab.layer import Layer, build, inside, tree_digest
from fleet.lab.namespace import die_with_parent, proc_files

PARTS = NODE / "guest"
SYSTEMD = ("systemd", "systemd-sysv")
KERNEL = "linux-image-amd64"
# In the order of their dependencies; the image, the disk, the root, the network and the folders shared with the lab.
MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "ext4", "overlay", "9p", "9pnet_virtio", "virtio_rng")
RECIPE = 1
XZ = b"\xfd7zXZ\x00"


@dataclass(frozen=True)
class Image:
    """The files that QEMU is given; none of them is written to."""

    kernel: Path
    initrd: Path
    disk: Path


def image(cache: Path, root: Path, base_key: str, stack: Layer, kernel: str, opt: Path, say: Say) -> Image:
    """The image of a stack's node, built where it is missing. Call it under the cache's lock.

    `root` is the base, `kernel` the name of the node's kernel, `opt` what the node sees as /opt/fleet-lab.
    FleetError when a package cannot be had; Refused where there is no QEMU.
    """
    _need()
    boot_key = digest([RECIPE, base_key, SYSTEMD, KERNEL, MODULES, (PARTS / "init").read_text()])[7:19]
    boot = cache / "guests" / boot_key
    build(boot, "a guest's kernel and systemd, from Debian's packages", lambda folder: _boot_files(folder, root), say)
    key = digest([RECIPE, boot_key, stack.key, kernel, tree_digest(opt)])[7:19]
    done = cache / "images" / key

    def work(folder: Path) -> None:
        binds = {"/opt/fleet-lab": opt, "/mnt": boot / "debs"}
        argv = ["/bin/sh", "/opt/fleet-lab/guest/setup.sh", "/mnt"]
        inside(folder, stack.lowers, argv, binds, "guest", proc_files(kernel, "0"))
        _disk_of((folder / "upper", *stack.lowers), opt, folder)

    build(done, "a guest's disk, with systemd", work, say)
    return Image(boot / "vmlinux", boot / "initrd", done / "disk.raw")


def own_disk(folder: Path, upper: Path) -> None:
    """A guest's own writable disk in `folder`, with `upper` as the first content of its root."""
    tree = folder / "disk.new"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir()
    upper.rename(tree / "upper")
    (tree / "work").mkdir()
    _filesystem(tree, folder / "disk.raw", "4G")
    (tree / "upper").rename(upper)
    shutil.rmtree(tree)


def _need() -> None:
    for program, package in (("qemu-system-x86_64", "qemu-system-x86"), ("mke2fs", "e2fsprogs")):
        if not shutil.which(program):
            raise Refused(f"a guest of the lab needs {program}", hint=f"apt-get install {package}", slug="lab-unusable")
    if os.uname().machine != "x86_64":
        raise Refused("a guest of the lab needs an x86_64 host", cause=os.uname().machine, slug="lab-unusable")


# --- kernel, initrd, packages -----------------------------------------------------------------------------------------


def _boot_files(folder: Path, root: Path) -> None:
    shutil.rmtree(folder / "upper")  # a build's usual folder, not needed here
    debs = folder / "debs"
    (debs / "partial").mkdir(parents=True)
    options = [
        "-q", "-o", f"Dir::State::status={root}/var/lib/dpkg/status", "-o", f"Dir::Cache::archives={debs}",
        "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "-o", "Debug::NoLocking=1",
        "-o", "APT::Sandbox::User=root",
    ]  # fmt: skip
    install = ["--yes", "--no-install-recommends", "--download-only", "install", *SYSTEMD]
    _apt(["apt-get", *options, *install])
    names = re.findall(r"Depends: (linux-image-\S+)", _apt(["apt-cache", "depends", KERNEL]))
    if not names:
        raise Refused(
            f"a guest of the lab boots Debian's {KERNEL}, which apt does not know here",
            hint="apt-get update",
            slug="lab-unusable",
        )
    more = folder / "more"
    more.mkdir()
    for name in (names[0], "busybox-static"):
        _apt(["apt-get", *options, "download", name], cwd=more)
        (file,) = more.glob(f"{name}_*.deb")
        subprocess.run(["dpkg-deb", "-x", str(file), str(more / "root")], check=True)
        file.unlink()
    release = names[0].removeprefix("linux-image-")
    packed = (more / f"root/boot/vmlinuz-{release}").read_bytes()
    start = packed.find(XZ)
    if start < 0:
        raise FleetError(f"the kernel {release} is not packed by xz", slug="lab-base")
    (folder / "vmlinux").write_bytes(lzma.LZMADecompressor().decompress(packed[start:]))
    modules = [more / "root" / path.lstrip("/") for path in _modules(more / "root", release)]
    files = {f"lib/{path.name.removesuffix('.ko')}": path for path in modules}
    (folder / "modules").write_text("".join(f"{path.name.removesuffix('.ko')}\n" for path in modules))
    entries = [
        *((name, stat.S_IFDIR | 0o755, b"") for name in ("bin", "lib", "dev")),
        ("init", stat.S_IFREG | 0o755, (PARTS / "init").read_bytes()),
        ("bin/busybox", stat.S_IFREG | 0o755, (more / "root/bin/busybox").read_bytes()),
        ("modules", stat.S_IFREG | 0o644, (folder / "modules").read_bytes()),
        *((name, stat.S_IFREG | 0o644, path.read_bytes()) for name, path in files.items()),
    ]
    (folder / "initrd").write_bytes(cpio(entries))
    shutil.rmtree(more)


def _apt(argv: Sequence[str], cwd: Path | None = None) -> str:
    ran = subprocess.run(
        argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False, preexec_fn=die_with_parent, env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
    )  # fmt: skip
    if ran.returncode:
        raise FleetError(
            "the packages of a guest cannot be had",
            where=argv[0],
            cause=" | ".join(ran.stdout.strip().splitlines()[-4:]),
            hint="apt-get update, then run the command again",
            slug="lab-base",
        )
    return ran.stdout


def _modules(tree: Path, release: str) -> list[str]:
    """Paths under `tree` of the modules that a guest loads, each after what it needs."""
    subprocess.run(["depmod", "-b", str(tree), release], check=True)
    out: dict[str, None] = {}
    for name in MODULES:
        shown = subprocess.run(
            ["modprobe", "-d", str(tree), "-S", release, "-C", "/nonexistent", "--show-depends", name],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
        ).stdout  # fmt: skip
        for line in shown.splitlines():
            verb, _, path = line.strip().partition(" ")
            if verb == "insmod" and not path.strip().endswith("crc32c-intel.ko"):  # qemu64 has no such instruction
                out[path.strip().removeprefix(str(tree))] = None
    return list(out)


def cpio(entries: Iterable[tuple[str, int, bytes]]) -> bytes:
    """An archive in the "newc" form that Linux takes as initrd, of (name, mode, content)
    (Documentation/driver-api/early-userspace/buffer-format.rst)."""
    out = bytearray()
    for number, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], start=1):
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        out += b"\0" * (-len(out) % 4) + content
        out += b"\0" * (-len(out) % 4)
    return bytes(out)


# --- file systems -----------------------------------------------------------------------------------------------------


def _disk_of(lowers: Sequence[Path], opt: Path, folder: Path) -> None:
    """disk.raw in `folder`: these layers as one tree, merged in a mount namespace that ends with the command."""
    merged = folder / "merged"
    merged.mkdir()
    script = (
        'set -e; mount -t overlay -o "lowerdir=$1" overlay "$2"; mount --bind "$3" "$2/opt/fleet-lab"; '
        'du -sxm "$2" | cut -f1 >"$4"; exec mke2fs -q -F -t ext4 -L lab -m 0 -O ^has_journal,^metadata_csum '
        '-d "$2" "$5" "$(( $(cat "$4") * 5 / 4 + 64 ))M"'
    )
    names = [":".join(map(str, lowers)), merged, opt, folder / "size", folder / "disk.raw"]
    ran = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *map(str, names)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        preexec_fn=die_with_parent,
    )  # fmt: skip
    if ran.returncode:
        raise FleetError("a guest's disk cannot be made", cause=ran.stdout.strip()[-400:], slug="lab-layer")
    merged.rmdir()
    shutil.rmtree(folder / "upper")


def _filesystem(tree: Path, file: Path, size: str) -> None:
    argv = ["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-O", "^metadata_csum", "-d", str(tree), str(file), size]
    ran = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if ran.returncode:
        raise FleetError("a guest's disk cannot be made", cause=ran.stdout.strip()[-400:], slug="lab-layer")
