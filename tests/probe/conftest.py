"""The servers of tests/remote."""

from tests.remote.conftest import client_key, sshd

__all__ = ["client_key", "sshd"]
