"""`fleet why` and `fleet why-not` as a person and a script meet them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fleet.core.model import Accelerator, ComponentFact, Facts, Node, OsFacts
from fleet.inventory import open_inventory
from tests.matrix.conftest import Ran
from tests.matrix.test_matrix_cli import REQUEST, V100

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schema"
FREE = REQUEST.replace('wish: {driver: "580.95.05"}\n', "")


def checked(ran: Ran) -> dict[str, Any]:
    """The document, held against the schema of its kind."""
    body = ran.json
    schema = json.loads((SCHEMAS / f"{body['kind']}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(body)
    return body


def test_why(fleet: Callable[..., Ran], file: Callable[[str], str]) -> None:
    request = file(REQUEST)
    ran = fleet("why", request, "fabricmanager")
    assert ran.code == 0 and ran.out.startswith("fabricmanager 580.95.05\n")
    assert "refuses a driver of any other version" in ran.out and "compat_matrix/nvidia/rules.yaml:" in ran.out
    assert "driver_flavour" in fleet("why", request).out
    assert list(fleet("why", request, "fabricmanager", "-o", "json").json["reasons"]) == ["fabricmanager"]
    assert checked(fleet("why", request, "-o", "json"))["verdict"] == "chosen"
    clash = checked(fleet("why", file(V100), "-o", "json"))
    assert clash["verdict"] == "conflict" and any("up to branch 580" in c["text"] for c in clash["causes"])
    assert fleet("why", request, "drivr").code == 2
    assert fleet("why", file(V100)).code == 5


def test_why_of_nodes(fleet: Callable[..., Ran], tmp_path: Path) -> None:
    inventory = open_inventory(f"sqlite:///{tmp_path}/state/inventory.db") if _made(tmp_path / "state") else None
    assert inventory is not None
    inventory.add([Node(f"gpu{i}", f"127.0.0.{i}") for i in (1, 2, 3)])
    cards = tuple(Accelerator("nvidia", "L40S", bus_id=f"0000:0{i}:00.0") for i in range(4))
    system = OsFacts("ubuntu", "24.04", "6.8.0-87-generic", "x86_64")
    current = {"driver": ComponentFact("580.95.05", "580.95.05"), "driver_flavour": ComponentFact("open", "open")}
    inventory.record([Facts(n, system, "nvidia", current, cards, {"nvswitch": False}) for n in ("gpu1", "gpu2")], {})
    inventory.close()
    ran = fleet("why", "gpu[1-2]", "driver")
    assert ran.code == 0 and ran.out.startswith("gpu[1-2]:\ndriver ")
    listed = checked(fleet("why", "gpu[1-2]", "driver", "-o", "json"))
    assert listed["kind"] == "ExplanationList" and listed["items"][0]["nodes"] == ["gpu1", "gpu2"]
    refused = fleet("why-not", "gpu[1-2]", "driver=525.60.13", "-o", "json")
    assert refused.code == 5 and checked(refused)["items"][0]["verdict"] == "forbidden"
    assert "gpu[1-2] (4 x nvidia L40S" in fleet("why-not", "gpu[1-2]", "driver=525.60.13").out
    never = fleet("why", "gpu3")
    assert never.code == 6 and "never probed" in never.err


def _made(folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    return True


@pytest.mark.parametrize(
    ("asked", "code", "verdict", "criterion", "words"),
    [
        ("driver=525.60.13", 5, "forbidden", "", "supported-chips list from driver 525.85.05"),
        ("driver=570.211.01", 5, "forbidden", "", "taken only when the wish names it"),
        ("driver=999.1", 5, "unknown", "", "no such release is in the tables"),
        ("driver==999.1", 5, "unknown", "", "no such release is in the tables"),
        ("driver>=610", 5, "forbidden", "", "taken only when the wish names it"),
        ("driver<=580.95.05", 0, "allowed", "stale", "comes second on staleness"),
        ("driver=595.91.07", 0, "chosen", "", "newest that channel stable admits"),
        ("driver=580.95.05", 0, "allowed", "stale", "comes second on staleness"),
        ("driver-flavour=proprietary", 0, "allowed", "changes", "3 with it, 2 without"),
        ("toolkit=13.0", 0, "allowed", "not wished", "nothing asks for toolkit"),
        ("nvlsm=2025.03.1", 5, "forbidden", "", "does not apply"),
        ("kernel=5.15.0-119-generic", 0, "allowed", "fact", "fact of the node"),
        ("os=24.04", 5, "forbidden", "", "fact of the node"),
        ("mcu=1", 5, "unknown", "", "no component mcu"),
    ],
)
def test_why_not(
    fleet: Callable[..., Ran], file: Callable[[str], str], asked: str, code: int, verdict: str, criterion: str,
    words: str,
) -> None:  # fmt: skip
    request = file(FREE)
    ran = fleet("why-not", request, asked, "-o", "json")
    body = checked(ran)
    assert (ran.code, body["verdict"], body["criterion"]) == (code, verdict, criterion)
    said = [*body["causes"], *(r for found in body["reasons"].values() for r in found)]
    assert any(words in reason["text"] for reason in said), said
    assert all(reason["source"] for reason in said)
    text = fleet("why-not", request, asked)
    assert text.code == code and words in text.out


def test_why_not_says_what_a_wish_would_get(fleet: Callable[..., Ran], file: Callable[[str], str]) -> None:
    request = file(FREE)
    body = checked(fleet("why-not", request, "driver=570.211.01", "-o", "json"))
    assert body["instead"]["driver"] == "570.211.01" and body["stack"]["driver"] == "595.91.07"
    assert "a wish that names it would get: driver 570.211.01" in fleet("why-not", request, "driver=570.211.01").out


def test_why_not_where_nothing_fits_and_where_the_question_is_wrong(
    fleet: Callable[..., Ran], file: Callable[[str], str]
) -> None:
    ran = fleet("why-not", file(V100), "driver=580.95.05", "-o", "json")
    assert ran.code == 5 and "nothing fits here even without" in checked(ran)["causes"][0]["text"]
    request = file(FREE)
    assert fleet("why-not", request, "driver").code == 2
    assert fleet("why-not", request, "drivr=1").code == 2
    assert fleet("why-not", request, "driver=>>1").code == 2
    unknown = fleet("why-not", file(FREE.replace("H100-SXM5-80GB", "H1000")), "driver=1", "-o", "json")
    assert unknown.code == 5 and checked(unknown)["verdict"] == "unknown"
