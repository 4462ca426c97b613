"""`fleet vendor` as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

import drivers
from tests.cli.command import Fleet

VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  555.42.02  Mon Jan  1 00:00:00 UTC 2024\n"
COMMAND = "cat /proc/driver/nvidia/version"


SCHEMAS = Path(__file__).parents[2] / "docs/schema"


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def test_list_and_show(fleet: Fleet) -> None:
    assert fleet("vendor", "list", "-o", "name").out.split() == list(drivers.vendors())
    listed = json.loads(fleet("vendor", "list", "-o", "json").out)
    assert listed["kind"] == "VendorList"
    assert {v["name"] for v in listed["vendors"]} == {"nvidia", "ascend", "metax", "biren"}
    assert "10de" in fleet("vendor", "list").out
    shown = json.loads(fleet("vendor", "show", "nvidia", "-o", "json").out)
    assert (shown["kind"], "driver" in shown["components"]) == ("Vendor", True)
    assert "CAPABILITY" in fleet("vendor", "show", "nvidia").out


def test_parse_reads_a_file_or_standard_input_like_a_probe(fleet: Fleet) -> None:
    (fleet.folder / "version.txt").write_text(VERSION)
    from_file = fleet("vendor", "parse", "nvidia", "version.txt", "--command", COMMAND, "-o", "json")
    assert from_file.code == 0
    reading = json.loads(from_file.out)
    assert (reading["apiVersion"], reading["kind"], reading["status"]) == ("fleet/v1", "Reading", "ok")
    assert reading["components"]["driver"] == "555.42.02"
    expected = drivers.read_output("nvidia", COMMAND, VERSION.encode()).as_dict()
    assert {k: v for k, v in reading.items() if k not in ("apiVersion", "kind")} == expected
    from_stdin = fleet("vendor", "parse", "nvidia", "-", "--command", COMMAND, "-o", "json", stdin=VERSION)
    assert from_stdin.out == from_file.out
    assert "components.driver" in fleet("vendor", "parse", "nvidia", "version.txt", "--command", COMMAND).out


def test_the_exit_status_of_the_command_counts(fleet: Fleet) -> None:
    text = "sh: 1: nvidia-smi: not found\n"
    done = fleet("vendor", "parse", "nvidia", "-", "--command", "nvidia-smi", "--rc", "127", "-o", "json", stdin=text)
    assert json.loads(done.out)["status"] == "tool-missing"


def test_what_is_not_understood_is_unparsed_and_no_error(fleet: Fleet) -> None:
    done = fleet("vendor", "parse", "metax", "-", "--command", "mx-smi", "-o", "json", stdin="weather: fine\n")
    assert done.code == 0
    reading = json.loads(done.out)
    assert (reading["status"], reading["components"], reading["accelerators"]) == ("unparsed", {}, [])


def test_documents_follow_their_schemas(fleet: Fleet) -> None:
    parse = ["parse", "nvidia", "-", "--command", COMMAND, "-o", "json"]
    for args, text in ((["list", "-o", "json"], ""), (["show", "ascend", "-o", "json"], ""), (parse, VERSION)):
        document = json.loads(fleet("vendor", *args, stdin=text).out)
        schema = json.loads((SCHEMAS / f"{document['kind']}.json").read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(document, schema)


def test_wrong_use(fleet: Fleet) -> None:
    for args in (
        ["show", "acme-nobody"],
        ["parse", "acme-nobody", "-", "--command", "x"],
        ["parse", "nvidia", "nowhere.txt", "--command", "x"],
        ["parse", "nvidia", "-"],
    ):
        assert fleet("vendor", *args).code == 2, args
