"""The artifact store: vendor packages by sha256, found by their names. Nothing is ever fetched from elsewhere.

Layout under its folder: `blobs/<sha256>` (the content), `names/<file name>.json` (what it is). A blob is written under
another name, hashed, synced and renamed, so a file under `blobs` is whole or was damaged later; `verify` tells.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from fleet.core.errors import BadInput, FleetError, NotFound, Refused
from fleet.core.vendor import ArtifactName

_BLOCK = 1024 * 1024
_PARTIAL = (".part", ".partial", ".crdownload", ".tmp", ".fleet-part", ".aria2")


@dataclass(frozen=True)
class Artifact:
    """One stored file. `size` in bytes, `at` = ISO 8601; empty text = not known from its name."""

    name: str
    sha256: str
    size: int
    vendor: str = ""
    component: str = ""
    version: str = ""
    kind: str = ""
    arch: str = ""
    chip: str = ""
    at: str = ""


@dataclass(frozen=True)
class Finding:
    """What `verify` says of one artifact: ok, missing, damaged or left-over."""

    name: str
    state: str
    detail: str = ""


def sha256_of(file: BinaryIO) -> str:
    """Hex digest of what is left to read."""
    seen = hashlib.sha256()
    while block := file.read(_BLOCK):
        seen.update(block)
    return seen.hexdigest()


class ArtifactStore:
    """The store in one folder. `recognise(file name)` says what a name means, None when no vendor knows it."""

    def __init__(self, folder: Path, recognise: Callable[[str], ArtifactName | None]) -> None:
        self.folder = folder
        self.recognise = recognise

    def path(self, artifact: Artifact) -> Path:
        """Where its content lies."""
        return self.folder / "blobs" / artifact.sha256

    def get(self, name: str) -> Artifact | None:
        """The artifact of that file name."""
        try:
            raw = json.loads((self.folder / "names" / f"{name}.json").read_text())
            return Artifact(**raw)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise FleetError(
                f"the store's note on {name!r} cannot be read", where=str(self.folder / "names"), cause=str(error),
                hint="fleet artifact verify", slug="store-damaged",
            ) from error  # fmt: skip

    def has(self, name: str) -> bool:
        """Whether it is there with the right size. The hash is checked before each use on a node, and by `verify`."""
        found = self.get(name)
        if found is None:
            return False
        try:
            return self.path(found).stat().st_size == found.size
        except OSError:
            return False

    def need(self, name: str) -> Artifact:
        """The artifact, its content hashed now. Refused when it is missing or damaged."""
        found = self.get(name)
        if found is None:
            raise Refused(
                f"artifact {name} is not in the store", hint="fleet artifact add FILE", slug="missing-artifact"
            )
        finding = self._check(found)
        if finding.state != "ok":
            raise Refused(
                f"artifact {name} is {finding.state}: {finding.detail}", where=str(self.path(found)),
                hint="fleet artifact add FILE --replace", slug="bad-artifact",
            )  # fmt: skip
        return found

    def list(self) -> Iterator[Artifact]:
        """Every artifact, by name."""
        for file in sorted((self.folder / "names").glob("*.json")):
            found = self.get(file.name.removesuffix(".json"))
            if found is not None:
                yield found

    def add(
        self, file: Path, at: str, *, sha256: str = "", replace: bool = False, unrecognised: bool = False
    ) -> tuple[Artifact, bool]:
        """Take a copy of `file`: (artifact, whether it is new).

        Raises BadInput for a file that is not there, empty, partial, changing, of no known name, or of another
        `sha256` than given; Refused when another content has that name.
        """
        name = file.name
        where = str(file)
        wanted = sha256.lower().removeprefix("sha256:")
        if wanted and not re.fullmatch(r"[0-9a-f]{64}", wanted):
            raise BadInput(f"{sha256!r} is no sha256: it has 64 hex digits", where=where, slug="bad-sha256")
        if name.endswith(_PARTIAL) or any(Path(f"{file}{end}").exists() for end in (".part", ".aria2")):
            raise BadInput(f"{name!r} is a partial download", where=where, hint="finish it first", slug="partial-file")
        known = self.recognise(name)
        if known is None and not unrecognised:
            raise BadInput(
                f"no vendor knows a file called {name!r}", where=where,
                hint="keep the vendor's file name, or say --unrecognised", slug="unrecognised-artifact",
            )  # fmt: skip
        digest, size = self._take(file, wanted)
        old = self.get(name)
        if old is not None and old.sha256 == digest:
            return old, False
        if old is not None and not replace:
            raise Refused(
                f"another file called {name!r} is in the store", where=where,
                cause=f"stored sha256 {old.sha256[:12]}…, given {digest[:12]}…",
                hint="fleet artifact add FILE --replace", slug="artifact-collision",
            )  # fmt: skip
        what = {} if known is None else asdict(known)
        made = Artifact(name=name, sha256=digest, size=size, at=at, **what)
        note = self.folder / "names" / f"{name}.json"
        note.parent.mkdir(parents=True, exist_ok=True)
        _write(note, json.dumps(asdict(made), sort_keys=True, indent=1).encode())
        return made, True

    def _take(self, file: Path, wanted: str) -> tuple[str, int]:
        """Copy into `blobs`, hashing on the way: (hex digest, size)."""
        where = str(file)
        blobs = self.folder / "blobs"
        part = blobs / f".{os.getpid()}-{file.name}.fleet-part"
        try:
            blobs.mkdir(parents=True, exist_ok=True)
            with file.open("rb") as source, part.open("wb") as target:
                before = os.fstat(source.fileno())
                seen, size = hashlib.sha256(), 0
                while block := source.read(_BLOCK):
                    seen.update(block)
                    size += len(block)
                    target.write(block)
                target.flush()
                os.fsync(target.fileno())
                now = os.fstat(source.fileno())
            if size == 0:
                raise BadInput(f"{file.name!r} is empty", where=where, slug="partial-file")
            if (before.st_size, before.st_mtime_ns) != (now.st_size, now.st_mtime_ns) or size != now.st_size:
                raise BadInput(f"{file.name!r} is still being written", where=where, slug="partial-file")
            digest = seen.hexdigest()
            if wanted and digest != wanted:
                raise BadInput(
                    f"{file.name!r} has not the sha256 given", where=where, cause=f"it is {digest}",
                    hint="copy it again from its source", slug="bad-sha256",
                )  # fmt: skip
            part.replace(blobs / digest)
            _sync(blobs)
        except FileNotFoundError as error:
            raise BadInput(f"there is no file {where!r}", where=where, slug="no-such-file") from error
        except OSError as error:
            slug = "disk-full" if error.errno == 28 else "store-unwritable"
            raise FleetError(
                f"{file.name!r} could not be stored", where=str(self.folder), cause=error.strerror or str(error),
                hint="check space and owner of the folder", slug=slug,
            ) from error  # fmt: skip
        finally:
            with contextlib.suppress(OSError):
                part.unlink()
        return digest, size

    def _check(self, artifact: Artifact) -> Finding:
        try:
            with self.path(artifact).open("rb") as file:
                seen = sha256_of(file)
        except FileNotFoundError:
            return Finding(artifact.name, "missing", "its content is gone")
        except OSError as error:
            return Finding(artifact.name, "damaged", error.strerror or str(error))
        return Finding(artifact.name, "ok") if seen == artifact.sha256 else Finding(
            artifact.name, "damaged", f"its sha256 is {seen[:12]}…, not {artifact.sha256[:12]}…"
        )  # fmt: skip

    def verify(self) -> Iterator[Finding]:
        """Hash everything again; report what no name points to as well."""
        used = set()
        for artifact in self.list():
            used.add(artifact.sha256)
            yield self._check(artifact)
        for blob in sorted((self.folder / "blobs").glob("*")):
            if blob.name not in used:
                yield Finding(blob.name, "left-over", "no artifact has this content")
        for part in sorted((self.folder / "blobs").glob(".*.fleet-part")):
            yield Finding(part.name, "left-over", "a copy that was broken off")

    def find(self, name_or_digest: str) -> Artifact:
        """By file name or sha256; NotFound."""
        for artifact in self.list():
            if name_or_digest in (artifact.name, artifact.sha256):
                return artifact
        raise NotFound(f"no artifact {name_or_digest!r}", hint="fleet artifact list", slug="unknown-artifact")


def _write(file: Path, content: bytes) -> None:
    part = file.with_name(f".{file.name}.{os.getpid()}.new")
    with part.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    part.replace(file)
    _sync(file.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def byte_range(header: str, size: int) -> tuple[int, int] | None:
    """(first, last) of `bytes=a-b`, `bytes=a-` or `bytes=-n`; None for the whole. ValueError when it cannot be met."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", header.strip())
    if not match or match.groups() == ("", ""):
        return None  # several ranges, or another unit: the whole file is a right answer
    first, last = match.groups()
    if first == "":
        start, end = max(0, size - int(last)), size - 1
        if int(last) == 0:
            raise ValueError(header)
    else:
        start, end = int(first), min(int(last), size - 1) if last else size - 1
    if start >= size or start > end:
        raise ValueError(header)
    return start, end


