"""`fleet rollout watch` and `fleet rollout why`: a rollout as it moves, and what one of its nodes waits for."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import IO, TYPE_CHECKING

import click

from fleet.cli.output import document, emit, output_option, printable, say
from fleet.cli.selection import now, opened
from fleet.core import errors

if TYPE_CHECKING:
    from fleet.cli.live import Screen
    from fleet.core.estimate import Estimate
    from fleet.inventory.history import Head, View
    from fleet.inventory.rollouts import Rollouts

LOOK_S = 1.0
SIZE_S = 0.2  # between two looks at the size of the terminal
WHOLE_S = 60.0  # between two looks at all nodes, not only those that moved
SKEW_S = 30.0  # clocks of controllers may differ so much before a transition is told late
LOST_LOOKS = 60  # so many in a row nobody drives and no controller lives: after this the plain twin gives up
NAMES_S = 5.0  # between two looks at who the controllers are
NOTES = 3


@dataclass(frozen=True)
class Look:
    """What is seen at one moment."""

    view: View
    eta: Estimate
    driver: str
    now: float


class Observer:
    """Looks at one rollout, reading counts and what is shown; never all nodes.

    `here` is how to call the driver where this very process is about to be it.
    """

    def __init__(self, store: Rollouts, rollout: str, parallel: int, here: str = "") -> None:
        from fleet.inventory.forecast import Forecast

        self.store = store
        self.rollout = rollout
        self.here = here
        self.forecast = Forecast(store, parallel)
        self._names: tuple[float, dict[str, str]] | None = None

    def look(self, rows: int) -> Look:
        """All of it, with at most `rows` nodes under way and as many in trouble."""
        from fleet.inventory.history import view

        seen, at = view(self.store.database, self.rollout, rows), self.store.clock()
        eta = self.forecast.of(seen.head.plan, seen.head.state, seen.tallies, at)
        return Look(seen, eta, self.driver(seen.head, at), at)

    def driver(self, head: Head, at: float) -> str:
        """Who drives the rollout now, by the controller's name where it is one; "" for nobody."""
        from fleet.engine.leases import gone

        if self.here or not head.owner or head.until <= at or gone(head.owner):
            return self.here
        process = ":".join(head.owner.split(":")[:3])
        name = self._controllers(at).get(process)
        return f"controller {name}" if name else head.owner

    def alive(self) -> bool:
        """Whether any controller lives that could take the rollout up."""
        return bool(self._controllers(self.store.clock()))

    def _controllers(self, at: float) -> dict[str, str]:
        """host:pid:start -> name of the living controllers."""
        from fleet.controller import living

        if self._names is None or not 0 <= at - self._names[0] < NAMES_S:
            found = living(self.store, at)
            self._names = at, {":".join(c.owner.split(":")[:3]): c.name for c in found}
        return self._names[1]


def resting(head: Head, driver: str) -> bool:
    """Whether nothing more happens before a person acts."""
    return head.finished or (head.state == "paused" and head.request != "abort" and not driver)


# --- lines ------------------------------------------------------------------------------------------------------------


