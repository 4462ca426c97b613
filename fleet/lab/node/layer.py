"""Turns the base root into one operating system: its name, kernels, package database and the lab's programs.

Runs in a root of its own over the base: `layer.py ORDER.json`. The kernels' headers are Debian's under the name that
this system's kernel has; they come in a real package of the system's kind, which can be removed and installed.
ORDER: {os: {id, version, name, id_like, files}, kind: deb|rpm, kernels: [{name, headers}],
spare: [Debian kernels whose own header packages go]}
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

KEPT = Path("/var/lib/fleet-lab-packages")
LAB_TOOLS = {
    "/sbin/modprobe": ("modprobe.py", "modprobe"), "/sbin/rmmod": ("modprobe.py", "rmmod"),
    "/sbin/insmod": ("modprobe.py", "insmod"), "/sbin/lsmod": ("modprobe.py", "lsmod"),
    "/usr/bin/lsmod": ("modprobe.py", "lsmod"), "/usr/bin/dmesg": ("dmesg.py",),
    "/sbin/reboot": ("power.py", "reboot"), "/sbin/shutdown": ("power.py", "shutdown"),
    "/sbin/poweroff": ("power.py", "poweroff"), "/sbin/halt": ("power.py", "halt"),
    "/usr/bin/systemctl": ("systemctl.py",),
}  # fmt: skip
RPM_BASE = {  # name -> version-release of packages that an rpm system shows as installed
    "bash": "5.1.8-6", "glibc": "2.34-100", "gcc": "10.3.1-43", "make": "4.3-4", "python3": "3.9.9-28",
    "openssh-server": "8.8p1-21", "dkms": "3.0.10-1", "elfutils-libelf-devel": "0.185-14", "pciutils": "3.7.0-5",
}  # fmt: skip


def run(argv: Sequence[str]) -> None:
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        sys.stderr.write(f"{' '.join(argv)}\n{done.stdout}")
        raise SystemExit(done.returncode)


def program(path: str, argv: Sequence[str]) -> None:
    """A wrapper that runs a Python program of /opt/fleet-lab."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    target.write_text(f'#!/bin/sh\nexec python3 {" ".join(argv)} "$@"\n')
    target.chmod(0o755)


def name_system(system: dict[str, Any]) -> None:
    lines = [
        f'NAME="{system["name"]}"', f'ID="{system["id"]}"' if " " in system["id"] else f"ID={system['id']}",
        f'VERSION_ID="{system["version"]}"',
        f'VERSION="{system.get("long_version", system["version"])}"',
        f'PRETTY_NAME="{system.get("pretty", system["name"] + " " + system["version"])}"',
    ]  # fmt: skip
    lines += [f'ID_LIKE="{system["id_like"]}"'] if system.get("id_like") else []
    lines += [f"VERSION_CODENAME={system['codename']}"] if system.get("codename") else []
    Path("/usr/lib/os-release").write_text("\n".join(lines) + "\n")
    for file, text in system.get("files", {}).items():
        Path(file).write_text(text)


def relabel(headers: str, kernel: str, target: Path) -> None:
    """A copy of Debian's header tree of `headers` that calls itself `kernel`."""
    shutil.copytree(f"/usr/src/linux-headers-{headers}", target, symlinks=True)
    for name in ("include/generated/utsrelease.h", ".kernelvariables", "include/generated/rustc_cfg"):
        file = target / name
        if file.is_file():
            file.write_text(file.read_text().replace(headers, kernel))
    (target / "include/config/kernel.release").write_text(f"{kernel}\n")
    for link in [p for p in target.iterdir() if p.is_symlink()]:
        real = Path(f"/usr/src/linux-headers-{headers}", link.name).resolve()
        link.unlink()
        link.symlink_to(real)


