"""The artifact store: vendor packages by sha256, found by their names. Nothing is ever fetched from elsewhere.

Layout under its folder: `blobs/<sha256>` (the content), `names/<file name>.json` (what it is). A blob is written under
another name, hashed, synced and renamed, so a file under `blobs` is whole or was damaged later; `verify` tells.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from http import HTTPStatus
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote

from fleet.core.errors import BadInput, FleetError, NotFound, Refused
from fleet.core.vendor import ArtifactName

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

_BLOCK = 1024 * 1024
MAX_NAME = 240  # bytes of a name: with what the store adds, a file system takes 255
_HEX = re.compile(r"[0-9a-f]{64}")
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
        if not file_name(name):
            return None
        try:
            raw = json.loads((self.folder / "names" / f"{name}.json").read_text(encoding="utf-8"))
            found = Artifact(**raw)
            if found.name != name or not isinstance(found.size, int) or not _HEX.fullmatch(str(found.sha256)):
                raise ValueError("it speaks of another file")
            return found
        except (FileNotFoundError, NotADirectoryError):
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
        for file in sorted((self.folder / "names").glob("[!.]*.json")):
            found = self.get(file.name.removesuffix(".json"))
            if found is not None:
                yield found

    def add(
        self, file: Path, at: str, *, sha256: str = "", replace: bool = False, unrecognised: bool = False
    ) -> tuple[Artifact, bool]:
        """Take a copy of `file`: (artifact, whether it is new).

        Raises BadInput for what is no regular file, is empty, partial or changing, of no known or no usable name, or of
        another `sha256` than given; Refused when another content has that name.
        """
        name = file.name
        where = str(file)
        if not file_name(name):
            raise BadInput(
                f"no file in the store can be called {name[:80]!r}", where=where,
                hint=f"a name has up to {MAX_NAME} bytes, no blanks at its ends and nothing unprintable",
                slug="unrecognised-artifact",
            )  # fmt: skip
        wanted = sha256.lower().removeprefix("sha256:")
        if wanted and not _HEX.fullmatch(wanted):
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
            with contextlib.suppress(OSError, FleetError):  # FleetError: what is in use cannot be told
                if digest not in {artifact.sha256 for artifact in self.list()}:
                    (self.folder / "blobs" / digest).unlink()
            raise Refused(
                f"another file called {name!r} is in the store", where=where,
                cause=f"stored sha256 {old.sha256[:12]}…, given {digest[:12]}…",
                hint="fleet artifact add FILE --replace", slug="artifact-collision",
            )  # fmt: skip
        what = {} if known is None else asdict(known)
        made = Artifact(name=name, sha256=digest, size=size, at=at, **what)
        note = self.folder / "names" / f"{name}.json"
        try:
            note.parent.mkdir(parents=True, exist_ok=True)
            _write(note, json.dumps(asdict(made), sort_keys=True, indent=1).encode())
        except OSError as error:
            raise self._unstored(name, error) from error
        return made, True

    def _unstored(self, name: str, error: OSError) -> FleetError:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return FleetError(
            f"{name!r} could not be stored", where=str(self.folder), cause=error.strerror or str(error),
            hint="check space and owner of the folder", slug="disk-full" if full else "store-unwritable",
        )  # fmt: skip

    def _take(self, file: Path, wanted: str) -> tuple[str, int]:
        """Copy into `blobs`, hashing on the way: (hex digest, size)."""
        blobs = self.folder / "blobs"
        part = blobs / f".{os.getpid()}.fleet-part"
        with _regular(file) as source:
            try:
                blobs.mkdir(parents=True, exist_ok=True)
                return self._copied(source, file, part, blobs, wanted)
            except OSError as error:
                raise self._unstored(file.name, error) from error
            finally:
                with contextlib.suppress(OSError):
                    part.unlink()

    def _copied(self, source: BinaryIO, file: Path, part: Path, blobs: Path, wanted: str) -> tuple[str, int]:
        where = str(file)
        with part.open("wb") as target:
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
        for note in sorted((self.folder / "names").glob("[!.]*.json")):
            name = note.name.removesuffix(".json")
            try:
                artifact = self.get(name)
            except FleetError as error:
                yield Finding(name, "damaged", f"the store's note on it cannot be read: {error.cause}")
                continue
            if artifact is not None:
                used.add(artifact.sha256)
                yield self._check(artifact)
        for blob in sorted((self.folder / "blobs").glob("*")):
            if blob.name not in used:
                yield Finding(blob.name, "left-over", "no artifact has this content")
        for part in sorted((self.folder / "blobs").glob(".*.fleet-part")):
            yield Finding(part.name, "left-over", "a copy that was broken off")

    def find(self, name_or_digest: str) -> Artifact:
        """By file name or sha256; NotFound."""
        found = self.get(name_or_digest)
        if found is not None:
            return found
        if _HEX.fullmatch(name_or_digest):
            for artifact in self.list():
                if artifact.sha256 == name_or_digest:
                    return artifact
        raise NotFound(f"no artifact {name_or_digest!r}", hint="fleet artifact list", slug="unknown-artifact")


def file_name(name: str) -> bool:
    """Whether a file of the store may be called so: one word of a path that every tool can show and carry."""
    return (
        0 < len(name.encode("utf-8", "replace")) <= MAX_NAME
        and name.isprintable()
        and name == name.strip()
        and "/" not in name
        and not name.startswith(".")
    )


def _regular(file: Path) -> BinaryIO:
    """A regular file (or a link to one), open for reading. Raises BadInput: a pipe or a device has no end."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK)  # a pipe without a writer must not hold us up
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise BadInput(f"there is no file {str(file)!r}", where=str(file), slug="no-such-file") from error
    except OSError as error:
        what = f"{file.name!r} cannot be read"
        raise BadInput(what, where=str(file), cause=error.strerror or "", slug="no-such-file") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise BadInput(f"{file.name!r} is no regular file", where=str(file), slug="no-such-file")
    return os.fdopen(handle, "rb")


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


def _copy(file: BinaryIO, out: BufferedIOBase, start: int, left: int) -> None:
    """`left` bytes from `start` on."""
    file.seek(start)
    while left > 0 and (block := file.read(min(_BLOCK, left))):
        out.write(block)
        left -= len(block)


def server(store: ArtifactStore, address: str = "127.0.0.1", port: int = 0) -> ThreadingHTTPServer:
    """An HTTP server of the store: `GET /NAME` and `GET /sha256/HEX`, with ranges. Loopback unless told otherwise."""

    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # 30 ms that no other command needs

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60  # seconds for a client that says nothing
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
            except FleetError:  # a damaged note: `verify` says which
                self._plain(HTTPStatus.INTERNAL_SERVER_ERROR)
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
                    with contextlib.suppress(ConnectionError):
                        _copy(file, self.wfile, start, end - start + 1)

        def _plain(self, status: HTTPStatus, *headers: tuple[str, str]) -> None:
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

    return ThreadingHTTPServer((address, port), Handler)