def tell(
    observer: Observer,
    out: Callable[[str], None],
    *,
    look_s: float = LOOK_S,
    lost_looks: int = LOST_LOOKS,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """One line a transition until the rollout rests. FleetError when nobody is left to drive it."""
    from fleet.cli.driving import line
    from fleet.cli.live import counted, said
    from fleet.engine.stint import AWAY
    from fleet.inventory import history
    from fleet.telling import Transition

    database, rollout = observer.store.database, observer.rollout
    first = observer.look(0)
    before = history.moved(database, rollout, -1.0)
    known = {node: state for node, state, _, _ in before}
    newest = max((since for _, _, _, since in before), default=0.0)
    out(f"rollout {rollout} is {first.view.head.state}: {said(counted(first.view.tallies))}; left: {first.eta}")
    told, whole, lost, away = (first.view.head.state, first.view.head.reason), first.now, 0, 0
    while True:
        try:
            with database.reading() as connection:
                head = history.head(connection, rollout)
            at = observer.store.clock()
            all_of_it = at - whole >= WHOLE_S
            moved = history.moved(database, rollout, -1.0 if all_of_it else newest - SKEW_S)
            driver = observer.driver(head, at)
            lost = 0 if driver or observer.alive() else lost + 1
        except errors.FleetError as error:
            away += 1
            if error.slug not in AWAY or away > lost_looks:
                raise
            if away == 1:
                out(f"waiting: {error.what}")
            sleep(look_s)
            continue
        whole, away = at if all_of_it else whole, 0
        for node, state, reason, since in moved:
            newest = max(newest, since)
            was = known.get(node, "waiting")
            if was != state:
                known[node] = state
                out(printable(line(Transition(rollout, node, was, state, "", "", reason))))
        if (head.state, head.reason) != told:
            told = head.state, head.reason
            out(printable(line(Transition(rollout, "", "", head.state, "", "", head.reason))))
        if resting(head, driver):
            return
        if lost >= lost_looks:
            raise errors.FleetError(
                f"nobody is left that could carry out rollout {rollout}",
                hint=f"fleet rollout resume {rollout} does it here, or start `fleet controller run` again",
                slug="controller-lost",
            )
        sleep(look_s)


# --- the screen -------------------------------------------------------------------------------------------------------


def show(
    observer: Observer,
    screen: Screen,
    *,
    notes: Callable[[], list[str]] = list,
    over: Callable[[], bool] = lambda: False,
    look_s: float = LOOK_S,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Redraw until the rollout rests, or `over` says so; a resized terminal at once, the tables every `look_s`."""
    from fleet.cli.live import Line, clip, frame

    seen: Look | None = None
    while True:
        try:
            seen, trouble = observer.look(screen.size()[1]), ""
        except errors.FleetError as error:  # the database is away: what was seen stays
            trouble = f"{error.what}; looking again"
        drawn: tuple[object, ...] = ()
        wait = 0.0
        while True:
            size, extra = screen.size(), [*notes(), *([trouble] if trouble else [])]
            if (size, extra) != drawn:
                drawn = size, extra
                lines = [Line(clip(trouble, size[0]))]
                if seen is not None:
                    lines = frame(seen.view, seen.eta, seen.driver, seen.now, *size, extra)
                screen.draw(lines)
            if over() or (seen is not None and not trouble and resting(seen.view.head, seen.driver)):
                return
            if wait >= look_s:
                break
            sleep(SIZE_S)
            wait += SIZE_S


@contextmanager
def _suspending(screen: Screen) -> Iterator[None]:
    """Ctrl-Z gives the terminal back while the process is stopped."""

    def stop(number: int, _frame: FrameType | None) -> None:
        screen.leave()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        signal.signal(number, stop)
        screen.enter()

    before = signal.signal(signal.SIGTSTP, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)


@contextmanager
def _ended() -> Iterator[None]:
    """SIGTERM ends as Ctrl-C does, so that the terminal is given back."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True)
class Place:
    """Where lines for the person go, and how to give the terminal back at once, before the process dies."""

    tell: Callable[[str], None] = say
    leave: Callable[[], None] = lambda: None


class _Panel:
    """A live screen drawn by a thread of its own, while this process carries the rollout out."""

    def __init__(self, observer: Observer, screen: Screen) -> None:
        self.observer = observer
        self.screen = screen
        self.over = threading.Event()
        self._notes: deque[str] = deque(maxlen=NOTES)
        self._thread = threading.Thread(target=self._run, name="screen", daemon=True)

    def note(self, text: str) -> None:
        """A line for the person, below the rest."""
        self._notes.append(text)

    def start(self) -> None:
        self.screen.enter()
        self._thread.start()

    def stop(self) -> None:
        self.over.set()
        self._thread.join()
        self.screen.leave()

    def _run(self) -> None:
        # It rests in between too, before it was begun or after a pause that is being undone: only the driver ends it.
        while not self.over.is_set():
            with suppress(OSError, ValueError):  # the terminal has gone; the rollout goes on
                show(
                    self.observer, self.screen, notes=lambda: list(self._notes), over=self.over.is_set,
                    sleep=self.over.wait,
                )  # fmt: skip
            self.over.wait(LOOK_S)


@contextmanager
def showing(
    store: Rollouts, rollout: str, parallel: int, here: str = "", stream: IO[str] | None = None
) -> Iterator[Place]:
    """While a rollout is carried out, `here` or by a controller: a live screen on a terminal, else lines."""
    from fleet.cli.live import Screen, fits

    stream = stream or sys.stderr
    if not fits(stream, os.environ.get("TERM", "")):
        yield Place()
        return
    screen = Screen(stream, colour=not os.environ.get("NO_COLOR"))
    panel = _Panel(Observer(store, rollout, parallel, here), screen)
    panel.start()
    try:
        with _suspending(screen):
            yield Place(panel.note, screen.leave)
    finally:
        panel.stop()


# --- commands ---------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("rollout_id", metavar="[ROLLOUT]", required=False)
@click.option("--plain", is_flag=True, help="One line a transition, also on a terminal.")
@click.option("--parallel", type=click.IntRange(1, 64), default=4, show_default=True, help="For the estimated end.")
@click.pass_context
def watch(ctx: click.Context, rollout_id: str | None, plain: bool, parallel: int) -> int:
    """Watch a rollout until it rests: a live screen on a terminal, elsewhere one line a transition.

    Without ROLLOUT, the newest unfinished one. Ctrl-C ends the watching only. Exit status: that of the rollout, as
    `fleet upgrade` gives it.
    """
    from fleet.cli.driving import outcome
    from fleet.cli.live import Screen, fits
    from fleet.cli.upgrade import ending
    from fleet.inventory.rollouts import Rollouts

    with opened(ctx) as (_, inventory):
        store = Rollouts(inventory.database)
        if rollout_id is None:
            running = store.rollouts(unfinished=True)
            if not running:
                raise errors.NotFound(
                    "no rollout is under way", hint="fleet rollout list --all", slug="unknown-rollout"
                )
            rollout_id = running[0].id
        rollout = store.rollout(rollout_id).id
        observer = Observer(store, rollout, parallel)
        try:
            if plain or not fits(sys.stdout, os.environ.get("TERM", "")):
                tell(observer, click.echo)
            else:
                with Screen(sys.stdout, colour=not os.environ.get("NO_COLOR")) as screen, _suspending(screen), _ended():
                    show(observer, screen)
        except KeyboardInterrupt:
            raise errors.Interrupted(
                f"rollout {rollout} is not touched by this: only the watching has ended", where=rollout,
                hint=f"fleet rollout watch {rollout} comes back to it; fleet rollout pause or abort {rollout}",
            ) from None  # fmt: skip
        row = store.rollout(rollout)
        ending(row, store.tasks(rollout))
        return outcome(store, row)


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[ROLLOUT] NODE")
@output_option("table", "json", "yaml")
@click.pass_context
def why(ctx: click.Context, words: tuple[str, ...], output: str) -> int:
    """Say what NODE waits for in a rollout: since when, until which limit, what happens then, what was tried.

    Without ROLLOUT, the unfinished one that the node is in, else its last. `fleet node why` says the same words.
    """
    from fleet.cli.waiting import answer, print_answer
    from fleet.inventory.rollouts import Rollouts

    if len(words) > 2:
        raise errors.UsageError("this takes a rollout and a node", hint="fleet rollout why [ROLLOUT] NODE")
    name = words[-1]
    with opened(ctx) as (_, inventory):
        store = Rollouts(inventory.database)
        if len(words) == 2:
            row = store.rollout(words[0])
            stored = store.tasks(row.id).get(name)
            found = None if stored is None else (row, stored)
        else:
            found = store.of_node(name)
        if found is None:
            of = f"rollout {words[0]}" if len(words) == 2 else "any rollout"
            raise errors.NotFound(f"node {name!r} is not in {of}", hint=f"fleet node why {name}", slug="not-in-rollout")
        body = answer(inventory, store, name, found, now())
    if output != "table":
        emit(document("NodeWhy", body), output)
    else:
        print_answer(body)
    return errors.DONE
