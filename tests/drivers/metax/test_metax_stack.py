"""MetaX: what a probe's readings come to, steps, file names, checks."""

from __future__ import annotations

import pytest

from drivers.metax import VENDOR, artifacts
from drivers.metax.parse import read
from fleet.core.errors import Refused
from fleet.core.model import Item, OsFacts, VersionChange
from fleet.core.vendor import Change, PciDevice, Reading, Seen

OS = OsFacts("ubuntu", "22.04", "5.15.0-9-generic", "x86_64")


def card(bus: str, device: str = "4001", pci_class: str = "038000") -> PciDevice:
    return PciDevice(bus, "9999", device, pci_class)


def smi(*buses: str, driver: str = "3.5.0", **more: str) -> Reading:
    cards: tuple[Item, ...] = tuple(
        {"index": i, "name": "MetaX C500", "bus_id": b, "health": "ok", **more} for i, b in enumerate(buses)
    )
    return Reading("metax", "mx-smi", "ok", {"driver": driver, "firmware": "1.31.0.0", "toolkit": "3.4.1.1"}, cards)


def test_three_values_of_the_driver_are_kept_apart() -> None:
    seen = Seen(
        OS,
        (card("0000:01:00.0"),),
        {
            "module_file": read("modinfo -F version metax", "3.6.0\n", 0),
            "smi": smi("0000:01:00.0"),
            "list": read(
                "mx-smi -L",
                "GPU#0    MXC500      0000:01:00.0   Available (UUID: GPU-1234)\n",
                0,
            ),
            "toolkit": read("readlink -f /opt/maca", "/opt/maca-3.4.1.1\n", 0),
            "packages": read("dpkg-query -W", "ii \tmetax-linux\t3.9.0.14\n", 0),
        },
        {"metax": "3.5.0"},
    )
    got = VENDOR.gather(seen)
    driver = got.components["driver"]
    assert (driver.installed, driver.loaded, driver.runtime, driver.pending) == ("3.6.0", "3.5.0", "3.5.0", True)
    assert got.components["toolkit"].installed == got.components["toolkit"].runtime == "3.4.1.1"
    assert got.components["firmware"].loaded == "1.31.0.0"
    (one,) = got.accelerators
    assert (one.model, one.uuid, one.pci_id, one.health) == ("C500", "GPU-1234", "9999:4001", "ok")
    assert got.flags["driver_package"] == "3.9.0.14"
    assert any("the package holds KMD 3.10.14" in text for text in got.problems)


def test_a_flashed_vbios_is_owed_until_it_runs() -> None:
    flashed = read("cat /var/lib/fleet/metax/flashed", "1.33.0.0\n", 0)
    got = VENDOR.gather(Seen(OS, (card("0000:01:00.0"),), {"flashed": flashed, "smi": smi("0000:01:00.0")}))
    firmware = got.components["firmware"]
    assert (firmware.installed, firmware.loaded, firmware.pending) == ("1.33.0.0", "1.31.0.0", True)


def test_bus_and_tool_that_disagree_are_a_problem() -> None:
    seen = Seen(OS, (card("0000:01:00.0"), card("0000:02:00.0")), {"smi": smi("0000:01:00.0")})
    got = VENDOR.gather(seen)
    assert got.problems == ("count: 2 cards on the PCI bus, 1 in mx-smi",)
    assert [c.health for c in got.accelerators] == ["ok", "unknown"]


def test_virtual_functions_and_bridges_are_no_cards() -> None:
    assert VENDOR.is_accelerator(card("0000:01:00.0"))
    assert VENDOR.is_accelerator(PciDevice("0000:01:00.0", "3030", "0001", "120000"))
    assert not VENDOR.is_accelerator(card("0000:01:00.1", "4019"))
    assert not VENDOR.is_accelerator(card("0000:01:00.0", "4001", "060400"))
    assert not VENDOR.is_accelerator(PciDevice("0000:01:00.0", "10de", "2330", "030200"))


def test_the_vendors_verdict_and_leftovers_are_problems() -> None:
    text = "GPU#0    MXC500      0000:01:00.0   Not Available(Driver And Vbios Compatibility Check Failed)\n"
    dkms = read("dkms status", f"metax/3.1.0, {OS.kernel}, x86_64: installed\nmetax/3.5.0: added\n", 0)
    seen = Seen(
        OS, (card("0000:01:00.0"),), {"list": read("mx-smi -L", text, 0), "dkms": dkms}, {"metax": "3.5.0"}
    )  # fmt: skip
    problems = VENDOR.gather(seen).problems
    assert any(text.startswith("driver_vbios") for text in problems)
    assert any("DKMS also holds 3.1.0" in text for text in problems)


