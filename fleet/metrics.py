"""Metrics for Prometheus: what is stored, counted, as text; over HTTP by a controller, or in a file for an exporter.

Everything is read from the database when it is asked for, so any process gives the same figures and none is lost with
one. No label names a node. Rollouts that ended more than a day ago are left out. Format: text exposition 0.0.4.
"""

from __future__ import annotations

import contextlib
import http.server
import ipaddress
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from fleet import __version__
from fleet.core.budget import Limit
from fleet.core.errors import FleetError, UsageError
from fleet.core.move import FINISHED, RolloutState
from fleet.core.task import ENDS, STATES
from fleet.inventory import history
from fleet.inventory.forecast import PARALLEL, Forecast
from fleet.inventory.outbox import Outbox
from fleet.inventory.rollouts import Rollouts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PORT = 9436
SHOWN_S = 86400.0  # a rollout is shown for so long after its end, a controller after its last heartbeat
FRESH_S = 5.0  # two scrapes within this get the same text
STEPS_FRESH_S = 60.0  # the pass over all steps is made as often
FILE_S = 15.0  # between two writings of the file
TIMEOUT_S = 10.0  # for a client that says nothing
SEAT = "controller:"
_FINAL = ("done", "already", "failed", "stale")  # results that no later try changes: counters must not fall


@dataclass
class Family:
    """One metric: its samples as (suffix of the name, labels, value)."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    samples: list[tuple[str, Mapping[str, str], float]] = field(default_factory=list)

    def add(self, value: float, suffix: str = "", **labels: str) -> None:
        """One sample."""
        self.samples.append((suffix, labels, value))


def render(families: list[Family]) -> str:
    """The text of those metrics."""
    lines = []
    for family in families:
        if family.samples:
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
        for suffix, labels, value in family.samples:
            inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            number = str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
            lines.append(f"{family.name}{suffix}{f'{{{inside}}}' if inside else ''} {number}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Metrics:
    """The metrics of one database, as text."""

    def __init__(self, store: Rollouts, parallel: int = PARALLEL, clock: Callable[[], float] | None = None) -> None:
        self.store = store
        self.clock = clock or store.clock
        self.forecast = Forecast(store, parallel)
        self._guard = threading.Lock()
        self._text: tuple[float, str] | None = None
        self._steps: tuple[float, list[Family]] | None = None

    def text(self, *, fresh: bool = False) -> str:
        """As of now; or of some seconds ago when others ask as often, unless it must be `fresh`."""
        with self._guard:
            now = self.clock()
            if fresh or self._text is None or not 0 <= now - self._text[0] < FRESH_S:
                self._text = now, render(self.families(now))
            return self._text[1]

    def families(self, now: float) -> list[Family]:
        """All metrics at that moment."""
        build = Family("fleet_build_info", "gauge", "The release of fleet that counted this.")
        build.add(1, version=__version__)
        if self._steps is None or not 0 <= now - self._steps[0] < STEPS_FRESH_S:
            self._steps = now, self._of_steps()
        return [build, *self._of_rollouts(now), *self._steps[1], *self._of_service(now)]

    def _of_rollouts(self, now: float) -> list[Family]:
        database = self.store.database
        state = Family("fleet_rollout_state", "gauge", "1 for the state that a rollout is in.")
        driven = Family("fleet_rollout_driven", "gauge", "1 while a process drives the rollout.")
        nodes = Family("fleet_rollout_nodes", "gauge", "Nodes of a rollout by state.")
        failures = Family("fleet_rollout_failures", "gauge", "Nodes that failed, or go back because they did.")
        overdue = Family("fleet_rollout_overdue_nodes", "gauge", "Nodes past the limit of their state.")
        age = Family("fleet_rollout_state_age_seconds", "gauge", "How long a node has been in a state, at the most.")
        eta = Family("fleet_rollout_eta_seconds", "gauge", "Estimated seconds to the end, where durations are known.")
        claimed = Family(
            "fleet_budget_claimed_nodes",
            "gauge",
            "Nodes that rollouts have taken out, in the fullest domain of a kind.",
        )
        limit = Family("fleet_budget_limit_nodes", "gauge", "Nodes that may be out at once in that domain.")
        rollouts = history.recent(database, history.iso(now - SHOWN_S))
        names = [row.id for row in rollouts]
        counts, failing = history.states(database, names), history.failing(database, names)
        late: dict[str, int] = {}
        for of, _ in history.overdue(database, now):
            late[of] = late.get(of, 0) + 1
        for row in rollouts:
            for name in get_args(RolloutState):
                state.add(row.state == name, rollout=row.id, state=name)
            for known in dict.fromkeys((*STATES, *counts[row.id])):
                count, since = counts[row.id].get(known, (0, 0.0))
                nodes.add(count, rollout=row.id, state=known)
                if since and known not in ENDS and not row.finished:
                    age.add(max(0.0, now - since), rollout=row.id, state=known)
            failures.add(failing.get(row.id, 0), rollout=row.id)
            overdue.add(late.get(row.id, 0), rollout=row.id)
            driven.add(bool(row.owner) and row.until > now, rollout=row.id)
            if not row.finished:
                found = self.forecast.of(row.plan, row.state, history.standing(database, row.id), now)
                if found.seconds is not None:
                    eta.add(found.seconds, rollout=row.id)
        open_ = [row for row in rollouts if row.state not in FINISHED]
        for of, kinds in history.claims(database, open_).items():
            for kind in kinds:
                claimed.add(kind.claimed, rollout=of, kind=kind.kind)
                limit.add(Limit.parse(kind.limit).of(kind.total), rollout=of, kind=kind.kind)
        return [state, driven, nodes, failures, overdue, age, eta, claimed, limit]

    def _of_steps(self) -> list[Family]:
        total = Family("fleet_steps_total", "counter", "Steps that ended, by phase and result.")
        took = Family("fleet_step_duration_seconds", "histogram", "How long steps took that were done or failed.")
        for counts in history.steps(self.store.database):
            for result in _FINAL:
                total.add(counts.results.get(result, 0), phase=counts.phase, result=result)
            for edge, number in zip(history.BUCKETS, counts.buckets, strict=True):
                took.add(number, "_bucket", phase=counts.phase, le=f"{edge:g}")
            took.add(counts.ended, "_bucket", phase=counts.phase, le="+Inf")
            took.add(counts.seconds, "_sum", phase=counts.phase)
            took.add(counts.ended, "_count", phase=counts.phase)
        return [total, took]

    def _of_service(self, now: float) -> list[Family]:
        beat = Family("fleet_controller_heartbeat_age_seconds", "gauge", "Since a controller was last heard of.")
        for name, (at, _) in sorted(self.store.heartbeats().items()):
            if name.startswith(SEAT) and now - at < SHOWN_S:
                beat.add(max(0.0, now - at), controller=name.removeprefix(SEAT))
        depth = Outbox(self.store.database, lambda: now).depth()
        waiting = Family("fleet_notifications_waiting", "gauge", "Events that the webhook has not taken yet.")
        waiting.add(depth.waiting)
        oldest = Family("fleet_notifications_oldest_seconds", "gauge", "Age of the oldest event that waits.")
        oldest.add(depth.oldest_s)
        lost = Family("fleet_notifications_given_up", "gauge", "Events that were given up, and are kept for a month.")
        lost.add(depth.given_up)
        return [beat, waiting, oldest, lost]


def write(path: Path, text: str) -> None:
    """Replace the file in one step, readable for all. FleetError when that fails."""
    part = ""
    try:
        handle, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        Path(part).replace(path)
    except OSError as error:
        if part:
            with contextlib.suppress(OSError):
                Path(part).unlink()
        raise FleetError(
            "the file for metrics cannot be written", where=str(path), cause=error.strerror or str(error),
            hint="mend its folder, or the setting metrics_file", slug="metrics-file",
        ) from error  # fmt: skip


def address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `:PORT`, `PORT` or `HOST`; loopback and `PORT` where nothing is said. UsageError otherwise."""
    host, colon, port = text.strip().rpartition(":")
    if not colon:
        host, port = ("", port) if port.isdigit() else (port, str(PORT))
    elif host.endswith(":") or (":" in host and not host.startswith("[")):
        host, port = text.strip(), str(PORT)  # an IPv6 address without a port
    host = host.removeprefix("[").removesuffix("]")
    if not port.isascii() or not port.isdigit() or not 0 <= int(port) <= 65535 or any(c.isspace() for c in host):
        raise UsageError(
            f"metrics cannot be given at {text!r}", hint=f"HOST:PORT, such as 127.0.0.1:{PORT}",
            slug="bad-metrics-address",
        )  # fmt: skip
    return host or "127.0.0.1", int(port)


