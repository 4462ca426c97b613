"""A person's yes or no is of one rollout: the same plan carried out again asks again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision: str | None = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the rollout. What was said before belongs to the rollout of that plan that began last."""
    with op.batch_alter_table("approval") as batch:
        batch.add_column(sa.Column("rollout", sa.String(), nullable=False, server_default=""))
    op.execute(
        "UPDATE approval SET rollout = COALESCE((SELECT rollout.id FROM rollout WHERE rollout.plan = approval.plan "
        "ORDER BY rollout.at DESC, rollout.id LIMIT 1), '')"
    )
    op.create_index("ix_approval_rollout", "approval", ["rollout"])
