"""Real OpenSSH servers for tests: own host key, own namespaces with own accounts, loopback addresses only."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

SSHD = "/usr/sbin/sshd"
MISSING = (
    "needs root and OpenSSH's server"
    if os.geteuid() != 0 or not Path(SSHD).exists() or shutil.which("unshare") is None
    else ""
)

_SETUP = r"""
set -e
mount -t tmpfs tmpfs /run; mkdir -m 755 /run/sshd
mount -t tmpfs tmpfs /home; chmod 755 /home
mkdir /home/root /home/noisy /home/plain
cp {keys} /home/keys; chmod 644 /home/keys
cat >/home/passwd <<'END'
root:x:0:0:root:/home/root:/bin/sh
sshd:x:100:65534::/run/sshd:/usr/sbin/nologin
noisy:x:20001:20001::/home/noisy:/bin/bash
plain:x:20002:20002::/home/plain:/bin/sh
nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin
END
printf 'root:*:1::::::\nnoisy:*:1::::::\nplain:*:1::::::\nsshd:!:1::::::\n' >/home/shadow
echo 'echo "Welcome! today is a fine day"; printf "\036FLEET1 feedfacefeedface begin os\n"; echo warning >&2' \
  >/home/noisy/.bashrc
cp /home/noisy/.bashrc /home/noisy/.bash_profile
mount --bind /home/passwd /etc/passwd
mount --bind /home/shadow /etc/shadow
mount -t tmpfs tmpfs /usr/local/bin; chmod 755 /usr/local/bin
printf '%s' {sudo} >/usr/local/bin/sudo; chmod 755 /usr/local/bin/sudo
[ -s /usr/local/bin/sudo ] || rm /usr/local/bin/sudo
exec {sshd} -D -f {config} -E {log}
"""
SUDO_GRANTED = '#!/bin/sh\n[ "$1" = -n ] || exit 1\nshift\nFLEET_TEST_SUDO=yes; export FLEET_TEST_SUDO\nexec "$@"\n'
SUDO_DENIED = "#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n"


def make_key(folder: Path, name: str, kind: str = "ed25519") -> Path:
    """A fresh key pair; the path of its private half."""
    path = folder / name
    size = ["-b", "2048"] if kind == "rsa" else []
    subprocess.run(["ssh-keygen", "-q", "-t", kind, *size, "-N", "", "-C", name, "-f", str(path)], check=True)
    return path


def public(path: Path) -> str:
    """`ssh-ed25519 AAAA…` of a private key's path."""
    return " ".join(Path(f"{path}.pub").read_text().split()[:2])


def free_port(address: str = "127.0.0.1") -> int:
    with socket.socket() as sock:
        sock.bind((address, 0))
        port: int = sock.getsockname()[1]
        return port


@dataclass
class Sshd:
    """One server on up to 16 addresses of 127/8 (OpenSSH's limit).

    Accounts: root, plain (sh) and noisy (bash that talks)."""

    folder: Path
    addresses: Sequence[str]
    client_key: Path
    port: int = 0
    host_key_kinds: Sequence[str] = ("ed25519",)
    options: Sequence[str] = ()
    sudo: str = ""
    key: str = ""
    log: Path = field(default_factory=Path)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> Sshd:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port(self.addresses[0])
        keys = [make_key(self.folder, f"host_{kind}", kind) for kind in self.host_key_kinds]
        self.key = public(keys[0])
        self.log = self.folder / "log"
        config = self.folder / "config"
        lines = [
            *self.options,  # the first word on an option counts
            *(f"ListenAddress {address}" for address in self.addresses),
            f"Port {self.port}",
            *(f"HostKey {key}" for key in keys),
            "AuthorizedKeysFile /home/keys",
            "PermitRootLogin prohibit-password",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PidFile none",
            "MaxStartups 200",
        ]
        config.write_text("\n".join(lines) + "\n")
        script = _SETUP.format(
            keys=shlex.quote(f"{self.client_key}.pub"),
            sudo=shlex.quote(self.sudo),
            sshd=SSHD,
            config=shlex.quote(str(config)),
            log=shlex.quote(str(self.log)),
        )
        spaces = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = ["unshare", *spaces, "sh", "-c", script]
        self.process = subprocess.Popen(command, start_new_session=True)
        self._wait()
        return self

    def _wait(self) -> None:
        for address in self.addresses:
            end = time.monotonic() + 20
            while True:
                try:
                    socket.create_connection((address, self.port), 1).close()
                    break
                except OSError:
                    assert self.process is not None
                    if self.process.poll() is not None or time.monotonic() > end:
                        raise AssertionError(f"sshd did not start: {self.log.read_text()}") from None
                    time.sleep(0.05)

    def stop(self) -> None:
        """End the server, and with its process namespace whatever its sessions left running."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None
