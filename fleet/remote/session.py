"""One SSH connection, phase by phase, over paramiko's Transport.

Traps this is written around: `start_client(timeout=…)` returns silently when its time is over; paramiko's own limits
are per read, so a dripping node never meets one; a silent node must not hold a handshake slot, so the server's banner
is awaited before; each Transport would start a timer thread of its own.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import paramiko
from paramiko.packet import Packetizer
from paramiko.pkey import UnknownKeyType
from paramiko.ssh_exception import PartialAuthentication

from fleet.core.errors import BadInput
from fleet.remote.answer import Phase, Trouble
from fleet.remote.tunnel import Tunnel

if TYPE_CHECKING:
    from collections.abc import Callable

BANNER_BYTES = 8 * 1024  # of text before the SSH- line; RFC 4253 4.2 allows such lines and names no limit
SLOT_S = 2.0  # how long a handshake may hold its slot; a slower one goes on without it
DRAIN_S = 2.0  # after the exit status, how long to wait for output that somebody else still holds open
STDERR_BYTES = 64 * 1024

Wire = socket.socket | Tunnel

# paramiko reports each failed connection to its logger too, and an unconfigured logger prints on the terminal.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False


class Stop(Exception):
    """The run ends here: in which phase, for which reason."""

    def __init__(self, phase: Phase, trouble: Trouble, detail: str) -> None:
        super().__init__(detail)
        self.phase, self.trouble, self.detail = phase, trouble, detail


class _Packets(Packetizer):
    """A packetizer whose banner line has been read before, and which starts no timer: the watchdog sees to that."""

    def __init__(self, banner: str, sock: socket.socket) -> None:
        super().__init__(sock)
        self._banner = banner

    def readline(self, timeout: float) -> str:  # noqa: ARG002
        return self._banner

    def start_handshake(self, timeout: float) -> None:
        pass


def load_key(file: str, certificate: str = "") -> paramiko.PKey:
    """The private key, with its user certificate when there is one. Parsed once for a whole fleet."""
    path = Path(file).expanduser()
    try:
        key = paramiko.PKey.from_path(path)
        if certificate:
            key.load_certificate(str(Path(certificate).expanduser().read_text()))
    except (OSError, TypeError, ValueError, paramiko.SSHException, UnknownKeyType) as error:
        locked = isinstance(error, TypeError | paramiko.PasswordRequiredException)
        raise BadInput(
            f"the SSH key {str(path)!r} cannot be used",
            cause="it is protected by a passphrase" if locked else str(error) or type(error).__name__,
            hint="set ssh_key to a key file without a passphrase, and ssh_certificate to its certificate if it has one",
            slug="bad-ssh-key",
        ) from error
    return key


def dial(address: str, port: int, seconds: float) -> socket.socket:
    """A TCP connection. Raises Stop in phase `connect`."""
    try:
        sock = socket.create_connection((address, port), timeout=seconds)
    except TimeoutError as error:
        raise Stop("connect", "timeout", f"{address}:{port} did not answer within {seconds:g} s") from error
    except (OSError, UnicodeError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise Stop("connect", "unreachable", f"{address}:{port}: {text}") from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def hang_up(wire: Wire) -> None:
    """End the connection so that whoever waits on it wakes up. The descriptor itself is closed by its owner."""
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        wire.shutdown(socket.SHUT_RDWR)


def await_banner(wire: Wire, seconds: float, clock: Callable[[], float] = time.monotonic) -> str:
    """The server's `SSH-2.0-…` line; not a byte more is taken off the wire. Raises Stop in phase `banner`."""
    read = _read_tunnel_line if isinstance(wire, Tunnel) else _read_socket_line
    end, taken = clock() + seconds, 0
    while True:
        line = read(wire, end, clock, BANNER_BYTES - taken)  # type: ignore[arg-type]  # picked by type just above
        taken += len(line)
        if line.startswith(b"SSH-") and line.endswith(b"\n"):
            return line.decode("utf-8", "replace").strip()
        if clock() >= end:
            said = "it sent other text" if taken else "it sent nothing"
            raise Stop("banner", "timeout", f"no SSH banner within {seconds:g} s: {said}")
        if not line.endswith(b"\n"):
            if taken >= BANNER_BYTES:
                raise Stop("banner", "protocol", f"no SSH banner in the first {BANNER_BYTES} bytes")
            raise Stop("banner", "closed", "the node hung up before its SSH banner")


def _read_socket_line(sock: socket.socket, end: float, clock: Callable[[], float], most: int) -> bytes:
    """One line, or what came before the end of time, of `most` bytes, or of the connection."""
    # poll, not select: select breaks above descriptor 1023.
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    line = b""
    while len(line) < most and (left := end - clock()) > 0 and poll.poll(left * 1000):
        try:
            ahead = sock.recv(min(1024, most - len(line)), socket.MSG_PEEK)
            line += sock.recv(ahead.find(b"\n") + 1 or len(ahead)) if ahead else b""
        except OSError:
            return line
        if not ahead or line.endswith(b"\n"):
            return line
    return line


def _read_tunnel_line(tunnel: Tunnel, end: float, clock: Callable[[], float], most: int) -> bytes:
    line = b""
    while len(line) < most and (left := end - clock()) > 0:
        tunnel.settimeout(left)
        try:
            byte = tunnel.recv(1)
        except OSError:  # a timeout is one
            return line
        line += byte
        if not byte or byte == b"\n":
            return line
    return line


