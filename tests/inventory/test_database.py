"""The database itself: schema versions, several processes at once, and the day the disk is full."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import event, insert, text

from fleet.core.errors import FleetError, UsageError
from fleet.core.model import Node
from fleet.inventory import Database, open_inventory
from fleet.inventory.database import revisions
from fleet.inventory.store import BASELINE, LABEL, NODE
from fleet.inventory.tables import metadata
from tests.postgresql import Server

ROOT = Path(__file__).parents[2]
PROCESSES, TURNS = 4, 50


def test_revisions_are_one_line_without_gaps() -> None:
    assert revisions() == [f"{number:04}" for number in range(1, len(revisions()) + 1)]


@pytest.mark.parametrize("start", revisions())
def test_every_revision_upgrades_to_the_tables_of_today(url: str, start: str) -> None:
    database = Database(url)
    database.upgrade(start)
    assert database.version() == start
    with database.writing() as connection:
        row = dict.fromkeys(NODE.columns.keys(), "") | {"name": "gpu1", "port": 22}
        connection.execute(insert(NODE), [row])
        connection.execute(insert(LABEL), [{"node": "gpu1", "key": "a", "value": "b"}])
    database.upgrade()
    assert database.version() == revisions()[-1]
    with database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata()) == []
        assert connection.execute(text("SELECT value FROM label WHERE node = 'gpu1'")).scalar() == "b"
    database.close()


def test_an_older_sqlite_file_is_migrated_on_first_use(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/x.db")
    database.upgrade(revisions()[0])
    database.close()
    opened = open_inventory(f"sqlite:///{tmp_path}/x.db")
    assert opened.database.version() == revisions()[-1]
    opened.close()


@pytest.mark.postgresql
def test_an_older_postgresql_schema_waits_for_the_operator(postgresql_url: str) -> None:
    if len(revisions()) == 1:
        pytest.fail("this needs two revisions")
    database = Database(postgresql_url)
    database.upgrade(revisions()[0])
    with pytest.raises(FleetError) as caught:
        open_inventory(postgresql_url)
    assert (caught.value.slug, caught.value.hint) == ("database-older", "fleet db upgrade")
    database.upgrade()
    open_inventory(postgresql_url).close()
    database.close()


def test_a_newer_schema_is_refused_and_left_alone(url: str) -> None:
    opened = open_inventory(url)
    with opened.database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for act in (lambda: open_inventory(url), opened.database.upgrade):
        with pytest.raises(FleetError) as caught:
            act()
        assert caught.value.slug == "database-newer" and "9999" in caught.value.what
    assert opened.database.version() == "9999"
    opened.close()


# --- several processes ----------------------------------------------------------------------------------------------

COUNTER = """
import sys
from sqlalchemy import text
from fleet.core.model import Node
from fleet.inventory import open_inventory
inventory = open_inventory(sys.argv[1])
for turn in range(int(sys.argv[2])):
    with inventory.database.writing() as connection:
        port = connection.execute(text("SELECT port FROM node WHERE name = 'counter'")).scalar()
        connection.execute(text("UPDATE node SET port = :port WHERE name = 'counter'"), {"port": port + 1})
"""


def test_processes_that_read_and_then_write_lose_nothing(url: str) -> None:
    opened = open_inventory(url)
    opened.add([Node("counter", "counter", port=0)])
    runs = [
        subprocess.Popen([sys.executable, "-c", COUNTER, url, str(TURNS)], stderr=subprocess.PIPE, cwd=ROOT)
        for _ in range(PROCESSES)
    ]
    errors = [run.communicate(timeout=120)[1].decode() for run in runs]
    assert errors == [""] * PROCESSES
    assert opened.node("counter").port == PROCESSES * TURNS
    opened.close()


def test_processes_may_all_be_the_first(url: str) -> None:
    script = "import sys; from fleet.inventory import open_inventory; open_inventory(sys.argv[1]).nodes()"
    runs = [
        subprocess.Popen([sys.executable, "-c", script, url], stderr=subprocess.PIPE, cwd=ROOT)
        for _ in range(PROCESSES)
    ]
    assert [run.communicate(timeout=120)[1].decode() for run in runs] == [""] * PROCESSES


def test_a_child_process_opens_its_own_connections(url: str) -> None:
    opened = open_inventory(url)
    opened.add([Node("gpu1", "gpu1")])
    child = os.fork()
    if child == 0:  # the child must not return into pytest
        status = 1
        try:
            opened.label(["gpu1"], {"from": "child"})
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    opened.label(["gpu1"], {"then": "parent"})
    assert opened.node("gpu1").labels == {"from": "child", "then": "parent"}
    opened.close()


def test_a_failed_change_is_rolled_back(url: str) -> None:
    opened = open_inventory(url)
    with pytest.raises(RuntimeError), opened.database.writing() as connection:
        row = {"name": "b", "vendor": "", "model": "", "stack": {}, "who": "", "at": ""}
        connection.execute(insert(BASELINE), [row])
        raise RuntimeError
    assert opened.baselines() == {}
    opened.close()


# --- bad days -------------------------------------------------------------------------------------------------------


def test_a_full_disk_is_one_clear_error_and_loses_nothing(tmp_path: Path) -> None:
    opened = open_inventory(f"sqlite:///{tmp_path}/x.db")
    opened.add([Node("gpu1", "gpu1")])
    opened.database.write_engine.dispose()

    @event.listens_for(opened.database.write_engine, "connect")
    def _small(raw: sqlite3.Connection, _record: object) -> None:
        pages = raw.execute("PRAGMA page_count").fetchone()[0]
        raw.execute(f"PRAGMA max_page_count={pages + 2}")

    with pytest.raises(FleetError) as caught:
        opened.add([Node(f"gpu{n}", "x" * 200) for n in range(2, 5000)])
    assert caught.value.slug == "database-full"
    assert "xxx" not in f"{caught.value.what} {caught.value.cause}"  # no bound values in a message
    assert [node.name for node in opened.nodes()] == ["gpu1"]
    opened.close()


READ_ONLY = """
import os, sys
from fleet.core.errors import FleetError
from fleet.core.model import Node
from fleet.inventory import open_inventory
open_inventory(sys.argv[1]).nodes()  # everything is imported now: another user may not be able to read the modules
if os.geteuid() == 0:
    os.setgroups([]); os.setegid(65534); os.seteuid(65534)
