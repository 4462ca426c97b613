"""The bounded sweep, with a transport made of plain functions."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

from fleet.core.model import Node
from fleet.remote import Answer, sweep


class Scripted:
    """Answers with what `say(node, how many times it was asked before)` gives."""

    def __init__(self, say: Callable[[Node, int], Answer]) -> None:
        self._say = say
        self._lock = threading.Lock()
        self.asked: Counter[str] = Counter()
        self.at_once = 0
        self.most = 0

    def run(self, node: Node, script: str, *, timeout_s: float, sudo: bool) -> Answer:  # noqa: ARG002
        with self._lock:
            before = self.asked[node.name]
            self.asked[node.name] += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        try:
            return self._say(node, before)
        finally:
            with self._lock:
                self.at_once -= 1

    def close(self) -> None:
        pass


def nodes(count: int) -> list[Node]:
    return [Node(f"n{i}", "127.0.0.1") for i in range(count)]


def fine(node: Node, before: int) -> Answer:  # noqa: ARG001
    return Answer(node, "done", 0)


def test_every_node_once_and_never_more_than_fanout_at_a_time() -> None:
    def slow(node: Node, before: int) -> Answer:
        time.sleep(0.01)
        return fine(node, before)

    transport = Scripted(slow)
    answers = list(sweep(transport, nodes(50), "", fanout=7))
    assert sorted(a.name for a in answers) == sorted(n.name for n in nodes(50))
    assert set(transport.asked.values()) == {1}
    assert 1 < transport.most <= 7


def test_no_nodes_no_answers() -> None:
    assert list(sweep(Scripted(fine), [], "")) == []


def test_early_failures_are_asked_once_more_after_all_others() -> None:
    def say(node: Node, before: int) -> Answer:
        if node.name == "n3" and not before:
            return Answer(node, "banner", trouble="closed")
        if node.name == "n4":
            return Answer(node, "connect", trouble="unreachable")
        if node.name == "n5":
            return Answer(node, "auth", trouble="login-refused")
        return fine(node, before)

    transport = Scripted(say)
    answers = list(sweep(transport, nodes(10), "", fanout=4))
    assert {a.name: a.phase for a in answers} == {f"n{i}": "done" for i in range(10)} | {"n4": "connect", "n5": "auth"}
    assert {a.name for a in answers[-2:]} == {"n3", "n4"}
    assert (transport.asked["n3"], transport.asked["n4"], transport.asked["n5"]) == (2, 2, 1)
    again = list(sweep(Scripted(say), nodes(10), "", fanout=4, retry=False))
    assert {a.name: a.phase for a in again}["n3"] == "banner"


def test_a_dark_site_is_not_asked_twice() -> None:
    transport = Scripted(lambda node, _: Answer(node, "connect", trouble="timeout"))
    assert len(list(sweep(transport, nodes(300), "", fanout=16))) == 300
    assert sum(transport.asked.values()) == 364


def test_a_transport_that_raises_spoils_only_that_node() -> None:
    def say(node: Node, before: int) -> Answer:
        if node.name == "n2":
            raise RuntimeError("boom\x1b[31m")
        return fine(node, before)

    answers = {a.name: a for a in sweep(Scripted(say), nodes(5), "", fanout=2)}
    assert answers["n2"].trouble == "internal"
    assert answers["n2"].detail == "RuntimeError: boom?[31m"
    assert sum(a.ok for a in answers.values()) == 4


def test_dropping_the_iterator_starts_no_further_node() -> None:
    release = threading.Event()

    def say(node: Node, before: int) -> Answer:
        if node.name != "n0":
            release.wait(10)
        return fine(node, before)

    transport = Scripted(say)
    answers = sweep(transport, nodes(100), "", fanout=4)
    assert next(answers).name == "n0"
    answers.close()  # type: ignore[attr-defined]  # an iterator from a generator
    release.set()
    time.sleep(0.3)
    assert sum(transport.asked.values()) <= 5


def test_thread_stack_size_is_put_back() -> None:
    before = threading.stack_size()
    list(sweep(Scripted(fine), nodes(3), ""))
    assert threading.stack_size() == before


def test_sweeps_side_by_side_put_the_stack_size_back_too() -> None:
    before = threading.stack_size()
    one, two = sweep(Scripted(fine), nodes(3), ""), sweep(Scripted(fine), nodes(3), "")
    next(one), next(two)
    list(one)
    list(two)
    assert threading.stack_size() == before


def test_fanout_fits_the_open_files_that_are_allowed() -> None:
    """In a process of its own, since a hard limit cannot be raised again."""
    code = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 164))
from fleet.core.model import Node
from fleet.remote import Answer, sweep
from tests.remote.test_sweep import Scripted
import time
def slow(node, before):
    time.sleep(0.05)
    return Answer(node, "done", 0)
transport = Scripted(slow)
answers = list(sweep(transport, [Node(f"n{i}", "x") for i in range(200)], "", fanout=200))
print(len(answers), transport.most, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    answered, most, soft = map(int, done.stdout.split())
    assert (answered, soft) == (200, 164)
    assert most <= 50
