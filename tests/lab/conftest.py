"""A PostgreSQL server, for the cases that run on one."""

from tests.postgresql import postgresql_server

__all__ = ["postgresql_server"]