try:
    inventory = open_inventory(sys.argv[2])
    print([node.name for node in inventory.nodes()])
    inventory.add([Node("gpu2", "gpu2")])
except FleetError as error:
    print(error.slug)
"""


@pytest.mark.parametrize(
    ("in_use", "said"), [(True, ["['gpu1']", "database-read-only", ""]), (False, ["database-read-only", ""])]
)
def test_a_read_only_database_says_so(tmp_path: Path, in_use: bool, said: list[str]) -> None:
    # SQLite can read a WAL database in a folder it cannot write only while somebody else has it open.
    with tempfile.TemporaryDirectory(prefix="fleet-test-read-only-") as folder:  # tmp_path is closed to other users
        file = Path(folder) / "x.db"
        opened = open_inventory(f"sqlite:///{file}")
        opened.add([Node("gpu1", "gpu1")])
        if not in_use:
            opened.close()
        file.chmod(0o444)
        Path(folder).chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, f"sqlite:///{tmp_path}/warm.db", f"sqlite:///{file}"],
            capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
        Path(folder).chmod(0o755)
        opened.close()
    assert (done.stdout.split("\n"), done.stderr) == (said, "")


@pytest.mark.parametrize(
    ("url", "slug"),
    [
        ("mysql://h/x", "database-url"),
        ("nonsense", "database-url"),
        ("sqlite://", "database-url"),
        ("sqlite:///:memory:", "database-url"),
    ],
)
def test_a_url_that_cannot_be_used(url: str, slug: str) -> None:
    with pytest.raises(UsageError) as caught:
        Database(url)
    assert caught.value.slug == slug


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("this is a text file, and long enough to be looked at as a header of a database")
    with pytest.raises(FleetError) as caught:
        open_inventory(f"sqlite:///{tmp_path}/x.db")
    assert caught.value.slug == "database-foreign"


def test_a_database_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.db") as theirs:
        theirs.execute("CREATE TABLE songs (name TEXT)")
    with pytest.raises(FleetError) as caught:
        open_inventory(f"sqlite:///{tmp_path}/x.db")
    assert caught.value.slug == "database-foreign"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FleetError) as caught:
        open_inventory(f"sqlite:///{tmp_path}/file/x.db")
    assert caught.value.slug == "database-unreachable"


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(FleetError) as caught:
        open_inventory("postgresql://fleet:hunter2@127.0.0.1:1/x?connect_timeout=2")
    error = caught.value
    assert error.slug == "database-unreachable" and "127.0.0.1" in error.where
    assert "hunter2" not in f"{error.what} {error.where} {error.cause} {error.hint}"


@pytest.mark.postgresql
def test_a_server_that_was_restarted_is_found_again(postgresql_server: Server, postgresql_url: str) -> None:
    opened = open_inventory(postgresql_url)
    opened.add([Node("gpu1", "gpu1")])
    postgresql_server.restart()
    assert [node.name for node in opened.nodes()] == ["gpu1"]
    postgresql_server.restart()
    opened.label(["gpu1"], {"a": "b"})
    assert opened.node("gpu1").labels == {"a": "b"}
    opened.close()


def test_a_read_transaction_cannot_write_and_sees_one_moment(url: str) -> None:
    opened = open_inventory(url)
    opened.add([Node("gpu1", "gpu1")])
    with pytest.raises(FleetError), opened.database.reading() as connection:
        connection.execute(text("DELETE FROM node"))
    count = text("SELECT count(*) FROM node")
    with opened.database.reading() as connection:
        assert connection.execute(count).scalar() == 1
        opened.add([Node("gpu2", "gpu2")])
        assert connection.execute(count).scalar() == 1
    assert len(opened.nodes()) == 2
    opened.close()


@pytest.mark.postgresql
def test_a_role_that_may_only_read(postgresql_url: str) -> None:
    open_inventory(postgresql_url).close()
    opened = open_inventory(f"{postgresql_url}?options=-c%20default_transaction_read_only%3Don")
    assert opened.nodes() == []
    with pytest.raises(FleetError) as caught:
        opened.add([Node("gpu1", "gpu1")])
    assert caught.value.slug == "database-read-only"
    opened.close()
