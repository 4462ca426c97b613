"""What is gathered from a probe, the checks over it, and the pairing of driver and firmware."""

from __future__ import annotations

from dataclasses import replace

from drivers.ascend import VENDOR
from drivers.ascend.fault_codes import fault
from drivers.ascend.pairing import accepts, pairing, text_order_accepts
from fleet.core.model import ComponentFact, OsFacts
from fleet.core.vendor import PciDevice, Reading, Seen
from tests.drivers.ascend import texts

PCI = tuple(PciDevice(f"0000:{bus}:00.0", "19e5", "d802", "120000", "19e5:3004") for bus in ("2a", "2b"))
NIC = PciDevice("0000:01:00.0", "19e5", "1822", "020000")


def answers(**changed: str) -> dict[str, Reading]:
    """Readings of a healthy node with two cards; a changed text replaces the answer of that probe."""
    said = {
        "smi": texts.TABLE.replace("Warning  ", "OK  "),
        "boards": texts.board(2) + texts.board(3),
        "health": texts.lines(("NPU ID", 2), ("Health Status", "OK"), ("Error Code", "NA"))
        + texts.lines(("NPU ID", 3), ("Health Status", "OK"), ("Error Code", "NA")),
        "firmware": texts.COMPONENTS,
        "floor": '{"device_id":2, "hw_base_version":236}\n',
        "boot": "boot status:16\nboot status:16\n",
        "driver_info": texts.VERSION_INFO,
        "firmware_info": texts.FIRMWARE_INFO,
        "install_info": "UserName=HwHiAiUser\nDriver_Install_Type=full\nDriver_Install_Status=complete\n",
        "toolkit": texts.CANN_INFO,
        "module": "24.1.0.1\n",
        "packages": "end\n",
        "since": "driver before-boot\nfirmware before-boot\nend\n",
        "spod": "This device does not support querying spod-info.\n",
        **changed,
    }
    commands = {probe.name: probe.read_as or probe.command for probe in VENDOR.probes}
    return {name: VENDOR.read(commands[name], text, 0) for name, text in said.items()}


def seen(pci: tuple[PciDevice, ...] = PCI, **changed: str) -> Seen:
    return Seen(OsFacts("ubuntu", "22.04", "5.15.0-1-generic", "aarch64"), (*pci, NIC), answers(**changed))


def test_a_healthy_node() -> None:
    got = VENDOR.gather(seen())
    assert got.components == {
        "driver": ComponentFact("24.1.0.1", "24.1.0.1"),
        "firmware": ComponentFact("7.5.0.4.220", "7.5.0.4.220"),
        "toolkit": ComponentFact("8.0.0"),
        "bundle": ComponentFact("24.1.0.1"),
    }
    assert [(card.index, card.serial, card.health, card.bus_id) for card in got.accelerators] == [
        (2, "99TEST0002", "ok", "0000:2a:00.0"),
        (3, "99TEST0003", "ok", "0000:2b:00.0"),
    ]
    assert got.flags["flash_floor"] == "236" and got.flags["pairing"] == "ok"
    assert got.flags["delivery_kind"] == {"driver": "run", "firmware": "run"}
    assert got.problems == () and got.faults == ()
    results = {str(item["name"]): item["result"] for item in (c.judge(answers(), 2) for c in VENDOR.checks)}
    assert results.pop("hccs") == "unknown"  # it was not asked: no pass
    assert set(results.values()) == {"pass"}


def test_an_installed_driver_that_does_not_run_yet() -> None:
    got = VENDOR.gather(
        seen(
            driver_info=texts.VERSION_INFO.replace("24.1.0.1", "25.2.0"),
            module="25.2.0\n",
            since="driver since-boot\nend\n",
        )
    )
    assert got.components["driver"] == ComponentFact("25.2.0", "24.1.0.1") and got.components["driver"].pending
    assert not any("not to be trusted" in problem for problem in got.problems)


def test_a_version_file_that_somebody_wrote_by_hand() -> None:
    got = VENDOR.gather(seen(driver_info=texts.VERSION_INFO.replace("24.1.0.1", "25.2.0")))
    assert sum("25.2.0" in problem for problem in got.problems) == 2  # older than the boot, and no such module


def test_counts_mixed_firmware_and_mixed_packages_are_problems() -> None:
    third = (*PCI, PciDevice("0000:2c:00.0", "19e5", "d802", "120000"))
    assert any("has 3" in problem for problem in VENDOR.gather(seen(third)).problems)
    mixed = texts.COMPONENTS.replace("deviceId(3)", "x").replace('uefi, "version":7.5.0.4', 'uefi, "version":7.3.0.4')
    assert "the chips run different firmware" in VENDOR.gather(seen(firmware=mixed)).problems
    kinds = VENDOR.gather(seen(packages="rpm Ascend910B-driver 24.1.0.1\nend\n"))
    assert kinds.flags["delivery_kind"] == {"driver": "rpm", "firmware": "run"}
    assert any("different kinds" in problem for problem in kinds.problems)


def test_a_silent_driver_leaves_the_cards_of_the_bus() -> None:
    got = VENDOR.gather(seen(smi="dcmi module initialize failed. ret is -8005\n", boards="\n", firmware="\n"))
    assert got.components["driver"] == ComponentFact("24.1.0.1", None)
    assert [card.model for card in got.accelerators] == ["19e5:d802/19e5:3004"] * 2
    assert any("does not answer (not-ready)" in problem for problem in got.problems)


def test_health_takes_the_worse_of_both_views() -> None:
    alarmed = answers(smi=texts.TABLE)  # the table warns, `-t health` says OK
    health = next(check for check in VENDOR.checks if check.name == "health")
    assert health.judge(alarmed, 2)["result"] == "warn"
    codes = answers(health=texts.HEALTH.replace("\t", "\t", 1))
    assert health.judge(codes, 2)["result"] == "fail"
    got = VENDOR.gather(replace(seen(), readings=codes))
    assert {(f["code"], f["action"]) for f in got.faults} == {("80E01801", "retry-job"), ("81AF8000", "reset")}


def test_fault_codes() -> None:
    assert fault("0x80e18402").action == "isolate" and fault("A4025021").severity == "info"
    unknown = fault("12345678")
    assert unknown.severity == "critical" and unknown.action == "ask"


def test_either_list_may_accept_and_numbers_are_numbers() -> None:
    narrow, wide = [["7.0.0", "7.2.99"]], [["24.1", "24.1."]]
    assert pairing("24.1.rc2", "7.3.0.1.231", narrow, wide) == "ok"
    assert pairing("24.1.rc2", "7.3.0.1.231", narrow, [["23.0.0", "23.0.0."]]) == "nok"
    assert pairing("24.1.rc2", "7.3.0.1.231", narrow, []) == "unknown"
    assert pairing("24.1.rc2", "6.3.0.1", [["6.0", "6.9"]], []) == "nok"
    assert not accepts(narrow, "7.10.0.1.1") and text_order_accepts(narrow, "7.10.0.1.1")
