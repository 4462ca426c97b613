"""The audit log refuses changes of its rows in the database itself.

A batch alteration of `audit_log` on SQLite copies the table and loses its triggers: such a migration makes them anew.
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision: str | None = "0003"
branch_labels = None
depends_on = None

SQLITE = (
    """CREATE TRIGGER audit_log_no_update BEFORE UPDATE ON audit_log
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END""",
    """CREATE TRIGGER audit_log_no_delete BEFORE DELETE ON audit_log
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END""",
    # REPLACE deletes without the trigger above unless recursive triggers are on; an id that is taken is no new row.
    """CREATE TRIGGER audit_log_no_replace BEFORE INSERT ON audit_log
    WHEN EXISTS (SELECT 1 FROM audit_log WHERE id = NEW.id)
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END""",
)
POSTGRESQL = (
    """CREATE FUNCTION audit_log_append_only() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = 'insufficient_privilege'; END $$""",
    """CREATE TRIGGER audit_log_no_change BEFORE UPDATE OR DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION audit_log_append_only()""",
    """CREATE TRIGGER audit_log_no_truncate BEFORE TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_append_only()""",
)


def upgrade() -> None:
    """Make the triggers."""
    for statement in POSTGRESQL if op.get_bind().dialect.name == "postgresql" else SQLITE:
        op.execute(statement)
