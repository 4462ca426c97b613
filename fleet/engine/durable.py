"""The engine on DBOS Transact: what is owed is kept in a database of its own, and outlives the process that owes it.

The workflow is one call: drive this rollout until it rests, one tick after another, under a lease of our own tables.
It is a coroutine in an event loop of ours, which DBOS adopts because it is launched there: a waiting rollout holds no
thread. No tick is a recorded step: a recorded one would be replayed after a crash instead of being decided again from
the tables. So the engine's database holds ids only, and losing it costs nothing: `heal` finds in our tables what is
running and driven by nobody.

Only the MIT core is used: no Conductor, no auto-upgrade, no sharding, no private call. The core recovers the work of an
executor when that executor comes back under the same id and version; the work of one that stays dead is taken over
here, by list_workflows and resume_workflow. `PROTOCOL` is the application version: it is raised by hand when processes
of two versions of this program could not drive the same rollouts side by side.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import logging
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetWorkflowID, WorkflowStatus

from fleet.core.errors import FleetError, Locked
from fleet.engine import PROTOCOL, Ended, Running, Signal, Tick
from fleet.engine.crew import Crew
from fleet.engine.leases import TTL_S, LeaseEngine, gone, owner_here
from fleet.inventory.rollouts import Fenced, Rollouts

SCHEMA = "fleet_engine"
WORKFLOW = "fleet.rollout"
UNENDED = ["PENDING", "ENQUEUED", "DELAYED"]
ENDED = ["SUCCESS", "ERROR", "CANCELLED"]
KEPT_S = 7 * 86400.0  # how long the engine remembers what has ended: for whoever looks, since nothing needs it
DBOS_WORKERS = 4  # threads in which DBOS writes down what is owed and what has ended
WRITE_S = 5.0  # how long the end of this process waits for them
CLOSE_S = 30.0  # how long it waits for ticks under way, and for what asks a database that is away
LOOK_S = 0.2  # between two looks at a workflow that runs elsewhere
POOLS = ("dbos-executor-", "tick")  # how the names of DBOS's workers and ours begin
R = TypeVar("R")

_seats: dict[str, DurableEngine] = {}  # the engines of this process by their owner names
_under_way: set[str] = set()  # the workflows that this process executes
_executed: set[str] = set()  # these and those that have ended here: DBOS may not have written that down yet, or never
_ends: dict[str, asyncio.Future[Exception | None]] = {}  # those whose end somebody here waits for
_ending: set[asyncio.Task[object]] = set()  # those whose end DBOS is writing down
_before: set[threading.Thread] = set()  # the threads of this process when DBOS was launched
_behind: set[threading.Thread] = set()  # those that it has left
_crew: Crew | None = None  # of the one DBOS of this process
_launched: tuple[str, str, str] | None = None  # its (database, executor, protocol)


def engine_url(database: str) -> str:
    """Where the engine keeps its own rows: a file beside a SQLite inventory, a schema of a PostgreSQL one."""
    if database.startswith("sqlite"):
        return f"{database.removesuffix('.db')}-engine.db"
    return "postgresql+psycopg://" + database.partition("://")[2]


@DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)
async def _drive(rollout: str, owner: str) -> str:
    engine = _seats.get(owner) or next(iter(_seats.values()), None)
    return "nobody" if engine is None else await engine._run(rollout, str(DBOS.workflow_id))


def launch(url: str, executor: str, protocol: str = PROTOCOL) -> Crew:
    """Start the DBOS of this process; once. FleetError when it runs on another database or under another name."""
    global _launched, _crew
    wanted = (url, executor, protocol)
    if _launched == wanted and _crew is not None:
        return _crew
    if _launched is not None:
        raise FleetError(
            f"this process already runs the engine of {_launched[1]}", where=_launched[0], slug="engine-taken"
        )
    config: DBOSConfig = {
        "name": "fleet", "system_database_url": url, "dbos_system_schema": SCHEMA, "executor_id": executor,
        "application_version": protocol, "serializer": DBOSPortableJSONSerializer(), "log_level": "WARNING",
        "enable_otlp": False, "sys_db_pool_size": 5, "scheduler_polling_interval_sec": 600.0,
        "max_executor_threads": DBOS_WORKERS,
    }  # fmt: skip
    _before.update(threading.enumerate())
    DBOS(config=config)
    log = logging.getLogger("dbos")
    log.setLevel(logging.CRITICAL)  # what goes wrong at the launch is said below, in a sentence
    _crew = Crew()
    try:
        _crew.start(_launch()).result()
    except Exception as error:
        _crew.close()
        _crew = None
        DBOS.destroy()
        raise FleetError(
            "the engine's database cannot be used", where=url.rpartition("@")[2], cause=str(error).split("\n")[0],
            hint="remove it: the engine makes it anew, and nothing that counts is in it", slug="engine-database",
        ) from error  # fmt: skip
    finally:
        log.setLevel(logging.WARNING)
    _launched = wanted
    return _crew


async def _launch() -> None:
    DBOS.launch()  # with our loop running in this thread: DBOS gives it the workflows that it takes from its queue
    await DBOS.list_workflows_async(limit=1)  # the first such call gives the loop DBOS's own few threads


async def _written() -> None:
    """Wait for what DBOS is writing down, a little: it tries for ever while its database is away."""
    if _ending:
        await asyncio.wait(set(_ending), timeout=WRITE_S)


def shut(wait_s: int = 0) -> None:
    """End the DBOS of this process; what it has not finished stays owed, once its ticks under way have ended."""
    global _launched, _crew
    log = logging.getLogger("dbos")
    log.setLevel(logging.CRITICAL)  # each cancelled workflow would be told
    if _crew is not None:
        _crew.start(_written()).result()
        _crew.close(CLOSE_S)
    if _launched is not None:
        DBOS.destroy(workflow_completion_timeout_sec=wait_s)
        # The end of a process waits for workers of a pool, though they are daemons when a daemon has started them.
        _behind.update(t for t in set(threading.enumerate()) - _before if not t.daemon or t.name.startswith(POOLS))
    log.setLevel(logging.WARNING)
    _launched = _crew = None
    _seats.clear()
    _under_way.clear()
    _executed.clear()
    _ending.clear()
    _ends.clear()
    _before.clear()


def leave(status: int) -> None:
    """End the process, when threads that `shut` left behind do not: they ask for ever for a database that is away.

    To be called last, whatever has happened. Nothing is lost: what they would write down is found in our tables.
    """
    end = time.monotonic() + WRITE_S
    while any(thread.is_alive() for thread in _behind):
        if time.monotonic() >= end:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):  # a closed pipe
                    stream.flush()
            os._exit(status)
        time.sleep(0.05)


class DurableEngine:
    """Drives rollouts as durable workflows. `submit` returns when the rollout rests, or another process drives it.

    `executor` is this controller's stable name: after a restart under the same one, its work goes on by itself.
    """

    def __init__(
        self,
        store: Rollouts,
        tick: Tick,
        *,
        url: str,
        executor: str,
        owner: str = "",
        ttl_s: float = TTL_S,
        clock: Callable[[], float] | None = None,
        stop: threading.Event | None = None,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex[:12],
        protocol: str = PROTOCOL,
    ) -> None:
        self.store = store
        self.owner = owner or owner_here()
        self.executor = executor
        self.leases = LeaseEngine(store, tick, owner=self.owner, ttl_s=ttl_s, clock=clock, stop=stop)
        self.stop = self.leases.stop
        self.clock = self.leases.clock
        self.new_id = new_id
        self.protocol = protocol
        self._workflows: dict[str, str] = {}  # what is driven here, and the workflow that does
        _seats[self.owner] = self  # before the launch, which takes up what this executor left
        try:
            self._crew = launch(url, executor, protocol)
        except FleetError:
            del _seats[self.owner]  # else it would be given what another engine of this process takes up
            raise
        self.tidy()

    # --- the workflow's body --------------------------------------------------------------------------------------

    async def _run(self, rollout: str, workflow: str) -> str:
        assert _crew is not None  # it is in its loop that this runs
        _under_way.add(workflow)
        _executed.add(workflow)
        self._workflows.setdefault(rollout, workflow)
        ran_into: Exception | None = None
        try:
            await self.leases.carry(rollout, _crew)
        except Exception as error:
            ran_into = error
            return "fenced" if isinstance(error, Fenced) else "locked" if isinstance(error, Locked) else "failed"
        finally:
            _under_way.discard(workflow)
            task = asyncio.current_task()
            if task is not None:  # it is DBOS's own, which is done when the end is written down
                _ending.add(task)
                task.add_done_callback(_ending.discard)
            if self._workflows.get(rollout) == workflow:
                del self._workflows[rollout]
            end = _ends.get(workflow)
            if end is not None and not end.done():
                end.set_result(ran_into)
        return "rests"

    # --- the port -------------------------------------------------------------------------------------------------

    def submit(self, rollout: str) -> None:
        """See that the rollout is driven, here or by an heir of the workflow that was; return when that has ended.

        Raises Locked when a living process drives it, Fenced when one takes over, and whatever a tick raises.
        """
        if self.leases.drives(rollout):
            raise Locked(f"rollout {rollout} is being carried out by this process", slug="rollout-running")
        self.leases.uncancel(rollout)
        self._crew.start(self._carried(rollout)).result()

    def begin(self, rollout: str, ended: Ended) -> None:
        """As `submit`, without waiting; `ended` is called when it is over. What DBOS has taken up here is joined."""
        self.leases.uncancel(rollout)
        self._crew.begin(self._carried(rollout), ended)

    async def _carried(self, rollout: str) -> None:
        here = self._workflows.get(rollout)
        with contextlib.suppress(_Stopped):  # it is owed, and stays so
            if here is not None:
                await self._followed(here)
                return
            left = await self._answered(self._crew.do(self._left, rollout))
            if left is not None:
                workflow = left.workflow_id
                await self._answered(DBOS.resume_workflow_async(workflow))
            else:
                workflow = f"{rollout}/{self.new_id()}"
                _end_of(workflow)  # before the start: it may end at once
                with SetWorkflowID(workflow):
                    await self._answered(DBOS.start_workflow_async(_drive, rollout, self.owner))
            await self._followed(workflow)

    async def _answered(self, asked: Coroutine[Any, Any, R]) -> R:
        """What DBOS answers. _Stopped when none comes and this process is to end: it asks its database for ever."""
        task = asyncio.ensure_future(asked)
        while not task.done():
            stopping = self.stop.is_set()
            await asyncio.wait([task], timeout=WRITE_S if stopping else LOOK_S)
            if stopping and not task.done():
                task.cancel()
                raise _Stopped
        return task.result()

    def signal(self, rollout: str, signal: Signal) -> None:
        """Write the request into the rollout's row; its driver reads it at the next tick."""
        self.leases.signal(rollout, signal)

    def cancel(self, rollout: str) -> None:
        """Stop driving the rollout in this process after the current tick."""
        self.leases.cancel(rollout)

    def list(self) -> list[Running]:
        """Unfinished rollouts with their living driver."""
        return self.leases.list()

    def heal(self) -> Sequence[str]:
        """Take over, one after another, what is running and driven by nobody; end what the engine owes in vain."""
        self.tidy()
        running = {r.id for r in self.store.rollouts(unfinished=True) if r.state == "running"}
        taken = []
        for entry in self.list():
            if entry.owner == "" and entry.rollout in running and not self.stop.is_set():
                with contextlib.suppress(Locked):
                    self.submit(entry.rollout)
                    taken.append(entry.rollout)
        return taken

    # --- what a dead executor left --------------------------------------------------------------------------------

    def tidy(self, kept_s: float = KEPT_S) -> builtins.list[str]:
        """Cancel workflows of dead executors whose rollout no longer runs, or which another protocol began; their ids.

        The latter's rollouts lose nothing: they are begun anew from our tables. What ended longer than `kept_s` seconds
        ago is deleted.
        """
        running = {r.id for r in self.store.rollouts(unfinished=True) if r.state == "running"}
        ended, known, unended = [], set(_executed), self._unended()
        _executed.difference_update(known - _under_way - {status.workflow_id for status in unended})
        for status in unended:
            ours = status.app_version == self.protocol
            if self._dead(status) and (not ours or status.workflow_id.partition("/")[0] not in running):
                DBOS.cancel_workflow(status.workflow_id)
                ended.append(status.workflow_id)
        before = datetime.fromtimestamp(self.clock() - kept_s, UTC).isoformat()
        old = DBOS.list_workflows(
            status=ENDED, name=WORKFLOW, completed_before=before, limit=1000, load_input=False, load_output=False
        )
        DBOS.delete_workflows([status.workflow_id for status in old])
        return ended

    def _left(self, rollout: str) -> WorkflowStatus | None:
        """The workflow of that rollout whose executor is dead."""
        for status in self._unended(f"{rollout}/"):
            if status.app_version == self.protocol and self._dead(status):
                return status
        return None

    def _unended(self, prefix: str | None = None) -> builtins.list[WorkflowStatus]:
        return DBOS.list_workflows(
            status=UNENDED, name=WORKFLOW, workflow_id_prefix=prefix, load_input=False, load_output=False
        )

    def _dead(self, status: WorkflowStatus) -> bool:
        """Whether nobody executes that workflow: its executor is gone, or it is this one and knows nothing of it."""
        if status.status != "PENDING":
            return status.app_version != self.protocol  # a living executor of its protocol takes it from the queue
        if status.executor_id == self.executor:
            return status.workflow_id not in _executed and status.workflow_id not in _ends
        lease = self.store.leases().get(f"controller:{status.executor_id}")
        return lease is None or lease.owner == "" or lease.expires <= self.clock() or gone(lease.owner)

    async def _followed(self, workflow: str) -> None:
        """Wait until the workflow has ended, or a living executor other than this one has it.

        That it has ended here is known here: the engine's own database may be full or away, and not say so.
        """
        try:
            while not (end := _end_of(workflow)).done():  # another follower that gave up has taken the one before away
                if workflow not in _under_way:
                    status = await self._answered(self._crew.do(DBOS.get_workflow_status, workflow))
                    if end.done() or status is None or status.status not in UNENDED:
                        break
                    if status.status == "PENDING" and status.executor_id != self.executor:
                        return
                    if self.stop.is_set() and workflow not in _under_way:
                        return  # it is owed, and stays so
                await asyncio.wait([end], timeout=None if workflow in _under_way else LOOK_S)
        finally:
            _ends.pop(workflow, None)
        ran_into = end.result() if end.done() else None
        if ran_into is not None:
            raise ran_into


class _Stopped(Exception):  # no error: this process is to end
    """DBOS gives no answer."""


def _end_of(workflow: str) -> asyncio.Future[Exception | None]:
    """What that workflow will have run into when it ends here."""
    return _ends.setdefault(workflow, asyncio.get_running_loop().create_future())
