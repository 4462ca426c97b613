"""The tables: one module for each room. A module added here is found by listing; its rows get their own migration.

Times are ISO 8601 text in UTC (`2030-01-31T08:00:00Z`), so that both back ends sort and compare them alike.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from sqlalchemy import JSON, MetaData, Table
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeEngine
from sqlmodel import SQLModel

# SQLite alters a table by copying it, and can only find a constraint again by its name.
NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
SQLModel.metadata.naming_convention = NAMING


def json_type() -> TypeEngine[Any]:
    """A column type for JSON documents: JSON on SQLite, JSONB on PostgreSQL."""
    return JSON().with_variant(JSONB(), "postgresql")


def metadata() -> MetaData:
    """The metadata of every table of every room."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return SQLModel.metadata


def table(model: type[SQLModel]) -> Table:
    """The Core table behind a SQLModel class: bulk work goes through Core, never through ORM loops."""
    found: Table = model.__table__  # type: ignore[attr-defined]  # SQLModel sets it at class creation
    return found
