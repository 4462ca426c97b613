"""Gates after waves, the revisit queue, approvals of a stage, notifications that are owed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision: str | None = "0002"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    """Add columns with the value that rows made before had in effect; make the table of notifications."""
    with op.batch_alter_table("node_task") as batch:
        batch.add_column(sa.Column("revisits", sa.Integer(), nullable=False, server_default="0"))
    with op.batch_alter_table("wave") as batch:
        batch.add_column(sa.Column("gate", JSON, nullable=False, server_default="{}"))
    with op.batch_alter_table("approval") as batch:
        batch.add_column(sa.Column("stage", sa.String(), nullable=False, server_default="start"))
    op.create_table(
        "notification",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("rollout", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.Float(), nullable=False),
        sa.Column("delivered", sa.Float(), nullable=False),
        sa.Column("error", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_notification"),
    )
    op.create_index("ix_notification_delivered_next_at", "notification", ["delivered", "next_at"])
