"""Answers kept as files, one a node, and given again: a fleet recorded once is replayed in tests for ever.

A recording is JSON: what the node said, its phase, its public host key, the nonce of the sweep, and the digest of the
output. The nonce of the script that is replayed takes the place of the recorded one.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from fleet.core.errors import BadInput
from fleet.core.model import Node, digest
from fleet.remote.answer import Answer, Phase, Transport, Trouble
from fleet.remote.script import nonce_of


class Record:
    """A transport that keeps every answer of `inner` in `folder`, each file written whole or not at all."""

    def __init__(self, inner: Transport, folder: str | Path) -> None:
        self._inner = inner
        self._folder = Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder):
                pass  # better now than after a thousand nodes were asked
        except OSError as error:
            raise BadInput(
                f"{str(folder)!r} cannot hold recordings", cause=error.strerror or str(error),
                hint="name another folder with --record", slug="bad-recording",
            ) from error  # fmt: skip

    def run(self, node: Node, script: str, *, timeout_s: float, sudo: bool) -> Answer:
        """The answer of `inner`, written down."""
        answer = self._inner.run(node, script, timeout_s=timeout_s, sudo=sudo)
        document = {
            "apiVersion": "fleet/v1",
            "kind": "Recording",
            "node": node.name,
            "address": node.address,
            "port": node.port,
            "phase": answer.phase,
            "rc": answer.rc,
            "trouble": answer.trouble,
            "detail": answer.detail,
            "host_key": answer.host_key,
            "nonce": nonce_of(script),
            "digest": digest(answer.stdout),
            "stdout": _pack(answer.stdout),
            "stderr": _pack(answer.stderr),
        }
        _write(_file(self._folder, node.name), json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        return answer

    def close(self) -> None:
        self._inner.close()


class Replay:
    """A transport that gives the answers kept in `folder`; a node that is not there is `not-recorded`."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        if not self._folder.is_dir():
            raise BadInput(f"{str(folder)!r} is no folder of recordings", hint="fleet probe --record DIR")

    def nodes(self) -> Iterator[Node]:
        """The nodes recorded, as far as a recording knows them."""
        for file in sorted(self._folder.glob("*.json")):
            document = _read(file)
            yield Node(document["node"], document["address"], document["port"])

    def run(self, node: Node, script: str, *, timeout_s: float, sudo: bool) -> Answer:  # noqa: ARG002
        """The recorded answer, under the nonce of this script. BadInput when the recording was changed."""
        file = _file(self._folder, node.name)
        if not file.is_file():
            return Answer(node, "connect", trouble="not-recorded", detail=f"no recording {file.name!r}")
        document = _read(file)
        stdout = _unpack(document["stdout"], file)
        if digest(stdout) != document["digest"]:
            raise BadInput("the output does not have the recorded digest", where=str(file), slug="bad-recording")
        old, new = str(document.get("nonce", "")), nonce_of(script)
        if old and new:
            stdout = stdout.replace(b"\x1eFLEET1 " + old.encode(), b"\x1eFLEET1 " + new.encode())
        return Answer(
            node,
            document["phase"],
            document["rc"],
            stdout,
            _unpack(document["stderr"], file),
            str(document.get("detail", "")),
            str(document.get("host_key", "")),
            document.get("trouble", ""),
        )

    def close(self) -> None:
        pass


def _file(folder: Path, name: str) -> Path:
    return folder / f"{urllib.parse.quote(name, safe='')}.json"


def _pack(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _unpack(value: Any, file: Path) -> bytes:
    try:
        return str(value["text"]).encode() if "text" in value else base64.b64decode(value["base64"], validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput("an output cannot be decoded", where=str(file), slug="bad-recording") from error


def _read(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"not a recording: {error}", where=str(file), slug="bad-recording") from error
    keys = {"node", "phase", "rc", "stdout", "stderr", "digest"}
    if not isinstance(document, dict) or document.get("kind") != "Recording" or not keys <= set(document):
        raise BadInput("not a recording: kind or keys are missing", where=str(file), slug="bad-recording")
    document = {"address": "", "port": 22, "detail": "", "host_key": "", "trouble": "", "nonce": "", **document}
    if document["phase"] not in get_args(Phase) or document["trouble"] not in get_args(Trouble):
        what = f"unknown phase {document['phase']!r} or trouble {document['trouble']!r}"
        raise BadInput(what, where=str(file), slug="bad-recording")
    texts = ("node", "address", "detail", "host_key", "nonce", "digest")
    whole = isinstance(document["port"], int) and isinstance(document["rc"], int | None)
    if not whole or not all(isinstance(document[key], str) for key in texts):
        raise BadInput("a key of this recording has the wrong type", where=str(file), slug="bad-recording")
    if _file(file.parent, document["node"]).name != file.name:
        what = f"the recording speaks of node {document['node'][:80]!r}, its file's name of another"
        raise BadInput(what, where=str(file), slug="bad-recording")
    return document


def _write(file: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.stem[:40]}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as part:
            part.write(text)
            part.flush()
            os.fsync(part.fileno())
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
