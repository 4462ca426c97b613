"""Files of nodes: all forms give the same nodes, and one complaint names file, line and field."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.core.errors import BadInput
from fleet.core.model import LIFECYCLES, Hold, Node
from fleet.inventory import ansible, intake, record

NODES = [
    Node("gpu001", "10.0.0.1", 2222, "ops", "https://10.1.0.1", "x86_64", "bj", "r07", "", "", "",
         {"pool": "gold", "owner": "训练组", "empty": ""}, "in-service",
         Hold("li", "disk, swap; \"now\"", "2030-02-01T00:00:00Z")),
    Node("npu-9.example.com", "fd00::9", superpod="sp1", arch="aarch64", labels={"group/web": "true"}),
    Node("login1", "login1"),
]  # fmt: skip


def read(text: str, path: str = "nodes.yaml", form: str | None = None, **more: object) -> list[Node]:
    return record.nodes(intake.read(text.encode(), path, form), path, **more)  # type: ignore[arg-type]


def wrong(text: str, path: str = "nodes.yaml", form: str | None = None, **more: object) -> BadInput:
    with pytest.raises(BadInput) as caught:
        read(text, path, form, **more)
    return caught.value


YAML = """\
apiVersion: fleet/v1
kind: NodeList
nodes:
- name: gpu001
  address: 10.0.0.1
  port: 2222
  rack: "07"
  labels: {pool: gold}
  hold: {who: li, why: swap, until: 2030-02-01}
- {name: gpu002, address: 10.0.0.2, nvlink-domain: nv1, state: broken}
"""
CSV = """\
name,address,port,rack,label:pool,hold_who,hold_why,hold_until,nvlink-domain,state
gpu001,10.0.0.1,2222,07,gold,li,swap,2030-02-01,,

gpu002,10.0.0.2,,,,,,,nv1,broken
"""
JSON = """\
[{"name": "gpu001", "address": "10.0.0.1", "port": 2222, "rack": "07", "labels": {"pool": "gold"},
  "hold": {"who": "li", "why": "swap", "until": "2030-02-01"}},
 {"name": "gpu002", "address": "10.0.0.2", "nvlink_domain": "nv1", "lifecycle": "broken"}]