def deb(name: str, version: str, tree: Path, depends: str = "") -> Path:
    control = tree / "DEBIAN"
    control.mkdir(parents=True, exist_ok=True)
    arch = subprocess.run(
        ["dpkg", "--print-architecture"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    (control / "control").write_text(
        f"Package: {name}\nVersion: {version}\nArchitecture: {arch}\nMaintainer: lab <root@localhost>\n"
        + (f"Depends: {depends}\n" if depends else "")
        + f"Description: {name} of a lab node\n"
    )
    file = KEPT / f"{name}_{version}_{arch}.deb"
    run(["dpkg-deb", "-Znone", "--root-owner-group", "--build", str(tree), str(file)])
    return file


def rpm(name: str, version: str, release: str, tree: Path | None = None, provides: Sequence[str] = ()) -> Path:
    files = "/" if tree is None else "\n".join(_owned(tree))
    spec = Path("/tmp/lab.spec")
    spec.write_text(
        f"Name: {name}\nVersion: {version}\nRelease: {release}\nSummary: {name} of a lab node\nLicense: Apache-2.0\n"
        "AutoReqProv: no\n%define __os_install_post %{nil}\n%define debug_package %{nil}\n"
        + "".join(f"Provides: {one}\n" for one in provides)
        + f"%description\n{name}\n%install\nmkdir -p %{{buildroot}}\n"
        + (f"cp -a {tree}/. %{{buildroot}}/\n" if tree else "")
        + f"%files\n{files if tree else ''}\n"
    )
    run(
        [
            "rpmbuild",
            "-bb",
            "--quiet",
            "--define",
            "_topdir /tmp/rpm",
            "--define",
            "_binary_payload w0.gzdio",
            str(spec),
        ]
    )
    built = next(Path("/tmp/rpm/RPMS").rglob("*.rpm"))
    target = KEPT / built.name
    shutil.move(built, target)
    return target


def _owned(tree: Path) -> list[str]:
    """What the package owns: the deepest folders that are only its own, and single files elsewhere."""
    out = []
    for top in ("usr/src/kernels", "lib/modules"):
        out += [f"/{path.relative_to(tree)}" for path in (tree / top).glob("*")]
    out += [f"/{path.relative_to(tree)}" for path in (tree / "boot").glob("*")]
    return out


def install_kernels(kind: str, kernels: Sequence[dict[str, str]]) -> None:
    for number, row in enumerate(kernels):
        kernel = row["name"]
        stem = re.sub(r"\.(x86_64|aarch64)$", "", kernel)
        work = Path(f"/tmp/kernel-{number}")
        image, headers = work / "image", work / "headers"
        source = Path("usr/src/kernels" if kind == "rpm" else "usr/src") / (
            kernel if kind == "rpm" else f"linux-headers-{kernel}"
        )
        (headers / source).parent.mkdir(parents=True)
        relabel(row["headers"], kernel, headers / source)
        modules = Path("lib/modules") / kernel
        if kind == "deb":
            (headers / modules).mkdir(parents=True)
            (headers / modules / "build").symlink_to(f"/{source}")
        (image / modules / "kernel").mkdir(parents=True)
        for name in ("modules.builtin", "modules.order"):
            (image / modules / name).write_text("")
        (image / "boot").mkdir()
        (image / f"boot/vmlinuz-{kernel}").write_text(f"kernel {kernel}\n")
        version, _, release = stem.partition("-")
        if kind == "deb":
            built = [deb(f"linux-image-{kernel}", f"{version}-{release.split('-')[0]}.1", image),
                     deb(f"linux-headers-{kernel}", f"{version}-{release.split('-')[0]}.1", headers)]  # fmt: skip
            run(["dpkg", "-i", *map(str, built)])
        else:
            # On rpm systems the link belongs to the kernel package and dangles without kernel-devel.
            (image / modules / "build").symlink_to(f"/{source}")
            built = [rpm("kernel", version, release, image), rpm("kernel-devel", version, release, headers)]
            run(["rpm", "-i", "--nodeps", *map(str, built)])
        shutil.rmtree(work)
        run(["depmod", kernel])


def become_rpm(system: dict[str, Any]) -> None:
    """An own rpm database that shows a base system; dpkg and apt are not there."""
    Path("/var/lib/rpm").mkdir(parents=True, exist_ok=True)
    run(["rpm", "--initdb"])
    built = [rpm(f"{system['id'].lower()}-release", system["version"].split(" ")[0], "1", provides=("system-release",))]
    for name, both in RPM_BASE.items():
        version, release = both.split("-")
        provides = ("/bin/sh", "/bin/bash", "/usr/bin/bash", "/usr/bin/sh") if name == "bash" else ()
        built.append(rpm(name, version, release, provides=provides))
    run(["rpm", "-i", *map(str, built)])
    for file in built:
        file.unlink()


def hide_dpkg() -> None:
    for pattern in ("/usr/bin/dpkg*", "/usr/bin/apt*", "/usr/sbin/dpkg*", "/usr/sbin/add-shell"):
        for path in Path("/").glob(pattern.lstrip("/")):
            path.unlink()
    for folder in ("/var/lib/dpkg", "/etc/apt", "/etc/dpkg", "/var/lib/apt", "/usr/lib/apt"):
        shutil.rmtree(folder, ignore_errors=True)
    Path("/etc/debian_version").unlink(missing_ok=True)


def main() -> int:
    order = json.loads(Path(sys.argv[1]).read_text())
    kind = order["kind"]
    Path("/etc/fleet-lab").write_text("a node of a fleet lab: emulated vendor software may run here\n")
    KEPT.mkdir(parents=True, exist_ok=True)
    if kind == "rpm":
        become_rpm(order["os"])
    install_kernels(kind, order["kernels"])
    debian = sorted(p.name.removeprefix("linux-headers-") for p in Path("/usr/src").glob("linux-headers-*"))
    spare = [name for name in debian if f"{name}" in order["spare"]]
    if spare:
        run(["dpkg", "--purge", "--force-depends", *(f"linux-headers-{name}" for name in spare)])
    if kind == "rpm":
        hide_dpkg()
    name_system(order["os"])
    image_tool = ("/usr/sbin/update-initramfs", "update-initramfs") if kind == "deb" else ("/usr/bin/dracut", "dracut")
    for path, argv in {**LAB_TOOLS, image_tool[0]: ("initramfs.py", image_tool[1])}.items():
        program(path, ["-B", "-S", f"/opt/fleet-lab/tools/{argv[0]}", *argv[1:]])
    sudo = Path("/etc/sudoers.d/ops")
    sudo.write_text("ops ALL=(ALL) NOPASSWD: ALL\n")
    sudo.chmod(0o440)
    # Units that the base's packages enabled: nothing of them runs in a node.
    for wants in Path("/etc/systemd/system").glob("*.wants"):
        shutil.rmtree(wants)
    if kind == "rpm":
        for folder in ("/etc/dnf/vars", "/etc/yum.repos.d"):
            Path(folder).mkdir(parents=True, exist_ok=True)
        Path("/usr/bin/yum").unlink(missing_ok=True)
        Path("/usr/bin/yum").symlink_to("dnf")
        Path("/etc/dnf/vars/releasever").write_text(f"{order['os']['version'].split(' ')[0]}\n")
    # Accounts of rpm systems have the sbin folders in their path, those of Debian do not.
    path = "SetEnv PATH=/usr/local/bin:/usr/bin:/usr/local/sbin:/usr/sbin\n" if kind == "rpm" else ""
    Path("/etc/ssh/sshd_config").write_text(
        "HostKey /etc/ssh/ssh_host_ed25519_key\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        "PermitRootLogin prohibit-password\nUsePAM no\nUseDNS no\nPrintMotd no\nMaxStartups 400:30:800\n"
        "MaxSessions 200\nSubsystem sftp internal-sftp\n" + path
    )
    if platform.machine() and not Path("/usr/sbin/lspci").exists():
        Path("/usr/sbin/lspci").symlink_to("/usr/bin/lspci")
    for left in Path("/tmp").iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
