"""The JSON documents of the inventory's commands follow their schemas, on both back ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from fleet.core.model import Accelerator, ComponentFact, Facts, OsFacts
from fleet.inventory import open_inventory
from tests.cli.command import Fleet

SCHEMAS = Path(__file__).parents[2] / "docs/schema"
COMMANDS = {
    "NodeList": ["node", "list"],
    "Node": ["node", "show", "gpu1", "--history"],
    "AuditReport": ["audit", "--baseline", "best"],
    "Baseline": ["stack", "show", "best"],
    "BaselineList": ["stack", "list"],
    "Settings": ["config", "show"],
    "Database": ["db", "current"],
    "AuditLog": ["db", "log"],
}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., str]:
    """The command on a fleet of two nodes, one of them probed."""
    fleet = Fleet(tmp_path)
    url = fleet.url if request.param == "sqlite" else request.getfixturevalue("postgresql_url")

    def call(*args: str) -> str:
        return fleet(*args, env={"FLEET_DB": url}).out

    call("node", "add", "gpu1", "10.0.0.1", "--rack", "r1", "--label", "pool=gold", "--bmc", "10.1.0.1")
    call("node", "add", "gpu2", "10.0.0.2")
    call("node", "hold", "gpu2", "--why", "硬盘", "--until", "2099-01-01")
    call("stack", "save", "best", "--set", "driver=580.1", "--vendor", "nvidia")
    inventory = open_inventory(url)
    cards = (Accelerator("nvidia", "H100-SXM5-80GB", "0000:0b:00.0", "10de:2330", 0, "GPU-1"),)
    system = OsFacts("debian", "12", "6.1.0-31-amd64", "x86_64")
    for at, version in (("2030-01-01T00:00:00Z", "570.1"), ("2030-01-02T00:00:00Z", "580.1")):
        parts = {"driver": ComponentFact(version, "570.1")}
        inventory.record([Facts("gpu1", system, "nvidia", parts, cards, {"nvswitch": True}, at=at)])
    inventory.close()
    return call


def test_every_document_follows_its_schema(run: Callable[..., str]) -> None:
    for kind, command in COMMANDS.items():
        schema = json.loads((SCHEMAS / f"{kind}.json").read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator.check_schema(schema)
        document = json.loads(run(*command, "-o", "json"))
        jsonschema.validate(document, schema)
        assert document["kind"] == kind
        wrong = {**document, "kind": "Other"}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_the_log_says_who_did_what(run: Callable[..., str]) -> None:
    entries = json.loads(run("db", "log", "-o", "json"))["entries"]
    assert [entry["what"] for entry in entries] == ["stack save", "node hold", "node add", "node add"]
    assert entries[1]["detail"] == {"nodes": "gpu2", "why": "硬盘", "until": "2099-01-01T00:00:00Z"}
    assert "硬盘" in run("db", "log") and len(run("db", "log", "-o", "jsonl", "--limit", "2").splitlines()) == 2