def change(*changes: tuple[str, str | None, str | None], reboot: str = "reboot", kind: str = "deb") -> Change:
    return Change(
        "C500", 8, OS, {}, tuple(VersionChange(*c) for c in changes), reboot, package_kind=kind,  # type: ignore[arg-type]
    )  # fmt: skip


def test_driver_before_vbios_before_sdk_with_a_cold_start() -> None:
    steps = VENDOR.steps(
        change(
            ("toolkit", "3.3.0.1", "3.5.0.1"), ("firmware", "1.30.0.0", "1.33.0.0"), ("driver", "3.4.4", "3.10.14"),
        )
    )  # fmt: skip
    assert [step.phase for step in steps] == [
        "preflight", "stop", "remove", "install", "firmware", "reboot", "install", "verify",
    ]  # fmt: skip
    _, _, remove, driver, flash, reboot, toolkit, _ = steps
    assert remove.changes == (VersionChange("toolkit", "3.3.0.1", None),)
    assert driver.artifacts == ("metax-driver-3.9.0.14-deb-x86_64.run",)
    assert driver.activation == "reload"
    assert flash.artifacts == ("mxvbios-1.33.0.0-C500.bin",)
    assert (flash.arguments["flash_limit_s"], flash.arguments["canary_card"]) == (600, 0)
    assert (flash.activation, reboot.activation) == ("power_cycle", "power_cycle")
    assert toolkit.artifacts == ("maca-sdk-3.5.0.1-deb-x86_64.tar.xz",)


def test_an_older_vbios_is_forced_card_by_card() -> None:
    (flash,) = [s for s in VENDOR.steps(change(("firmware", "1.33.0.0", "1.9.0.0"))) if s.phase == "firmware"]
    assert flash.arguments["forced"] is True
    assert "anti-rollback" in flash.why
    assert flash.undo is not None and "-U" in flash.undo


def test_a_live_reload_needs_no_reboot() -> None:
    steps = VENDOR.steps(change(("driver", "3.4.4", "3.5.1"), reboot="reload", kind="rpm"))
    assert [step.phase for step in steps] == ["preflight", "stop", "install", "activate", "verify"]
    assert steps[2].artifacts == ("metax-driver-kmd-3.5.1-rpm-x86_64.run",)
    assert steps[2].arguments["compat_gate"] is True


def test_what_cannot_be_done_is_refused() -> None:
    for one in (("kernel", "5", "6"), ("firmware", "1.1.1.1", None)):
        with pytest.raises(Refused):
            VENDOR.steps(change(one))


@pytest.mark.parametrize("kmd", ["2.2.0", "3.10.14", "2.5.014", "9.9.9"])
def test_a_computed_driver_name_is_recognised(kmd: str) -> None:
    got = VENDOR.artifact(artifacts.driver(kmd, "rpm", "aarch64"))
    assert got is not None
    assert (got.component, got.version, got.arch) == ("driver", kmd, "aarch64")


def test_names_of_unknown_trains_are_not_guessed() -> None:
    assert VENDOR.artifact("metax-driver-3.1.0.26-deb-x86_64.run") is None  # its KMD is not public
    flash = VENDOR.artifact("mxvbios-1.25.0.0-766-C550.bin")
    assert flash is not None and (flash.version, flash.chip) == ("1.25.0.0", "C550")
    assert artifacts.vbios("1.25.0.0", "MetaX C550") == "mxvbios-1.25.0.0-766-C550.bin"
    assert VENDOR.artifact("NVIDIA-Linux-x86_64-580.95.05.run") is None


def test_checks_judge_and_do_not_guess() -> None:
    kmd = Reading("metax", "cat", "ok", {"driver": "3.5.0"})
    good = {"kmd": kmd, "smi": smi("0000:01:00.0", "0000:02:00.0")}
    by_name = {check.name: check.judge for check in VENDOR.checks}
    assert by_name["driver-loaded"](good, 2)["result"] == "pass"
    assert by_name["cards-available"](good, 2)["result"] == "pass"
    assert by_name["cards-available"](good, 8)["result"] == "fail"
    assert by_name["driver-loaded"]({**good, "smi": smi(driver="3.4.0")}, 0)["result"] == "fail"
    assert by_name["driver-loaded"]({"kmd": Reading("metax", "cat", "driver-not-loaded")}, 2)["result"] == "fail"
    broken = Reading("metax", "mx-smi", "driver-mismatch")
    assert by_name["driver-vbios"]({"smi": broken}, 2)["result"] == "fail"
    log = Reading("metax", "dmesg", "ok", faults=({"code": "0x1104"},))
    assert by_name["kernel-log"]({"log": log}, 2)["result"] == "fail"
    assert {check.judge({}, 2)["result"] for check in VENDOR.checks} == {"unknown"}