"""
EXPECTED = [
    Node(
        "gpu001", "10.0.0.1", 2222, rack="07", labels={"pool": "gold"}, hold=Hold("li", "swap", "2030-02-01T00:00:00Z")
    ),
    Node("gpu002", "10.0.0.2", nvlink_domain="nv1", lifecycle="broken"),
]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (YAML, "nodes.yaml"),
        (YAML, "stdin"),
        (YAML.partition("nodes:\n")[2], "nodes.yml"),
        (JSON, "nodes.json"),
        (JSON, "stdin"),
        (CSV, "nodes.csv"),
        (CSV, "stdin"),
        ("\ufeff" + CSV.replace("\n", "\r\n"), "nodes.csv"),
        (CSV.replace(",", ";"), "nodes.csv"),
        (CSV.replace(",", "\t"), "nodes.csv"),
    ],
)  # fmt: skip
def test_our_forms(text: str, path: str) -> None:
    assert read(text, path) == EXPECTED


def test_defaults_may_be_merged_in() -> None:
    text = "- &d {name: a, rack: r1, labels: {x: y}}\n- {<<: *d, name: b}\n"
    assert read(text) == [Node(n, n, rack="r1", labels={"x": "y"}) for n in "ab"]


# --- what is wrong, where ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "path", "where", "said"),
    [
        ("- name: a\n  address: 10.0.0.300\n", "n.yaml", "n.yaml:2", "address"),
        ("- name: a\n  address: 10.0.0.1:22\n", "n.yaml", "n.yaml:2", "port is a field"),
        ("- name: a\n  address: 10.0.0.0/24\n", "n.yaml", "n.yaml:2", "address"),
        ("- name: a\n  address: ''\n", "n.yaml", "n.yaml:2", "empty"),
        ("- name: a\n  address: 0.0.0.0\n", "n.yaml", "n.yaml:2", "no machine"),
        ("- name: a\n  address: -oProxyCommand=x\n", "n.yaml", "n.yaml:2", "address"),
        ("- name: a\n- name: b\n- name: a\n", "n.yaml", "n.yaml:3", "first in line 1"),
        ("- {name: a, address: 10.0.0.1}\n- {name: b, address: 10.0.0.1}\n", "n.yaml", "n.yaml:2", "'a'"),
        ("- address: 10.0.0.1\n", "n.yaml", "n.yaml:1", "'name' is missing"),
        ("- name: a\n  rak: r1\n", "n.yaml", "n.yaml:2", "'rak'"),
        ("- name: a\n  name: b\n", "n.yaml", "n.yaml:2", "twice"),
        ("- name: a\n  rack: 07\n", "n.yaml", "n.yaml:2", "quotes"),
        ("- name: 7\n", "n.yaml", "n.yaml:1", "'name'"),
        ("- name: a b\n", "n.yaml", "n.yaml:1", "'name'"),
        ("- name: gpu[1-3]\n", "n.yaml", "n.yaml:1", "'name'"),
        ("- name: a\n  port: ssh\n", "n.yaml", "n.yaml:2", "'port'"),
        ("- name: a\n  port: 70000\n", "n.yaml", "n.yaml:2", "65535"),
        ("- name: a\n  port: true\n", "n.yaml", "n.yaml:2", "'port'"),
        ("- name: a\n  labels: [x]\n", "n.yaml", "n.yaml:2", "mapping"),
        ("- name: a\n  labels: {gen: 5}\n", "n.yaml", "n.yaml:2", "quotes"),
        ("- name: a\n  labels: {rack: x}\n", "n.yaml", "n.yaml:2", "field of nodes"),
        ("- name: a\n  hold: yes\n", "n.yaml", "n.yaml:2", "'hold'"),
        ("- name: a\n  hold: {why: x}\n", "n.yaml", "n.yaml:2", "who"),
        ("- name: a\n  hold: {who: x, until: tomorrow}\n", "n.yaml", "n.yaml:2", "ISO 8601"),
        ("- name: a\n  lifecycle: redy\n", "n.yaml", "n.yaml:2", "did you mean ready"),
        ("- name: a\n  bmc: https://admin:pw@10.0.0.1\n", "n.yaml", "n.yaml:2", "without user or password"),
        ("- name: a\n  user: -oX\n", "n.yaml", "n.yaml:2", "'user'"),
        ("- name: a\n  arch: riscv\n", "n.yaml", "n.yaml:2", "x86_64"),
        ("- name: a\n  address:\n", "n.yaml", "n.yaml:2", "half written"),
        ("- name: a\n  addr", "n.yaml", "n.yaml:2", "no whole YAML"),
        ("- {name: a, address: 10.0.", "n.yaml", "n.yaml:1", "no whole YAML"),
        ("- name: \"a", "n.yaml", "n.yaml:1", "no whole YAML"),
        ("- name: a\n---\n- name: b\n", "n.yaml", "n.yaml:2", "no whole YAML"),
        ("- name: !!python/object/apply:os.system [id]\n", "n.yaml", "n.yaml:1", "'name'"),
        ("a: &x\n  children: *x\n", "n.yaml", "n.yaml:1", "contains itself"),
        ("kind: Plan\nnodes: []\n", "n.yaml", "n.yaml:1", "'Plan'"),
        ("nodes: {a: b}\n", "n.yaml", "n.yaml:1", "list"),
        ("nodes: []\n", "n.yaml", "n.yaml", "no node"),
        ("- gpu001\n", "n.yaml", "n.yaml:1", "mapping"),
        ("", "n.yaml", "n.yaml", "empty"),
        ("# nothing\n", "n.yaml", "n.yaml", "empty"),
        ("name,adress\na,b\n", "n.csv", "n.csv:1", "'adress'"),
        ("address\n10.0.0.1\n", "n.csv", "n.csv:1", "'name'"),
        ("name,name\na,b\n", "n.csv", "n.csv:1", "twice"),
        ("name,address\na,10.0.0.1\nb\n", "n.csv", "n.csv:3", "'address' is missing"),
        ("name,address\na,10.0.0.1,x\n", "n.csv", "n.csv:2", "3 fields"),
        ("name,address\na,\"10.0.0.1\nb,10.0.0.2\n", "n.csv", "n.csv:2", "no whole CSV"),
        ("name,labels\na,gold\n", "n.csv", "n.csv:2", "KEY=VALUE"),
        ("name,address\n", "n.csv", "n.csv", "no node"),
        ("name\na\n\0\0\0\0", "n.csv", "n.csv:3", "zero byte"),
        ("[web\nb\n", "n.ini", "n.ini:1", "section"),
        ("[web]\nb ansible_host\n", "n.ini", "n.ini:2", "KEY=VALUE"),
        ("[web]\nb ansible_user='x\n", "n.ini", "n.ini:2", "cannot be read"),
        ("[web]\nb[1-3]\n", "n.ini", "n.ini:2", "no range"),
        ("[web:vars]\na=1\n", "n.ini", "n.ini:1", "'web'"),
        ("[a:children]\nb\n", "n.ini", "n.ini:2", "'b'"),
        ("[a:children]\nb\n[b:children]\na\n[b]\nh\n", "n.ini", "n.ini:", "itself"),
        ("h ansible_host='{{ x }}'\n", "n.ini", "n.ini:1", "template"),
        ("h ansible_port=no\n", "n.ini", "n.ini:1", "'port'"),
        ("all:\n  hosts:\n    - a\n", "n.yaml", "n.yaml:2", "mapping"),
        ("all:\n  host:\n    a:\n", "n.yaml", "n.yaml:2", "'host'"),
        ("all:\n  hosts:\n    a: {rack: 7}\n", "n.yaml", "n.yaml:3", "'rack'"),
        ("all:\n  hosts:\n    a:\n    a:\n", "n.yaml", "n.yaml:4", "twice"),
        ("%$!\n", "stdin", "stdin", "cannot be told"),
    ],
)  # fmt: skip
def test_one_complaint_names_file_line_and_field(text: str, path: str, where: str, said: str) -> None:
    error = wrong(text, path)
    assert error.where.startswith(where), error.as_dict()
    assert any(part in f"{error.what} {error.hint}" for part in said.split("|")), error.as_dict()


def test_aliases_that_stand_for_more_than_any_memory_are_refused_at_once() -> None:
    text = "- {name: n0, labels: &l0 {k: v}}\n"
    for n in range(1, 30):
        text += f"- {{name: n{n}, labels: &l{n} {{a: *l{n - 1}, b: *l{n - 1}, c: *l{n - 1}}}}}\n"
    start = time.process_time()
    error = wrong(text)
    assert time.process_time() - start < 2 and len(error.what) < 200
    assert wrong("[" * 100_000).where == "nodes.yaml:1"


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(BadInput, match="UTF-8") as caught:
        intake.read("name,owner\na,训练\n".encode("gbk"), "n.csv")
    assert caught.value.where == "n.csv:2"


def test_further_complaints_are_the_cause() -> None:
    error = wrong("- {name: a, port: x}\n- {name: b, port: y}\n")
    assert error.where == "nodes.yaml:1" and "nodes.yaml:2" in error.cause


def test_names_and_addresses_of_the_inventory_are_taken() -> None:
    stored = {"a": Node("a", "10.0.0.1"), "b": Node("b", "10.0.0.2", rack="r1", labels={"x": "y"})}
    assert "in the inventory already" in wrong("- name: a\n", existing=stored).what
    assert "'b'" in wrong("- {name: c, address: 10.0.0.2}\n", existing=stored).what
    assert read("- {name: c, address: 10.0.0.2, port: 23}\n", existing=stored) == [Node("c", "10.0.0.2", 23)]
    changed = read("- {name: b, address: 10.0.0.3}\n", existing=stored, update=True)
    assert changed == [Node("b", "10.0.0.3", rack="r1", labels={"x": "y"})]
    swapped = read("- {name: a, address: 10.0.0.2}\n- {name: b, address: 10.0.0.1}\n", existing=stored, update=True)
    assert [node.address for node in swapped] == ["10.0.0.2", "10.0.0.1"]


# --- Ansible --------------------------------------------------------------------------------------------------------

INI = """\
# a comment
lonely ansible_host=10.9.9.9   # and another
[web]
www[01:03].example.com:2222 rack=07
[db]
db-[a:c]  ansible_user=dba ansible_password=hunter2
[web:vars]
ansible_user=web
site=bj
[dc:children]
web
db
[dc:vars]
ansible_user=dc
leaf=l1
"""
ANSIBLE_YAML = """\
all:
  hosts:
    lonely: {ansible_host: 10.9.9.9}
  children:
    dc:
      vars: {ansible_user: dc, leaf: l1}
      children:
        web:
          vars: {ansible_user: web, site: bj}
          hosts:
            www[01:03].example.com:2222: {rack: "07"}
        db:
          hosts:
            db-[a:c]: {ansible_user: dba, ansible_password: !vault hunter2}
