"""A light population for scale tests: one asyncssh process that answers for thousands of 127.x addresses.

`python -m fleet.lab.population --count N --port P --folder DIR [--recordings DIR]` writes keys and `nodes.yaml` into
DIR, prints `ready` and answers until SIGTERM. A node gives the answer of a recording (`fleet probe --record DIR`), or
without recordings that of a small machine without accelerators. Nothing is executed: the script it is sent only lends
its nonce, so that tens of thousands of nodes cost no process each.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import yaml

from fleet.core.errors import BadInput
from fleet.remote.script import MARK, nonce_of

PLAIN = {
    "os": 'ID=debian\nVERSION_ID="12"\nID_LIKE=""\n',
    "kernel": "release=6.1.0-18-amd64\nmachine=x86_64\nuid=0\nboot_id=1-2\nheaders=yes\npackages=deb\ncmdline=\n",
    "pci": "bus\n",
    "modules": "",
}
SO_BINDTODEVICE = 25


def addresses(count: int) -> list[str]:
    """`count` loopback addresses from 127.100.0.1 on, 250 in each last number."""
    return [f"127.{100 + i // 62500}.{i // 250 % 250}.{i % 250 + 1}" for i in range(count)]


def plain_answer(nonce: str) -> str:
    """The frames of a machine without accelerators."""
    frames = [
        f"{MARK} {nonce} begin {n}\n{text}\n{MARK} {nonce} end {n} rc=0 t=1.00,1.01\n" for n, text in PLAIN.items()
    ]
    return "".join(frames) + f"{MARK} {nonce} done\n"


def recorded_answers(folder: Path) -> list[tuple[str, str]]:
    """(nonce, output) of every recording in a folder that has one; BadInput when there is none."""
    out = []
    for file in sorted(folder.glob("*.json")):
        document = json.loads(file.read_text())
        packed = document.get("stdout", {})
        if document.get("kind") != "Recording" or not document.get("nonce"):
            continue
        raw = packed["text"].encode() if "text" in packed else base64.b64decode(packed["base64"])
        text = raw.decode(errors="replace")
        out.append((str(document["nonce"]), text))
    if not out:
        raise BadInput("no recording of a probe is here", where=str(folder), hint="fleet probe --record DIR")
    return out


def answer(script: str, number: int, recordings: Sequence[tuple[str, str]]) -> str:
    """What node `number` says to that script."""
    nonce = nonce_of(script)
    if not recordings:
        return plain_answer(nonce)
    old, text = recordings[number % len(recordings)]
    return text.replace(old, nonce)


def write_site(folder: Path, count: int, port: int) -> None:
    """Client and host key, `nodes.yaml` for `fleet node import`, `known_hosts`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("client", "host"):
        if not (folder / name).is_file():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    where = addresses(count)
    rows = [{"name": f"p{i:05}", "address": a, "port": port, "user": "root"} for i, a in enumerate(where)]
    (folder / "nodes.yaml").write_text(yaml.safe_dump({"nodes": rows}, sort_keys=False))
    key = " ".join((folder / "host.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text("".join(f"[{a}]:{port} {key}\n" for a in where))


async def serve(folder: Path, port: int, recordings: Sequence[tuple[str, str]]) -> None:
    """Answer until SIGTERM; prints `ready` when the port is open."""
    import asyncssh

    async def handle(process: asyncssh.SSHServerProcess[str]) -> None:
        script = await process.stdin.read()
        host = str(process.get_extra_info("sockname")[0])
        numbers = [int(part) for part in host.split(".")]
        number = (numbers[1] * 250 + numbers[2]) * 250 + numbers[3]
        process.stdout.write(answer(script, number, recordings))
        process.exit(0)

    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with suppress(PermissionError):  # only root may tie it to loopback; the addresses are loopback's anyway
        door.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, b"lo\0")
    door.bind(("0.0.0.0", port))
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    server = await asyncssh.listen(
        sock=door,
        server_host_keys=[str(folder / "host")],
        authorized_client_keys=str(folder / "client.pub"),
        process_factory=handle,
        backlog=1024,
        login_timeout=60,
    )
    print("ready", flush=True)
    await stopped.wait()
    server.close()


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="fleet.lab.population", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, required=True, help="number of nodes")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="where keys and nodes.yaml are written")
    parser.add_argument("--recordings", type=Path, help="folder written by fleet probe --record")
    options = parser.parse_args(argv)
    write_site(options.folder, options.count, options.port)
    recordings = recorded_answers(options.recordings) if options.recordings else []
    asyncio.run(serve(options.folder, options.port, recordings))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
