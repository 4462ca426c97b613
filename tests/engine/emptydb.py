"""An empty SQLite inventory whose tables were made once in this process: tests that need many have them by copying."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from fleet.inventory import open_inventory


@cache
def _template() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fleet-empty-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    open_inventory(f"sqlite:///{folder / 'empty.db'}").close()
    return folder / "empty.db"


def empty_database(folder: Path) -> str:
    """The URL of `fleet.db` in that folder, which is made."""
    shutil.copy(_template(), folder / "fleet.db")
    return f"sqlite:///{folder / 'fleet.db'}"
