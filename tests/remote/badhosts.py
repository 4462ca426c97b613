"""Addresses behind which something goes wrong: each is one thread on a loopback socket."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

Behaviour = Callable[[socket.socket, threading.Event], None]


def silent(sock: socket.socket, stop: threading.Event) -> None:  # noqa: ARG001
    stop.wait(60)


def drip(sock: socket.socket, stop: threading.Event) -> None:
    for byte in b"SSH-2.0-OpenSSH_9.2 and it never ends " * 1000:
        if stop.is_set():
            return
        sock.sendall(bytes([byte]))
        time.sleep(0.1)


def endless_text(sock: socket.socket, stop: threading.Event) -> None:
    while not stop.is_set():
        sock.sendall(b"please wait\r\n")
        time.sleep(0.1)


def flood(sock: socket.socket, stop: threading.Event) -> None:
    while not stop.is_set():
        sock.sendall(b"x" * 65536)


def hang_in_handshake(sock: socket.socket, stop: threading.Event) -> None:
    sock.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    stop.wait(60)


def nonsense_after_banner(sock: socket.socket, stop: threading.Event) -> None:  # noqa: ARG001
    sock.sendall(b"SSH-2.0-OpenSSH_9.2\r\n" + b"\x00\x00\x00\x00nonsense" * 50)
    time.sleep(0.5)


def hang_up(sock: socket.socket, stop: threading.Event) -> None:
    pass


class BadHost:
    """Listens on `address` at a free port and treats every caller the same way."""

    def __init__(self, address: str, behaviour: Behaviour) -> None:
        self.address = address
        self._behaviour = behaviour
        self._stop = threading.Event()
        self._listener = socket.create_server((address, 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock:
            self._behaviour(sock, self._stop)

    def close(self) -> None:
        self._stop.set()
        self._listener.close()
