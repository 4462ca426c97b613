"""Deadlines and host keys: small parts with their own laws."""

from __future__ import annotations

import base64
import threading
import time

import pytest

from fleet.core.errors import BadInput
from fleet.remote import hostkey
from fleet.remote.watchdog import Watchdog

BLOB = base64.b64encode(b"\x00\x00\x00\x0bssh-ed25519" + b"\x00\x00\x00\x20" + b"k" * 32).decode()
KEY = f"ssh-ed25519 {BLOB}"


def test_deadlines_fire_in_order_and_cancelled_ones_never() -> None:
    dog, fired, last = Watchdog(), [], threading.Event()
    dog.watch(0.3, last.set)
    late = dog.watch(0.2, lambda: fired.append("late"))
    early = dog.watch(0.05, lambda: fired.append("early"))
    never = dog.watch(0.1, lambda: fired.append("never"))
    never.cancel()
    assert last.wait(10)
    assert fired == ["early", "late"]
    assert (early.fired, late.fired, never.fired) == (True, True, False)
    dog.stop()


def test_a_close_that_raises_does_not_end_the_watchdog() -> None:
    dog, second = Watchdog(), threading.Event()

    def broken() -> None:
        raise OSError("gone already")

    dog.watch(0.01, broken)
    dog.watch(0.05, second.set)
    assert second.wait(10)
    dog.stop()


def test_stop_fires_what_is_left_and_what_comes_later() -> None:
    dog = Watchdog()
    left = dog.watch(1000, lambda: None)
    dog.stop()
    assert left.fired
    started = time.monotonic()
    assert dog.watch(1000, lambda: None).fired
    assert time.monotonic() - started < 5


def test_host_key_text() -> None:
    assert hostkey.parse(f" {KEY} root@node\n") == KEY
    assert hostkey.fingerprint(KEY).startswith("SHA256:")
    assert hostkey.fingerprint("junk") == ""
    for junk in ("", "ssh-ed25519", f"ssh-rsa {BLOB}", "ssh-ed25519 !!!", f"node1 {KEY}"):
        with pytest.raises(BadInput):
            hostkey.parse(junk)


def test_judging_a_key() -> None:
    other = KEY.replace("kkk", "kkl") if "kkk" in KEY else KEY[:-2] + "A="
    assert hostkey.judge(KEY, KEY + " comment", "pinned") == "known"
    assert hostkey.judge(KEY, None, "pinned") == "unknown-key"
    assert hostkey.judge(KEY, "", "tofu") == "first"
    assert hostkey.judge(KEY, other, "tofu") == "key-changed"
