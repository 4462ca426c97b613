"""Baselines from files: `stack:` with a version for each component, as `fleet stack show` and solutions write it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from fleet.core.drift import Baseline
from fleet.core.errors import BadInput
from fleet.core.model import COMPONENTS, component
from fleet.core.version import Range
from fleet.inventory.yamltree import compose


def read_baseline(data: bytes, path: str) -> Baseline:
    """The baseline of a YAML or JSON file. Raises BadInput naming file, line and field."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput("the file is not UTF-8 text", where=path) from None
    tree = compose(text, path)
    members = dict(tree.items()) if tree.is_mapping else {}
    if "stack" not in members or not members["stack"].is_mapping:
        raise BadInput(
            "field 'stack' is missing, or no mapping", where=f"{path}:{tree.line}", hint='stack: {driver: "580.1"}'
        )
    stack: dict[str, str] = {}
    for key, child in members["stack"].items():
        stack |= checked_stack({key: child.value()}, f"{path}:{child.key_line}")
    texts = {}
    for key in ("name", "vendor", "model"):
        value = members[key].value() if key in members else ""
        if not isinstance(value, str):
            raise BadInput(f"field {key!r} must be text", where=f"{path}:{members[key].line}")
        texts[key] = value
    return Baseline(texts["name"] or PurePath(path).stem, stack, texts["vendor"], texts["model"])


def checked_stack(stack: Mapping[str, Any], where: str) -> dict[str, str]:
    """component -> version, names made canonical. Raises BadInput for a component or a version that cannot be."""
    out: dict[str, str] = {}
    for key, value in stack.items():
        name = component(key)
        if name is None:
            close = difflib.get_close_matches(key, COMPONENTS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"components are {', '.join(COMPONENTS)}"
            raise BadInput(f"component {key!r} is not known", where=where, hint=hint, slug="unknown-component")
        if not isinstance(value, str) or not value.strip():
            raise BadInput(
                f"field {key!r} cannot be {value!r}: a version is text, in quotes, since 580.10 and 580.1 are two",
                where=where, slug="bad-field",
            )  # fmt: skip
        if value.strip()[:1] in "<>=!*" or value.strip().startswith("in ["):
            Range.parse(value)  # a range that cannot be read is worth a complaint now, not at the next audit
        out[name] = value.strip()
    return out