def start(wire: Wire, banner: str, known_key: str = "") -> paramiko.Transport:
    """A Transport that has not spoken yet: cheap key exchange first, the recorded kind of host key first."""
    transport = paramiko.Transport(
        cast("socket.socket", wire), packetizer_class=cast("type[Packetizer]", partial(_Packets, banner))
    )
    # The reading thread would wake ten times a second only to look whether it was closed: hang_up wakes it.
    wire.settimeout(30.0)
    options = transport.get_security_options()
    options.kex = sorted(options.kex, key=_kex_rank)
    kind = known_key.partition(" ")[0]
    if kind and kind != "ssh-ed25519":
        wanted = {"rsa-sha2-512", "rsa-sha2-256"} if kind == "ssh-rsa" else {kind}
        options.key_types = sorted(options.key_types, key=lambda name: name not in wanted)
    transport.daemon = True
    return transport


def _kex_rank(name: str) -> int:
    """Elliptic curves cost 2 ms, Diffie-Hellman 30: it stays at the end for old servers."""
    if name.startswith("curve25519"):
        return 0
    if name.startswith("ecdh-"):
        return 1
    return 3 if name.startswith("diffie-hellman") else 2


def shake_hands(transport: paramiko.Transport, gate: threading.Semaphore, seconds: float) -> str:
    """Key exchange; the host key as `type base64`. `gate` is given back by the caller's side within SLOT_S."""
    finished = threading.Event()
    try:
        transport.start_client(finished)
        finished.wait(min(SLOT_S, seconds))
    finally:
        gate.release()
    if not finished.is_set():
        finished.wait(max(0.0, seconds - SLOT_S))
    if not transport.is_active() or not transport.initial_kex_done:
        error = transport.get_exception()
        if error is None and not finished.is_set():
            raise Stop("handshake", "timeout", f"the handshake did not end within {seconds:g} s")
        if error is None or isinstance(error, EOFError | OSError):
            raise Stop("handshake", "closed", "the node hung up during the handshake")
        raise Stop("handshake", "protocol", _sentence(error))
    key = transport.get_remote_server_key()
    return f"{key.get_name()} {key.get_base64()}"


def log_in(transport: paramiko.Transport, user: str, key: paramiko.PKey, seconds: float) -> None:
    """Public-key login with this one key. Raises Stop in phase `auth`."""
    answered = threading.Event()
    try:
        transport.auth_publickey(user, key, answered)
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise Stop("auth", "closed", f"the node hung up before the login: {_sentence(error)}") from error
    if not answered.wait(seconds):
        raise Stop("auth", "timeout", f"no answer to the login within {seconds:g} s")
    if transport.is_authenticated():
        return
    failure = transport.get_exception()
    if isinstance(failure, PartialAuthentication):
        raise Stop("auth", "login-refused", f"{user} needs more than a key: {', '.join(failure.allowed_types)}")
    if isinstance(failure, paramiko.AuthenticationException) or (failure is None and transport.is_active()):
        allowed = ", ".join(getattr(failure, "allowed_types", []))
        more = f" (accepted: {allowed})" if allowed else ""
        raise Stop("auth", "login-refused", f"the key of user {user!r} was refused{more}")
    raise Stop("auth", "closed", f"the node hung up during the login of {user!r}")


class Command:
    """One command on a fresh session. What arrived so far is in `stdout` and `stderr` also when `run` raises."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self.stdout = bytearray()
        self.stderr = bytearray()

    def run(self, transport: paramiko.Transport, command: str, script: str, seconds: float) -> int | None:
        """Feed `script` to `command`; its exit status, None when a signal ended it. Raises Stop."""
        try:
            channel = transport.open_session(timeout=seconds)
            channel.settimeout(None)
            channel.exec_command(command)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise Stop("session", "closed", f"no session: {_sentence(error)}") from error
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            # A command that ends without reading its input is no fault of the connection.
            channel.sendall(script.encode())
            channel.shutdown_write()
        channel.settimeout(1.0)
        self._read(channel)
        status = channel.recv_exit_status()
        if status >= 0:
            return status
        if not transport.is_active():
            raise Stop("run", "closed", "the connection broke off during the run")
        return None

    def _read(self, channel: paramiko.Channel) -> None:
        quiet = 0.0
        while True:
            try:
                piece = channel.recv(65536)
            except TimeoutError:
                quiet += 1.0
                self._read_stderr(channel)
                if channel.exit_status_ready() and quiet >= DRAIN_S:
                    return
                continue
            quiet = 0.0
            self.stdout += piece
            self._read_stderr(channel)
            if len(self.stdout) > self._cap:
                del self.stdout[self._cap :]
                raise Stop("run", "output-cap", f"more than {self._cap} bytes of output")
            if not piece:
                return

    def _read_stderr(self, channel: paramiko.Channel) -> None:
        while channel.recv_stderr_ready() and (piece := channel.recv_stderr(65536)):
            self.stderr += piece[: max(0, STDERR_BYTES - len(self.stderr))]


def _sentence(error: BaseException | None) -> str:
    return (str(error) or type(error).__name__).strip().partition("\n")[0][:300]
