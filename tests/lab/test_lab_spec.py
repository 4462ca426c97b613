"""The lab's pure parts: specs, seeds, sources of the base, faults, the stand-in module's source."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fleet.core.errors import BadInput, FleetError
from fleet.lab import spec
from fleet.lab.base import NODE, header_packages
from fleet.lab.layer import in_parallel
from fleet.lab.node import labnode

HERE = Path(__file__).parent


def test_the_default_lab_has_two_nodes_of_each_vendor_of_both_kinds() -> None:
    lab = spec.load(spec.DEFAULT, seed=1)
    assert len(lab.nodes) >= 8
    for vendor in ("nvidia", "ascend", "metax", "biren"):
        nodes = [node for node in lab.nodes if node.node_class.vendor == vendor]
        assert {node.node_class.os["kind"] for node in nodes} == {"deb", "rpm"}
        assert len({node.node_class.kernel for node in nodes}) == len(nodes)
        assert all(node.node_class.start and node.node_class.targets for node in nodes)
    assert len({node.address for node in lab.nodes}) == len(lab.nodes)
    assert all(node.address.startswith("127.") for node in lab.nodes)


def test_a_seed_decides_identities_and_nothing_else() -> None:
    one, again, other = (spec.load(spec.DEFAULT, seed=n).nodes[0] for n in (1, 1, 2))
    cards = [node.functions(node.node_class.cards, "cards") for node in (one, again, other)]
    assert cards[0] == cards[1]
    assert not {c["uuid"] for c in cards[0]} & {c["uuid"] for c in cards[2]}
    assert [c["bus_id"] for c in cards[0]] == [c["bus_id"] for c in cards[2]]
    assert all(re.fullmatch(r"GPU-[0-9a-f-]{36}", c["uuid"]) for c in cards[0])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("os: ubuntu-22.04", "os: beos-5"), "beos-5"),
        (("kernel: 5.15.0-119-generic", "kernel:"), "'kernel' is missing"),
        (("headers: older", "headers: newer"), "headers must be"),
        (("network: 127.78.1", "network: 10.0.0"), "127.x.y"),
        (("class: tiny-rpm", "class: tiny-arm"), "tiny-arm"),
        (('start: {driver: "1.0.0"}', "start: {driver: 1.0}"), "quoted"),
        (("    vendor: tiny\n    model: T1\n    os: ubuntu", "    model: T1\n    os: ubuntu"), "'vendor' is missing"),
        (("    user: ops", "    usr: ops"), "'usr'"),
        (("nodes:\n  td:", "nodes:\n  TD_1:"), "TD_1"),
        (("classes:", "classes: ]"), "not a readable"),
    ],
)
def test_a_bad_spec_is_one_clear_error(tmp_path: Path, change: tuple[str, str], complaint: str) -> None:
    text = (HERE / "two.yaml").read_text()
    assert change[0] in text
    file = tmp_path / "spec.yaml"
    file.write_text(text.replace(*change, 1))
    with pytest.raises(BadInput) as error:
        spec.load(file, seed=1)
    assert complaint in error.value.what
    assert str(file) in error.value.where


def test_a_nodeset_makes_many_nodes_with_an_address_each(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    text = (HERE / "two.yaml").read_text()
    file.write_text(text.replace("  td: {", '  "t[001-120]": {'))
    nodes = spec.load(file, seed=1).nodes
    assert len({node.address for node in nodes}) == 121
    assert nodes[119].name == "t120"
    file.write_text(text.replace("  td: {", '  "t[001-300]": {'))
    with pytest.raises(BadInput, match="at most 250"):
        spec.load(file, seed=1)
    file.write_text(text.replace("  td: {", '  "t[r-]": {'))
    with pytest.raises(BadInput):
        spec.load(file, seed=1)
    file.write_text(text.replace("  td: {", '  "t[q,r],tr": {').replace("[q,r]", "[1-2]"))
    with pytest.raises(BadInput, match="twice"):
        spec.load(file, seed=1)


def test_the_two_newest_kernels_of_one_series_are_chosen() -> None:
    names = ["linux-headers-6.1.0-9-amd64", "linux-headers-6.1.0-56-amd64", "linux-headers-6.1.0-57-amd64",
             "linux-headers-6.1.0-57-rt-amd64", "linux-headers-6.1.0-57-common", "linux-headers-amd64"]  # fmt: skip
    assert header_packages(names) == ["linux-headers-6.1.0-57-amd64", "linux-headers-6.1.0-56-amd64"]
    assert header_packages([]) == []


def test_every_fault_of_the_lab_has_a_function_and_a_sentence() -> None:
    described = json.loads((NODE / "faults.json").read_text())
    table = (NODE / "faults.py").read_text().partition("FAULTS: dict")[2]
    assert set(described) == set(re.findall(r'^    "([\w-]+)": \w+,$', table, re.MULTILINE))
    assert all(row["says"] for row in described.values())


def test_the_module_source_carries_name_and_version() -> None:
    files = labnode.module_source("nvidia", "570.158.01", ("nvidia", "nvidia-uvm"))
    assert set(files) == {"nvidia_lab.c", "nvidia_uvm_lab.c", "Makefile", "dkms.conf"}
    assert 'PACKAGE_VERSION="570.158.01"' in files["dkms.conf"]
    assert 'BUILT_MODULE_NAME[1]="nvidia_uvm"' in files["dkms.conf"]
    assert "@" not in files["dkms.conf"] + re.sub(r"\$[@<]", "", files["Makefile"])


def test_state_changes_are_atomic_and_effects_append(tmp_path: Path) -> None:
    files = labnode.Files(tmp_path / "state", tmp_path / "log")
    assert files.read() == {}
    in_parallel([lambda: [files.update(lambda s: s.update(n=s.get("n", 0) + 1)) for _ in range(50)]] * 4, width=4)
    assert files.read() == {"n": 200}
    files.effect("install", version="1")
    files.effect("install", version="2")
    assert [json.loads(line)["version"] for line in files.effects.read_text().splitlines()] == ["1", "2"]


def test_a_failing_builder_is_reported_as_it_failed() -> None:
    def fails() -> None:
        raise FleetError("no room", where="/somewhere", slug="lab-layer")

    with pytest.raises(FleetError, match="no room") as error:
        in_parallel([lambda: None, fails])
    assert error.value.where == "/somewhere"
    assert error.value.slug == "lab-layer"
