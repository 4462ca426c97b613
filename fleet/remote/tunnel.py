"""A socket-like through a bastion: one direct-tcpip channel that many threads may use and close.

paramiko's `Channel.send` builds its packet under the channel's lock and sends it after the lock is released. A close
from another thread, or from the other side, can slip in between; OpenSSH answers data on a closed channel by ending
the whole connection, and with it every node behind the bastion. Here the packet is sent under the lock. paramiko
releases it because of re-keying, which comes after half a gigabyte: more than a sweep moves through one bastion.
"""

from __future__ import annotations

import contextlib
from typing import Any

import paramiko
from paramiko.common import cMSG_CHANNEL_DATA


class Tunnel:
    """What paramiko's Transport asks of a socket, over a Channel."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel: Any = channel  # Any: sending needs what the Channel keeps to itself

    @property
    def _closed(self) -> bool:
        """Asked for by Transport.stop_thread, as of a socket."""
        return bool(self._channel.closed)

    def settimeout(self, seconds: float | None) -> None:
        self._channel.settimeout(seconds)

    def recv(self, size: int) -> bytes:
        data: bytes = self._channel.recv(size)
        return data

    def send(self, data: bytes) -> int:
        """Send some of `data`; how much. Raises EOFError when the channel is closed, TimeoutError without a window."""
        channel = self._channel
        with channel.lock:
            size = 0 if channel.closed else channel._wait_for_send_window(len(data))
            if size == 0:
                raise EOFError
            packet = paramiko.Message()
            packet.add_byte(cMSG_CHANNEL_DATA)
            packet.add_int(channel.remote_chanid)
            packet.add_string(data[:size])
            channel.transport._send_user_message(packet)
        return int(size)

    def shutdown(self, how: int) -> None:  # noqa: ARG002
        """End it for readers and writers."""
        self._channel.shutdown_read()
        self.close()

    def close(self) -> None:
        # The connection to the bastion may be gone: then so is the channel.
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.close()
