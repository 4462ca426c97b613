"""`fleet node`, `fleet db`, `fleet config`, `fleet help` as a person runs them."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fleet.core.model import Accelerator, ComponentFact, Facts, OsFacts
from fleet.inventory import open_inventory
from tests.cli.command import Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def test_from_add_to_remove(fleet: Fleet) -> None:
    assert fleet("node", "add", "gpu1", "--address", "10.0.0.1", "--rack", "r7", "--label", "pool=gold").code == 0
    assert fleet("node", "add", "gpu2", "10.0.0.2", "--port", "2222").code == 0
    assert fleet("node", "add", "gpu3", "10.0.0.3", "--address", "10.0.0.4").code == 2
    again = fleet("node", "add", "gpu1")
    assert (again.code, "duplicate-node" in again.err) == (2, True)
    assert fleet("node", "add", "gpu3", "--address", "10.0.0.999").code == 2
    assert fleet("node", "label", "gpu[1-2]", "owner=li", "pool-").code == 0
    assert fleet("node", "hold", "gpu1", "--why", "disk").code == 0
    assert fleet("node", "lifecycle", "broken", "gpu2").code == 0
    shown = json.loads(fleet("node", "show", "gpu1", "-o", "json").out)
    assert (shown["kind"], shown["node"]["labels"], shown["node"]["hold"]["why"]) == ("Node", {"owner": "li"}, "disk")
    assert fleet.names("-l", "hold") == ["gpu1"] and fleet.names("@state:broken") == ["gpu2"]
    assert fleet("node", "release", "@all").code == 2  # everything: asks, and nobody is there
    assert fleet("node", "release", "@all", "-y").code == 0
    assert fleet("node", "remove", "gpu1").code == 2
    assert fleet("node", "remove", "gpu1", "-y").code == 0
    assert fleet.names() == ["gpu2"]


def test_a_changing_command_never_takes_all(fleet: Fleet) -> None:
    fleet("node", "add", "gpu1")
    for args in (["label", "a=b"], ["hold", "--why", "x"], ["release"], ["remove", "-y"], ["trust", "-y"]):
        done = fleet("node", *args)
        assert (done.code, "no-nodes" in done.err) == (2, True), args
    assert fleet("node", "remove", "-l", "a=b", "-y").code == 0  # a selector that means none
    assert fleet.names() == ["gpu1"]


def test_import_is_all_or_nothing_and_export_comes_back(fleet: Fleet) -> None:
    (fleet.folder / "bad.yaml").write_text("- {name: a, address: 10.0.0.1}\n- {name: b, address: nowhere/1}\n")
    bad = fleet("node", "import", "bad.yaml")
    assert bad.code == 2 and "bad.yaml:2" in bad.err and "'address'" in bad.err and bad.out == ""
    assert fleet.names() == []
    assert fleet("node", "import", "nowhere.yaml").code == 2
    text = "name,address,rack,labels\ngpu1,10.0.0.1,r1,pool=gold;owner=li\ngpu2,10.0.0.2,r1,\n"
    assert fleet("node", "import", "-", "--format", "csv", "--dry-run", stdin=text).code == 0
    assert fleet.names() == []
    assert fleet("node", "import", "-", "--format", "csv", stdin=text).code == 0
    for form in ("yaml", "csv", "ansible"):
        exported = fleet("node", "export", "--format", form).out
        other = Fleet(fleet.folder / form)
        other.folder.mkdir()
        given = "ansible-json" if form == "ansible" else form
        assert other("node", "import", "-", "--format", given, stdin=exported).code == 0
        assert other("node", "list", "-o", "json").out == fleet("node", "list", "-o", "json").out
    listed = fleet("node", "list", "-o", "yaml").out
    assert fleet("node", "import", "-", "--update", stdin=listed).err.startswith("added 0, changed 0, left 2")
    assert fleet("node", "import", "-", "--update", stdin=text.replace("r1", "r2")).code == 2  # changes: wants a yes
    assert fleet("node", "import", "-", "--update", "-y", stdin=text.replace("r1", "r2")).code == 0
    assert fleet.names("@rack:r2") == ["gpu1", "gpu2"]


def test_an_inventory_program_of_two_lines(fleet: Fleet) -> None:
    fleet("node", "add", "gpu1", "--address", "10.0.0.1", "--rack", "r1", "--user", "ops")
    listed = json.loads(fleet("node", "export", "--format", "ansible", "--list").out)
    assert listed["rack_r1"] == {"hosts": ["gpu1"]}
    host = json.loads(fleet("node", "export", "--format", "ansible", "--host", "gpu1").out)
    assert host == listed["_meta"]["hostvars"]["gpu1"] and host["ansible_user"] == "ops"
    assert fleet("node", "export", "--list").code == 2
    assert fleet("node", "export", "--format", "ansible", "--host", "nope").code == 2


def test_every_form_of_the_list(fleet: Fleet) -> None:
    assert "fleet node add" in fleet("node", "list").err
    fleet("node", "add", "gpu1", "--address", "10.0.0.1", "--site", "机房一")
    fleet("node", "add", "gpu2", "--address", "10.0.0.2")
    inventory = open_inventory(fleet.url)
    fact = ComponentFact("580.1", "570.1", "580.1")
    cards = (Accelerator("nvidia", "H100", uuid="GPU-1"),)
    os_ = OsFacts("debian", "12", "6.1.0-31-amd64", "x86_64")
    inventory.record([Facts("gpu1", os_, "nvidia", {"driver": fact}, cards, at="2030-01-01T00:00:00Z")])
    inventory.close()
    document = json.loads(fleet("node", "list", "-o", "json").out)
    assert (document["apiVersion"], document["kind"]) == ("fleet/v1", "NodeList")
    assert document == yaml.safe_load(fleet("node", "list", "-o", "yaml").out)
    lines = [json.loads(line) for line in fleet("node", "list", "-o", "jsonl").out.splitlines()]
    assert lines == document["nodes"]
    assert lines[0]["facts"]["components"] == {"driver": "570.1"} and "facts" not in lines[1]
    table = fleet("node", "list").out.splitlines()
    assert table[0].split()[:3] == ["NAME", "ADDRESS", "STATE"] and "570.1" in table[1]
    assert "机房一" in fleet("node", "list", "-o", "wide").out
    shown = fleet("node", "show", "gpu1", "--history").out
    assert "1 x nvidia H100" in shown and "580.1      570.1   580.1" in shown
    assert fleet("node", "show", "gpu9").code == 2


def test_trust_by_a_key_read_on_the_console(fleet: Fleet) -> None:
    def key(filling: str) -> str:
        kind = b"ssh-ed25519"
        return f"ssh-ed25519 {base64.b64encode(len(kind).to_bytes(4, 'big') + kind + filling.encode() * 36).decode()}"

    fleet("node", "add", "gpu1")
    assert fleet("node", "trust", "gpu1", "--key", "ssh-ed25519 rubbish", "-y").code == 2
    assert fleet("node", "trust", "gpu1", "--key", key("a") + " root@gpu1", "-y").code == 0
    assert json.loads(fleet("node", "show", "gpu1", "-o", "json").out)["hostKey"] == key("a")
    changed = fleet("node", "trust", "gpu1", "--key", key("b"), "-y")
    assert (changed.code, "host-key-changed" in changed.err) == (4, True)
    assert fleet("node", "trust", "gpu1", "--key", key("b"), "--replace", "-y").code == 0
    assert fleet("node", "trust", "gpu1", "--forget", "-y").code == 0
    assert json.loads(fleet("node", "show", "gpu1", "-o", "json").out)["hostKey"] is None


def test_a_node_without_a_server_gives_no_key(fleet: Fleet) -> None:
    fleet("node", "add", "gpu1", "--address", "127.0.0.1", "--port", "1")
    done = fleet("node", "trust", "gpu1", "-y")
    assert done.code == 6 and "gpu1" in done.err


def test_database_commands(fleet: Fleet) -> None:
    assert json.loads(fleet("db", "current", "-o", "json").out)["state"] == "empty"
    assert not (fleet.folder / "state").exists()
    assert "none ->" in fleet("db", "upgrade").err
    assert "already" in fleet("db", "upgrade").err
    assert json.loads(fleet("db", "current", "-o", "json").out)["state"] == "current"
    assert fleet("--db", "mysql://x/y", "db", "current").code == 2


def test_settings_say_where_they_come_from(fleet: Fleet) -> None:
    (fleet.folder / "config/fleet").mkdir(parents=True)
    (fleet.folder / "config/fleet/fleet.toml").write_text("fanout = 7\n")
    env = {"FLEET_CHANNEL": "lts"}
    shown = json.loads(fleet("--db", "postgresql://me:secret@h/d", "config", "show", "-o", "json", env=env).out)
    found = {row["name"]: (row["value"], row["from"]) for row in shown["settings"]}
    assert found["fanout"] == (7, str(fleet.folder / "config/fleet/fleet.toml"))
    assert found["channel"] == ("lts", "FLEET_CHANNEL")
    assert found["db"] == ("postgresql://me:***@h/d", "--db")
    assert found["sudo"] == (True, "default")
    assert "FLEET_CHANNEL" in fleet("config", "show", env=env).out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(fleet: Fleet, shell: str) -> None:
    assert "_FLEET_COMPLETE" in fleet("completion", shell).out


def test_help_on_errors(fleet: Fleet) -> None:
    english = {"LC_ALL": "C.UTF-8"}
    assert "Kubernetes" in fleet("help", "[bad-selector]", env=english).out
    assert "bad-selector" in fleet("help", env=english).out
    assert "标签选择器" in fleet("help", "bad-selector", env={"LC_ALL": "zh_CN.UTF-8"}).out
    assert "标签选择器" in fleet("help", env={"LC_ALL": "", "LC_MESSAGES": "", "LANG": "zh_CN.UTF-8"}).out
    wrong = fleet("help", "bad-selectr")
    assert wrong.code == 2 and "bad-selector" in wrong.err


def test_looking_at_a_command_imports_nothing_heavy() -> None:
    heavy = ("sqlalchemy", "sqlmodel", "alembic", "paramiko", "ansible_runner", "yaml")
    script = (
        "import sys, fleet.cli.node, fleet.cli.db, fleet.cli.config, fleet.cli.audit\n"
        f"print([module for module in {heavy} if module in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
