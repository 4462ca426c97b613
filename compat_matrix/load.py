"""From folders of YAML to a Matrix, by way of a cache keyed by content.

Tables are `<root>/<vendor>/*.yaml` and `<root>/os/*.yaml`, where a root is this package, the folder `compat_matrix` of
each vendor path, and each site path, in this order; a row of a later root replaces the row of the same identity. A file
straight in a site path names its vendor at the top (`vendor: nvidia`).
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compat_matrix.document import MAX_BYTES, Node, Problem, read
from compat_matrix.resolve import resolve
from compat_matrix.schema import Raw, read_file
from compat_matrix.table import Matrix
from fleet.core.errors import CheckFailed

HERE = Path(__file__).parent
KEPT = 8  # compiled tables in the cache; older ones go
_CODE = ("document.py", "schema.py", "resolve.py", "row.py", "load.py")  # what decides the form of the cached rows


class BadMatrix(CheckFailed):
    """The tables have errors; `problems` are all of them."""

    slug = "bad-matrix"

    def __init__(self, problems: Sequence[Problem]) -> None:
        errors = [p for p in problems if p.severity == "error"]
        shown = "\n".join(map(str, errors[:10]))
        more = f"\n… and {len(errors) - 10} more" if len(errors) > 10 else ""
        super().__init__(
            f"the compatibility tables have {len(errors)} error(s)",
            where=f"{errors[0].path}:{errors[0].line}",
            cause=shown + more,
            hint="fleet matrix check",
        )
        self.problems = tuple(problems)


@dataclass(frozen=True)
class TableFile:
    """One file: the vendor it speaks of ("" = it says so itself), its shown path, its bytes, the rank of its root."""

    vendor: str
    shown: str
    data: bytes
    root: int
    size: int


def roots(
    paths: Sequence[str] = (), vendor_path: Sequence[str] = (), shipped: Path = HERE
) -> list[tuple[Path, str]]:  # fmt: skip
    """(folder, how it is shown) of each root, the shipped tables first."""
    out = [(shipped, "compat_matrix")]
    out += [(Path(p) / "compat_matrix", str(Path(p) / "compat_matrix")) for p in vendor_path]
    return out + [(Path(p), str(Path(p))) for p in paths]


def files(paths: Sequence[str] = (), vendor_path: Sequence[str] = (), shipped: Path = HERE) -> list[TableFile]:
    """Every table file, shipped ones first. A file that is too large is listed without its bytes.

    `shipped` is a folder to take in place of the shipped tables: to compare two states of them.
    """
    out: list[TableFile] = []
    for rank, (root, shown) in enumerate(roots(paths, vendor_path, shipped)):
        if not root.is_dir():
            continue
        here = [("", f) for f in root.iterdir() if f.is_file()] if rank else []
        below = [(d.name, f) for d in root.iterdir() if d.is_dir() and d.name != "__pycache__" for f in d.rglob("*")]
        for vendor, file in sorted((*here, *below), key=lambda pair: str(pair[1])):
            if file.suffix in (".yaml", ".yml") and file.is_file():
                size = file.stat().st_size
                data = file.read_bytes() if size <= MAX_BYTES else b""
                out.append(TableFile(vendor, f"{shown}/{file.relative_to(root).as_posix()}", data, rank, size))
    return out


def digest_of(tables: Iterable[TableFile]) -> str:
    """`sha256:…` over the content of all tables in their order; the place where they lie does not count."""
    total = hashlib.sha256()
    for file in tables:
        name = f"{file.root}\0{file.vendor}\0{Path(file.shown).name}\0{file.size}\0"
        total.update(name.encode() + file.data + b"\0")
    return "sha256:" + total.hexdigest()


def read_tables(tables: Sequence[TableFile]) -> tuple[dict[str, dict[str, list[Raw]]], list[Problem]]:
    """(vendor -> section -> raw rows, every problem found)."""
    problems: list[Problem] = []
    vendors: dict[str, dict[str, list[Raw]]] = {}
    sources: dict[str, dict[int, dict[str, Raw]]] = {}
    owner: dict[tuple[str, str, str], tuple[int, Raw]] = {}
    for file in tables:
        if file.size > MAX_BYTES:
            text = f"the file has {file.size / 1048576:.1f} MB, more than the 4 MB that a table may have"
            problems.append(Problem(file.shown, 1, text, "too-large"))
            continue
        try:
            text = file.data.decode("utf-8")
        except UnicodeDecodeError:
            problems.append(Problem(file.shown, 1, "the file is not UTF-8 text", "bad-yaml"))
            continue
        root, found = read(text, file.shown)
        problems += found
        vendor = file.vendor or _named_vendor(root, file.shown, problems)
        if not vendor:
            continue
        rows, named, reader = read_file(root, file.shown, vendor)
        problems += reader.problems
        known = sources.setdefault(vendor, {}).setdefault(file.root, {})
        for name, source in named.items():
            if name in known:
                text = f"source {name!r} is told in {known[name]['at']} already: rows would cite the wrong one"
                path, _, line = source["at"].rpartition(":")
                problems.append(Problem(path, int(line), text, "duplicate-source"))
            known.setdefault(name, source)
        sections = vendors.setdefault(vendor, {})
        for section, items in rows.items():
            kept = sections.setdefault(section, [])
            for raw in items:
                if section != "strip":
                    raw["root"] = file.root  # until its source is looked up: its own root's come first
                _add(kept, raw, section, vendor, file.root, owner, problems)
    os_rows = vendors.get("os", {}).get("systems", [])
    for vendor, sections in vendors.items():
        problems += resolve(vendor, sections, sources.get(vendor, {}), os_rows)
        problems += _names_twice(vendor, sections)
    return vendors, problems


def _named_vendor(root: Node | None, shown: str, problems: list[Problem]) -> str:
    if root is not None and isinstance(root.value, dict):
        node = root.value.get("vendor")
        if node is not None and isinstance(node.value, str) and node.value:
            return node.value
        problems.append(Problem(shown, root.line, "a file outside a vendor's folder names its vendor", "no-vendor"))
    return ""


def identity(raw: Raw, section: str) -> str:
    """What a row is of: a later row of the same identity replaces it. "" = it stands for itself alone."""
    if section == "releases":
        return json.dumps([raw["component"], raw["version"].lower(), raw.get("when", {})], sort_keys=True)
    if section == "order":
        return json.dumps([raw["case"], raw.get("when", {})], sort_keys=True)
    if section == "systems":
        return f"{raw['id']} {raw['version']}"
    field = {"models": "model", "components": "component", "rules": "id"}.get(section, "")
    return str(raw.get(field) or "")


def _add(
    kept: list[Raw],
    raw: Raw,
    section: str,
    vendor: str,
    root: int,
    owner: dict[tuple[str, str, str], tuple[int, Raw]],
    problems: list[Problem],
) -> None:
    name = identity(raw, section)
    if name:
        before = owner.get((vendor, section, name))
        if before and before[0] == root:
            path, _, line = raw["at"].rpartition(":")
            problems.append(
                Problem(path, int(line), f"the same row of {section} stands in {before[1]['at']}", "duplicate-row")
            )
            return
        if before:
            kept.remove(before[1])
        owner[(vendor, section, name)] = (root, raw)
    kept.append(raw)


def _names_twice(vendor: str, sections: Mapping[str, list[Raw]]) -> list[Problem]:
    """Names and PCI ids that would mean two models."""
    from compat_matrix.table import VendorTables

    fold = VendorTables(vendor, tuple(w for item in sections.get("strip", ()) for w in item["words"])).fold
    out: list[Problem] = []
    taken: dict[str, Raw] = {}
    for raw in sections.get("models", ()):
        names = {fold(n): n for n in (raw["model"], *raw.get("aliases", ()))}
        for folded, name in (*names.items(), *((p, p) for p in raw.get("pci", ()))):
            if folded in taken:
                path, _, line = raw["at"].rpartition(":")
                text = f"{name!r} means the model of {taken[folded]['at']} already"
                out.append(Problem(path, int(line), text, "name-twice"))
            taken.setdefault(folded, raw)
    return out


def cache_dir(env: Mapping[str, str]) -> Path:
    """`$XDG_CACHE_HOME/fleet`, default `~/.cache/fleet`."""
    return Path(env.get("XDG_CACHE_HOME") or Path(env.get("HOME") or "/dev/null") / ".cache") / "fleet"


def load(paths: Sequence[str] = (), vendor_path: Sequence[str] = (), env: Mapping[str, str] | None = None) -> Matrix:
    """The matrix of the shipped tables, the vendors in `vendor_path` and the site tables in `paths`.

    Raises BadMatrix, which carries every problem, when a table has an error. The compiled rows are kept as JSON under
    the cache folder, keyed by content; a folder that cannot be written costs time only.
    """
    tables = files(paths, vendor_path)
    digest = digest_of(tables)
    code = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in _CODE)).hexdigest()
    shown = hashlib.sha256("\0".join(t.shown for t in tables).encode()).hexdigest()
    folder = cache_dir(os.environ if env is None else env)
    file = folder / f"matrix-{digest[7:39]}-{code[:12]}-{shown[:8]}.json"
    raw = _cached(file)
    if raw is None:
        raw, problems = read_tables(tables)
        if any(p.severity == "error" for p in problems):
            raise BadMatrix(problems)
        _keep(file, raw)
    return Matrix.of(digest, raw)


def _cached(file: Path) -> Any:
    """The rows kept in a file, None when it is not there or was cut or changed: its first line is the rest's digest."""
    try:
        mark, _, body = file.read_bytes().partition(b"\n")
        return json.loads(body) if mark.decode() == hashlib.sha256(body).hexdigest() else None
    except (OSError, ValueError):
        return None


def _keep(file: Path, raw: object) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        body = json.dumps(raw, ensure_ascii=False, separators=(",", ":")).encode()
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".matrix-", delete=False) as out:
            out.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        Path(out.name).replace(file)
        for old in sorted(file.parent.glob("matrix-*.json"), key=lambda f: f.stat().st_mtime)[:-KEPT]:
            old.unlink(missing_ok=True)
    except OSError:
        pass  # no cache, no harm: the tables are read again next time
