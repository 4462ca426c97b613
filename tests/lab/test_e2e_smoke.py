"""The main job on two nodes of two vendors, an rpm and a deb system: import, trust, probe, plan, upgrade, prove."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.lab.rehearsal import Rehearsal, default_spec, rehearsal

pytestmark = [
    pytest.mark.lab,
    pytest.mark.smoke,
    pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root"),
]
NODES = ("br-a", "nv-b")
ALL = ("@all", "--strategy", "newest")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    folder = tmp_path_factory.mktemp("smoke")
    with rehearsal(folder, default_spec("127.92.1", NODES), known=False) as one:
        yield one


def test_two_nodes_are_upgraded_and_proven(two: Rehearsal) -> None:
    two.fleet("node", "import", str(two.lab.folder / "nodes.yaml"))
    two.fleet("node", "trust", "@all", "-y")
    listed = two.document("node", "list", kind="NodeList")
    assert sorted(item["name"] for item in listed["nodes"]) == list(NODES)

    before = two.current(*NODES)
    assert before["nv-b"]["driver"] == "550.127.08"
    assert before["br-a"]["driver"] == "1.6.0"

    without = two.document("plan", *ALL, kind="Plan", ok=(5,))  # the store is empty: every node is refused
    assert set(without["refusals"]) == set(NODES)
    assert all("missing artifact" in why for why in without["refusals"].values())
    packages = two.lab.folder / "packages"
    two.fleet("artifact", "add", *(str(p) for p in sorted(packages.iterdir()) if not p.name.startswith(".")))
    wanted = two.wanted(*ALL)
    assert set(wanted) == set(NODES)
    for name, moves in wanted.items():
        assert {c: old for c, (old, _) in moves.items() if old} == {c: before[name][c] for c in moves if moves[c][0]}

    done = two.document("upgrade", *ALL, "--max-unavailable", "100%", "-y", kind="Rollout")
    assert done["state"] == "done"
    assert {node["name"]: node["state"] for node in done["nodes"]} == dict.fromkeys(NODES, "done")
    two.evidence_is_whole(done["id"])

    after = two.probe(*NODES)
    for name, moves in wanted.items():
        for component, (old, new) in moves.items():
            assert old != new
            fact = after[name][component]
            assert (fact["installed"] or new, fact["loaded"] or new) == (new, new), (name, component, fact)
        assert after[name]["driver"]["loaded"] == moves["driver"][1]
        assert set(two.effects(name).values()) == {1}

    again = two.fleet("upgrade", *ALL, "-y")
    assert "nothing to do" in again.err
    assert again.rc == 0
    states = {item["name"]: item["lifecycle"] for item in two.document("node", "list", kind="NodeList")["nodes"]}
    assert not {"maintenance", "broken"} & set(states.values())
