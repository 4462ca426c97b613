"""A webhook's receiver on loopback that takes, refuses, hangs or drips, as a test tells it."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Receiver:
    """`answers` are given one after another, the last one for ever: a status, `hang`, `drip` or `cut`."""

    answers: list[int | str] = field(default_factory=lambda: [200])
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook/t0ken?x=1"

    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]

    def answer(self) -> int | str:
        with self.guard:
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def receiving(*answers: int | str, port: int = 0) -> Iterator[Receiver]:
    """A receiver that listens while this lasts."""
    receiver = Receiver(list(answers) or [200])

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.got.append((dict(self.headers.items()), body))
            answer = receiver.answer()
            if answer == "hang":
                receiver.over.wait(30)
            elif answer == "drip":
                self.wfile.write(b"HTTP/1.1 200 ")
                while not receiver.over.wait(0.05):
                    self.wfile.write(b"O")
            elif answer == "cut":
                self.wfile.write(b"HTT")
            else:
                self.send_response(int(answer))
                self.send_header("Location", "/elsewhere")
                self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # the client has gone, as it may

    with Server(("127.0.0.1", port), Handler) as server:
        receiver.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.over.set()
            server.shutdown()
            thread.join()
