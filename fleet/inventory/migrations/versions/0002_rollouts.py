"""Plans being carried out: rollouts, their nodes and steps, budgets, leases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision: str | None = "0001"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "controller",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("started", sa.Float(), nullable=False),
        sa.Column("heartbeat", sa.Float(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_controller"),
    )
    op.create_table(
        "counter",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_counter"),
    )
    op.create_table(
        "lease",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_lease"),
    )
    op.create_table(
        "plan",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.Column("who", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_plan"),
    )
    op.create_table(
        "approval",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("plan", sa.String(), nullable=False),
        sa.Column("verdict", sa.String(), nullable=False),
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("why", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["plan"], ["plan.id"], name="fk_approval_plan_plan"),
        sa.PrimaryKeyConstraint("id", name="pk_approval"),
    )
    op.create_index("ix_approval_plan", "approval", ["plan"])
    op.create_table(
        "rollout",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("plan", sa.String(), nullable=False),
        sa.Column("command", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("request", sa.String(), nullable=False),
        sa.Column("forgiven", sa.Integer(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.Column("ended_at", sa.String(), nullable=False),
        sa.Column("units", JSON, nullable=False),
        sa.ForeignKeyConstraint(["plan"], ["plan.id"], name="fk_rollout_plan_plan"),
        sa.PrimaryKeyConstraint("id", name="pk_rollout"),
    )
    op.create_index("ix_rollout_command", "rollout", ["command"])
    op.create_index("ix_rollout_plan", "rollout", ["plan"])
    op.create_index("ix_rollout_state", "rollout", ["state"])
    op.create_table(
        "budget_claim",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("rollout", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["rollout"], ["rollout.id"], name="fk_budget_claim_rollout_rollout", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("node", "rollout", name="pk_budget_claim"),
    )
    op.create_table(
        "node_owner",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("rollout", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["rollout"], ["rollout.id"], name="fk_node_owner_rollout_rollout", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node", name="pk_node_owner"),
    )
    op.create_index("ix_node_owner_rollout", "node_owner", ["rollout"])
    op.create_table(
        "node_task",
        sa.Column("rollout", sa.String(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("grp", sa.Integer(), nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("direction", sa.String(), nullable=False),
        sa.Column("cursor", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("open", sa.String(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("limit_s", sa.Integer(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("next_action", sa.String(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("prior", JSON, nullable=False),
        sa.Column("given", JSON, nullable=False),
        sa.ForeignKeyConstraint(["rollout"], ["rollout.id"], name="fk_node_task_rollout_rollout", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("rollout", "node", name="pk_node_task"),
    )
    op.create_index("ix_node_task_node", "node_task", ["node"])
    op.create_table(
        "step_attempt",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("rollout", sa.String(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("direction", sa.String(), nullable=False),
        sa.Column("cursor", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("began", sa.Float(), nullable=False),
        sa.Column("ended", sa.Float(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("evidence", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["rollout"], ["rollout.id"], name="fk_step_attempt_rollout_rollout", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_step_attempt"),
    )
    op.create_index("ix_step_attempt_rollout_node", "step_attempt", ["rollout", "node"])
    op.create_table(
        "wave",
        sa.Column("rollout", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("began", sa.Float(), nullable=False),
        sa.Column("ended", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["rollout"], ["rollout.id"], name="fk_wave_rollout_rollout", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("rollout", "number", name="pk_wave"),
    )
