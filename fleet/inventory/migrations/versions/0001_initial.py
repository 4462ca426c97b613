"""The first schema: nodes, what they said, host keys, baselines, the audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision: str | None = None
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    """Make every table."""
    op.create_table(
        "audit_log",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("what", sa.String(), nullable=False),
        sa.Column("detail", JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_log"),
    )
    op.create_index("ix_audit_log_at", "audit_log", ["at"])
    op.create_table(
        "baseline",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("vendor", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("stack", JSON, nullable=False),
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_baseline"),
    )
    op.create_table(
        "node",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("bmc", sa.String(), nullable=False),
        sa.Column("arch", sa.String(), nullable=False),
        sa.Column("site", sa.String(), nullable=False),
        sa.Column("rack", sa.String(), nullable=False),
        sa.Column("leaf", sa.String(), nullable=False),
        sa.Column("nvlink_domain", sa.String(), nullable=False),
        sa.Column("superpod", sa.String(), nullable=False),
        sa.Column("lifecycle", sa.String(), nullable=False),
        sa.Column("hold_who", sa.String(), nullable=False),
        sa.Column("hold_why", sa.String(), nullable=False),
        sa.Column("hold_until", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_node"),
    )
    op.create_index("ix_node_leaf", "node", ["leaf"])
    op.create_index("ix_node_lifecycle", "node", ["lifecycle"])
    op.create_index("ix_node_nvlink_domain", "node", ["nvlink_domain"])
    op.create_index("ix_node_rack", "node", ["rack"])
    op.create_index("ix_node_site", "node", ["site"])
    op.create_index("ix_node_superpod", "node", ["superpod"])
    op.create_table(
        "raw_output",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_raw_output"),
    )
    op.create_table(
        "accelerator",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("identity", sa.String(), nullable=False),
        sa.Column("vendor", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("bus_id", sa.String(), nullable=False),
        sa.Column("pci_id", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=True),
        sa.Column("uuid", sa.String(), nullable=False),
        sa.Column("serial", sa.String(), nullable=False),
        sa.Column("firmware", sa.String(), nullable=False),
        sa.Column("memory_mib", sa.Integer(), nullable=True),
        sa.Column("health", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["node.name"], name="fk_accelerator_node_node", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node", "identity", name="pk_accelerator"),
    )
    op.create_index("ix_accelerator_identity", "accelerator", ["identity"])
    op.create_index("ix_accelerator_model", "accelerator", ["model"])
    op.create_table(
        "component_fact",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("component", sa.String(), nullable=False),
        sa.Column("installed", sa.String(), nullable=True),
        sa.Column("loaded", sa.String(), nullable=True),
        sa.Column("runtime", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["node"], ["node.name"], name="fk_component_fact_node_node", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node", "component", name="pk_component_fact"),
    )
    op.create_index("ix_component_fact_component_loaded", "component_fact", ["component", "loaded"])
    op.create_table(
        "fact_current",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("vendor", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("os_id", sa.String(), nullable=False),
        sa.Column("os_version", sa.String(), nullable=False),
        sa.Column("kernel", sa.String(), nullable=False),
        sa.Column("arch", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["node.name"], name="fk_fact_current_node_node", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node", name="pk_fact_current"),
    )
    op.create_index("ix_fact_current_model", "fact_current", ["model"])
    op.create_index("ix_fact_current_vendor", "fact_current", ["vendor"])
    op.create_table(
        "fact_revision",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("document", JSON, nullable=False),
        sa.ForeignKeyConstraint(["node"], ["node.name"], name="fk_fact_revision_node_node", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_fact_revision"),
    )
    op.create_index("ix_fact_revision_node_id", "fact_revision", ["node", "id"])
    op.create_table(
        "host_key",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["node.name"], name="fk_host_key_node_node", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node", name="pk_host_key"),
    )
    op.create_table(
        "label",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["node.name"], name="fk_label_node_node", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node", "key", name="pk_label"),
    )
    op.create_index("ix_label_key_value", "label", ["key", "value"])
