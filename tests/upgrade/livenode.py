"""A node that is a real OpenSSH server on loopback, in a mount namespace where /var/lib and /run are its own."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path

from fleet.core.model import Node
from tests.remote.sshd import SSHD, free_port, make_key, public

_SETUP = """\
set -e
mount -t tmpfs tmpfs /run; mkdir -m 755 /run/sshd
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /home; chmod 755 /home; mkdir /home/root
cp {key}.pub /home/keys; chmod 644 /home/keys
printf 'root:x:0:0:root:/home/root:/bin/sh\\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\\n' >/home/passwd
printf 'root:*:1::::::\\nsshd:!:1::::::\\n' >/home/shadow
mount --bind /home/passwd /etc/passwd
mount --bind /home/shadow /etc/shadow
exec {sshd} -D -f {config} -E {log}
"""


class LiveNode:
    """Started on construction; `shared` is a folder that both sides see."""

    def __init__(self, folder: Path, address: str) -> None:
        folder.mkdir(parents=True)
        self.shared = folder
        self.client_key = make_key(folder, "client")
        host = make_key(folder, "host")
        self.host_key = public(host)
        self.node = Node("live-1", address, free_port(address), "root")
        config = folder / "config"
        config.write_text(
            f"ListenAddress {address}\nPort {self.node.port}\nHostKey {host}\nAuthorizedKeysFile /home/keys\n"
            "PermitRootLogin prohibit-password\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPidFile none\n"
        )
        script = _SETUP.format(key=shlex.quote(str(self.client_key)), sshd=SSHD, config=config, log=folder / "log")
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
        self.process = subprocess.Popen(command, start_new_session=True)
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection((address, self.node.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError("sshd did not start") from None
                time.sleep(0.05)

    def stop(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(10)
