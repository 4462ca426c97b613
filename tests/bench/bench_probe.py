"""What probing a node costs the controller, side by side with asyncssh on the same simulated population.

    python tests/bench/bench_probe.py [--nodes 1000] [--fanout 64] [--max-ms 6]

A population is two asyncssh processes on loopback that share one port (SO_REUSEPORT) and answer for every address of
127/8 what a real node would: the frames of the script they are sent, about 4 KB. Each client runs in a process of its
own; only its own CPU time counts. `fleet` is the whole probe: SSH, frames, facts. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

NONCE = "00aa11bb22cc33dd"
POPULATION = 2
SO_BINDTODEVICE = 25


def answer(script: str) -> bytes:
    """What a small Debian machine without accelerators says, padded by a long disk list to 4 KB."""
    nonce = script.split("\n", 1)[0].partition("=")[2]

    def mark(words: str) -> bytes:
        return f"\x1eFLEET1 {nonce} {words}\n".encode()

    disks = b"Filesystem 1024-blocks Used Available Capacity Mounted on\n"
    disks += b"".join(b"/dev/sd%c1 999999999 1111111 888888888 1%% /data%d\n" % (97 + i % 26, i) for i in range(65))
    said = {
        "os": b'ID=debian\nVERSION_ID="12"\nID_LIKE=""\n',
        "kernel": b"release=6.1.0-18-amd64\nmachine=x86_64\nuid=0\nboot_id=1-2\nheaders=yes\npackages=deb\ncmdline=\n",
        "pci": b"bus\n",
        "modules": b"",
        "disks": disks,
    }
    frames = b"".join(mark(f"begin {n}") + text + b"\n" + mark(f"end {n} rc=0 t=1.00,1.01") for n, text in said.items())
    return frames + mark("skip dkms") + mark("done")


async def _serve(port: int, folder: Path) -> None:
    import asyncssh

    async def handle(process: asyncssh.SSHServerProcess[str]) -> None:
        script = await process.stdin.read()
        process.stdout.write(answer(script).decode())
        process.exit(0)

    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    with suppress(PermissionError):  # only root may; without it the port is open on other interfaces too
        sock.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, b"lo\0")
    sock.bind(("0.0.0.0" if os.geteuid() == 0 else "127.0.0.1", port))
    await asyncssh.listen(
        sock=sock,
        server_host_keys=[str(folder / "host")],
        authorized_client_keys=str(folder / "client.pub"),
        process_factory=handle,
        backlog=1024,
        login_timeout=60,
    )
    print("ready", flush=True)
    await asyncio.Event().wait()


def _addresses(count: int) -> list[str]:
    if os.geteuid() != 0:
        return ["127.0.0.1"] * count
    return [f"127.{10 + i // 62500}.{i // 250 % 250}.{i % 250 + 1}" for i in range(count)]


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _measured(name: str, work: Callable[[], int], count: int) -> None:
    """Run `work` and print its cost; `work` gives the number of nodes that answered well."""
    cpu, wall = _cpu(), time.monotonic()
    good = work()
    cpu, wall = _cpu() - cpu, time.monotonic() - wall
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    row = {"client": name, "ms_per_node": round(cpu * 1000 / count, 2), "wall_s": round(wall, 1), "rss_mib": rss}
    print(json.dumps({**row, "answered": good}))


def _client_fleet(port: int, folder: Path, count: int, fanout: int, whole: bool) -> None:
    import drivers
    from fleet.core.model import Node
    from fleet.probe import probe, sections
    from fleet.remote import Ssh, build, sweep

    key = " ".join((folder / "host.pub").read_text().split()[:2])
    nodes = [Node(f"n{i}", address, port, "root") for i, address in enumerate(_addresses(count))]
    vendors = drivers.vendors()
    transport = Ssh(str(folder / "client"), host_keys={node.name: key for node in nodes})

    def run() -> int:
        if whole:
            found = probe(nodes, transport, vendors, lambda *_: None, lambda: "", fanout=fanout, nonce=NONCE)
            return sum(result.outcome == "answered" for result in found)
        script = build(sections(vendors.values()), NONCE)
        return sum(a.ok and a.rc == 0 for a in sweep(transport, nodes, script, fanout=fanout))

    _measured("fleet" if whole else "fleet transport", run, count)
    transport.close()


def _client_asyncssh(port: int, folder: Path, count: int, fanout: int) -> None:
    import asyncssh

    import drivers
    from fleet.probe import sections
    from fleet.remote import build

    script = build(sections(drivers.vendors().values()), NONCE)
    key = asyncssh.read_private_key(str(folder / "client"))
    trusted = asyncssh.read_public_key(str(folder / "host.pub"))

    async def one(address: str, gate: asyncio.Semaphore) -> bool:
        async with (
            gate,
            asyncssh.connect(
                address,
                port,
                username="root",
                client_keys=[key],
                known_hosts=([trusted], [], []),
                agent_path=None,
                config=None,
                kex_algs=["curve25519-sha256"],
                encryption_algs=["aes128-ctr"],
                mac_algs=["hmac-sha2-256"],
                compression_algs=["none"],
            ) as connection,
        ):
            done = await connection.run("exec sh -s", input=script)
            return done.exit_status == 0 and "done" in str(done.stdout)

    async def everyone() -> int:
        gate = asyncio.Semaphore(fanout)
        return sum(await asyncio.gather(*(one(address, gate) for address in _addresses(count))))

    _measured("asyncssh", lambda: asyncio.run(everyone()), count)


def _start(role: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--role", role, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _bench(count: int, fanout: int, max_ms: float) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for key in ("host", "client"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        servers = [_start("serve", "--port", port, "--folder", name) for _ in range(POPULATION)]
        rows = []
        try:
            for server in servers:
                assert server.stdout is not None
                if server.stdout.readline().strip() != "ready":
                    raise SystemExit("the population did not start")
            for client in ("asyncssh", "transport", "fleet"):
                started = _start(client, "--port", port, "--folder", name, "--nodes", count, "--fanout", fanout)
                said, _ = started.communicate()
                rows.append(json.loads(said.splitlines()[-1]))
        finally:
            for server in servers:
                server.terminate()
                server.wait()
    for row in rows:
        print(
            f"{row['client']:16} {row['ms_per_node']:6.2f} ms CPU a node, {row['answered']}/{count} answered, "
            f"{row['wall_s']} s, {row['rss_mib']} MiB"
        )
    peer, whole = rows[0]["ms_per_node"], rows[-1]["ms_per_node"]
    met = whole <= max_ms and all(row["answered"] == count for row in rows)
    print(f"fleet / asyncssh: {whole / peer:.2f}; limit {max_ms} ms a node: {'met' if met else 'NOT met'}")
    print(json.dumps({"bench": "probe", "nodes": count, "rows": rows, "ratio": round(whole / peer, 2), "met": met}))
    return 0 if met else 1


@pytest.mark.bench
def test_probe_costs_at_most_six_milliseconds_a_node() -> None:
    assert _bench(1000, 64, 6.0) == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--fanout", type=int, default=64)
    parser.add_argument("--max-ms", type=float, default=6.0)
    parser.add_argument("--role", default="bench", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, default=Path(), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role == "serve":
        asyncio.run(_serve(given.port, given.folder))
    elif given.role == "asyncssh":
        _client_asyncssh(given.port, given.folder, given.nodes, given.fanout)
    elif given.role in ("transport", "fleet"):
        _client_fleet(given.port, given.folder, given.nodes, given.fanout, given.role == "fleet")
    else:
        return _bench(given.nodes, given.fanout, given.max_ms)
    return 0


if __name__ == "__main__":
    sys.exit(main())
