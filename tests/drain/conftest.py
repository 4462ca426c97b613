"""One Slurm for the tests of a module."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.drain.slurmcluster import Cluster, new_folder, sweep


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Eight idle nodes, n01 to n08."""
    sweep()
    folder = new_folder()
    try:
        started = Cluster(folder)
        try:
            started.start()
            yield started
        finally:
            started.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
