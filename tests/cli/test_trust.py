"""`fleet node trust` against a real SSH server on loopback."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncssh
import pytest

from tests.cli.command import Fleet


class Server:
    """An SSH server with one host key, in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.acceptor: asyncssh.SSHAcceptor | None = None
        self.port = 0

    def show(self, key: asyncssh.SSHKey) -> None:
        """Listen with this host key, on the same port as before."""

        async def start() -> asyncssh.SSHAcceptor:
            if self.acceptor is not None:
                self.acceptor.close()
                await self.acceptor.wait_closed()
            return await asyncssh.listen("127.0.0.1", self.port, server_host_keys=[key])

        self.acceptor = asyncio.run_coroutine_threadsafe(start(), self.loop).result(20)
        self.port = self.acceptor.get_port()

    def close(self) -> None:
        if self.acceptor is not None:
            self.loop.call_soon_threadsafe(self.acceptor.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(20)
        self.loop.close()


@pytest.fixture
def server() -> Iterator[Callable[[asyncssh.SSHKey], int]]:
    """Show a host key; the answer is the port."""
    running = Server()

    def show(key: asyncssh.SSHKey) -> int:
        running.show(key)
        return running.port

    yield show
    running.close()


def text(key: asyncssh.SSHKey) -> str:
    return " ".join(key.export_public_key().decode().split()[:2])


def test_a_key_is_fetched_shown_trusted_and_guarded(tmp_path: Path, server: Callable[[asyncssh.SSHKey], int]) -> None:
    fleet = Fleet(tmp_path)
    first, second = asyncssh.generate_private_key("ssh-ed25519"), asyncssh.generate_private_key("ssh-ed25519")
    port = str(server(first))
    fleet("node", "add", "gpu1", "127.0.0.1", "--port", port)
    fleet("node", "add", "gpu2", "127.0.0.1", "--port", "1")

    asked = fleet("node", "trust", "gpu1")
    assert (asked.code, "confirmation-needed" in asked.err) == (2, True)
    assert first.get_fingerprint() in asked.out  # as `ssh-keygen -l` prints it

    some = fleet("node", "trust", "gpu[1-2]", "-y")
    assert (some.code, "gpu2" in some.err) == (6, True)  # the silent one does not keep the other from being trusted
    assert json.loads(fleet("node", "show", "gpu1", "-o", "json").out)["hostKey"] == text(first)

    again = fleet("node", "trust", "gpu1", "-y")
    assert (again.code, "trusted already" in again.out) == (0, True)

    server(second)
    changed = fleet("node", "trust", "gpu1", "-y")
    assert (changed.code, "host-key-changed" in changed.err) == (4, True)
    assert json.loads(fleet("node", "show", "gpu1", "-o", "json").out)["hostKey"] == text(first)
    assert fleet("node", "trust", "gpu1", "-y", "--replace").code == 0
    assert json.loads(fleet("node", "show", "gpu1", "-o", "json").out)["hostKey"] == text(second)
