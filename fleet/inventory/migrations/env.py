"""How alembic runs here: on the connection and in the transaction that `fleet.inventory.database` hands over."""

from __future__ import annotations

from alembic import context

from fleet.inventory.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata(),
    render_as_batch=True,  # SQLite cannot alter a column in place
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
