"""Nodes and what they said: the rows of the inventory room.

`node` is the operator's word. `fact_current`, `component_fact` and `accelerator` are the indexed form of the newest
`fact_revision`, which is the truth about what a node said: one row for each change of content, never for each probe.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, ForeignKey, Index, LargeBinary, String, Text
from sqlmodel import Field, SQLModel

from fleet.inventory.tables import json_type


def _node_column(**more: Any) -> Any:
    return Field(sa_column=Column(String, ForeignKey("node.name", ondelete="CASCADE"), nullable=False, **more))


class NodeRow(SQLModel, table=True):
    """One machine. Empty text = not known. A hold is in force while `hold_who` is not empty."""

    __tablename__ = "node"
    name: str = Field(primary_key=True)
    address: str
    port: int
    user: str
    bmc: str
    arch: str
    site: str = Field(index=True)
    rack: str = Field(index=True)
    leaf: str = Field(index=True)
    nvlink_domain: str = Field(index=True)
    superpod: str = Field(index=True)
    lifecycle: str = Field(index=True)
    hold_who: str
    hold_why: str
    hold_until: str


class LabelRow(SQLModel, table=True):
    """One label of one node."""

    __tablename__ = "label"
    __table_args__ = (Index("ix_label_key_value", "key", "value"),)
    node: str = _node_column(primary_key=True)
    key: str = Field(primary_key=True)
    value: str


class FactCurrentRow(SQLModel, table=True):
    """The newest answer of a node: which revision it equals, when it came, and the fields that selectors ask for."""

    __tablename__ = "fact_current"
    node: str = _node_column(primary_key=True)
    digest: str
    at: str
    boot_id: str
    vendor: str = Field(index=True)
    model: str = Field(index=True)  # of the first accelerator
    count: int  # accelerators
    os_id: str
    os_version: str
    kernel: str
    arch: str


class ComponentFactRow(SQLModel, table=True):
    """The three values of one component on one node; null = not read, or nothing said."""

    __tablename__ = "component_fact"
    __table_args__ = (Index("ix_component_fact_component_loaded", "component", "loaded"),)
    node: str = _node_column(primary_key=True)
    component: str = Field(primary_key=True)
    installed: str | None
    loaded: str | None
    runtime: str | None


class AcceleratorRow(SQLModel, table=True):
    """One card or die. `identity` is UUID, else serial, else bus id, made unique within the node."""

    __tablename__ = "accelerator"
    node: str = _node_column(primary_key=True)
    identity: str = Field(primary_key=True, index=True)
    vendor: str
    model: str = Field(index=True)
    bus_id: str
    pci_id: str
    position: int | None  # the index that the vendor tool prints
    uuid: str
    serial: str
    firmware: str
    memory_mib: int | None
    health: str


class FactRevisionRow(SQLModel, table=True):
    """What a node said, kept when its content changed: `document` is `Facts.content()`."""

    __tablename__ = "fact_revision"
    __table_args__ = (Index("ix_fact_revision_node_id", "node", "id"),)
    id: int | None = Field(default=None, primary_key=True)
    node: str = _node_column()
    digest: str
    at: str
    boot_id: str
    document: dict[str, Any] = Field(sa_column=Column(json_type(), nullable=False))


class RawOutputRow(SQLModel, table=True):
    """Raw output by digest, zlib-compressed; equal outputs of a thousand nodes are one row."""

    __tablename__ = "raw_output"
    digest: str = Field(primary_key=True)
    data: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class HostKeyRow(SQLModel, table=True):
    """The host key that a person, or the first-contact policy, vouched for: `ssh-ed25519 AAAA…`."""

    __tablename__ = "host_key"
    node: str = _node_column(primary_key=True)
    key: str = Field(sa_column=Column(Text, nullable=False))
    who: str
    at: str


class BaselineRow(SQLModel, table=True):
    """A named stack. Empty vendor or model = for any."""

    __tablename__ = "baseline"
    name: str = Field(primary_key=True)
    vendor: str
    model: str
    stack: dict[str, Any] = Field(sa_column=Column(json_type(), nullable=False))
    who: str
    at: str


class AuditLogRow(SQLModel, table=True):
    """Who did what and when. Rows are only ever added; they outlive the nodes that they name."""

    __tablename__ = "audit_log"
    id: int | None = Field(default=None, primary_key=True)
    at: str = Field(index=True)
    who: str
    what: str
    detail: dict[str, Any] = Field(sa_column=Column(json_type(), nullable=False))
