"""A plan as a JSON document, and back. The id is checked on reading: an edited plan is no plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from fleet.core.errors import BadInput
from fleet.core.model import Group, Plan, Reason, Source, Step, VersionChange, digest


def plain(value: Any) -> Any:
    """Dataclasses, mappings and tuples as plain JSON values."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


def content(plan: Plan) -> dict[str, Any]:
    """Everything but the id."""
    document: dict[str, Any] = plain(plan)
    del document["id"]
    return document


def dump(plan: Plan) -> dict[str, Any]:
    """The body of `kind: Plan`."""
    document: dict[str, Any] = plain(plan)
    return document


def _change(raw: Mapping[str, Any]) -> VersionChange:
    return VersionChange(raw["component"], raw["old"], raw["new"])


def _reason(raw: Mapping[str, Any]) -> Reason:
    return Reason(raw["text"], Source(**raw["source"]) if raw["source"] else None)


def _step(raw: Mapping[str, Any]) -> Step:
    rest = {k: v for k, v in raw.items() if k not in ("changes", "artifacts", "arguments")}
    return Step(
        changes=tuple(_change(c) for c in raw["changes"]),
        artifacts=tuple(raw["artifacts"]),
        arguments=dict(raw["arguments"]),
        **rest,
    )


def _stages(raw: list[list[Mapping[str, Any]]]) -> tuple[tuple[Step, ...], ...]:
    return tuple(tuple(_step(step) for step in stage) for stage in raw)


def load(document: Mapping[str, Any], where: str = "") -> Plan:
    """The plan in that document. BadInput when it is none, or when its content no longer matches its id."""
    if document.get("kind", "Plan") != "Plan":
        raise BadInput(f"kind is {document.get('kind')!r}, not 'Plan'", where=where, slug="not-a-plan")
    try:
        plan = Plan(
            id=document["id"],
            groups=tuple(
                Group(
                    nodes=tuple(raw["nodes"]),
                    vendor=raw["vendor"],
                    model=raw["model"],
                    start=dict(raw["start"]),
                    target=dict(raw["target"]),
                    stages=_stages(raw["stages"]),
                    back=None if raw["back"] is None else _stages(raw["back"]),
                    reasons={k: tuple(_reason(r) for r in v) for k, v in raw["reasons"].items()},
                )
                for raw in document["groups"]
            ),
            waves=tuple(tuple(wave) for wave in document["waves"]),
            refusals=dict(document["refusals"]),
            starts=dict(document["starts"]),
            matrix=document["matrix"],
            policy=dict(document["policy"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadInput(f"the plan lacks or misspells a field: {error}", where=where, slug="not-a-plan") from error
    if plan.id != "p-" + digest(content(plan)).removeprefix("sha256:")[:12]:
        raise BadInput(
            f"the content does not match the id {plan.id!r}: the file was edited",
            where=where,
            hint="make a new one: fleet plan NODES --to … -o json > plan.json",
            slug="edited-plan",
        )
    return plan
