"""Which nodes are meant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.core.errors import BadInput, NotFound, UsageError
from fleet.core.model import Accelerator, ComponentFact, Facts, Hold, Node, OsFacts
from fleet.inventory import Inventory, open_inventory
from fleet.inventory.selection import select


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inventory]:
    """Three NVIDIA nodes, one Ascend node, one that never answered."""
    folder: Path = tmp_path_factory.mktemp("selection")
    inventory = open_inventory(f"sqlite:///{folder}/x.db")
    inventory.add(
        [
            Node("gpu1", "gpu1", rack="r1", labels={"pool": "gold"}),
            Node("gpu2", "gpu2", rack="r1", labels={"pool": "iron", "group/web": "true"}, hold=Hold("li", "x")),
            Node("gpu10", "gpu10", rack="r2", labels={"pool": "gold"}, lifecycle="broken"),
            Node("npu1", "npu1", rack="机房2"),
            Node("new1", "new1"),
        ]
    )

    def said(name: str, vendor: str, model: str, driver: ComponentFact) -> Facts:
        card = Accelerator(vendor, model, uuid=name)
        return Facts(name, OsFacts("debian", "12", "6.1.0-31-amd64", "x86_64"), vendor, {"driver": driver}, (card,) * 8)

    inventory.record(
        [
            said("gpu1", "nvidia", "H100", ComponentFact("580.1", "570.9")),
            said("gpu2", "nvidia", "H100", ComponentFact("580.1", "580.1")),
            said("gpu10", "nvidia", "B200", ComponentFact("590.44")),
            said("npu1", "ascend", "910B3", ComponentFact("24.1.rc3", "24.1.rc3")),
        ]
    )
    yield inventory
    inventory.close()


@pytest.mark.parametrize(
    ("nodeset", "exclude", "selector", "names"),
    [
        (None, None, None, "gpu1 gpu2 gpu10 new1 npu1"),
        ("@all", None, None, "gpu1 gpu2 gpu10 new1 npu1"),
        ("@*", "gpu[1-2]", None, "gpu10 new1 npu1"),
        ("gpu10,gpu1", None, None, "gpu1 gpu10"),
        ("@rack:r1", None, None, "gpu1 gpu2"),
        ("@rack:r[1-2]!@pool:iron", None, None, "gpu1 gpu10"),
        ("@rack:机房2", None, None, "npu1"),
        ("@vendor:ascend", None, None, "npu1"),
        ("@state:broken", None, None, "gpu10"),
        ("@state:retired", None, None, ""),
        ("@pool:gold", None, None, "gpu1 gpu10"),
        ("@web", None, None, "gpu2"),
        ("@hold:true", None, None, "gpu2"),
        (None, None, "pool=gold", "gpu1 gpu10"),
        (None, None, "pool!=gold", "gpu2 new1 npu1"),
        (None, None, "vendor=nvidia,driver<580", "gpu1"),  # what is loaded counts, not what is installed
        (None, None, "vendor=nvidia,driver>=580", "gpu2 gpu10"),
        (None, None, "vendor=ascend,driver<24.1.0", "npu1"),
        (None, None, "!driver", "new1"),
        (None, None, "hold", "gpu2"),
        (None, None, "count>=8,os=debian,kernel>6.0,arch=x86_64", "gpu1 gpu2 gpu10 npu1"),
        ("gpu[1-2]", None, "model in (H100,B200)", "gpu1 gpu2"),
        (None, None, "", "gpu1 gpu2 gpu10 new1 npu1"),
    ],
)
def test_selection(
    fleet: Inventory, nodeset: str | None, exclude: str | None, selector: str | None, names: str
) -> None:
    assert " ".join(node.name for node in select(fleet, nodeset, exclude, selector, True)) == names


def test_a_change_never_means_all_by_default(fleet: Inventory) -> None:
    with pytest.raises(UsageError) as caught:
        select(fleet, None, "gpu1", None, False)
    assert caught.value.slug == "no-nodes"


@pytest.mark.parametrize(
    ("nodeset", "hint"),
    [
        ("gpu[1-3]", "did you mean gpu"),
        ("@rack:r3", "r1"),
        ("@state:brokn", "broken"),
        ("@nvlink-domain:x", "no node"),
        ("@webs", "web"),
    ],
)
def test_a_slip_is_an_error_with_a_hint(fleet: Inventory, nodeset: str, hint: str) -> None:
    with pytest.raises(NotFound) as caught:
        select(fleet, nodeset, None, None, True)
    assert hint in caught.value.hint or hint in caught.value.what


def test_the_patterns_of_ansible_are_refused(fleet: Inventory) -> None:
    with pytest.raises(BadInput, match="union is ','"):
        select(fleet, "web:&prod", None, None, True)
