"""From readings to facts, from a change to steps, names of files, checks and faults."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from drivers.nvidia import VENDOR, naming
from fleet.core.errors import Refused
from fleet.core.model import OsFacts, Step, VersionChange
from fleet.core.vendor import Change, PciDevice, Reading, Seen

OS = OsFacts("ubuntu", "24.04", "6.8.0-11-generic", "x86_64")
GPU = "10de:2329"


def pci(*buses: str, driver: str = "nvidia", switches: int = 0) -> tuple[PciDevice, ...]:
    cards = [PciDevice(bus, "10de", "2329", "030200", "10de:1234", driver) for bus in buses]
    bridges = [PciDevice(f"0000:0{i}:00.0", "10de", "22a3", "068000") for i in range(switches)]
    return (*cards, *bridges, PciDevice("0000:01:00.1", "10de", "22bb", "040300"))


def readings(**texts: tuple[str, str]) -> dict[str, Reading]:
    return {name: VENDOR.read(command, text, 0) for name, (command, text) in texts.items()}


def cards(*rows: str) -> tuple[str, str]:
    head = "index, name, uuid, pci.bus_id, pci.device_id, vbios_version, driver_version"
    head += ", remapped_rows.pending, fabric.state"
    return "nvidia-smi --query-gpu=<fields> --format=csv", "\n".join([head, *rows]) + "\n"


def card(index: int, bus: str, *, device: str = "0x232910DE", pending: str = "No", fabric: str = "Completed") -> str:
    return f"{index}, NVIDIA H20, GPU-{index}, 0000{bus}, {device}, 96.1, 565.11.02, {pending}, {fabric}"


def proc(version: str) -> tuple[str, str]:
    return (
        "cat /proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n",
    )


def packages(**names: str) -> tuple[str, str]:
    rows = "".join(f"ii  {name.replace('_', '-')}  {version}  amd64  text\n" for name, version in names.items())
    return "dpkg -l", "Desired=Unknown\n" + rows


def seen(devices: tuple[PciDevice, ...], **texts: tuple[str, str]) -> Seen:
    return Seen(OS, devices, readings(**texts))


def test_three_values_of_the_driver_are_kept_apart() -> None:
    facts = VENDOR.gather(
        seen(
            pci("0000:17:00.0"),
            cards=cards(card(0, "0000:17:00.0")),
            proc_version=proc("565.11.02"),
            dpkg=packages(nvidia_driver_565_open="565.12.01-1", nvidia_container_toolkit="1:1.17.9-1"),
        )
    )
    driver = facts.components["driver"]
    assert (driver.installed, driver.loaded, driver.pending) == ("565.12.01", "565.11.02", True)
    assert facts.components["driver_flavour"].loaded == "open"
    assert facts.components["container_toolkit"].installed == "1.17.9"
    assert any("reboot is owed" in problem for problem in facts.problems)
    (one,) = facts.accelerators
    assert (one.model, one.uuid, one.firmware, one.health, one.pci_id) == ("NVIDIA H20", "GPU-0", "96.1", "ok", GPU)


def test_a_card_that_the_tool_does_not_list_is_lost() -> None:
    facts = VENDOR.gather(
        seen(
            pci("0000:17:00.0", "0000:2a:00.0"),
            cards=cards(card(0, "0000:17:00.0")),
            proc_version=proc("565.11.02"),
        )
    )
    assert [one.health for one in facts.accelerators] == ["ok", "lost"]
    assert any("2 GPUs, nvidia-smi 1" in problem for problem in facts.problems)


def test_one_lost_card_says_nothing_of_the_others() -> None:
    gone = "Unable to determine the device handle for GPU 0000:17:00.0: GPU is lost.  Reboot the system\n"
    facts = VENDOR.gather(
        seen(pci("0000:17:00.0", "0000:2a:00.0"), cards=("nvidia-smi", gone), proc_version=proc("565.11.02"))
    )
    assert [one.health for one in facts.accelerators] == ["lost", "unknown"]
    assert facts.problems == ("GPUs are lost: 0000:17:00.0",)


def test_bus_and_tool_that_disagree_are_a_problem() -> None:
    devices = pci("0000:17:00.0", driver="nouveau")
    facts = VENDOR.gather(seen(devices, cards=cards(card(0, "0000:17:00.0", device="0x233010DE"))))
    assert any("the PCI bus says 10de:2329" in problem for problem in facts.problems)
    assert any("nouveau" in problem for problem in facts.problems)


def test_nvswitch_nodes_need_a_manager_and_a_fabric() -> None:
    devices = pci("0000:17:00.0", switches=4)
    facts = VENDOR.gather(
        seen(devices, cards=cards(card(0, "0000:17:00.0", fabric="In Progress")), proc_version=proc("565.11.02"))
    )
    assert facts.flags == {"nvswitch": True, "fabric_state": "In Progress"}
    assert any("no fabric manager" in problem for problem in facts.problems)
    other = VENDOR.gather(
        seen(devices, proc_version=proc("565.11.02"), dpkg=packages(nvidia_fabricmanager_565="565.12.01-1"))
    )
    assert any("must be equal" in problem for problem in other.problems)


def test_without_a_driver_the_bus_still_tells_the_cards() -> None:
    down = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n\n"
    facts = VENDOR.gather(seen(pci("0000:17:00.0", driver=""), table=("nvidia-smi", down)))
    assert [(one.model, one.health) for one in facts.accelerators] == [(f"{GPU}/10de:1234", "unknown")]
    assert facts.components == {}


def change(
    moves: Mapping[str, tuple[str | None, str | None]], now: Mapping[str, str], **more: object
) -> tuple[Step, ...]:
    values: dict[str, object] = {"reboot": "reboot", "model": "H20-96GB", **more}
    moved = tuple(VersionChange(name, old, new) for name, (old, new) in moves.items())
    return VENDOR.steps(Change(count=8, os=OS, now=now, changes=moved, flags={"nvswitch": True}, **values))  # type: ignore[arg-type]


def test_across_the_naming_scheme_old_packages_go_first() -> None:
    steps = change(
        {"driver": ("565.11.02", "581.10.02"), "fabricmanager": ("565.11.02", "581.10.02")},
        {"driver": "565.11.02", "fabricmanager": "565.11.02", "nscq": "565.11.02", "driver_flavour": "open"},
    )
    assert [step.phase for step in steps] == ["preflight", "stop", "remove", "install", "reboot", "verify"]
    assert steps[2].arguments["packages"] == [
        "nvidia-driver-565-open", "nvidia-fabricmanager-565", "libnvidia-nscq-565",
    ]  # fmt: skip
    install = steps[3]
    # NSCQ is not in the road but on the node: it follows the driver in the same transaction.
    assert install.artifacts == (
        "nvidia-open_581.10.02-1_amd64.deb", "nvidia-fabricmanager_581.10.02-1_amd64.deb",
        "libnvidia-nscq_581.10.02-1_amd64.deb",
    )  # fmt: skip
    assert {c.component for c in install.changes} == {"driver", "fabricmanager", "nscq"}
    assert install.undo and "565.11.02" in install.undo
    assert (steps[4].activation, steps[5].arguments["driver"]) == ("reboot", "581.10.02")


def test_inside_a_branch_nothing_is_removed() -> None:
    steps = change({"driver": ("581.10.02", "581.12.01")}, {"driver": "581.10.02"})
    assert [step.phase for step in steps] == ["preflight", "stop", "install", "reboot", "verify"]


def test_rpm_names_and_flavours() -> None:
    steps = change(
        {"driver": ("565.11.02", "581.10.02"), "fabricmanager": ("565.11.02", "581.10.02")},
        {"driver": "565.11.02", "fabricmanager": "565.11.02", "driver_flavour": "proprietary"},
        package_kind="rpm",
    )
    remove = next(step for step in steps if step.phase == "remove")
    assert remove.arguments["packages"] == ["nvidia-fabric-manager"]
    install = next(step for step in steps if step.phase == "install")
    assert install.artifacts == (
        "cuda-drivers-581.10.02-1.x86_64.rpm", "nvidia-fabricmanager-581.10.02-1.x86_64.rpm",
    )  # fmt: skip


def test_a_change_of_flavour_alone_is_a_new_install() -> None:
    steps = change(
        {"driver_flavour": ("proprietary", "open")}, {"driver": "581.10.02", "driver_flavour": "proprietary"}
    )
    remove = next(step for step in steps if step.phase == "remove")
    install = next(step for step in steps if step.phase == "install")
    assert remove.arguments["packages"] == ["cuda-drivers"]
    assert install.artifacts == ("nvidia-open_581.10.02-1_amd64.deb",)


def test_separate_components_need_no_reboot() -> None:
    steps = change({"dcgm": ("3.3.9", "4.5.2"), "toolkit": (None, "13.1.0")}, {"dcgm": "3.3.9"}, reboot="none")
    assert [step.phase for step in steps] == ["preflight", "stop", "remove", "install", "install", "activate", "verify"]
    assert steps[2].arguments["packages"] == ["datacenter-gpu-manager"]
    assert [step.artifacts for step in steps if step.artifacts] == [
        ("datacenter-gpu-manager-4-core_4.5.2-1_amd64.deb",), ("cuda-toolkit-13-1_13.1.0-1_amd64.deb",),
    ]  # fmt: skip


def test_a_live_reload_unloads_from_the_top() -> None:
    steps = change({"driver": ("581.10.02", "581.12.01")}, {"driver": "581.10.02"}, reboot="reload")
    activate = next(step for step in steps if step.phase == "activate")
    modules = activate.arguments["modules"]
    assert isinstance(modules, list)
    assert modules[-1] == "nvidia" and modules.index("gdrdrv") < modules.index("nvidia_uvm")
    assert not any(step.phase == "reboot" for step in steps)


def test_removal_and_runfile() -> None:
    steps = change({"driver": ("581.10.02", None)}, {"driver": "581.10.02"})
    remove = next(step for step in steps if step.phase == "remove")
    assert remove.changes == (VersionChange("driver", "581.10.02", None),)
    steps = change({"driver": (None, "581.10.02")}, {}, delivery={"driver": "runfile"})
    install = next(step for step in steps if step.phase == "install")
    assert (install.delivery, install.artifacts) == ("runfile", ("NVIDIA-Linux-x86_64-581.10.02.run",))


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(Refused, match="kernel"):
        change({"kernel": ("6.8", "6.11")}, {})
    with pytest.raises(Refused, match="must be equal"):
        change({"driver": ("1.1", "581.10.02"), "fabricmanager": (None, "581.12.01")}, {})


def test_volta_keeps_the_closed_module() -> None:
    assert naming.flavour("580.11.02", None, "V100-SXM2-32GB") == "proprietary"
    assert naming.flavour("580.11.02", None, "H20-96GB") == "open"
    assert naming.flavour("535.11.02", None, "H20-96GB") == "proprietary"


@pytest.mark.parametrize("kind", ["deb", "rpm"])
@pytest.mark.parametrize("version", ["565.11.02", "581.10.02"])
@pytest.mark.parametrize("component", ["driver", "fabricmanager", "nscq", "nvsdm", "imex"])
def test_a_computed_name_is_recognised(component: str, version: str, kind: str) -> None:
    for os in (OS, OsFacts("rocky", "9.9", "5.14.0", "aarch64")):
        found = VENDOR.artifact(naming.file_name(component, version, kind, os))
        assert found is not None
        assert (found.vendor, found.component, found.version, found.kind) == ("nvidia", component, version, kind)
        assert found.arch == os.arch


def test_other_names_are_not_ours() -> None:
    run = VENDOR.artifact("NVIDIA-Linux-x86_64-581.10.02.run")
    assert run is not None and (run.component, run.version, run.kind) == ("driver", "581.10.02", "run")
    for name in (
        "Ascend-hdk-910b-npu-driver_24.1.0_linux-aarch64.run",
        "bash_5.2-1_amd64.deb",
        "nvidia",
        "x" * 5000,
        "",
    ):
        assert VENDOR.artifact(name) is None


def verdicts(count: int, **texts: tuple[str, str]) -> dict[str, str]:
    had = readings(**texts)
    return {check.name: str(check.judge(had, count)["result"]) for check in VENDOR.checks}


def test_checks_judge_and_do_not_guess() -> None:
    assert set(verdicts(1).values()) == {"unknown", "fail"}  # no driver version at all is a failure
    good = verdicts(
        1,
        cards=cards(card(0, "0000:17:00.0")),
        proc_version=proc("565.11.02"),
        table=("nvidia-smi --version", "NVIDIA-SMI version  : 565.11.02\nDRIVER version      : 565.11.02\n"),
        links=("nvidia-smi nvlink -s", "GPU 0: NVIDIA H20 (UUID: GPU-0)\n\t Link 0: 26.562 GB/s\n"),
        kernel_log=("dmesg", "nvidia: no message\n"),
    )
    assert set(good.values()) == {"pass"}
    bad = verdicts(
        2,
        cards=cards(card(0, "0000:17:00.0", pending="Yes", fabric="In Progress")),
        proc_version=proc("565.11.02"),
        table=("nvidia-smi --version", "NVIDIA-SMI version  : 565.12.01\nDRIVER version      : 565.12.01\n"),
        links=("nvidia-smi nvlink -s", "GPU 0: NVIDIA H20 (UUID: GPU-0)\n\t Link 0: <inactive>\n"),
        kernel_log=("dmesg", "[1.0] NVRM: Xid (PCI:0000:17:00): 95, pid=1, Uncontained\n"),
    )
    assert bad == {
        "count": "fail", "driver-equal": "fail", "fabric": "fail", "ecc": "warn", "links": "fail", "xid": "fail",
    }  # fmt: skip


def test_faults_have_severity_and_action() -> None:
    assert (VENDOR.faults["79"].severity, VENDOR.faults["79"].action) == ("critical", "reboot")
    assert VENDOR.faults["31"].severity == "info"
    assert {fault.severity for fault in VENDOR.faults.values()} == {"info", "warning", "critical"}
    facts = VENDOR.gather(
        seen(pci("0000:17:00.0"), kernel_log=("dmesg", "[1.0] NVRM: Xid (PCI:0000:17:00): 999, made up\n"))
    )
    assert facts.faults == (
        {"code": "999", "bus_id": "0000:17:00.0", "severity": "warning", "action": "contact-support"},
    )
