"""The forms of `fleet matrix check`: SARIF that follows the standard, annotations, JUnit; stored answers; diff."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from compat_matrix.document import Problem
from fleet.cli.findings import address, github, junit, sarif
from fleet.core.model import Accelerator, ComponentFact, Facts, Node, OsFacts
from fleet.inventory import open_inventory
from tests.matrix.conftest import HEAD, Ran
from tests.matrix.test_reach import DRIVERS, ROW, rules

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schema"
# What SARIF 2.1.0 (OASIS, sections 3.13 to 3.30) demands of the parts that are used here.
SARIF: dict[str, Any] = {
    "type": "object", "required": ["version", "runs"], "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "format": "uri"}, "version": {"const": "2.1.0"},
        "runs": {"type": "array", "items": {
            "type": "object", "required": ["tool", "results"], "additionalProperties": False,
            "properties": {
                "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                "tool": {"type": "object", "required": ["driver"], "properties": {"driver": {
                    "type": "object", "required": ["name"], "additionalProperties": False,
                    "properties": {
                        "name": {"type": "string"}, "version": {"type": "string"},
                        "rules": {"type": "array", "uniqueItems": True, "items": {
                            "type": "object", "required": ["id"], "additionalProperties": False,
                            "properties": {"id": {"type": "string"}, "shortDescription": {"$ref": "#/$defs/message"}},
                        }},
                    },
                }}},
                "results": {"type": "array", "items": {
                    "type": "object", "required": ["message"], "additionalProperties": False,
                    "properties": {
                        "ruleId": {"type": "string"}, "ruleIndex": {"type": "integer", "minimum": 0},
                        "level": {"enum": ["none", "note", "warning", "error"]},
                        "message": {"$ref": "#/$defs/message"},
                        "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
                        "locations": {"type": "array", "items": {
                            "type": "object", "required": ["physicalLocation"], "additionalProperties": False,
                            "properties": {"physicalLocation": {
                                "type": "object", "additionalProperties": False,
                                "properties": {
                                    "artifactLocation": {"type": "object", "properties": {
                                        "uri": {"type": "string", "pattern": "^[A-Za-z0-9._~:/%@+=-]+$"}}},
                                    "region": {"type": "object", "properties": {
                                        "startLine": {"type": "integer", "minimum": 1}}},
                                },
                            }},
                        }},
                    },
                }},
            },
        }},
    },
    "$defs": {"message": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}},
}  # fmt: skip
FOUND = [
    Problem("matrix.d/nvidia/ours.yaml", 3, "100 % wrong: a, b\nand c", "bad-range"),
    Problem("/somewhere/else/my tables.yaml", 0, "a \x00 sign", "bad-yaml"),
    Problem("matrix.d/nvidia/ours.yaml", 9, "catches nothing", "dead-rule", "warning"),
    Problem("matrix.d/nvidia/ours.yaml", 12, "catches nothing", "dead-rule", "warning"),
]


def test_sarif_follows_the_standard() -> None:
    log = json.loads(sarif(FOUND, FOUND[:2], Path("/work")))
    jsonschema.Draft202012Validator(SARIF).validate(log)
    (run,) = log["runs"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    assert [r["level"] for r in run["results"]] == ["error", "error", "warning", "warning"]
    marks = [r["partialFingerprints"]["fleetMatrix/v1"] for r in run["results"]]
    assert len(set(marks)) == 4
    moved = [Problem(p.path, p.line + 50, p.text, p.slug, p.severity) for p in FOUND]
    later = json.loads(sarif(moved, moved[:2], Path("/work")))["runs"][0]["results"]
    assert [r["partialFingerprints"]["fleetMatrix/v1"] for r in later] == marks
    jsonschema.Draft202012Validator(SARIF).validate(json.loads(sarif([], [], Path("/work"))))


def test_addresses() -> None:
    assert address("/work/a b.yaml", Path("/work")) == "a%20b.yaml"
    assert address("/else/a.yaml", Path("/work")) == "file:///else/a.yaml"
    assert address("a/b.yaml", Path("/work")) == "a/b.yaml"


def test_annotations_are_one_line_each() -> None:
    lines = github(FOUND, FOUND[:1], Path("/work")).splitlines()
    assert len(lines) == 4
    assert lines[0] == (
        "::error file=matrix.d/nvidia/ours.yaml,line=3,title=bad-range::100 %25 wrong: a, b%0Aand c"
    )  # fmt: skip
    assert lines[1].startswith("::warning file=/somewhere/else/my tables.yaml,line=1,title=bad-yaml::")
    assert all(re.match(r"::(error|warning) file=[^:,]+,line=\d+,title=[^:,]+::[^\r\n]+$", line) for line in lines)


def test_junit_holds_what_xml_cannot() -> None:
    suite = ElementTree.fromstring(junit(FOUND, FOUND[:2]))
    assert (suite.get("tests"), suite.get("failures")) == ("4", "2")
    assert ElementTree.fromstring(junit([], [])).find("testcase") is not None


def site(folder: Path, text: str) -> Path:
    (folder / "acme").mkdir(parents=True, exist_ok=True)
    (folder / "acme" / "t.yaml").write_text(text)
    return folder


CASE = 'hardware: {vendor: acme, model: M1}\nos: {id: ubuntu, version: "22.04"}\n'


def case(folder: Path, name: str, wanted: str = "kind: Solution\n") -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "request.yaml").write_text(CASE)
    (folder / name / "expect.yaml").write_text(wanted)
    return folder


MORE = HEAD + DRIVERS + f'  - {{component: driver, version: "2.5", channel: stable, {ROW}}}\n'


def test_check_speaks_every_form(fleet: Callable[..., Ran], tmp_path: Path) -> None:
    path = str(site(tmp_path / "site", HEAD + DRIVERS + rules('relation: requires, needs: {driver: ">=l"}')))
    log = fleet("matrix", "check", "--matrix-path", path, "--format", "sarif")
    assert log.code == 4
    jsonschema.Draft202012Validator(SARIF).validate(json.loads(log.out))
    assert any(r["ruleId"] == "bad-range" or r["level"] == "error" for r in json.loads(log.out)["runs"][0]["results"])
    lines = fleet("matrix", "check", "--matrix-path", path, "--format", "github")
    assert lines.code == 4 and "::error file=" in lines.out


def test_a_class_that_moved_is_an_error(fleet: Callable[..., Ran], tmp_path: Path) -> None:
    path, cases = str(site(tmp_path / "site", HEAD + DRIVERS)), tmp_path / "cases"
    for name in ("one", "two", "three"):
        case(cases, name)
    stored = str(tmp_path / "answers.json")
    common = ("matrix", "check", "--matrix-path", path, "--cases", str(cases))
    assert fleet(*common, "--answers", stored).code == 2
    assert fleet(*common, "--write-answers", stored).code == 0
    assert fleet(*common, "--answers", stored).code == 0
    site(tmp_path / "site", MORE)
    moved = fleet(*common, "--answers", stored)
    assert moved.code == 4
    assert (
        "answers.json:1: error: this change moves 3 node classes from driver 2.0 to driver 2.5: one, three" in moved.out
    )
    case(cases, "four")
    assert "four: no answer is stored" in fleet(*common, "--answers", stored).out
    Path(stored).write_text("[]")
    assert fleet(*common, "--answers", stored).code == 2
    assert fleet("matrix", "check", "--answers", stored).code == 2


@pytest.fixture
def checked() -> Callable[[Ran], dict[str, Any]]:
    schema = json.loads((SCHEMAS / "MatrixDiff.json").read_text(encoding="utf-8"))

    def check(ran: Ran) -> dict[str, Any]:
        jsonschema.Draft202012Validator(schema).validate(ran.json)
        return ran.json

    return check


def git(folder: Path, *args: str) -> None:
    name = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *name, *args], check=True, capture_output=True)


def test_diff_of_a_revision(
    fleet: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checked: Callable[[Ran], dict[str, Any]]
) -> None:
    repo = tmp_path / "repo"
    path = site(repo / "matrix.d", HEAD + DRIVERS)
    cases = case(repo / "cases", "one", 'kind: Solution\nstack: {driver: "2.0"}\n')
    git(repo, "init", "-q")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "first")
    monkeypatch.setenv("FLEET_MATRIX_PATH", str(path))
    same = fleet("matrix", "diff", "HEAD", "--cases", str(cases), "--detailed-exitcode")
    assert same.code == 0 and "the tables are the same" in same.out
    site(path, MORE)
    ran = fleet("matrix", "diff", "HEAD", "--cases", str(cases), "--detailed-exitcode", "-o", "json")
    body = checked(ran)
    assert ran.code == 3
    assert body["moves"] == [{"from": "driver 2.0", "to": "driver 2.5", "classes": ["case one"]}]
    assert [(r["what"], r["row"]) for r in body["rows"]] == [("added", "driver 2.5")]
    assert body["expectations"] == [{"case": "one", "before": "as expected", "after": "driver is 2.5, not 2.0"}]
    text = fleet("matrix", "diff", "HEAD", "--cases", str(cases))
    assert text.code == 0 and "this change moves 1 node class from driver 2.0 to driver 2.5: case one" in text.out
    missing = fleet("matrix", "diff", "no-such-revision")
    assert missing.code == 2 and "unknown-revision" in missing.err
    assert fleet("matrix", "diff", "HEAD", "--cases", "/nonexistent").code == 2


def test_diff_of_a_folder_with_the_fleet(
    fleet: Callable[..., Ran], tmp_path: Path, checked: Callable[[Ran], dict[str, Any]]
) -> None:
    (tmp_path / "state").mkdir()
    inventory = open_inventory(f"sqlite:///{tmp_path}/state/inventory.db")
    inventory.add([Node(f"gpu{i}", f"127.0.0.{i}") for i in (1, 2)])
    system = OsFacts("ubuntu", "24.04", "6.8.0-87-generic", "x86_64")
    now = {"driver": ComponentFact("580.95.05", "580.95.05"), "driver_flavour": ComponentFact("open", "open")}
    cards = (Accelerator("nvidia", "L40S", bus_id="0000:01:00.0"),)
    inventory.record([Facts(n, system, "nvidia", now, cards, {"nvswitch": False}) for n in ("gpu1", "gpu2")], {})
    inventory.close()
    (tmp_path / "empty" / "compat_matrix").mkdir(parents=True)
    body = checked(fleet("matrix", "diff", str(tmp_path / "empty"), "-o", "json"))
    (move,) = body["moves"]
    assert (move["from"], move["classes"]) == ("no stack", ["gpu[1-2]"]) and "driver 595.91.07" in move["to"]
    assert {r["what"] for r in body["rows"]} == {"added"}
    text = fleet("matrix", "diff", str(tmp_path / "empty"), "gpu1")
    assert "this change moves 1 node class from no stack" in text.out
