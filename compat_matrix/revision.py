"""The tables as they were: at a git revision, or in a folder. Git is only read (`ls-tree`, `cat-file`)."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from compat_matrix.document import MAX_BYTES
from compat_matrix.load import TableFile, files, roots
from fleet.core.errors import NotFound, UsageError

_LIMIT_S = 60


def tables_of(what: str, paths: Sequence[str] = (), vendor_path: Sequence[str] = ()) -> list[TableFile]:
    """The table files of `what`: a folder in the shipped one's place (`DIR/<vendor>/*.yaml`, or `DIR/compat_matrix`),
    else a git revision of the repository that holds the site's tables (or, where none is under git and knows it, the
    vendor path's, then the shipped ones). Roots outside that repository stay as they are now.

    Raises NotFound when it is neither a folder nor a revision.
    """
    if what.startswith("-"):
        raise UsageError(f"{what!r} is no folder and no revision", hint="fleet matrix diff HEAD~1")
    folder = Path(what)
    if folder.is_dir():
        inner = folder / "compat_matrix"
        return files(paths, vendor_path, inner if inner.is_dir() else folder)
    now = files(paths, vendor_path)
    found = [(rank, root, shown) for rank, (root, shown) in enumerate(roots(paths, vendor_path)) if root.is_dir()]
    places = {rank: _repository(root, what) for rank, root, _ in found}
    chosen = next((places[rank] for rank, _, _ in reversed(found) if places[rank]), "")
    if not chosen:
        text = f"{what!r} is no folder, and no git revision of a folder with tables"
        raise NotFound(text, hint="git rev-parse --verify REV, in the folder of the tables", slug="unknown-revision")
    out: list[TableFile] = []
    for rank, root, shown in found:
        then = _at(what, root, shown, rank) if places[rank] == chosen else None
        out += then if then is not None else [file for file in now if file.root == rank]
    return out


def _git(root: Path, *args: str, data: bytes = b"") -> bytes | None:
    try:
        ran = subprocess.run(
            ["git", "-C", str(root), *args], input=data, capture_output=True, check=False, timeout=_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout if ran.returncode == 0 else None


def _repository(root: Path, revision: str) -> str:
    """The top folder of the repository of a root where it knows the revision, else ""."""
    if _git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}") is None:
        return ""
    return (_git(root, "rev-parse", "--show-toplevel") or b"").decode("utf-8", "replace").strip()


def _at(revision: str, root: Path, shown: str, rank: int) -> list[TableFile] | None:
    """The table files of one root at a revision; None when it is not under git or has no such revision."""
    listed = _git(root, "ls-tree", "-r", "-l", "-z", f"{revision}^{{tree}}", "--", ".")
    if listed is None:
        return None
    out = []
    for entry in filter(None, listed.decode("utf-8", "replace").split("\0")):
        head, _, name = entry.partition("\t")
        _, kind, blob, size = head.split()
        path = Path(name)  # `ls-tree` in a folder names what is below it relative to it
        if kind != "blob" or path.suffix not in (".yaml", ".yml") or path.is_absolute() or ".." in path.parts:
            continue
        vendor = path.parts[0] if len(path.parts) > 1 else ""
        if not vendor and rank == 0:
            continue
        data = (_git(root, "cat-file", "blob", blob) or b"") if int(size) <= MAX_BYTES else b""
        out.append(TableFile(vendor, f"{shown}/{path.as_posix()}", data, rank, int(size)))
    return sorted(out, key=lambda file: file.shown)
