"""Servers and bad hosts that live for one test or one module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.remote.badhosts import BadHost, Behaviour
from tests.remote.sshd import MISSING, Sshd, make_key


@pytest.fixture(scope="module")
def client_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("key"), "client")


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory, client_key: Path) -> Iterator[Callable[..., Sshd]]:
    """Start a server: `sshd("127.1.0.1", options=[...])`."""
    if MISSING:
        pytest.skip(MISSING)
    started: list[Sshd] = []

    def start(*addresses: str, key: Path | None = None, **settings: object) -> Sshd:
        server = Sshd(tmp_path_factory.mktemp("sshd"), addresses, key or client_key, **settings)  # type: ignore[arg-type]
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def bad_host() -> Iterator[Callable[[str, Behaviour], BadHost]]:
    hosts: list[BadHost] = []

    def start(address: str, behaviour: Behaviour) -> BadHost:
        hosts.append(BadHost(address, behaviour))
        return hosts[-1]

    yield start
    for host in hosts:
        host.close()
