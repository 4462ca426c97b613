"""The base root that all nodes share, built once by mmdebstrap from the host's own apt sources.

It is kept under a key of its recipe, so that a changed recipe makes a new one; a build that was interrupted is removed
by the next. The folder that holds bases and layers is a cache: it may be deleted whenever no lab is up.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fleet.core.errors import FleetError, Refused
from fleet.core.model import digest
from fleet.lab.namespace import die_with_parent

Say = Callable[[str], None]
NODE = Path(__file__).parent / "node"
PACKAGES = (
    "openssh-server,openssh-sftp-server,python3,sudo,kmod,pciutils,dkms,gcc,make,patch,rpm,dnf,createrepo-c,procps,"
    "psmisc,lsof,iproute2,curl,util-linux,file,bzip2,xz-utils,zstd,less,hostname,openssl,ca-certificates,libc6-dev"
)
# Runs in the new root. The uname shim makes every program see the node's kernel name; nodes are isolated, so no
# package source stays; dpkg need not sync each file of a root that is rebuilt from packages; the thousands of empty
# files under include/config serve only the dependencies of a kernel's own build.
SETUP = r"""
set -e
gcc -shared -fPIC -O2 -o /usr/lib/fleet-lab-uname.so /tmp/uname.c
rm -f /tmp/uname.c /etc/apt/sources.list /etc/apt/sources.list.d/* /etc/apt/apt.conf.d/99mmdebstrap
echo /usr/lib/fleet-lab-uname.so > /etc/ld.so.preload
echo force-unsafe-io > /etc/dpkg/dpkg.cfg.d/fleet-lab
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
useradd -m -s /bin/bash ops
usermod -p '*' root
usermod -p '*' ops
rm -f /etc/ssh/ssh_host_* /etc/machine-id /etc/update-motd.d/*
: > /etc/motd
mkdir -p /etc/rpm /opt/fleet-lab /var/lib/fleet-lab /var/log/fleet-lab /run/sshd
printf '%%_dbpath /var/lib/rpm\n%%_build_id_links none\n' > /etc/rpm/macros
find /usr/src/linux-headers-*/include/config -type f -empty -delete
rm -rf /var/cache/apt/archives/*.deb /var/lib/apt/lists/*
"""


def cache_dir() -> Path:
    """Where bases and layers are kept: FLEET_LAB_CACHE, else /var/cache/fleet-lab."""
    return Path(os.environ.get("FLEET_LAB_CACHE", "/var/cache/fleet-lab"))


@contextlib.contextmanager
def cache_lock(cache: Path, say: Say) -> Iterator[None]:
    """One builder at a time; says so when it has to wait."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another build of the lab's layers")
            fcntl.flock(handle, fcntl.LOCK_EX)
        for left in cache.glob("*/*.building"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def _host(file: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in Path(file).read_text().splitlines())
    return {name: value.strip('"') for name, _, value in pairs}


def header_packages(names: Sequence[str]) -> list[str]:
    """The two newest kernel header packages of one flavour among package names, newest first."""
    found = []
    for name in names:
        match = re.fullmatch(r"linux-headers-(\d+)\.(\d+)\.(\d+)-(\d+)-(?:amd64|arm64|generic)", name)
        if match:
            found.append((tuple(int(part) for part in match.groups()), name))
    if not found:
        return []
    found.sort(reverse=True)
    series = found[0][0][:3]
    return [name for key, name in found if key[:3] == series][:2]


def apt_sources(suite: str) -> list[str]:
    """The host's own sources of that suite, as texts that mmdebstrap takes; each is one-line or deb822 form."""
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    out = []
    for file in files:
        if not file.is_file():
            continue
        text = file.read_text()
        if file.suffix == ".list":
            lines = [ln for ln in text.splitlines() if re.match(r"\s*deb\s", ln) and re.search(rf"\s{suite}[-\s]", ln)]
            out += ["\n".join(lines) + "\n"] if lines else []
        elif file.suffix == ".sources":
            stanzas = [
                stanza
                for stanza in re.split(r"\n\s*\n", text)
                if re.search(rf"^Suites:.*\b{suite}\b", stanza, re.MULTILINE)
                and not re.search(r"^Enabled:\s*no", stanza, re.MULTILINE)
            ]
            out += ["\n\n".join(stanzas) + "\n"] if stanzas else []
    return out


