"""`fleet doctor`: is this controller fit for work? It looks, and changes nothing but a file it removes again."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from fleet.cli.output import document, emit, output_option, settings, table
from fleet.core import errors

if TYPE_CHECKING:
    from fleet.config import Settings

State = Literal["ok", "warning", "failed"]
LOW_BYTES = 2 * 1024**3  # free in the state folder; vendor packages are gigabytes


@dataclass(frozen=True)
class Finding:
    """One check: what was found, and the next command where it is not ok."""

    check: str
    state: State
    detail: str
    hint: str = ""


@click.command()
@output_option("table", "json", "yaml")
@click.pass_context
def doctor(ctx: click.Context, output: str) -> int:
    """Check this controller: state folder, database, SSH key, Ansible, vendors and their roles, matrix.

    Exit status 4 when something would keep fleet from working.
    """
    found = list(examine(settings(ctx)))
    if output == "table":
        table(("CHECK", "STATE", "DETAIL"), [(f.check, f.state, f.detail) for f in found])
        for finding in found:
            if finding.hint:
                click.echo(f"hint: {finding.check}: {finding.hint}", err=True)
    else:
        ok = all(finding.state != "failed" for finding in found)
        emit(document("DoctorReport", {"ok": ok, "checks": [vars(finding).copy() for finding in found]}), output)
    failed = any(finding.state == "failed" for finding in found)
    return errors.CHECK_SAID_NO if failed else errors.DONE


def examine(in_force: Settings) -> Iterator[Finding]:
    """Every check, each by itself: one that fails, in whatever way, keeps none of the others from being made."""
    for name, check in _CHECKS.items():
        try:
            yield from check(in_force)
        except errors.FleetError as error:
            detail = f"{error.what}{f': {error.cause}' if error.cause else ''}"
            yield Finding(name, "failed", detail, error.hint or f"fleet help {error.slug}")
        except Exception as error:  # a broken vendor of the site's own may raise anything
            yield Finding(name, "failed", f"{type(error).__name__}: {error}", "fleet config show")


def _state_dir(in_force: Settings) -> Iterator[Finding]:
    folder = Path(in_force.state_dir)
    there, trouble = _written(folder)
    if trouble:
        hint = "set FLEET_STATE_DIR to a folder that this user may write to"
        yield Finding("state folder", "failed", f"{there}: {trouble}", hint)
        return
    free = shutil.disk_usage(there).free
    made = "" if there == folder else ", made on first use"
    detail = f"{folder}{made}, {free / 1024**3:.1f} GiB free"
    low = free < LOW_BYTES
    yield Finding("state folder", "warning" if low else "ok", detail, "free some space: df -h" if low else "")


def _written(folder: Path) -> tuple[Path, str]:
    """The folder, or the nearest above it that is there; and why no file can be written into it, "" when one can."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there) as probe:
            probe.write(b"fleet")
            probe.flush()
    except OSError as error:
        return there, error.strerror or str(error)
    return there, ""


def _database(in_force: Settings) -> Iterator[Finding]:
    from fleet.inventory.database import Database, revisions

    database = Database(in_force.database)
    try:
        found, known = database.version(), revisions()
        if found is not None and found not in known:
            database.prepare()  # raises what every other command would say
        if found == known[-1]:
            with database.writing():
                pass  # it takes the writers' lock and gives it back
    finally:
        database.close()
    if found is None:
        trouble = _written(database.path.parent)[1] if database.dialect == "sqlite" else ""
        detail = f"{database.shown}: {trouble or 'empty, made on first use'}"
        hint = "name another with --db or FLEET_DB" if trouble else ""
        yield Finding("database", "failed" if trouble else "ok", detail, hint)
    elif found != known[-1]:
        yield Finding("database", "warning", f"{database.shown}: schema {found} of {known[-1]}", "fleet db upgrade")
    else:
        yield Finding("database", "ok", f"{database.shown}: schema {found}")


def _ssh_key(in_force: Settings) -> Iterator[Finding]:
    from fleet.remote import Ssh

    Ssh.of(in_force, {}).close()  # loads key and certificate, and reads the bastion's settings
    file = Path(in_force.ssh_key).expanduser() if in_force.ssh_key else None
    if file is not None and stat.S_IMODE(file.stat().st_mode) & 0o077:
        yield Finding("SSH key", "warning", f"{file} is open to others: ssh refuses it", f"chmod 600 {file}")
    else:
        yield Finding("SSH key", "ok", str(file or "the one in ~/.ssh"))


def _ansible(in_force: Settings) -> Iterator[Finding]:  # noqa: ARG001
    beside = Path(sys.executable).parent / "ansible-playbook"
    program = str(beside) if beside.is_file() else shutil.which("ansible-playbook")
    if program is None or importlib.util.find_spec("ansible_runner") is None:
        missing = "ansible-playbook" if program is None else "ansible-runner"
        yield Finding("Ansible", "failed", f"{missing} is not installed", "pip install ansible-core ansible-runner")
    elif shutil.which("ssh") is None:
        yield Finding("Ansible", "failed", "it needs the program ssh", "apt install openssh-client")
    else:
        try:
            version = importlib.metadata.version("ansible-core")
        except importlib.metadata.PackageNotFoundError:
            version = "of another Python"
        yield Finding("Ansible", "ok", f"ansible-core {version}, {program}")


def _vendors(in_force: Settings) -> Iterator[Finding]:
    import drivers
    import playbooks

    roots = [Path(playbooks.__file__).parent, *(Path(path) / "playbooks" for path in in_force.vendor_path)]
    known = drivers.vendors(in_force.vendor_path)
    lost = [name for name in known if not any((root / "roles" / name / "tasks").is_dir() for root in roots)]
    if lost:
        yield Finding(
            "vendors", "failed", f"no role for {', '.join(lost)}", "see CONTRIBUTING: a vendor is three folders"
        )
    else:
        yield Finding("vendors", "ok", ", ".join(known))
    for path in in_force.vendor_path:
        if not Path(path).is_dir():
            yield Finding("vendors", "warning", f"vendor_path names {path!r}, which is no folder", "fleet config show")


def _matrix(in_force: Settings) -> Iterator[Finding]:
    import compat_matrix

    matrix = compat_matrix.load(in_force.matrix_path, in_force.vendor_path)
    yield Finding("matrix", "ok", f"tables {matrix.digest.removeprefix('sha256:')[:12]}")


_CHECKS: dict[str, Callable[[Settings], Iterator[Finding]]] = {
    "state folder": _state_dir,
    "database": _database,
    "SSH key": _ssh_key,
    "Ansible": _ansible,
    "vendors": _vendors,
    "matrix": _matrix,
}