def server(store: ArtifactStore, address: str = "127.0.0.1", port: int = 0) -> ThreadingHTTPServer:
    """An HTTP server of the store: `GET /NAME` and `GET /sha256/HEX`, with ranges. Loopback unless told otherwise."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "fleet"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            wanted = unquote(self.path.partition("?")[0]).lstrip("/").removeprefix("sha256/")
            try:
                artifact = store.find(wanted)
                file = store.path(artifact).open("rb")
            except (NotFound, OSError):
                self._plain(HTTPStatus.NOT_FOUND)
                return
            with file:
                size = os.fstat(file.fileno()).st_size
                try:
                    part = byte_range(self.headers.get("Range", ""), size)
                except ValueError:
                    self._plain(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, ("Content-Range", f"bytes */{size}"))
                    return
                start, end = part or (0, size - 1)
                self.send_response(HTTPStatus.PARTIAL_CONTENT if part else HTTPStatus.OK)
                self.send_header("Content-Type", "application/octet-stream")
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("ETag", f'"{artifact.sha256}"')
                self.send_header("Content-Length", str(end - start + 1))
                if part:
                    self.send_header("Content-Range", f"bytes {start}-{end}/{size}")
                self.end_headers()
                if body:
                    self._send(file, start, end - start + 1)

        def _send(self, file: BinaryIO, start: int, left: int) -> None:
            file.seek(start)
            with contextlib.suppress(ConnectionError):
                while left > 0 and (block := file.read(min(_BLOCK, left))):
                    self.wfile.write(block)
                    left -= len(block)

        def _plain(self, status: HTTPStatus, *headers: tuple[str, str]) -> None:
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

    return ThreadingHTTPServer((address, port), Handler)
