"""Order, names, undo and floors of the steps; names of packages both ways."""

from __future__ import annotations

import pytest

from drivers.ascend import VENDOR
from drivers.ascend.packages import artifact, chip_token, file_name
from fleet.core.errors import Refused
from fleet.core.model import Delivery, Json, OsFacts, Step, VersionChange
from fleet.core.vendor import Change

OLD = {"driver": "24.1.rc2", "firmware": "7.3.0.1.231", "mcu": "25.50.10"}
NEW = {"driver": "25.2.0", "firmware": "7.7.0.6.236", "mcu": "25.52.29", "toolkit": "8.2.RC1"}


def steps(
    now: dict[str, str],
    wanted: dict[str, str | None],
    flags: dict[str, Json] | None = None,
    delivery: dict[str, Delivery] | None = None,
) -> tuple[Step, ...]:
    changes = tuple(VersionChange(name, now.get(name), version) for name, version in wanted.items())
    return VENDOR.steps(
        Change("910B3", 8, OsFacts(arch="x86_64"), now, changes, "reboot", flags or {}, delivery or {}, "rpm")
    )


def order(found: tuple[Step, ...]) -> list[str]:
    return [f"{s.phase}:{s.arguments.get('component', '')}" if "component" in s.arguments else s.phase for s in found]


def test_an_upgrade_flashes_first_and_the_controllers_come_after_the_boot() -> None:
    assert order(steps(OLD, dict(NEW))) == [
        "stop", "firmware:firmware", "install:driver", "reboot", "firmware:mcu", "install:toolkit", "verify",
    ]  # fmt: skip


def test_a_first_install_needs_the_driver_before_it_can_flash() -> None:
    found = steps({}, {"driver": "25.2.0", "firmware": "7.7.0.6.236"})
    assert order(found) == ["stop", "install:driver", "firmware:firmware", "reboot", "verify"]
    assert found[1].arguments["mode"] == "full" and found[1].undo == "uninstall the driver"


def test_names_follow_chip_architecture_and_kind() -> None:
    names = [name for step in steps(OLD, dict(NEW)) for name in step.artifacts]
    assert names == [
        "Ascend-hdk-910b-npu-firmware_7.7.0.6.236.run",
        "Ascend-hdk-910b-npu-driver_25.2.0_linux-x86-64.run",
        "Ascend-hdk-910b-mcu_25.52.29.zip",
        "Ascend-cann-toolkit_8.2.RC1_linux-x86_64.run",
    ]
    rpm = steps(OLD, {"driver": "25.2.0"}, {"delivery_kind": {"driver": "rpm"}})
    assert rpm[1].artifacts == ("Ascend-hdk-910b-npu-driver-25.2.0-1.x86_64.rpm",) and rpm[1].delivery == "package"


def test_another_kind_of_package_takes_the_old_one_off_first() -> None:
    found = steps(OLD, {"driver": "25.2.0"}, {"delivery_kind": {"driver": "run"}}, {"driver": "package"})
    assert order(found) == ["stop", "remove:driver", "install:driver", "reboot", "verify"]
    assert found[1].arguments["kind"] == "run" and found[2].arguments["kind"] == "rpm"


def test_a_bundle_rides_with_its_driver_and_alone_is_only_verified() -> None:
    found = steps(OLD, {"firmware": "7.7.0.6.236", "driver": "25.2.0", "bundle": "25.2.0"})
    assert [c.component for c in found[2].changes] == ["driver", "bundle"]
    assert steps(OLD, {"bundle": "24.1.rc2"})[-1].changes[0].component == "bundle"


def test_the_floor_refuses_a_driver_and_takes_the_way_back() -> None:
    with pytest.raises(Refused, match=r"24\.1\.rc2 lies below") as caught:
        steps({"driver": "25.2.0"}, {"driver": "24.1.rc2"}, {"flash_floor": "238"})
    assert caught.value.slug == "version-floor"
    forward = steps(OLD, {"driver": "25.2.0"}, {"flash_floor": "238"})
    assert forward[1].undo is None and "25.2.0 or newer" in forward[1].why
    assert steps(OLD, {"driver": "25.2.0"}, {"flash_floor": "235"})[1].undo == "driver 24.1.rc2 again"


def test_removal() -> None:
    found = steps({**OLD, "toolkit": "8.0.RC2"}, {"driver": None, "toolkit": None})
    assert order(found) == ["stop", "remove:toolkit", "remove:driver", "reboot", "verify"]


@pytest.mark.parametrize(
    ("name", "component", "version", "arch", "chip"),
    [
        ("Ascend-hdk-910c-npu-driver_24.1.rc3.7_linux-aarch64.run", "driver", "24.1.rc3.7", "aarch64", "910c"),
        ("Ascend-hdk-310p-npu-driver_23.0.0_linux-x86_64.run", "driver", "23.0.0", "x86_64", "310p"),
        ("Ascend-hdk-910-npu-firmware_7.1.0.7.220.run", "firmware", "7.1.0.7.220", "", "910"),
        ("Ascend-hdk-910b-npu-firmware-7.8.0.7.220-1.noarch.rpm", "firmware", "7.8.0.7.220", "", "910b"),
        ("Ascend-hdk-910b-npu_25.2.0_linux-x86-64.zip", "bundle", "25.2.0", "x86_64", "910b"),
        ("Atlas-A5-hdk-npu-driver_26.1.0_linux-aarch64.run", "driver", "26.1.0", "aarch64", "A5"),
        ("Ascend-cann-toolkit_8.5.0_linux-aarch64.run", "toolkit", "8.5.0", "aarch64", ""),
    ],
)
def test_file_names_tell_what_they_hold(name: str, component: str, version: str, arch: str, chip: str) -> None:
    found = artifact(name)
    assert found is not None
    assert (found.component, found.version, found.arch, found.chip) == (component, version, arch, chip)


def test_computed_names_are_recognised_again_and_others_are_not() -> None:
    for component, version in NEW.items():
        for kind in ("run", "rpm"):
            found = artifact(file_name(component, version, "910B3", "aarch64", kind))
            assert found is not None and (found.component, found.version) == (component, version)
    assert artifact("nvidia-driver-570_570.26-1_amd64.deb") is None and artifact("Ascend-hdk-910b.run") is None
    assert chip_token("19e5:d803") == "910c" and chip_token("Ascend 910A") == "910"
    with pytest.raises(Refused):
        chip_token("C500")
