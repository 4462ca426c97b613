"""`fleet audit` and `fleet stack` as a person runs them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fleet.audit import audit, look
from fleet.core.drift import Baseline
from fleet.core.model import Accelerator, ComponentFact, Facts, Node, OsFacts
from fleet.inventory import open_inventory
from fleet.probe import Probed
from tests.cli.command import Done, Fleet

NOW = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def said(name: str, driver: ComponentFact, at: str = NOW, vendor: str = "nvidia") -> Facts:
    cards = (Accelerator(vendor, "H100-SXM5-80GB", uuid=name),)
    return Facts(name, OsFacts("debian", "12", "6.1.0-31-amd64", "x86_64"), vendor, {"driver": driver}, cards, at=at)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """gpu1 and gpu2 are as they should be, gpu3 is not, gpu4 has not rebooted, gpu5 never answered."""
    inventory = open_inventory(Fleet(tmp_path).url)
    inventory.add([Node(f"gpu{n}", f"gpu{n}") for n in range(1, 6)])
    right, wrong = ComponentFact("580.1", "580.1"), ComponentFact("570.1", "570.1")
    facts = [
        said("gpu1", right),
        said("gpu2", right),
        said("gpu3", wrong),
        said("gpu4", ComponentFact("580.1", "570.1")),
    ]
    inventory.record(facts)
    inventory.save_baseline(Baseline("best", {"driver": "580.1"}, "nvidia"), "li", NOW)
    inventory.close()
    return tmp_path


def fleet(state: Path, *args: str, stdin: str = "") -> Done:
    return Fleet(state)(*args, stdin=stdin)


@pytest.mark.parametrize(
    ("nodes", "more", "code"),
    [
        ("gpu[1-2]", [], 0),
        ("gpu[1-3]", [], 4),
        ("gpu[1-3]", ["--detailed-exitcode"], 3),
        ("gpu4", [], 4),
        ("gpu[1,5]", [], 6),
        ("@all", [], 6),
        ("gpu1", ["--max-age", "7d"], 0),
        ("nope", [], 2),
    ],
)
def test_exit_status(state: Path, nodes: str, more: list[str], code: int) -> None:
    assert fleet(state, "audit", nodes, "--baseline", "best", *more).code == code


def test_a_reading_command_takes_all_by_default(state: Path) -> None:
    done = fleet(state, "audit", "--baseline", "best", "-o", "json")
    report = json.loads(done.out)
    assert (done.code, report["apiVersion"], report["kind"]) == (6, "fleet/v1", "AuditReport")
    assert {row["name"]: row["result"] for row in report["nodes"]} == {
        "gpu1": "ok", "gpu2": "ok", "gpu3": "drift", "gpu4": "drift", "gpu5": "unknown",
    }  # fmt: skip
    assert report["summary"] == {"ok": 6, "drift": 2, "unknown": 1, "waived": 0}
    drift = [row for row in report["findings"] if row["result"] == "drift"]
    assert [(row["node"], row["kind"], row["expected"], row["found"]) for row in drift] == [
        ("gpu3", "installed", "580.1", "570.1"), ("gpu4", "loaded", "580.1", "570.1"),
    ]  # fmt: skip
    again = json.loads(fleet(state, "audit", "--baseline", "best", "-o", "json").out)
    assert [row["fingerprint"] for row in again["findings"]] == [row["fingerprint"] for row in report["findings"]]


def test_the_other_forms(state: Path) -> None:
    table = fleet(state, "audit", "--baseline", "best")
    assert "gpu3" in table.out and "reboot is owed" in table.out and "ok: gpu[1-2] (2)" in table.err
    assert fleet(state, "audit", "--baseline", "best", "-o", "name").out.split() == ["gpu3", "gpu4", "gpu5"]
    root = ET.fromstring(fleet(state, "audit", "--baseline", "best", "-o", "junit").out)
    assert (root.tag, root.get("tests"), root.get("failures"), root.get("errors")) == ("testsuites", "9", "2", "1")
    assert [suite.get("name") for suite in root] == [f"gpu{n}" for n in range(1, 6)]
    assert [case.get("classname") for case in root.iter("testcase") if case.find("failure") is not None] == [
        "gpu3",
        "gpu4",
    ]


def test_what_fails_together_is_named(state: Path) -> None:
    inventory = open_inventory(Fleet(state).url)
    inventory.put([Node(f"gpu{n}", f"gpu{n}", rack="r1" if n < 3 else "r2") for n in range(1, 5)])
    inventory.close()
    assert "drift: gpu[3-4] (2), all of rack r2" in fleet(state, "audit", "--baseline", "best").err


def test_a_baseline_from_a_file(state: Path) -> None:
    (state / "b.yaml").write_text('stack:\n  driver: "570.*"\n')
    assert fleet(state, "audit", "gpu3", "--baseline", "b.yaml").code == 0
    solution = json.dumps({"kind": "Solution", "stack": {"driver": "570.1"}, "road": []})
    assert fleet(state, "audit", "gpu3", "--baseline", "-", stdin=solution).code == 0
    for text, where in (
        ("stack: {drivr: '1'}", "b.yaml:1"),
        ("stack:\n  driver: 570.10\n", "b.yaml:2"),
        ("- a\n", "b.yaml:1"),
    ):
        (state / "b.yaml").write_text(text)
        done = fleet(state, "audit", "gpu3", "--baseline", "b.yaml")
        assert done.code == 2 and where in done.err, text
    assert fleet(state, "audit", "gpu3", "--baseline", "nope").code == 2
    assert fleet(state, "audit", "gpu3").code == 2


def test_stacks(state: Path) -> None:
    assert fleet(state, "stack", "save", "seen", "--from-node", "gpu3").code == 0
    shown = json.loads(fleet(state, "stack", "show", "seen", "-o", "json").out)
    assert (shown["vendor"], shown["model"], shown["stack"]) == ("nvidia", "H100-SXM5-80GB", {"driver": "570.1"})
    (state / "seen.yaml").write_text(fleet(state, "stack", "show", "seen", "-o", "yaml").out)
    assert fleet(state, "stack", "save", "copy", "--file", "seen.yaml", "--set", "container-toolkit=1.17").code == 0
    assert fleet(state, "stack", "list", "-o", "name").out.split() == ["best", "copy", "seen"]
    assert json.loads(fleet(state, "stack", "list", "-o", "json").out)["baselines"][1]["stack"] == {
        "container_toolkit": "1.17", "driver": "570.1",
    }  # fmt: skip
    assert "580.1" in fleet(state, "stack", "list").out
    assert fleet(state, "stack", "remove", "copy").code == 0
    assert fleet(state, "stack", "remove", "copy").code == 2
    for args in (["x"], ["x", "--from-node", "gpu5"], ["x", "--set", "drivr=1"], ["x y", "--set", "driver=1"]):
        assert fleet(state, "stack", "save", *args).code == 2, args


def test_old_and_silent_answers_are_unknown() -> None:
    now = datetime(2030, 1, 2, tzinfo=UTC)
    right = ComponentFact("580.1", "580.1")
    facts = {
        n: said(n, right, at) for n, at in (("a", "2030-01-01T23:00:00Z"), ("b", "2029-12-01T00:00:00Z"), ("c", ""))
    }
    report = audit(
        ["a", "b", "c"], facts, [Baseline("x", {"driver": "580.1"})], now, max_age=timedelta(hours=2)
    )  # fmt: skip
    assert report.nodes == {"a": "ok", "b": "unknown", "c": "unknown"}
    report = audit(["a"], facts, [Baseline("x", {"driver": "580.1"})], now, silent={"a": "no route"})
    assert (report.nodes, report.exit_code()) == ({"a": "unknown"}, 6)


def test_each_vendor_has_its_baseline() -> None:
    facts = {"a": said("a", ComponentFact("1", "1")), "b": said("b", ComponentFact("2", "2"), vendor="ascend")}
    baselines = [Baseline("n", {"driver": "1"}, "nvidia"), Baseline("h", {"driver": "2"}, "ascend")]
    report = audit(["a", "b"], facts, baselines, datetime(2030, 1, 2, tzinfo=UTC))
    assert (report.baselines, report.exit_code()) == ({"a": "n", "b": "h"}, 0)
    report = audit(["a", "b"], facts, baselines[:1], datetime(2030, 1, 2, tzinfo=UTC))
    assert (report.nodes["b"], report.exit_code()) == ("unknown", 6)


def test_a_fresh_look_that_finds_nobody_is_unknown(state: Path) -> None:
    inventory = open_inventory(Fleet(state).url)
    inventory.put([Node("gpu1", "127.0.0.1", 1)])
    inventory.close()
    form = (Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    (state / "key").write_bytes(Ed25519PrivateKey.generate().private_bytes(*form))
    (state / "key").chmod(0o600)
    args = ["audit", "gpu1", "--baseline", "best", "--probe", "-o", "json"]
    done = Fleet(state)(*args, env={"FLEET_SSH_KEY": str(state / "key")})
    found = json.loads(done.out)["findings"]
    assert (done.code, [(row["kind"], row["result"]) for row in found]) == (6, [("probe", "unknown")])


def test_a_fresh_look_is_recorded_and_judged(state: Path) -> None:
    inventory = open_inventory(Fleet(state).url)
    nodes = inventory.nodes(["gpu1", "gpu2", "gpu5"])
    fresh = said("gpu5", ComponentFact("580.1", "580.1"))
    results = [
        Probed(nodes[2], "answered", "done", fresh, {"sha256:1": b"raw"}),
        Probed(nodes[1], "silent", "connect", detail="no route"),
    ]
    assert look(nodes, inventory, results) == {"gpu1": "not looked at", "gpu2": "silent: no route"}
    assert inventory.facts(["gpu5"]) == {"gpu5": fresh} and inventory.raw("sha256:1") == b"raw"
    inventory.close()
