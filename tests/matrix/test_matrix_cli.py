"""`fleet matrix` and `fleet why` as a person and a script meet them: documents, lines, exit statuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.matrix.conftest import HEAD, Ran

REQUEST = """
hardware: {vendor: nvidia, model: H100-SXM5-80GB, count: 8, arch: x86_64, nvswitch: true}
os: {id: ubuntu, version: "22.04", kernel: 6.8.0-87-generic}
current: {driver: 580.82.07, driver_flavour: open, fabricmanager: 580.82.07}
wish: {driver: "580.95.05"}
"""
CLASH = REQUEST.replace("580.95.05", "==570.211.01") + "policy: {channel: lts}\n"
V100 = """
hardware: {vendor: nvidia, model: "Tesla V100-SXM2-32GB", count: 8, arch: x86_64}
os: {id: ubuntu, version: "22.04", kernel: 5.15.0-94-generic}
wish: {driver: "595.*"}
"""


def test_a_solution_as_json(fleet: Callable[..., Ran], file: Callable[[str], str]) -> None:
    ran = fleet("matrix", "solve", file(REQUEST), "-o", "json")
    body = ran.json
    assert ran.code == 0 and (body["apiVersion"], body["kind"]) == ("fleet/v1", "Solution")
    assert body["stack"]["driver"] == body["stack"]["fabricmanager"] == "580.95.05"
    (stage,) = body["road"]
    assert {"component": "driver", "from": "580.82.07", "to": "580.95.05"} in stage["steps"]
    assert stage["reboot"] is True and stage["activation"] == "reboot" and stage["allowed"] is True
    assert body["back"][0]["steps"][0] == {"component": "driver", "from": "580.95.05", "to": "580.82.07"}
    assert body["matrix"].startswith("sha256:") and body["level"] in ("community", "observed", "vendor", "validated")
    for component in body["stack"]:
        assert all(reason["text"] and reason["source"]["title"] for reason in body["reasons"][component])


def test_a_conflict_as_json_exits_5(fleet: Callable[..., Ran], file: Callable[[str], str]) -> None:
    ran = fleet("matrix", "solve", file(V100), "-o", "json")
    assert ran.code == 5 and ran.json["kind"] == "Conflict"
    texts = [cause["text"] for cause in ran.json["causes"]]
    assert any("you wish driver 595.*" in t for t in texts) and any("up to branch 580" in t for t in texts)
    assert all(cause["source"]["title"] for cause in ran.json["causes"])


def test_what_a_person_reads(fleet: Callable[..., Ran], file: Callable[[str], str]) -> None:
    ran = fleet("matrix", "solve", file(REQUEST))
    assert ran.code == 0
    assert "driver          580.82.07  580.95.05" in ran.out
    assert "stage 1, then reboot" in ran.out and "Way back" in ran.out
    assert "compat_matrix/nvidia/releases.yaml:" in ran.out
    clash = fleet("matrix", "solve", file(V100))
    assert clash.code == 5 and "These clash" in clash.out and "https://docs.nvidia.com" in clash.out


def test_a_named_legacy_release_passes_every_channel(fleet: Callable[..., Ran], file: Callable[[str], str]) -> None:
    assert fleet("matrix", "solve", file(CLASH), "-o", "json").json["stack"]["driver"] == "570.211.01"


def test_the_strategy_can_be_named(fleet: Callable[..., Ran], file: Callable[[str], str]) -> None:
    request = file(REQUEST.replace('wish: {driver: "580.95.05"}', ""))
    stay = fleet("matrix", "solve", request, "--strategy", "minimal", "-o", "json")
    move = fleet("matrix", "solve", request, "--strategy", "newest", "-o", "yaml")
    assert stay.json["road"] == []
    assert "595.91.07" in move.out


def test_standard_input(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "fleet.cli.main", "matrix", "solve", "-", "-o", "json"],
        input=REQUEST, capture_output=True, text=True, check=False,
        env={"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path), "FLEET_MATRIX_PATH": "", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["kind"] == "Solution"


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("hardware: {vendor: nvidia}\n", ":1", "hardware.model"),
        (REQUEST + "whish: {}\n", ":6", "whish"),
        ("hardware: [\n", ":2", "not YAML"),
        (REQUEST.replace("vendor: nvidia", "vendor: nobody"), "", "no vendor 'nobody'"),
    ],
)
def test_a_bad_file_is_one_error(
    fleet: Callable[..., Ran], file: Callable[[str], str], text: str, where: str, words: str
) -> None:
    ran = fleet("matrix", "solve", file(text))
    assert ran.code == 2 and ran.out == ""
    assert ran.err.count("error:") == 1 and words in ran.err
    assert not where or f"request.yaml{where}" in ran.err


def test_a_missing_file_and_a_binary_one(fleet: Callable[..., Ran], tmp_path: Path) -> None:
    assert fleet("matrix", "solve", str(tmp_path / "none.yaml")).code == 2
    assert fleet("matrix", "solve", str(tmp_path)).code == 2
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in fleet("matrix", "solve", str(tmp_path / "b.yaml")).err


def test_check_of_the_shipped_tables(fleet: Callable[..., Ran]) -> None:
    ran = fleet("matrix", "check", "--cases", str(Path(__file__).resolve().parents[1] / "cases" / "matrix"))
    assert ran.code == 0, ran.out


def test_check_tells_every_error_and_exits_4(fleet: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "site" / "acme").mkdir(parents=True)
    (tmp_path / "site" / "acme" / "a.yaml").write_text(HEAD + "rules:\n  - {relation: requires}\n  - {relation: foo}\n")
    ran = fleet("matrix", "check", "--matrix-path", str(tmp_path / "site"))
    assert ran.code == 4
    lines = [line for line in ran.out.splitlines() if "error" in line]
    assert len(lines) >= 6 and all("/site/acme/a.yaml:" in line and line.endswith("]") for line in lines)
    junit = fleet("matrix", "check", "--matrix-path", str(tmp_path / "site"), "--format", "junit")
    suite = ElementTree.fromstring(junit.out)
    assert junit.code == 4
    assert int(suite.get("failures", "0")) == len(suite.findall("testcase/failure")) == len(lines)


def test_warnings_can_count(fleet: Callable[..., Ran]) -> None:
    assert fleet("matrix", "check", "--strict").code == 4
    assert fleet("matrix", "check", "--cases", "/nonexistent").code == 2


def test_broken_site_tables_stop_every_answer(
    fleet: Callable[..., Ran], file: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site" / "nvidia").mkdir(parents=True)
    (tmp_path / "site" / "nvidia" / "a.yaml").write_text("releases:\n  - {component: driver, version: 1.0}\n")
    monkeypatch.setenv("FLEET_MATRIX_PATH", str(tmp_path / "site"))
    ran = fleet("matrix", "solve", file(REQUEST))
    assert ran.code == 4 and "a.yaml:2" in ran.err and "hint: fleet matrix check" in ran.err


def test_show(fleet: Callable[..., Ran]) -> None:
    assert "nvidia" in fleet("matrix", "show").out
    assert "H100-SXM5-80GB" in fleet("matrix", "show", "nvidia").out
    rows = fleet("matrix", "show", "nvidia", "--releases", "-o", "json").json["rows"]
    assert {"component": "driver", "version": "580.95.05", "channel": "lts"}.items() <= next(
        row for row in rows if row["version"] == "580.95.05"
    ).items()
    assert fleet("matrix", "show", "nobody").code == 2
