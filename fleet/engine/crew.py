"""A crew: an event loop in a thread of its own, in which rollouts wait, and workers, in which their ticks block."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from fleet.engine import Ended

WORKERS = 8  # a tick waits a second at most for a step to end; more rollouts at once have their ticks a little later
P = ParamSpec("P")
R = TypeVar("R")


class Crew:
    """Runs coroutines; what blocks is given to a worker by `do`."""

    def __init__(self, workers: int = WORKERS) -> None:
        self._loop = asyncio.new_event_loop()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="tick")
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, R]) -> Future[R]:
        """Run a coroutine; what it comes to. From any thread but the loop's own, if the answer is waited for."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def begin(self, work: Coroutine[Any, Any, None], ended: Ended) -> None:
        """Run a coroutine; `ended` is called with what it ran into."""
        self.start(work).add_done_callback(lambda future: ended(failure(future)))

    def call(self, what: Callable[[], None]) -> None:
        """Do that in the loop, from any thread; nothing happens when the crew is gone."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what)

    async def do(self, what: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do what blocks in a worker. What a thread does cannot be called off: a cancelled wait goes on to its end."""
        future = self._loop.run_in_executor(self._pool, lambda: what(*args, **kwargs))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            while not future.done():
                with contextlib.suppress(asyncio.CancelledError):  # asked again meanwhile
                    await asyncio.wait([future])
            raise

    def close(self, limit_s: float | None = None) -> None:
        """Cancel what runs, wait for the ticks under way, and end the threads; what takes longer is left behind."""
        ended = self.start(self._cancelled(limit_s)).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        if ended:
            self._loop.close()
        self._pool.shutdown(wait=ended)

    async def _cancelled(self, limit_s: float | None) -> bool:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if not others:
            return True
        ended, left = await asyncio.wait(others, timeout=limit_s)
        await asyncio.gather(*ended, return_exceptions=True)  # what they ran into was told to whoever began them
        return not left


def failure(future: Future[Any]) -> Exception | None:
    """What a coroutine that has ended ran into; None also for one that was cancelled, since nobody is owed its end."""
    error = None if future.cancelled() else future.exception()
    return error if isinstance(error, Exception) else None
