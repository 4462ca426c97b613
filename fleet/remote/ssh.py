"""The SSH transport: every node over a connection of its own, each phase with its limit.

A run goes connect -> banner -> handshake -> hostkey -> auth -> session -> run -> done, and an answer carries the
phase it came to. Nodes wait for one of `gate` slots only for the key exchange, after their banner has been seen; the
clock of a run starts when it has its slot. No agent, no known_hosts, no ssh_config is consulted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fleet.config import Settings
from fleet.core.errors import BadInput, NodesFailed, UsageError
from fleet.core.model import Node
from fleet.remote import hostkey
from fleet.remote.answer import Answer, Phase, Trouble
from fleet.remote.watchdog import Deadline, Watchdog

if TYPE_CHECKING:
    import paramiko

    from fleet.remote.session import Wire

OUTPUT_CAP = 1024 * 1024
_KEY_NAMES = ("id_ed25519", "id_ecdsa", "id_rsa")


@dataclass(frozen=True)
class Limits:
    """Seconds for the phases before the run itself."""

    connect_s: float = 8.0
    banner_s: float = 8.0
    handshake_s: float = 15.0
    auth_s: float = 15.0


@dataclass(frozen=True)
class Jump:
    """A bastion: `user@host:port`. Its host key comes from the inventory (under its host name) or from the settings."""

    host: str
    port: int = 22
    user: str = ""
    key: str = ""

    @classmethod
    def parse(cls, text: str, key: str = "") -> Jump:
        """BadInput when `text` is no `[user@]host[:port]`, or `key` no host key."""
        user, _, place = text.rpartition("@")
        host, colon, port = place.rpartition(":")
        if not colon or place.endswith("]") or (place.count(":") > 1 and not place.startswith("[")):
            host, port = place, "22"
        host = host.strip("[]")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise BadInput(
                f"setting 'ssh_bastion' cannot be {text!r}", hint="it is `user@host:port`", slug="bad-setting"
            )
        return cls(host, int(port), user, hostkey.parse(key) if key else "")


class Ssh:
    """Runs scripts over SSH. One for a whole sweep: the key is parsed once, the bastion is shared."""

    def __init__(
        self,
        key_file: str = "",
        *,
        certificate: str = "",
        user: str = "root",
        host_keys: Mapping[str, str] | None = None,
        policy: hostkey.Policy = "pinned",
        bastion: Jump | None = None,
        limits: Limits | None = None,
        gate: int = 32,
        output_cap: int = OUTPUT_CAP,
        login: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`host_keys` is node name -> `ssh-ed25519 AAAA…`. Raises BadInput for a key that cannot be used."""
        from fleet.remote import session

        self._key = session.load_key(key_file or _default_key(), certificate) if login or bastion else None
        self._user = user
        self._host_keys = dict(host_keys or {})
        self._policy = policy
        self._limits = limits or Limits()
        self._gate = threading.Semaphore(gate)
        self._cap = output_cap
        self._clock = clock
        self._watchdog = Watchdog(clock)
        self._closed = False
        self._jump = bastion
        self._jump_lock = threading.Lock()
        self._jump_transport: paramiko.Transport | None = None
        self._jump_trouble: tuple[float, str] | None = None

    @classmethod
    def of(cls, settings: Settings, host_keys: Mapping[str, str], *, gate: int = 32, login: bool = True) -> Ssh:
        """The transport that the settings describe. Without `login` it needs no key and can only tell host keys."""
        if settings.host_keys not in ("pinned", "tofu"):
            raise UsageError(
                f"setting 'host_keys' cannot be {settings.host_keys!r}", hint="pinned or tofu", slug="bad-setting"
            )
        return cls(
            settings.ssh_key,
            certificate=settings.ssh_certificate,
            user=settings.ssh_user,
            host_keys=host_keys,
            policy=cast(hostkey.Policy, settings.host_keys),
            bastion=Jump.parse(settings.ssh_bastion, settings.ssh_bastion_key) if settings.ssh_bastion else None,
            gate=gate,
            login=login,
        )

    def run(self, node: Node, script: str, *, timeout_s: float, sudo: bool) -> Answer:
        """One connection, one session, `script` on the stdin of sh; with `sudo`, through `sudo -n` unless root."""
        user = node.user or self._user
        elevate = sudo and user != "root"
        return self._talk(node, timeout_s, user, "exec env LC_ALL=C sudo -n sh -s" if elevate else "exec sh -s", script)

    def host_key(self, node: Node) -> Answer:
        """The key that a node shows, unjudged: phase `hostkey` and no trouble when it showed one. No login."""
        return self._talk(node, self._limits.handshake_s, "", "", "")

    def close(self) -> None:
        """End every run under way, and the connection to the bastion."""
        from fleet.remote.session import hang_up

        self._closed = True
        self._watchdog.stop()
        with self._jump_lock:
            if self._jump_transport is not None:
                hang_up(cast("Wire", self._jump_transport.sock))
                self._jump_transport.close()
                self._jump_transport = None

    def _talk(self, node: Node, timeout_s: float, user: str, command: str, script: str) -> Answer:
        from fleet.remote import session as s  # here, so that paramiko is loaded only where nodes are reached

        limits, phase = self._limits, "connect"
        started = self._clock()
        done = s.Command(self._cap)
        wire: Wire | None = None
        transport: paramiko.Transport | None = None
        deadline: Deadline | None = None
        shown, rc = "", None
        trouble: Trouble = ""
        detail = ""
        try:
            if self._closed:
                raise s.Stop("connect", "closed", "the sweep was ended")
            wire = self._dial(node)
            phase = "banner"
            banner = s.await_banner(wire, limits.banner_s, self._clock)
            phase = "handshake"
            self._gate.acquire()
            started = self._clock()
            try:
                deadline = self._watchdog.watch(timeout_s, partial(s.hang_up, wire))
                known = self._host_keys.get(node.name, "")
                transport = s.start(wire, banner, known)
            except BaseException:
                self._gate.release()
                raise
            shown = s.shake_hands(transport, self._gate, min(limits.handshake_s, timeout_s))
            phase = "hostkey"
            if self._key is not None and command:
                self._check_key(shown, known)
                phase = "auth"
                s.log_in(transport, user, self._key, limits.auth_s)
                phase = "session"
                rc = done.run(transport, command, script, timeout_s)
                phase = "done"
        except s.Stop as stop:
            phase, trouble, detail = stop.phase, stop.trouble, stop.detail
        except Exception as error:  # whatever one node does to us stays with that node
            trouble, detail = "internal", f"{type(error).__name__}: {error}"
        finally:
            if deadline is not None:
                deadline.cancel()
            if wire is not None:
                s.hang_up(wire)
                if transport is not None:
                    transport.close()
                wire.close()
        if deadline is not None and deadline.fired and phase != "done":
            trouble, detail = "timeout", f"not finished within {timeout_s:g} s (was in phase {phase})"
            if self._closed:
                trouble, detail = "closed", "the sweep was ended"
        seconds = self._clock() - started
        return Answer(
            node, cast(Phase, phase), rc, bytes(done.stdout), bytes(done.stderr), detail, shown, trouble, seconds
        )

    def _check_key(self, shown: str, known: str) -> None:
        from fleet.remote.session import Stop

        verdict = hostkey.judge(shown, known, self._policy)
        if verdict == "key-changed":
            old, new = hostkey.fingerprint(known), hostkey.fingerprint(shown)
            raise Stop("hostkey", "key-changed", f"it shows {new}, recorded is {old}")
        if verdict == "unknown-key":
            raise Stop("hostkey", "unknown-key", f"it shows {hostkey.fingerprint(shown)}, none is recorded")

    def _dial(self, node: Node) -> Wire:
        from fleet.remote.session import Stop, dial

        if self._jump is None:
            return dial(node.address, node.port, self._limits.connect_s)
        import paramiko

        from fleet.remote.tunnel import Tunnel

        try:
            bastion = self._bastion(self._jump, self._key)
            place = (node.address, node.port)
            return Tunnel(bastion.open_channel("direct-tcpip", place, ("127.0.0.1", 0), timeout=self._limits.connect_s))
        except paramiko.ChannelException as error:
            raise Stop("connect", "unreachable", f"bastion {self._jump.host}: {error.text}") from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise Stop("connect", "timeout", f"bastion {self._jump.host}: {error}") from error

    def _bastion(self, jump: Jump, key: paramiko.PKey | None) -> paramiko.Transport:
        """The one connection to the bastion; a failure is remembered for ten seconds, so that nobody queues for it."""
        from fleet.remote import session as s

        with self._jump_lock:
            if self._jump_transport is not None and self._jump_transport.is_active():
                return self._jump_transport
            if self._jump_trouble is not None and self._clock() - self._jump_trouble[0] < 10:
                raise s.Stop("connect", "unreachable", self._jump_trouble[1])
            wire = None
            try:
                if key is None:
                    raise s.Stop("auth", "internal", "no key is loaded")
                wire = s.dial(jump.host, jump.port, self._limits.connect_s)
                transport = s.start(wire, s.await_banner(wire, self._limits.banner_s, self._clock), jump.key)
                own_gate = threading.Semaphore(0)
                shown = s.shake_hands(transport, own_gate, self._limits.handshake_s)
                self._check_key(shown, self._host_keys.get(jump.host, "") or jump.key)
                self._host_keys[jump.host] = shown  # under tofu: the first one it showed is the one for this sweep
                s.log_in(transport, jump.user or self._user, key, self._limits.auth_s)
            except s.Stop as stop:
                if wire is not None:
                    s.hang_up(wire)
                    wire.close()
                detail = f"bastion {jump.host}: {stop.phase}: {stop.detail}"
                self._jump_trouble = (self._clock(), detail)
                raise s.Stop("connect", "unreachable", detail) from stop
            transport.set_keepalive(15)
            self._jump_transport = transport
            return transport


def _default_key() -> str:
    home = Path("~/.ssh").expanduser()
    for name in _KEY_NAMES:
        if (home / name).is_file():
            return str(home / name)
    raise UsageError(
        "no SSH key to log in with",
        cause=f"the setting ssh_key is empty and {home} holds none of {', '.join(_KEY_NAMES)}",
        hint="set FLEET_SSH_KEY to a private key file",
        slug="no-ssh-key",
    )


def fetch_host_key(node: Node, settings: Settings, host_keys: Mapping[str, str] | None = None) -> str:
    """The host key a node shows now, `ssh-ed25519 AAAA…`, for a person to compare and trust; NodesFailed without.

    `host_keys` is asked only for the bastion's.
    """
    transport = Ssh.of(settings, host_keys or {}, login=False)
    try:
        answer = transport.host_key(node)
    finally:
        transport.close()
    if not answer.host_key:
        raise NodesFailed(
            f"node {node.name!r} showed no host key",
            where=f"{node.address}:{node.port}",
            cause=f"{answer.phase}: {answer.detail}",
            hint=f"fleet node show {node.name}",
            slug="no-host-key",
        )
    return answer.host_key
