"""Webhooks: the events of the outbox, posted at least once by a thread that no rollout waits for.

The body is `kind: Notification` (docs/schema). Headers say which event and which try it is: `Fleet-Event`,
`Fleet-Event-Id` (the same at every try: a receiver drops what it has had), `Fleet-Attempt`, `Fleet-Timestamp`, and with
a secret `Fleet-Signature: sha256=HEX`, the HMAC-SHA256 of the timestamp, a full stop and the body. Only a 2xx answer
counts; redirects are not followed. A try that failed is repeated after 2, 4, 8 … seconds, 5 minutes at most, for a day.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from fleet import __version__
from fleet.config import Settings
from fleet.core.errors import BadInput, FleetError
from fleet.core.model import Json, canonical
from fleet.inventory.database import Database
from fleet.inventory.history import iso, overdue, overdue_body
from fleet.inventory.outbox import Event, Outbox

ROUND_S = 1.0
TIMEOUT_S = 10.0  # for one try, from the first byte to the last
AT_ONCE = 4  # events taken together; they are ours for as long as all of them may take
LEASE_S = AT_ONCE * TIMEOUT_S + 20.0
LONGEST_S = 300.0
GIVE_UP_S = 86400.0
SWEEP_S = 30.0  # between two looks for nodes past their limit
GRACE_S = 60.0  # the engine ends most steps at their limit by itself; what it does not is told
FLUSH_S = 5.0  # a command that ends gives its last events so long


@dataclass(frozen=True)
class Target:
    """Where events go. Address and secret are read from their files at each try, so that both may be changed."""

    url: str
    secret_file: str = ""
    timeout_s: float = TIMEOUT_S

    @classmethod
    def of(cls, settings: Settings) -> Target | None:
        """As the settings say; None when nobody is to be told. BadInput for an address that cannot be one."""
        if not settings.notify_url:
            return None
        target = cls(settings.notify_url, settings.notify_secret_file)
        target.address()
        target.secret()
        return target

    def address(self) -> SplitResult:
        """The address in parts."""
        url, where = self.url, "notify_url"
        if url.startswith("file://"):
            url, where = _content(url.removeprefix("file://"), "notify_url"), url
        try:
            parts = urlsplit(url.strip())
            port = parts.port
        except ValueError:
            parts, port = SplitResult("", "", "", "", ""), None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None or port == 0:
            raise BadInput(
                "notify_url is no address that events can be posted to", where=where,
                hint="http:// or https://, a host and a path, without a password; file:///path names a file with it",
                slug="bad-notify-url",
            )  # fmt: skip
        return parts

    def secret(self) -> bytes:
        """The key to sign with, empty for none. BadInput when its file cannot be read or is empty."""
        return _content(self.secret_file, "notify_secret_file").encode() if self.secret_file else b""

    def post(self, event: Event, now: float) -> str:
        """Send one event: "" when it was taken, else why not, in a form that betrays neither address nor secret."""
        try:
            parts, secret = self.address(), self.secret()
        except FleetError as error:
            return error.what
        body = canonical(document(event)).encode()
        headers = {
            "Content-Type": "application/json; charset=utf-8", "User-Agent": f"accelfleet/{__version__}",
            "Fleet-Event": event.kind, "Fleet-Event-Id": event.id, "Fleet-Attempt": str(event.tries),
            "Fleet-Timestamp": str(int(now)),
        }  # fmt: skip
        if secret:
            headers["Fleet-Signature"] = signature(secret, str(int(now)), body)
        try:
            status = _post(parts, body, headers, self.timeout_s)
        except http.client.InvalidURL:  # it would quote the address
            return "the address holds a blank or a control character"
        except TimeoutError:
            return f"no answer within {self.timeout_s:g} s"
        except (OSError, http.client.HTTPException, ValueError) as error:
            return f"{type(error).__name__}: {error}"[:300]
        return "" if 200 <= status < 300 else f"answered {status}"


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """What a receiver computes too, and compares in constant time."""
    return "sha256=" + hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def document(event: Event) -> dict[str, Json]:
    """The body of `kind: Notification`."""
    return {
        "apiVersion": "fleet/v1", "kind": "Notification", "id": event.id, "event": event.kind, "at": iso(event.at),
        "rollout": event.rollout, "detail": dict(event.body),
    }  # fmt: skip


def _content(path: str, what: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadInput(
            f"the file that {what} names cannot be read: {reason}", where=path, slug="bad-notify-file",
            hint="mend its path, owner or mode",
        ) from error  # fmt: skip
    if not text:
        raise BadInput(
            f"the file that {what} names is empty", where=path, hint="it holds one line", slug="bad-notify-file"
        )
    return text


def _post(parts: SplitResult, body: bytes, headers: dict[str, str], timeout_s: float) -> int:
    """The status of the answer. TimeoutError after `timeout_s` in all, however slowly the other side drips."""
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    late = threading.Event()

    def end() -> None:
        late.set()
        with contextlib.suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(timeout_s, end)
    timer.daemon = True
    timer.start()
    try:
        connection.connect()
        if late.is_set():  # the socket was not there yet when time was up
            raise TimeoutError
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body, headers)
        status = connection.getresponse().status
        if late.is_set():  # what was cut off is no answer, though it may read like one
            raise TimeoutError
        return status
    except (OSError, http.client.HTTPException) as error:
        if late.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()
        connection.close()


class Notifier:
    """Sends what the outbox holds until `stop` is set. One round at a time; the rollout's own threads never wait."""

    def __init__(
        self,
        outbox: Outbox,
        target: Target,
        stop: threading.Event,
        *,
        say: Callable[[str], None] = lambda _: None,
        dice: Callable[[], float] = random.random,
        round_s: float = ROUND_S,
        lease_s: float = LEASE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.outbox = outbox
        self.target = target
        self.stop = stop
        self.say = say
        self.dice = dice
        self.round_s = round_s
        self.lease_s = lease_s
        self.clock = clock  # for pauses in this process; what is stored goes by the outbox's clock
        self._swept = -SWEEP_S
        self._trouble = ""

    def run(self, flush_s: float = FLUSH_S) -> None:
        """Go round until stopped, then give what is due `flush_s` more. A database that is away is waited for."""
        while not self.stop.is_set():
            if not self._safely():
                self.stop.wait(self.round_s)
        end = self.clock() + flush_s
        while self.clock() < end and self._safely():
            pass

    def round(self) -> int:
        """Send what is due, a few at most; how many were tried."""
        now = self.clock()
        if now - self._swept >= SWEEP_S:
            self._swept = now
            found = overdue(self.outbox.database, self.outbox.clock(), GRACE_S)
            self.outbox.overdue([(rollout, overdue_body(late)) for rollout, late in found])
            self.outbox.forget()
        events = self.outbox.take(AT_ONCE, self.lease_s)
        for event in events:
            self._send(event)
        return len(events)

    def _send(self, event: Event) -> None:
        error = self.target.post(event, self.outbox.clock())
        if not error:
            self.outbox.sent(event.number)
            self._tell("")
            return
        now = self.outbox.clock()
        if now - event.at >= GIVE_UP_S:
            self.outbox.later(event.number, 0.0, error)
            self.say(f"webhook: {event.kind} of {event.rollout} was given up after {event.tries} tries: {error}")
            return
        self.outbox.later(event.number, now + pause_s(event.tries, self.dice()), error)
        self._tell(error)

    def _safely(self) -> bool:
        """One round; whether anything was done. What goes wrong is said once and leaves the thread alive."""
        try:
            return self.round() > 0
        except Exception as error:
            self._tell(error.what if isinstance(error, FleetError) else f"{type(error).__name__}: {error}")
            return False

    def _tell(self, trouble: str) -> None:
        if bool(trouble) != bool(self._trouble):
            self.say(f"webhook: {trouble}; events are kept and tried again" if trouble else "webhook: events go out")
        self._trouble = trouble


def pause_s(tries: int, dice: float) -> float:
    """Seconds before the next try: 2, 4, 8 … and at most `LONGEST_S`, less up to half of it by `dice` in [0, 1)."""
    return min(LONGEST_S, 2.0 ** min(tries, 20)) * (1.0 - dice / 2)


@contextmanager
def notifying(
    settings: Settings,
    database: Database,
    clock: Callable[[], float],
    say: Callable[[str], None],
    *,
    flush_s: float = FLUSH_S,
) -> Iterator[None]:
    """While this lasts, a thread sends the events of that database, where the settings ask for it."""
    target = Target.of(settings)
    if target is None:
        yield
        return
    stop = threading.Event()
    notifier = Notifier(Outbox(database, clock), target, stop, say=say)
    thread = threading.Thread(target=notifier.run, args=(flush_s,), name="notify", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(flush_s + 1.0)  # a receiver that hangs keeps nobody: what is owed stays in the outbox