def _family_of(host: str) -> socket.AddressFamily:
    with contextlib.suppress(ValueError):
        return socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    return socket.AF_INET


@contextmanager
def serving(metrics: Metrics, at: tuple[str, int]) -> Iterator[int]:
    """While this lasts, `GET /metrics` answers there; the port. UsageError when it cannot be listened on."""

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = TIMEOUT_S
        server_version, sys_version = f"fleet/{__version__}", ""

        def do_GET(self) -> None:
            status, kind, text = 404, "text/plain; charset=utf-8", "see /metrics\n"
            if self.path.partition("?")[0] == "/metrics":
                try:
                    status, kind, text = 200, CONTENT_TYPE, metrics.text()
                except FleetError as error:  # the database is away: the scrape fails, and the alert is on that
                    status, text = 503, f"{error.what}\n"
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        address_family = _family_of(at[0])
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a client that went away

    try:
        server = Server(at, Handler)
    except OSError as error:
        raise UsageError(
            f"metrics cannot be given at {at[0]}:{at[1]}", cause=error.strerror or str(error),
            hint="take another port, or end what listens there", slug="bad-metrics-address",
        ) from error  # fmt: skip
    thread = threading.Thread(target=server.serve_forever, args=(0.2,), name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def kept(metrics: Metrics, path: Path, say: Callable[[str], None], every_s: float = FILE_S) -> Iterator[None]:
    """While this lasts, the file is written every so often, and once more at the end."""
    stop = threading.Event()
    trouble = [""]

    def once() -> None:
        try:
            write(path, metrics.text(fresh=True))
            trouble[0] = ""
        except Exception as error:  # the disk or the database is away: the exporter shows the age of the file
            said = f"{error.what}: {error.cause}" if isinstance(error, FleetError) else repr(error)
            if said != trouble[0]:
                say(f"metrics: {said}")
            trouble[0] = said

    def run() -> None:
        while True:
            once()
            if stop.wait(every_s):
                return

    thread = threading.Thread(target=run, name="metrics-file", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        once()
