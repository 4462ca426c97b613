"""This machine as a node: the script on the stdin of a local sh."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, cast

from fleet.core.model import Node
from fleet.remote.answer import Answer, Trouble

_DRAIN_S = 2.0


class Local:
    """Runs scripts here. `shell` is the argument vector of a POSIX shell, without its `-s`."""

    def __init__(
        self,
        shell: Sequence[str] = ("sh",),
        *,
        output_cap: int = 1024 * 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shell = tuple(shell)
        self._cap = output_cap
        self._clock = clock
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._closed = False

    def run(self, node: Node, script: str, *, timeout_s: float, sudo: bool) -> Answer:
        """`phase` is `session` when the shell could not be started, `run` when it was ended by the limit or the cap."""
        elevate = ("env", "LC_ALL=C", "sudo", "-n") if sudo and os.geteuid() != 0 else ()
        started = self._clock()
        try:
            process = subprocess.Popen(
                [*elevate, *self._shell, "-s"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            return Answer(node, "session", trouble="internal", detail=f"{self._shell[0]}: {error.strerror}")
        with self._lock:
            self._running.add(process.pid)
            closed = self._closed
        if closed:
            _kill(process.pid)
        out, err, trouble, detail = self._converse(process, script.encode(), started + timeout_s, timeout_s)
        if trouble:
            _kill(process.pid)
        rc = process.wait()
        with self._lock:
            self._running.discard(process.pid)
            if self._closed:
                trouble, detail = "closed", "the sweep was ended"
        seconds = self._clock() - started
        return Answer(
            node, "run" if trouble else "done", None if trouble else rc, out, err, detail, "", trouble, seconds
        )

    def close(self) -> None:
        """Kill every run under way."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for pid in running:
            _kill(pid)

    def _converse(
        self, process: subprocess.Popen[bytes], script: bytes, end: float, timeout_s: float
    ) -> tuple[bytes, bytes, Trouble, str]:
        """Feed and read without either side blocking the other, until the outputs end, the limit or the cap."""
        out, err = bytearray(), bytearray()
        trouble: Trouble = ""
        detail = ""
        # Popen was given pipes for all three, which its type does not tell.
        stdin, stdout, stderr = (cast("IO[bytes]", s) for s in (process.stdin, process.stdout, process.stderr))
        with selectors.DefaultSelector() as selector, stdin, stdout, stderr:
            os.set_blocking(stdin.fileno(), False)
            selector.register(stdin, selectors.EVENT_WRITE)
            selector.register(stdout, selectors.EVENT_READ, out)
            selector.register(stderr, selectors.EVENT_READ, err)
            ended: float | None = None
            while len(selector.get_map()) and not trouble:
                if process.poll() is not None and ended is None:
                    ended = self._clock()
                limit = end if ended is None else min(end, ended + _DRAIN_S)
                ready = selector.select(min(1.0, max(0.0, limit - self._clock())))
                if not ready and self._clock() >= limit:
                    if ended is None:
                        trouble, detail = "timeout", f"not finished within {timeout_s:g} s"
                    break
                for key, _ in ready:
                    if key.fileobj is stdin:
                        script = _feed(selector, stdin, script)
                    else:
                        _drain(selector, key.fileobj, key.data)  # type: ignore[arg-type]  # registered just above
                if len(out) > self._cap:
                    trouble, detail = "output-cap", f"more than {self._cap} bytes of output"
        return bytes(out[: self._cap]), bytes(err[:65536]), trouble, detail


def _feed(selector: selectors.BaseSelector, stdin: IO[bytes], left: bytes) -> bytes:
    try:
        left = left[os.write(stdin.fileno(), left[:65536]) :]
    except BlockingIOError:
        return left
    except BrokenPipeError:
        left = b""
    if not left:
        selector.unregister(stdin)
        with contextlib.suppress(BrokenPipeError):
            stdin.close()
    return left


def _drain(selector: selectors.BaseSelector, stream: IO[bytes], into: bytearray) -> None:
    piece = os.read(stream.fileno(), 65536)
    into += piece
    if not piece:
        selector.unregister(stream)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
