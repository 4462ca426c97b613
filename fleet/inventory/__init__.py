"""The inventory room: the only one that holds SQL. `open_inventory(url)` is its door."""

from __future__ import annotations

from fleet.inventory.database import Database
from fleet.inventory.store import Inventory, LogEntry, Revision

__all__ = ["Database", "Inventory", "LogEntry", "Revision", "open_inventory"]


def open_inventory(url: str) -> Inventory:
    """The inventory at an SQLAlchemy URL, made on first use.

    Raises UsageError for a bad URL, FleetError when the database cannot be reached, is newer than this program, or is
    full or read-only.
    """
    database = Database(url)
    database.prepare()
    return Inventory(database)
