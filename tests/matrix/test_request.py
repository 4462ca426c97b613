"""Request files: what people write is understood, each mistake is one error with line and field."""

from __future__ import annotations

import pytest

from compat_matrix import parse_request, request_of
from compat_matrix.facts import os_version
from fleet.core.errors import BadInput, Refused
from fleet.core.model import Accelerator, ComponentFact, Facts, OsFacts, Policy

FULL = """
hardware: {vendor: NVIDIA, model: NVIDIA H100 80GB HBM3, count: 8, arch: amd64, nvswitch: true, flash_floor: "240"}
os: {id: Ubuntu, version: 22.04, kernel: 6.8.0-87-generic}
current:
  driver: 570.10
  container-toolkit: 1.17.8
  dcgm:
wish:
  driver: ">=580,<600"
  toolkit: [12.8.1, 12.9.*]
policy: {channel: candidate, min_level: community, strategy: minimal, allow_unknown: true}
"""


def test_a_full_request() -> None:
    request = parse_request(FULL, "r.yaml")
    assert request.vendor == "nvidia" and request.model == "NVIDIA H100 80GB HBM3" and request.count == 8
    assert request.os == OsFacts("Ubuntu", "22.04", "6.8.0-87-generic", "x86_64")
    assert request.current == {"driver": "570.10", "container_toolkit": "1.17.8"}
    assert request.wish == {"driver": ">=580,<600", "toolkit": "in [12.8.1, 12.9.*]"}
    assert request.flags == {"nvswitch": True, "flash_floor": "240"}
    assert request.policy == Policy("candidate", "community", "minimal", True)


def test_the_least_request() -> None:
    request = parse_request("hardware: {vendor: nvidia, model: B200}")
    assert request.count == 1 and request.os == OsFacts() and request.policy == Policy()


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "r:1", "not a mapping"),
        ("[]", "r:1", "not a mapping"),
        ("os: {}", "r:1", "'hardware' is missing"),
        ("hardware:\n  vendor: nvidia\n", "r:2", "'hardware.model' is missing"),
        ("hardware: {vendor: nvidia, model: B200}\nwhish: {}\n", "r:2", "'whish' is not known"),
        ("hardware: {vendor: nvidia, model: B200}\nos:\n  id: x\n  verson: 1\n", "r:4", "'os.verson' is not known"),
        ("hardware: {vendor: nvidia, model: B200, count: many}", "r:1", "'hardware.count' cannot be 'many'"),
        ("hardware: {vendor: nvidia, model: B200, count: 0}", "r:1", "'hardware.count'"),
        ("hardware: {vendor: nvidia, model: [B200]}", "r:1", "'hardware.model' must be text"),
        ("hardware: nvidia", "r:1", "'hardware' must be a mapping"),
        ("hardware: {vendor: nvidia, model: B200}\nwish:\n  drivr: '1'\n", "r:3", "'wish.drivr' is not a component"),
        ("hardware: {vendor: nvidia, model: B200}\nwish:\n  driver: '=>1'\n", "r:3", "'wish.driver': range '=>1'"),
        (
            "hardware: {vendor: nvidia, model: B200}\ncurrent:\n  driver: {a: 1}\n",
            "r:3",
            "'current.driver' must be text",
        ),
        ("hardware: {vendor: nvidia, model: B200}\npolicy: {channel: edge}\n", "r:2", "'policy.channel' cannot be"),
        ("hardware: {vendor: nvidia, model: B200}\npolicy: {min_level: none}\n", "r:2", "'policy.min_level' cannot be"),
        ("hardware: {vendor: a, vendor: b}", "r:1", "twice"),
        ("hardware: {vendor: nvidia\n", "r:2", "not YAML"),
        ("a: &a [*a]", "r:1", "stands for nothing"),
    ],
)
def test_each_mistake_names_line_and_field(text: str, where: str, what: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_request(text, "r")
    assert caught.value.where == where
    assert what in caught.value.what
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "version"),
    [("22.04", "22.04"), ("V10", "10"), ("22.03-LTS-SP3", "22.03.sp3"), ("22.03 (LTS-SP1)", "22.03.sp1"),
     ("15 SP6", "15.sp6"), ("15.6", "15.6"), ("rolling", "rolling"), ("", "")],
)  # fmt: skip
def test_forms_of_a_system_version(text: str, version: str) -> None:
    assert os_version(text) == version


def facts(*models: str) -> Facts:
    return Facts(
        "n1", OsFacts("ubuntu", "22.04", "5.15.0-1-generic", "x86_64"), "nvidia",
        {"driver": ComponentFact("580.95.05", "580.82.07"), "kernel": ComponentFact("5.15")},
        tuple(Accelerator("nvidia", m) for m in models), {"nvswitch": True, "list": ["x"]},
    )  # fmt: skip


def test_a_request_from_what_a_node_said() -> None:
    request = request_of(facts("H100-SXM5-80GB", "H100-SXM5-80GB"), Policy(), {"driver": "580.*"})
    assert (request.model, request.count) == ("H100-SXM5-80GB", 2)
    assert request.current == {"driver": "580.82.07"}  # loaded, not installed; the kernel is a fact of the system
    assert request.flags == {"nvswitch": True}


@pytest.mark.parametrize("models", [(), ("L4", "T4")])
def test_no_request_from_no_or_mixed_cards(models: tuple[str, ...]) -> None:
    with pytest.raises(Refused):
        request_of(facts(*models), Policy())
