"""Hostile and clumsy use: a clear sentence with a slug and a hint, never a traceback, never without end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.core.errors import BadInput
from fleet.core.model import Hold, Node
from fleet.core.nodeset import expand, fold
from fleet.inventory import intake, open_inventory, record
from tests.cli.command import Done, Fleet

ZEROES = Path("/dev/zero")


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def refused(done: Done, slug: str) -> None:
    assert done.code == 2 and f"[{slug}]" in done.err and "\nhint: " in done.err and "Traceback" not in done.err


@pytest.mark.parametrize(
    ("words", "slug"),
    [
        (["node", "import", ""], "no-file"),
        (["node", "import", "."], "no-file"),
        (["node", "import", "n" * 300], "no-file"),
        (["node", "add", "g", "10.0.0.1", "--rack", "\x1b[31m"], "bad-field"),
        (["node", "hold", "gpu1", "--why", "two\nlines"], "bad-input"),
        (["node", "hold", "gpu1", "--why", " "], "bad-input"),
        (["node", "hold", "gpu1", "--why", "x", "--until", "0001-01-01T00:00:00+14:00"], "bad-input"),
        (["node", "hold", "gpu1", "--why", "x", "--until", "2001-01-01"], "bad-input"),
        (["node", "list", "9" * 5000], "bad-nodeset"),
        (["node", "list", f"[1-{'9' * 5000}]"], "bad-nodeset"),
        (["node", "list", "-l", f"count<{'9' * 5000}"], "bad-selector"),
        (["node", "show", "9" * 5000], "unknown-node"),
        (["node", "trust", "gpu1", "--key", "ssh-ed25519 é"], "bad-host-key"),
        (["artifact", "add", "[" * 5000], "unrecognised-artifact"),
        (["evidence", "verify", "1" * 5000], "unknown-run"),
        (["db", "log", "--limit", "9" * 20], "usage"),
        (["vendor", "parse", "nvidia", ".", "--command", "nvidia-smi"], "no-file"),
        (["audit", "--baseline", "/"], "no-file"),
    ],
)
def test_junk_is_refused_with_a_hint(fleet: Fleet, words: list[str], slug: str) -> None:
    fleet("node", "add", "gpu1", "10.0.0.1")
    refused(fleet(*words), slug)


@pytest.mark.skipif(not ZEROES.exists(), reason="no /dev/zero here")
def test_a_file_without_end(fleet: Fleet) -> None:
    refused(fleet("node", "import", str(ZEROES)), "too-large")


def test_aliases_of_aliases_are_not_written_out() -> None:
    lists = ["- {name: g0, facts: &x0 [" + ",".join("x" * 200) + "]}"]
    lists += [f"- {{name: g{i}, facts: &x{i} [{','.join([f'*x{i - 1}'] * 200)}]}}" for i in range(1, 4)]
    merges = ["- &m0 {name: g0}", *(f"- &m{i} {{<<: [*m{i - 1}, *m{i - 1}]}}" for i in range(1, 36))]
    for text in ("\n".join(lists), "\n".join(merges)):
        with pytest.raises(BadInput) as caught:
            intake.read(text.encode(), "n.yaml")
        assert caught.value.slug == "too-large"
    plain = intake.read(b"- &a {name: g1, address: 10.0.0.1}\n- {<<: *a, name: g2, address: 10.0.0.2}\n", "n.yaml")
    assert [entry.values["name"] for entry in plain] == ["g1", "g2"]


def test_long_numbers_in_names_come_back() -> None:
    names = ["g" + "1" * 40, "g" + "1" * 39 + "2"]
    assert expand(fold(names)) == names
    with pytest.raises(BadInput):
        expand(",".join(["[1-999999,1-999999]"]))


@pytest.mark.parametrize("text", ["a\u202eb", "a\x9bb", "\ud800", "x" * 5000, "a\u2028b"])
def test_text_that_cannot_be_shown_is_not_stored(text: str) -> None:
    with pytest.raises(ValueError):
        record.checked_text(text)
    assert record.checked_text(" 机柜　一 ") == "机柜　一"


def test_a_table_shows_control_characters_escaped(fleet: Fleet) -> None:
    inventory = open_inventory(f"sqlite:///{fleet.state}/inventory.db")
    inventory.add([Node("gpu1", "10.0.0.1", hold=Hold("li\x1b[2J", "a\nb"))])
    inventory.close()
    out = fleet("node", "list").out
    assert "\x1b" not in out and "\\x1b[2J" in out and len(out.splitlines()) == 2


def test_an_error_is_a_document_where_one_was_asked_for(fleet: Fleet) -> None:
    for form in (["-o", "json"], ["-ojson"], ["--output=json"]):
        done = fleet("node", "show", "nosuch", *form)
        found = json.loads(done.out)
        assert (found["kind"], found["slug"], done.code) == ("Error", "unknown-node", 2)
    assert fleet("node", "show", "nosuch", "-o", "yaml").out.startswith("apiVersion: fleet/v1\nkind: Error\n")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("FLEET_FANOUT", "0"), ("FLEET_FANOUT", "-5"), ("FLEET_FANOUT", "9" * 5000), ("FLEET_PROBE_TIMEOUT", "soon"),
        ("FLEET_SUDO", "perhaps"), ("FLEET_CHANNEL", "beta"), ("FLEET_MIN_LEVEL", "x"), ("FLEET_HOST_KEYS", "any"),
        ("FLEET_CONFIG", "/nonexistent"), ("FLEET_OPERATOR", "a\x1bb"),
    ],
)  # fmt: skip
def test_a_bad_variable_is_named(fleet: Fleet, variable: str, value: str) -> None:
    done = fleet("node", "list", env={variable: value})
    refused(done, "bad-setting")
    assert variable in done.err


@pytest.mark.parametrize(
    ("text", "slug"),
    [("fanout = ", "bad-setting"), ("ssh_user = ['a']", "bad-setting"), ("[db]\nurl = 'x'", "bad-setting"),
     ("nosuch = 1", "unknown-setting"), ("fanout = true", "bad-setting"), ("fanout = 1.5", "bad-setting")],
)  # fmt: skip
def test_a_bad_settings_file_is_named(fleet: Fleet, text: str, slug: str) -> None:
    file = fleet.folder / "config/fleet/fleet.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    done = fleet("config", "show")
    refused(done, slug)
    assert str(file) in done.err
    file.write_bytes(b"\xef\xbb\xbfoperator = '\xe5\xbc\xa0'\n")  # an editor's byte order mark does no harm
    assert "张" in fleet("config", "show").out


def test_no_password_is_shown(fleet: Fleet) -> None:
    for url in ("postgresql://u:hidden@127.0.0.1:1/x", "postgresql://127.0.0.1:1/x?user=u&password=hidden"):
        for words in (["config", "show"], ["node", "list"], ["doctor"], ["db", "current"]):
            done = fleet(*words, env={"FLEET_DB": url})
            assert "hidden" not in done.out + done.err


def _real(fleet: Fleet, words: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """The command as a process of its own, in a shell's pipeline."""
    given = {**os.environ, "FLEET_STATE_DIR": str(fleet.state), "XDG_CONFIG_HOME": str(fleet.folder / "config"), **env}
    line = f"set -o pipefail; {sys.executable} -m fleet.cli.main {words}"
    return subprocess.run(["bash", "-c", line], env=given, capture_output=True, timeout=60, check=False)


def test_pipes_disks_and_locales(fleet: Fleet) -> None:
    rows = "".join(f"n{i},10.1.{i // 250}.{i % 250},机柜\n" for i in range(2000))
    assert fleet("node", "import", "-", "--format", "csv", stdin=f"name,address,rack\n{rows}").code == 0
    closed = _real(fleet, "node list | head -1")
    assert (closed.returncode, closed.stderr) == (0, b"")
    full = _real(fleet, "node list > /dev/full")
    assert full.returncode == 1 and b"[disk-full]" in full.stderr and b"Traceback" not in full.stderr
    latin = _real(fleet, "node list n1 -o json", PYTHONIOENCODING="latin-1", PYTHONUTF8="0")
    assert json.loads(latin.stdout)["nodes"][0]["rack"] == "机柜"


def test_the_unforeseen_is_reported_as_a_fault_of_fleet(fleet: Fleet) -> None:
    fleet.state.mkdir()
    (fleet.state / "evidence").mkdir()
    (fleet.state / "evidence/runs").mkdir()
    (fleet.state / "evidence/runs/x.jsonl").mkdir()
    done = fleet("evidence", "list")
    assert done.code in (1, 2) and "Traceback" not in done.err and "\nhint: " in done.err