def base(cache: Path, say: Say) -> tuple[Path, str]:
    """(root folder, its key): built when it is not there. Call it under `cache_lock`."""
    uname = NODE / "uname.c"
    key = digest([PACKAGES, SETUP, uname.read_text()])[7:19]
    done = cache / "bases" / key
    if (done / "base.json").is_file():
        (done / "base.json").touch()
        return done / "root", key
    _need("mmdebstrap", "apt-get install mmdebstrap")
    _need("apt-cache", "the lab builds its nodes from the packages of a Debian-like host")
    suite = _host("/etc/os-release").get("VERSION_CODENAME", "bookworm")
    names = subprocess.run(["apt-cache", "pkgnames", "linux-headers-"], stdout=subprocess.PIPE, text=True, check=False)
    headers = header_packages(names.stdout.split())
    if len(headers) < 2:
        raise FleetError(
            "apt knows fewer than two kernels to take headers of",
            where="linux-headers-*",
            hint="apt-get update",
            slug="lab-base",
        )
    building = cache / "bases" / f"{key}.building"
    building.mkdir(parents=True)
    sources = []
    for number, text in enumerate(apt_sources(suite)):
        source = building / f"{number}.{'list' if text.lstrip().startswith('deb') else 'sources'}"
        source.write_text(text)
        sources.append(str(source))
    say(f"building the base root of {suite} with headers of {' and '.join(h[14:] for h in headers)} (once, minutes)")
    argv = [
        "mmdebstrap", "--variant=minbase", "--mode=root", f"--include={PACKAGES},{','.join(headers)}",
        "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*", "--dpkgopt=force-unsafe-io", *_proxy_options(),
        f"--customize-hook=copy-in {uname} /tmp", f'--customize-hook=chroot "$1" /bin/sh -c \'{_quoted(SETUP)}\'',
        suite, str(building / "root"), *sources,
    ]  # fmt: skip
    began = time.monotonic()
    _follow(argv, say)
    (building / "base.json").write_text(json.dumps({"suite": suite, "headers": headers}))
    building.rename(done)
    say(f"base root ready after {time.monotonic() - began:.0f} s")
    return done / "root", key


def headers_of(root: Path) -> list[str]:
    """The kernels whose headers lie in the base, newest first."""
    names: list[str] = json.loads((root.parent / "base.json").read_text())["headers"]
    return [name.removeprefix("linux-headers-") for name in names]


def prune(cache: Path, say: Say, days: float = 14) -> list[Path]:
    """Remove bases and layers that no lab has used for `days` and that no running node stands on.

    Call it under `cache_lock`. A node's mounts show only in the mount table of its own processes.
    """
    limit = time.time() - days * 86400
    marks = [*cache.glob("bases/*/base.json"), *cache.glob("*/*/done")]
    old = [mark.parent for mark in marks if mark.stat().st_mtime < limit]
    if not old:
        return []
    tables = set()
    for table in Path("/proc").glob("[0-9]*/mountinfo"):
        with contextlib.suppress(OSError):
            tables.add(table.read_text())
    gone = [folder for folder in old if not any(str(folder.resolve()) in table for table in tables)]
    for folder in gone:
        say(f"removing the unused layer {folder}")
        shutil.rmtree(folder, ignore_errors=True)
    return gone


def _quoted(script: str) -> str:
    return script.replace("'", "'\\''")


def _need(program: str, hint: str) -> None:
    if not shutil.which(program):
        raise Refused(f"{program} is not installed", hint=hint, slug="lab-unusable")


def _proxy_options() -> list[str]:
    dump = subprocess.run(["apt-config", "dump"], stdout=subprocess.PIPE, text=True, check=False).stdout
    lines = [line for line in dump.splitlines() if re.match(r'Acquire::https?::Proxy(::\S+)? "[^"]+";', line)]
    return [f"--aptopt={line}" for line in lines]


def _follow(argv: Sequence[str], say: Say) -> None:
    last: list[str] = []
    # In a PID namespace of its own: when this process is killed, nothing of the build goes on behind its back.
    guard = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
    with subprocess.Popen(
        [*guard, *argv],
        preexec_fn=die_with_parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        for line in child.stdout or ():
            last = [*last[-20:], line.rstrip()]
            if line.startswith("I: ") and not line.startswith("I: skipping"):
                say(f"  {line[3:].rstrip()}")
    if child.returncode:
        raise FleetError(
            "the base root cannot be built",
            where="mmdebstrap",
            cause=" | ".join(last[-6:]),
            hint="check that apt-get update works here, then run the command again",
            slug="lab-base",
        )
