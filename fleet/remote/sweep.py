"""One script on many nodes at once, bounded, with every answer as soon as it is there."""

from __future__ import annotations

import queue
import resource
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from fleet.core.model import Node
from fleet.remote.answer import RETRIED, Answer, Transport

STACK_BYTES = 256 * 1024
RETRY_FANOUT = 32
RETRY_TIMEOUTS = 64  # of the nodes that said nothing at all, how many are asked again: a dark rack is not a hiccup


def sweep(
    transport: Transport,
    nodes: Iterable[Node],
    script: str,
    *,
    fanout: int = 64,
    timeout_s: float = 60.0,
    sudo: bool = True,
    retry: bool = True,
) -> Iterator[Answer]:
    """Answers in the order in which they come, one for each node, at most `fanout` runs at a time.

    A node that failed in connect, banner or handshake is asked once more after all others; its answer is the second
    one. When the iterator is dropped no further node is started; `transport.close()` ends those under way.
    """
    fanout = _room(fanout)
    again: list[Answer] = []
    silent = 0
    for answer in _pass(transport, list(nodes), script, fanout, timeout_s, sudo):
        hopeless = answer.trouble == "timeout" and silent >= RETRY_TIMEOUTS
        if retry and answer.trouble and answer.phase in RETRIED and answer.trouble != "not-recorded" and not hopeless:
            silent += answer.trouble == "timeout"
            again.append(answer)
        else:
            yield answer
    yield from _pass(transport, [a.node for a in again], script, min(fanout, RETRY_FANOUT), timeout_s, sudo)


def _pass(
    transport: Transport, nodes: list[Node], script: str, fanout: int, timeout_s: float, sudo: bool
) -> Iterator[Answer]:
    todo: queue.SimpleQueue[Node] = queue.SimpleQueue()
    answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
    stopped = threading.Event()
    for node in nodes:
        todo.put(node)

    def work() -> None:
        while not stopped.is_set():
            try:
                node = todo.get_nowait()
            except queue.Empty:
                return
            try:
                answers.put(transport.run(node, script, timeout_s=timeout_s, sudo=sudo))
            except Exception as error:  # a transport that breaks its promise must not hang the sweep
                answers.put(Answer(node, "connect", trouble="internal", detail=f"{type(error).__name__}: {error}"))

    try:
        with _small_stacks():
            for _ in range(max(1, min(fanout, len(nodes)))):
                threading.Thread(target=work, name="fleet-sweep", daemon=True).start()
            for _ in nodes:
                yield _plain(answers.get())
    finally:
        stopped.set()


_guard = threading.Lock()
_sweeps = 0  # under way in this process, each from a thread of its own
_before = 0


@contextmanager
def _small_stacks() -> Iterator[None]:
    """Threads begun meanwhile have small stacks, those that paramiko starts too; the last sweep puts the size back."""
    global _sweeps, _before
    with _guard:
        if _sweeps == 0:
            _before = threading.stack_size(STACK_BYTES)
        _sweeps += 1
    try:
        yield
    finally:
        with _guard:
            _sweeps -= 1
            if _sweeps == 0:
                threading.stack_size(_before)


def _room(fanout: int) -> int:
    """As many of `fanout` runs as there may be open files for, after the soft limit has been raised where it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * fanout + 64  # a local run holds three, an SSH run one, and everything else of this process some
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, min(fanout, (soft - 64) // 2))
    return fanout


def _plain(answer: Answer) -> Answer:
    """The answer with a detail of one printable line: it came from a node and goes to a terminal."""
    if answer.detail.isprintable():
        return answer
    return replace(answer, detail="".join(c if c.isprintable() else "?" for c in answer.detail))
