"""Evidence: what was done and seen, append-only, each record chained to the one before by its digest.

`heads/<run>.json` names the last record of each run, so that one taken off the end is missed.

One file of JSON lines for each run (a rollout, an audit, a validation), canonical JSON, `seq` from 0, `prev` = digest
of the line before. Outputs are blobs by digest. A line is synced to the disk before `append` returns. A last line
without its newline is what a crash leaves: it is dropped by the next writer, and is no damage. Records of origin `lab`
or `replay` can never teach the matrix.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fleet.core.errors import FleetError, NotFound
from fleet.core.model import Json, canonical

Origin = Literal["hardware", "lab", "replay"]
FIRST = "sha256:" + "0" * 64


@dataclass(frozen=True)
class Record:
    """One line. `digest` is that of the line itself, `prev` that of the line before."""

    seq: int
    prev: str
    at: str
    origin: Origin
    kind: str
    body: Mapping[str, Json]
    digest: str = ""


@dataclass(frozen=True)
class Verdict:
    """What `verify` found in one run. `head` = digest of the last good record; `torn` = a half-written last line."""

    run: str
    records: int
    head: str
    problem: str = ""
    torn: bool = False

    @property
    def ok(self) -> bool:
        """Whether the chain is whole; a torn last line is no damage."""
        return not self.problem


def _part(file: Path) -> Path:
    """Where a file is written before it takes its name; of this thread alone, since rollouts run side by side."""
    return file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}")


def _digest(line: bytes) -> str:
    return "sha256:" + hashlib.sha256(line).hexdigest()


class EvidenceStore:
    """The evidence in one folder: `runs/<run>.jsonl`, `heads/<run>.json` and `blobs/<hex>.z`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _file(self, run: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", run):
            raise NotFound(f"no run is called {run[:80]!r}", hint="fleet evidence list", slug="unknown-run")
        return self.folder / "runs" / f"{run}.jsonl"

    def append(self, run: str, at: str, origin: Origin, kind: str, body: Mapping[str, Json]) -> Record:
        """Add one record to a run and sync it. Safe against other processes that append to the same run."""
        return self.extend(run, at, origin, kind, [body])[-1]

    def extend(
        self, run: str, at: str, origin: Origin, kind: str, bodies: Iterable[Mapping[str, Json]]
    ) -> list[Record]:
        """Add a record for each body and sync them once: what a chunk of nodes came to costs one wait for the disk."""
        file = self._file(run)
        with self._told(file):
            return self._extend(file, at, origin, kind, bodies)

    @contextlib.contextmanager
    def _told(self, file: Path) -> Iterator[None]:
        """Turn what the system says into one sentence."""
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise FleetError(
                "the evidence could not be written" if error.errno != errno.EISDIR else "the evidence is no file",
                where=str(file), cause=error.strerror or str(error),
                hint="check space and owner of the folder; nothing that was written before is lost",
                slug="disk-full" if full else "store-unwritable",
            ) from error  # fmt: skip

    def _extend(
        self, file: Path, at: str, origin: Origin, kind: str, bodies: Iterable[Mapping[str, Json]]
    ) -> list[Record]:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        made: list[Record] = []
        data = b""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            last, end = _tail(handle)
            seq, prev = (0, FIRST) if last is None else (_seq(last, file) + 1, _digest(last))
            known = self._head(file.stem)
            if known is not None and known[0] == seq - 1:
                prev = known[1]  # an edit of the last record stays visible for ever
            for body in bodies:
                entry = {"seq": seq, "prev": prev, "at": at, "origin": origin, "kind": kind, "body": dict(body)}
                line = canonical(entry).encode()
                made.append(Record(seq, prev, at, origin, kind, body, _digest(line)))
                data += line + b"\n"
                seq, prev = seq + 1, made[-1].digest
            if not made:
                return made
            os.ftruncate(handle, end)  # what a crash left of a line
            os.lseek(handle, end, os.SEEK_SET)
            while data:
                data = data[os.write(handle, data) :]
            os.fsync(handle)
            self._keep_head(file.stem, made[-1].seq, made[-1].digest)
        finally:
            os.close(handle)
        return made

    def _keep_head(self, run: str, seq: int, digest: str) -> None:
        """Note how far the run has come. After a crash it may be behind by a record, never ahead of the run."""
        file = self.folder / "heads" / f"{run}.json"
        part = _part(file)
        with contextlib.suppress(OSError):  # the record itself is on the disk: that is what was asked for
            file.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(canonical({"seq": seq, "digest": digest}), encoding="utf-8")
            part.replace(file)

    def _head(self, run: str) -> tuple[int, str] | None:
        """(sequence, digest) of the last record as it was written; None where none is kept."""
        try:
            raw = json.loads((self.folder / "heads" / f"{run}.json").read_text(encoding="utf-8"))
            return int(raw["seq"]), str(raw["digest"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def blob(self, data: bytes) -> str:
        """Keep an output; its digest. The same output twice is one file."""
        digest = _digest(data)
        file = self.folder / "blobs" / f"{digest.removeprefix('sha256:')}.z"
        part = _part(file)
        with self._told(file):
            if file.exists():
                return digest
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                with part.open("wb") as out:
                    out.write(zlib.compress(data))
                    out.flush()
                    os.fsync(out.fileno())
                part.replace(file)
            finally:
                part.unlink(missing_ok=True)
        return digest

    def read_blob(self, digest: str) -> bytes:
        """An output by its digest. NotFound when retention has dropped it."""
        name = digest.removeprefix("sha256:")
        file = self.folder / "blobs" / f"{name}.z"
        if not re.fullmatch(r"[0-9a-f]{64}", name) or not file.is_file():
            raise NotFound(f"no output {digest!r} is kept", slug="unknown-blob")
        return zlib.decompress(file.read_bytes())

    def find(self, beginning: str) -> str:
        """The run of that id, or the only one whose id begins so. NotFound."""
        known = self.runs()
        found = [run for run in known if run.startswith(beginning)] if beginning else []
        if beginning in found or len(found) == 1:
            return beginning if beginning in found else found[0]
        cause = f"so begin {', '.join(found[:5])}" if found else ""
        what = (
            f"no run is called {beginning[:80]!r}" if not found else f"{beginning!r} is the beginning of several runs"
        )
        raise NotFound(what, cause=cause, hint="fleet evidence list", slug="unknown-run")

    def runs(self) -> list[str]:
        """Ids of the runs, in order."""
        return sorted(file.name.removesuffix(".jsonl") for file in (self.folder / "runs").glob("*.jsonl"))

    def records(self, run: str) -> Iterator[Record]:
        """The records of a run as they stand; NotFound. A line that cannot be read ends it: `verify` says why."""
        for line in self._lines(run):
            try:
                raw = json.loads(line)
                yield Record(raw["seq"], raw["prev"], raw["at"], raw["origin"], raw["kind"], raw["body"], _digest(line))
            except (ValueError, KeyError, TypeError):
                return

    def _lines(self, run: str) -> Iterator[bytes]:
        """The whole lines, read one by one: a run on ten thousand nodes has a hundred megabytes of them."""
        file = self._file(run)
        if not file.is_file():
            raise NotFound(f"no run is called {run!r}", hint="fleet evidence list", slug="unknown-run")
        try:
            with file.open("rb") as handle:
                yield from (line[:-1] for line in handle if line.endswith(b"\n"))
        except OSError as error:
            what = f"the evidence of {run} cannot be read"
            raise FleetError(what, where=str(file), cause=error.strerror or "", slug="system-error") from error

    def verify(self, run: str) -> Verdict:
        """Whether the chain is whole, each line canonical, and each output that is still kept the one named."""
        torn = _torn(self._file(run))
        head, count = FIRST, 0
        known = self._head(run)
        for number, line in enumerate(self._lines(run), 1):
            problem = _flaw(line, count, head) or self._lost(line)
            if not problem and known is not None and known[0] == count and known[1] != _digest(line):
                problem = "it is not the record that was written last: it was edited"
            if problem:
                return Verdict(run, count, head, f"line {number}: {problem}", torn)
            head, count = _digest(line), count + 1
        cut_off = 1 if torn and self._file(run).stat().st_size > 0 else 0  # the last one, told by `torn`
        if known is not None and known[0] >= count + cut_off:
            return Verdict(run, count, head, f"records {count} to {known[0]} were removed from its end", torn)
        return Verdict(run, count, head, "", torn)

    def _lost(self, line: bytes) -> str:
        output = json.loads(line)["body"].get("output")
        if not isinstance(output, str) or not output.startswith("sha256:"):
            return ""
        try:
            data = self.read_blob(output)
        except NotFound:
            return ""  # dropped by retention
        except zlib.error:
            return f"output {output} is damaged"
        return "" if _digest(data) == output else f"output {output} was changed"


def _torn(file: Path) -> bool:
    """Whether the file ends in the middle of a line."""
    if not file.is_file() or file.stat().st_size == 0:
        return False
    with file.open("rb") as handle:
        handle.seek(-1, os.SEEK_END)
        return handle.read() != b"\n"


def _seq(line: bytes, file: Path) -> int:
    """The sequence number of the last record; a chain that was broken by hand takes no further record."""
    try:
        return int(json.loads(line)["seq"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FleetError(
            "the last record of the evidence cannot be read: it was edited", where=str(file),
            hint=f"fleet evidence verify {file.stem}", slug="evidence-broken",
        ) from error  # fmt: skip


def _flaw(line: bytes, seq: int, prev: str) -> str:
    try:
        raw = json.loads(line)
        if canonical(raw).encode() != line:
            return "it is not canonical: it was edited"
        if raw["seq"] != seq:
            return f"its sequence is {raw['seq']}, not {seq}: records were removed or added"
        if raw["prev"] != prev:
            return "it does not follow from the record before: that one was edited"
        if not isinstance(raw["body"], dict):
            return "it has no body"
    except (ValueError, KeyError, TypeError, RecursionError):
        return "it is not a record"
    return ""


def _tail(handle: int) -> tuple[bytes | None, int]:
    """(the last whole line without its newline, the offset after it)."""
    size = os.fstat(handle).st_size
    step, data = 65536, b""
    start = size
    while start > 0:
        start = max(0, start - step)
        os.lseek(handle, start, os.SEEK_SET)
        data = os.read(handle, size - start)
        end = data.rfind(b"\n")
        if end >= 0 and (data.rfind(b"\n", 0, end) >= 0 or start == 0):
            before = data.rfind(b"\n", 0, end)
            return data[before + 1 : end], start + end + 1
        step *= 4
    return None, 0
