"""A real PostgreSQL server on loopback for tests, and what a killed test run left of one is cleaned up.

Use: `from tests.postgresql import postgresql_server, postgresql_url` in a conftest.py; `postgresql_url` is a fresh,
empty database for each test.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

PREFIX = "fleet-test-postgresql-"
LIMIT_S = 60


class Server:
    """One server process in a folder of its own. `start` after `stop` or `kill` brings the same data back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        # The server refuses to run as root; the folder must then belong to the account that Debian's package makes.
        self.user = "postgres" if os.geteuid() == 0 else None

    def create(self) -> None:
        """Make the data folder."""
        if self.user is not None:
            account = pwd.getpwnam(self.user)
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        done = self._run(
            "initdb", "-D", str(self.data), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync", "-N"
        )
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed: {done.stderr.decode(errors='replace')[-2000:]}")

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = {
            "listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": str(self.folder),
            "fsync": "off", "full_page_writes": "off", "max_connections": "60", "shared_buffers": "32MB",
        }  # fmt: skip
        argv = [str(_binary("postgres")), "-D", str(self.data)]
        for key, value in options.items():
            argv += ["-c", f"{key}={value}"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder, start_new_session=True,
                **self._as_user(),  # type: ignore[call-overload]
            )  # fmt: skip
        end = time.monotonic() + LIMIT_S
        while True:
            try:
                psycopg.connect(self.dsn("postgres"), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError((self.folder / "log").read_text(errors="replace")[-2000:]) from None
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop: SIGINT is the fast shutdown, SIGQUIT the immediate one that loses what was under way."""
        if self.process is not None:
            self.process.send_signal(how)
            try:
                self.process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def restart(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """What a crash or a package upgrade of the server looks like to its clients."""
        self.stop(how)
        self.start()

    def dsn(self, database: str) -> str:
        """For psycopg."""
        return f"host=127.0.0.1 port={self.port} user=postgres dbname={database}"

    def url(self, database: str) -> str:
        """For fleet: FLEET_DB, --db."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def make(self) -> str:
        """Create an empty database and return its name."""
        name = f"t{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')  # type: ignore[call-overload,unused-ignore]
        return name

    def drop(self, name: str) -> None:
        """Drop a database, whoever is connected."""
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')  # type: ignore[call-overload,unused-ignore]

    def _as_user(self) -> dict[str, object]:
        if self.user is None:
            return {}
        return {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []}

    def _run(self, program: str, *args: str) -> subprocess.CompletedProcess[bytes]:
        done: subprocess.CompletedProcess[bytes] = subprocess.run(
            [str(_binary(program)), *args], capture_output=True, check=False, cwd=self.folder, timeout=LIMIT_S,
            **self._as_user(),  # type: ignore[call-overload]
        )  # fmt: skip
        return done


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Server]:
    """One server for the test session."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    (folder / "owner.json").write_text(json.dumps({"pid": os.getpid(), "start": started(os.getpid())}))
    server = Server(folder)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgresql_url(postgresql_server: Server) -> Iterator[str]:
    """The URL of an empty database."""
    name = postgresql_server.make()
    yield postgresql_server.url(name)
    postgresql_server.drop(name)


def _binary(name: str) -> Path:
    """The newest installed server's program; Debian keeps them off the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1]
    beside = shutil.which(name)
    if beside is None:
        raise FileNotFoundError(f"{name} is not installed: apt-get install postgresql")
    return Path(beside)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def started(pid: int) -> str:
    """When a process started, in clock ticks since boot; "" = there is none. Tells it from a later one of that pid."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    except (OSError, IndexError):
        return ""


def sweep() -> None:
    """End the servers of test runs that are gone, and remove their folders."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            owner = json.loads((folder / "owner.json").read_text())
        except (OSError, ValueError):
            continue  # being made this moment, or not ours to judge
        if started(owner["pid"]) == owner["start"]:
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int((folder / "data" / "postmaster.pid").read_text().split()[0])
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if str(folder / "data").encode() in command:
                os.kill(pid, signal.SIGQUIT)
                end = time.monotonic() + 10
                while started(pid) and time.monotonic() < end:
                    time.sleep(0.05)
        shutil.rmtree(folder, ignore_errors=True)
