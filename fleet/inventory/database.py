"""The door to the database: two engines, transactions, the schema's version, and errors in the operator's words.

Measured on four processes that read and then write one SQLite file: a plain BEGIN fails with "database is locked" on
a quarter of the transactions in spite of a busy timeout, because a read lock cannot be raised while another waits;
BEGIN IMMEDIATE fails on none. So writing and reading are separate engines. On PostgreSQL a writing transaction takes
one advisory lock, which gives the same promise: what a writer read is still true when it writes.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, event, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError

from fleet.core import errors
from fleet.core.model import canonical

CHUNK = 1000  # rows for one executemany
WRITER_LOCK = 0x666C6565  # the advisory lock of writers, "flee"
ASLEEP_MS = 15_000  # how long a process may sleep inside a transaction: half a lease
MIGRATIONS = Path(__file__).parent / "migrations"
_open: weakref.WeakSet[Database] = weakref.WeakSet()


def revisions() -> list[str]:
    """The schema versions this program knows, oldest first, by the names of the migration files: `0001`, `0002`, …"""
    names = (re.fullmatch(r"(\d{4})_\w+\.py", file.name) for file in (MIGRATIONS / "versions").iterdir())
    return sorted(match[1] for match in names if match)


class Database:
    """One database by its URL. Nothing is opened before the first transaction.

    Raises UsageError for a URL that names no database fleet can use.
    """

    def __init__(self, url: str) -> None:
        self.url = _checked(url)
        self.dialect = self.url.get_backend_name()
        hidden = {key: "***" for key in self.url.query if "password" in key.lower()}
        self.shown = self.url.update_query_dict(hidden).render_as_string(hide_password=True)
        # hide_parameters: an error must not print a thousand bound rows, nor the secrets that may be in them.
        more: dict[str, Any] = {"hide_parameters": True, "json_serializer": canonical}
        reading: dict[str, Any] = {}
        if self.dialect == "postgresql":
            more["pool_pre_ping"] = True  # a server that was restarted between two transactions is no error
            reading = {"isolation_level": "REPEATABLE READ", "execution_options": {"postgresql_readonly": True}}
        try:
            self.write_engine = create_engine(self.url, **more)
            self.read_engine = create_engine(self.url, **more, **reading)
        except ImportError as error:
            raise errors.UsageError(
                "this database needs the psycopg package", where=self.shown, cause=str(error),
                hint="pip install 'accelfleet[postgresql]'", slug="database-url",
            ) from error  # fmt: skip
        if self.dialect == "sqlite":
            _sqlite_engine(self.write_engine, "BEGIN IMMEDIATE", foreign_keys=True)
            _sqlite_engine(self.read_engine, "BEGIN", foreign_keys=True, query_only=True)
        else:
            _wakeful(self.write_engine)
        _open.add(self)

    def close(self) -> None:
        """Close every connection."""
        self.write_engine.dispose()
        self.read_engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One read transaction: all its statements see the same moment, and none can write."""
        with self._told(), self.read_engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One write transaction, alone among writers; committed at the end, rolled back by an exception."""
        with self._told(), self.write_engine.begin() as connection:
            if self.dialect == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": WRITER_LOCK})
            yield connection

    # --- schema ---------------------------------------------------------------------------------------------------

    def version(self) -> str | None:
        """The schema's version; None in an empty database. Raises FleetError when the tables are not fleet's."""
        if self.dialect == "sqlite" and not self.path.exists():
            return None
        with self.reading() as connection:
            return _version(connection)

    @property
    def path(self) -> Path:
        """The SQLite file."""
        return Path(self.url.database or "")

    def prepare(self) -> None:
        """Make the database usable: create it when empty, migrate an older SQLite file.

        An older PostgreSQL schema is left to `fleet db upgrade`, since other controllers may be using it. Raises
        FleetError when the schema is newer than this program.
        """
        known = revisions()
        found = self.version()
        if found == known[-1]:
            return
        self._refuse_newer(found)
        if found is not None and self.dialect != "sqlite":
            raise errors.FleetError(
                f"the database has schema {found}, this program needs {known[-1]}", where=self.shown,
                hint="fleet db upgrade", slug="database-older",
            )  # fmt: skip
        self.upgrade()

    def upgrade(self, to: str = "head") -> None:
        """Migrate to a schema version. Safe against a second process that does the same at the same time."""
        if self.dialect == "sqlite":
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise errors.FleetError(
                    "the folder of the database cannot be made", where=str(self.path.parent), cause=str(error),
                    hint="name another with --state-dir or --db", slug="database-unreachable",
                ) from error  # fmt: skip
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        # Altering a table on SQLite drops the old copy, and a drop deletes by foreign keys: they must be off meanwhile.
        engine = create_engine(self.url, hide_parameters=True)
        if self.dialect == "sqlite":
            _sqlite_engine(engine, "BEGIN IMMEDIATE", foreign_keys=False)
        try:
            with self._told(), engine.begin() as connection:
                if self.dialect == "postgresql":
                    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": WRITER_LOCK})
                self._refuse_newer(_version(connection))
                config.attributes["connection"] = connection
                command.upgrade(config, to)
                if self.dialect == "sqlite" and connection.execute(text("PRAGMA foreign_key_check")).first():
                    raise errors.FleetError("the migration broke a reference between rows", where=self.shown)
        finally:
            engine.dispose()

    def _refuse_newer(self, found: str | None) -> None:
        known = revisions()
        if found is not None and found not in known:
            raise errors.FleetError(
                f"the database has schema {found!r}, this program knows up to {known[-1]}", where=self.shown,
                hint="use the fleet release that wrote this database, or a later one", slug="database-newer",
            )  # fmt: skip

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn a database error into one sentence."""
        try:
            yield
        except DBAPIError as error:
            raise _told(error, self.shown) from error