"""


def hosts() -> list[Node]:
    web = {"group/web": "true", "group/dc": "true"}
    db = {"group/db": "true", "group/dc": "true"}
    names = [f"www0{n}.example.com" for n in (1, 2, 3)]
    return [
        Node("lonely", "10.9.9.9"),
        *(Node(n, n, 2222, "web", rack="07", site="bj", leaf="l1", labels=web) for n in names),
        *(Node(n, n, user="dba", leaf="l1", labels=db) for n in ("db-a", "db-b", "db-c")),
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "path"), [(INI, "hosts.ini"), (INI, "stdin"), (ANSIBLE_YAML, "hosts.yml")])
def test_ansible_inventories(text: str, path: str) -> None:
    assert read(text, path) == hosts()


def run_ansible(*args: str) -> dict[str, object]:
    program = Path(sys.executable).parent / "ansible-inventory"
    done = subprocess.run([program, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(("text", "name"), [(INI, "hosts.ini"), (ANSIBLE_YAML.replace("!vault ", ""), "hosts.yml")])
def test_ansible_reads_the_same_hosts_and_groups(tmp_path: Path, text: str, name: str) -> None:
    (tmp_path / name).write_text(text)
    theirs = run_ansible("-i", str(tmp_path / name), "--list")
    variables: dict[str, dict[str, object]] = theirs["_meta"]["hostvars"]  # type: ignore[index]
    ours = {node.name: node for node in read(text, name)}
    assert set(variables) | {h for g in theirs.values() for h in g.get("hosts", [])} == set(ours)  # type: ignore[attr-defined]
    for host, values in variables.items():
        assert values.get("ansible_user", "") == ours[host].user
        assert values.get("ansible_host", host) == ours[host].address


def test_what_we_export_ansible_accepts(tmp_path: Path) -> None:
    script = tmp_path / "fleet-inventory"
    (tmp_path / "list.json").write_text(
        json.dumps(ansible.write(NODES, {"gpu001": {"vendor": "nvidia", "model": "H100"}}))
    )
    script.write_text(f"#!/bin/sh\ncat {tmp_path}/list.json\n")
    script.chmod(0o755)
    answer = run_ansible("-i", str(script), "--list")
    assert answer["rack_r07"] == answer["vendor_nvidia"] == answer["state_in_service"] == {"hosts": ["gpu001"]}
    assert answer["web"] == {"hosts": ["npu-9.example.com"]}
    host = run_ansible("-i", str(script), "--host", "gpu001")
    assert (host["ansible_host"], host["ansible_port"], host["ansible_user"]) == ("10.0.0.1", 2222, "ops")


# --- out and in again -------------------------------------------------------------------------------------------------


def again(nodes: list[Node], form: str) -> list[Node]:
    plain = [record.plain(node) for node in nodes]
    if form == "ansible":
        return read(json.dumps(ansible.write(nodes)), "x.json")
    return read(intake.write_csv(plain), "x.csv") if form == "csv" else read(intake.write_yaml(plain), "x.yaml")


def by_name(nodes: list[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: node.name)


@pytest.mark.parametrize("form", ["yaml", "csv", "ansible"])
def test_an_export_comes_back_as_it_was(form: str) -> None:
    assert by_name(again(NODES, form)) == by_name(NODES)


WORDS = st.from_regex(r"[a-z0-9]([a-z0-9_.-]{0,6}[a-z0-9])?", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=12)
ANY_NODES = st.lists(
    st.builds(
        Node,
        name=WORDS.map("n{}".format),
        address=st.ip_addresses(v=4).filter(lambda a: not (a.is_unspecified or a.is_multicast)).map(str),
        port=st.integers(1, 65535),
        user=st.sampled_from(["", "root", "ops"]),
        rack=st.one_of(st.just(""), WORDS),
        labels=st.dictionaries(WORDS.map("l-{}".format), st.one_of(st.just(""), WORDS), max_size=3),
        lifecycle=st.sampled_from(LIFECYCLES),
        hold=st.one_of(st.none(), st.builds(Hold, TEXTS, TEXTS)),
    ),
    min_size=1,
    max_size=6,
    unique_by=(lambda node: node.name, lambda node: (node.address, node.port)),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(ANY_NODES, st.sampled_from(["yaml", "csv", "ansible"]))
def test_any_export_comes_back(nodes: list[Node], form: str) -> None:
    assert by_name(again(nodes, form)) == by_name(nodes)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([YAML, CSV, INI, ANSIBLE_YAML]), st.data())
def test_a_file_cut_anywhere_gives_nodes_or_one_complaint(text: str, data: st.DataObject) -> None:
    cut = text[: data.draw(st.integers(0, len(text)))]
    try:
        assert read(cut, "stdin")
    except BadInput as error:
        assert error.where.startswith("stdin")
