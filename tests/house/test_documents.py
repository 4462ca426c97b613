"""The schemas are schemas, with the code's own words; and two documents that no other test holds to theirs fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import jsonschema
import pytest

from fleet.core.gate import VERDICTS
from fleet.core.move import STAGES, Request, RolloutState
from fleet.core.task import OWED, STATES, Direction
from fleet.inventory.outbox import KINDS
from tests.cli.command import Fleet

SCHEMAS = Path(__file__).resolve().parents[2] / "docs/schema"


@pytest.mark.parametrize("file", sorted(SCHEMAS.glob("*.json")), ids=lambda f: f.stem)
def test_each_schema_is_one_and_names_its_kind(file: Path) -> None:
    schema = json.loads(file.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["kind"] == {"const": file.stem}


WORDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "state": ("Rollout/properties/state", get_args(RolloutState)),
    "state in a list": ("RolloutList/properties/items/items/properties/state", get_args(RolloutState)),
    "state by why": ("NodeWhy/properties/rollout/anyOf/1/properties/rolloutState", get_args(RolloutState)),
    "request": ("Rollout/properties/request", get_args(Request)),
    "node": ("Rollout/properties/nodes/items/properties/state", STATES),
    "direction": ("Rollout/properties/nodes/items/properties/direction", get_args(Direction)),
    "direction of a step": ("Rollout/properties/steps/items/properties/direction", get_args(Direction)),
    "phase": ("Rollout/properties/steps/items/properties/phase", tuple(OWED)),
    "stage": ("Rollout/properties/approvals/items/properties/stage", STAGES),
    "verdict": ("Notification/properties/detail/properties/verdict", VERDICTS),
    "event": ("Notification/properties/event", KINDS),
}


@pytest.mark.parametrize(("place", "words"), WORDS.values(), ids=WORDS.keys())
def test_the_words_of_rollouts_are_those_of_the_code(place: str, words: tuple[str, ...]) -> None:
    name, *keys = place.split("/")
    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    for key in keys:
        schema = schema[int(key) if key.isdigit() else key]
    assert set(schema["enum"]) == set(words)


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
