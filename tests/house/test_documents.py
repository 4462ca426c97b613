"""The schemas are schemas, and the two documents that no other test holds to theirs fit: Error and Demo."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests.cli.command import Fleet

SCHEMAS = Path(__file__).resolve().parents[2] / "docs/schema"


@pytest.mark.parametrize("file", sorted(SCHEMAS.glob("*.json")), ids=lambda f: f.stem)
def test_each_schema_is_one_and_names_its_kind(file: Path) -> None:
    schema = json.loads(file.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["kind"] == {"const": file.stem}


def test_an_error_document_fits(tmp_path: Path) -> None:
    answer = Fleet(tmp_path)("node", "show", "nobody", "-o", "json")
    document = json.loads(answer.out)
    jsonschema.validate(document, json.loads((SCHEMAS / "Error.json").read_text()))
    assert document["slug"] == "unknown-node"


def test_a_demo_document_of_the_promised_form_fits() -> None:
    node = {"name": "a", "vendor": "nvidia", "before": {"driver": "1"}, "after": {"driver": "2"}, "state": "done"}
    schema = json.loads((SCHEMAS / "Demo.json").read_text())
    jsonschema.validate({"apiVersion": "fleet/v1", "kind": "Demo", "nodes": [node], "ok": True}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"apiVersion": "fleet/v1", "kind": "Demo", "nodes": [{"name": "a"}], "ok": True}, schema)
