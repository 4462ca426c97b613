"""Host keys as text, `ssh-ed25519 AAAA…`: compared with the inventory's, never with a known_hosts file.

Reading a known_hosts file of 10,000 lines costs paramiko seconds for each connection; a dict costs nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Literal

from fleet.core.errors import BadInput

Policy = Literal["pinned", "tofu"]
Verdict = Literal["known", "first", "unknown-key", "key-changed"]


def parse(text: str) -> str:
    """Type and base64 of a key line, comment dropped; BadInput when it is none."""
    words = text.split()
    if len(words) >= 2:
        try:
            blob = base64.b64decode(words[1], validate=True)
        except (binascii.Error, ValueError):
            blob = b""
        size = int.from_bytes(blob[:4], "big")
        if words[0].isascii() and blob[4 : 4 + size] == words[0].encode():
            return f"{words[0]} {words[1]}"
    raise BadInput(f"{text[:60]!r} is no host key", hint="it looks like `ssh-ed25519 AAAA…`", slug="bad-host-key")


def fingerprint(key: str) -> str:
    """`SHA256:…` as ssh-keygen prints it; "" for what is no key."""
    words = key.split()
    if len(words) < 2:
        return ""
    try:
        blob = base64.b64decode(words[1], validate=True)
    except (binascii.Error, ValueError):
        return ""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def judge(shown: str, recorded: str | None, policy: Policy) -> Verdict:
    """Whether to talk to a node that showed this key. A changed key is refused under every policy."""
    if recorded:
        return "known" if recorded.split()[:2] == shown.split()[:2] else "key-changed"
    return "first" if policy == "tofu" else "unknown-key"
