"""A node whose new stack fails validation goes back by itself; its neighbours are upgraded."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.lab.rehearsal import Rehearsal, default_spec, rehearsal

pytestmark = [pytest.mark.lab, pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root")]
SAYS = {  # how each vendor's fault shows
    "nv-a": "validation: ecc: ",
    "as-a": "validation: health: a chip is critical",
    "mx-a": "count: mx-smi shows 7 available cards, 8 are expected",
    "br-b": "validation: ecc: ",
}
SICK = tuple(SAYS)
WELL = ("nv-b", "as-b", "mx-b", "br-a")
ALL = ("@all", "--strategy", "newest")


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with rehearsal(tmp_path_factory.mktemp("rollback"), default_spec("127.92.3", (*SICK, *WELL))) as one:
        yield one


def test_one_node_of_each_vendor_is_rescued(eight: Rehearsal) -> None:
    before = eight.current(*SICK, *WELL)
    wanted = eight.wanted(*ALL)
    assert set(wanted) == {*SICK, *WELL}
    for name in SICK:
        eight.lab.fault(name, "validation-fail")
    rollout = eight.document(
        "upgrade", *ALL, "--max-unavailable", "100%", "--max-failures", "100%", "-y", kind="Rollout", ok=(6,)
    )
    nodes = {node["name"]: node for node in rollout["nodes"]}
    states = {name: node["state"] for name, node in nodes.items()}
    assert states == dict.fromkeys(SICK, "rolled-back") | dict.fromkeys(WELL, "done"), nodes
    assert rollout["state"] == "failed"
    for name in SICK:
        assert SAYS[name] in nodes[name]["reason"], nodes[name]
        assert nodes[name]["owner"]
        eight.lab.fault(name, "validation-fail", on=False)

    after = eight.current(*SICK, *WELL)
    for name in SICK:
        assert after[name] == before[name]
        effects = eight.effects(name)
        driver = wanted[name]["driver"]
        assert [effects["install", "driver", str(version)] for version in driver] == [1, 1], effects
        assert max(effects.values()) == 1, effects
    for name in WELL:
        assert {c: after[name].get(c) for c in wanted[name]} == {c: new for c, (_, new) in wanted[name].items()}
    eight.evidence_is_whole(rollout["id"])
    shown = {node["name"]: node["lifecycle"] for node in eight.document("node", "list", kind="NodeList")["nodes"]}
    assert "maintenance" not in shown.values()
    # The fault was taken away: the same wish now succeeds, and only where it is still owed.
    assert set(eight.wanted(*ALL)) == set(SICK)


def test_what_breaks_while_it_is_changed_is_undone(eight: Rehearsal) -> None:
    """The step itself fails, or ends well and has changed nothing: the reason says what the vendor's tool said."""
    stories = {
        "as-a": ("dkms-fail", "Dkms install failed"),
        "mx-a": ("flash-timeout", "flash"),
        "br-b": ("dkms-old-returns", "wrong-driver: driver 1.6.0 is loaded, 1.11.0 was installed"),
    }
    before = eight.current(*stories)
    for name, (fault, _) in stories.items():
        eight.lab.fault(name, fault)
    rollout = eight.document(
        "upgrade", ",".join(stories), "--strategy", "newest", "--max-unavailable", "100%", "--max-failures", "100%",
        "-y", kind="Rollout", ok=(6,),
    )  # fmt: skip
    for name, (fault, _) in stories.items():
        eight.lab.fault(name, fault, on=False)
    nodes = {node["name"]: node for node in rollout["nodes"]}
    assert {name: node["state"] for name, node in nodes.items()} == dict.fromkeys(stories, "rolled-back"), nodes
    for name, (_, says) in stories.items():
        assert says in nodes[name]["reason"], nodes[name]
    assert eight.current(*stories) == before
    eight.evidence_is_whole(rollout["id"])