def upsert(
    connection: Connection,
    table: Table,
    rows: Iterable[Mapping[str, Any]],
    key: Sequence[str],
    *,
    replace: bool = True,
) -> None:
    """Insert `rows`; where a row of that `key` is there, replace its other columns, or with `replace=False` keep it.

    All rows name the same columns.
    """
    batch = list(rows)
    if not batch:
        return
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = insert(table)
    others = {name: statement.excluded[name] for name in batch[0] if name not in key}
    full = (
        statement.on_conflict_do_update(index_elements=list(key), set_=others)
        if others and replace
        else statement.on_conflict_do_nothing(index_elements=list(key))
    )
    for chunk in chunks(batch):
        connection.execute(full, [dict(row) for row in chunk])


def chunks(items: Sequence[Any], size: int = CHUNK) -> Iterator[Sequence[Any]]:
    """The items in runs of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _checked(url: str) -> URL:
    hint = "sqlite:////path/to/inventory.db or postgresql://user@host/database"
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name() if parsed.drivername != "postgres" else "postgresql"
    except (ArgumentError, NoSuchModuleError) as error:
        raise errors.UsageError("not a database URL", cause=str(error), hint=hint, slug="database-url") from error
    if backend == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise errors.UsageError("the SQLite database needs a file", where=url, hint=hint, slug="database-url")
        return parsed
    if backend != "postgresql":
        raise errors.UsageError(f"databases of kind {backend!r} are not supported", hint=hint, slug="database-url")
    return parsed.set(drivername="postgresql+psycopg") if parsed.drivername in {"postgres", "postgresql"} else parsed


def _sqlite_engine(engine: Engine, begin: str, *, foreign_keys: bool, query_only: bool = False) -> None:
    """PRAGMAs for each connection, and `begin` in place of what the driver would send."""

    @event.listens_for(engine, "connect")
    def _connect(raw: Any, _record: Any) -> None:
        raw.isolation_level = None  # the driver sends no BEGIN of its own
        cursor = raw.cursor()
        cursor.execute("PRAGMA busy_timeout=10000")
        if not query_only:
            cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute(f"PRAGMA foreign_keys={'ON' if foreign_keys else 'OFF'}")
        if query_only:
            cursor.execute("PRAGMA query_only=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)


def _wakeful(engine: Engine) -> None:
    """Have the PostgreSQL server end a writing transaction whose process does nothing; a rule of the site's stays.

    A controller that is stopped, or whose host is cut off, in the midst of one would keep all others from writing.
    """

    @event.listens_for(engine, "connect")
    def _connect(raw: Any, _record: Any) -> None:
        with raw.cursor() as cursor:
            cursor.execute(
                "SELECT set_config(name, %s, false) FROM pg_settings"
                " WHERE name = 'idle_in_transaction_session_timeout' AND setting = '0'",
                (str(ASLEEP_MS),),
            )
        raw.commit()


def _version(connection: Connection) -> str | None:
    """The row that alembic keeps, read without importing alembic."""
    if connection.dialect.name == "sqlite":
        listing = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    else:
        listing = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
    names = {row[0] for row in connection.execute(text(listing))}
    if "alembic_version" in names:
        row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
        if row is not None:
            return str(row[0])
    if names & {"node", "label", "fact_current"} or (
        names - {"alembic_version"} and connection.dialect.name == "sqlite"
    ):
        raise errors.FleetError(
            "the database holds tables that are not fleet's", where=str(connection.engine.url.database),
            hint="give fleet a database of its own with --db", slug="database-foreign",
        )  # fmt: skip
    return None


# What the engine says -> (slug, what, hint).
_SAYINGS: tuple[tuple[str, str, str, str], ...] = (
    ("disk is full", "database-full", "the disk of the database is full", "free some space, then run it again"),
    ("No space left", "database-full", "the disk of the database is full", "free some space, then run it again"),
    ("disk I/O error", "database-full", "the disk of the database failed or is full", "look at df and dmesg"),
    ("readonly database", "database-read-only", "the database cannot be written by this user",
     "check owner and mode of the file and its folder, or name another with --db"),
    ("read-only transaction", "database-read-only", "the database accepts no writes",
     "connect to the primary server, with a role that may write"),
    ("permission denied for", "database-read-only", "this database role may not do that", "grant it the right"),
    ("unable to open database file", "database-read-only",
     "the database file cannot be opened: it and its folder must be writable, also for reading",
     "check owner and mode of the folder, and whether its file system is mounted read-only"),
    ("idle-in-transaction", "database-unreachable",
     "the server ended a transaction in which this process did nothing for too long", "run it again"),
    ("database is locked", "database-locked", "another process has held the database for more than 10 s",
     "wait for it, then run it again"),
    ("file is not a database", "database-foreign", "the file is no SQLite database", "name another with --db"),
    ("malformed", "database-damaged", "the database file is damaged", "restore it from a copy"),
)  # fmt: skip


def _told(error: DBAPIError, where: str) -> errors.FleetError:
    said = str(error.orig).strip()
    for part, slug, what, hint in _SAYINGS:
        if part in said:
            kind = errors.Locked if slug == "database-locked" else errors.FleetError
            return kind(what, where=where, cause=said, hint=hint, slug=slug)
    if isinstance(error, OperationalError):
        return errors.FleetError(
            "the database cannot be reached", where=where, cause=said,
            hint="check the URL (--db, FLEET_DB) and that the server runs", slug="database-unreachable",
        )  # fmt: skip
    return errors.FleetError("the database refused a statement", where=where, cause=said, slug="database-refused")


def _after_fork() -> None:
    # A connection shared with the parent would corrupt both; the child opens its own.
    for database in list(_open):
        database.write_engine.dispose(close=False)
        database.read_engine.dispose(close=False)


os.register_at_fork(after_in_child=_after_fork)
