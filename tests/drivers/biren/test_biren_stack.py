"""Biren: what a probe's readings come to, steps, file names, checks, emulated packages."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import drivers.biren
from drivers.biren import VENDOR, artifacts
from drivers.biren.parse import read
from fleet.core.errors import Refused
from fleet.core.model import Item, OsFacts, VersionChange
from fleet.core.vendor import Change, PciDevice, Reading, Seen

OS = OsFacts("openEuler", "22.03", "5.10.0-9.oe", "x86_64")
EMULATE = Path(drivers.biren.__file__).parent / "emulate"
LAB = Path(__file__).parents[3] / "fleet/lab/node"
CARD = PciDevice("0000:0d:00.0", "1ee0", "0042", "120000")


def smi(driver: str = "1.11.0", health: str = "ok") -> Reading:
    card: Item = {"index": 0, "name": "Biren106C", "bus_id": "0000:0d:00.0", "health": health, "svi": "Disabled"}
    return Reading("biren", "brsmi", "ok", {"driver": driver, "toolkit": "1.11"}, (card,))


def test_three_values_of_the_driver_are_kept_apart() -> None:
    query = Reading("biren", "brsmi gpu", "ok", accelerators=({"index": 0, "serial": "BR7"},))
    seen = Seen(
        OS,
        (CARD,),
        {
            "module_file": read("modinfo -F version biren", "1.12.0\n", 0),
            "smi": smi(),
            "query": query,
            "toolkit": read("readlink -f x", "/usr/local/birensupa/sdk/1.11.0.0.rc2\n", 0),
            "dkms": read("dkms status", f"biren/1.10.0, {OS.kernel}, x86_64: installed\n", 0),
        },
        {"biren": "1.11.0"},
    )
    got = VENDOR.gather(seen)
    driver, toolkit = got.components["driver"], got.components["toolkit"]
    assert (driver.installed, driver.loaded, driver.runtime) == ("1.12.0", "1.11.0", "1.11.0")
    assert (toolkit.installed, toolkit.runtime) == ("1.11.0.0.rc2", "1.11")
    (card,) = got.accelerators
    assert (card.model, card.serial, card.pci_id) == ("Biren106C", "BR7", "1ee0:0042")
    assert any("DKMS holds 1.10.0" in text for text in got.problems)


def test_bus_and_tool_that_disagree_are_a_problem() -> None:
    other = PciDevice("0000:0e:00.0", "1ee0", "0042", "120000")
    assert VENDOR.gather(Seen(OS, (CARD, other), {"smi": smi()})).problems == (
        "count: 2 cards on the PCI bus, 1 in brsmi",
    )


def change(*changes: tuple[str, str | None, str | None], reboot: str = "reboot") -> Change:
    return Change("Biren106C", 8, OS, {}, tuple(VersionChange(*c) for c in changes), reboot)  # type: ignore[arg-type]


def test_users_away_old_driver_away_new_driver_then_sdk() -> None:
    steps = VENDOR.steps(change(("toolkit", "1.10", "1.11"), ("driver", "1.10.0", "1.11.0")))
    assert [step.phase for step in steps] == ["preflight", "stop", "remove", "install", "reboot", "install", "verify"]
    assert {(c.component, c.new) for c in steps[2].changes} == {("driver", None), ("toolkit", None)}
    assert steps[3].artifacts == ("biren-driver_1.11.0_linux-x86_64.run",)
    assert steps[5].artifacts == ("birensupa-sdk_1.11_openeuler-22.03_linux-x86_64.run",)


def test_a_live_reload_waits_for_the_device_nodes() -> None:
    steps = VENDOR.steps(change(("driver", None, "1.11.0"), reboot="reload"))
    assert [step.phase for step in steps] == ["preflight", "stop", "install", "activate", "verify"]
    assert steps[3].arguments["nodes_within_s"] == 20


def test_firmware_is_a_service_of_the_vendor() -> None:
    with pytest.raises(Refused, match="firmware"):
        VENDOR.steps(change(("firmware", "1", "2")))
    with pytest.raises(Refused):
        VENDOR.steps(change(("kernel", "5", "6")))
    assert VENDOR.capabilities["firmware"] == "Unsupported"


def test_computed_names_are_recognised() -> None:
    got = VENDOR.artifact(artifacts.driver("1.12.1", "aarch64"))
    assert got is not None and (got.component, got.version, got.arch) == ("driver", "1.12.1", "aarch64")
    sdk = VENDOR.artifact(artifacts.toolkit("1.11.0.0.rc2", OS))
    assert sdk is not None and (sdk.component, sdk.version) == ("toolkit", "1.11.0.0.rc2")
    assert VENDOR.artifact("biren-driver_1.11.0.deb") is None


def test_checks_judge_and_do_not_guess() -> None:
    loaded = Reading("biren", "cat", "ok", {"driver": "1.11.0"})
    good = {"loaded": loaded, "smi": smi(), "module_file": loaded}
    by_name = {check.name: check.judge for check in VENDOR.checks}
    assert {by_name[name](good, 1)["result"] for name in by_name} == {"pass"}
    assert by_name["cards-present"](good, 8)["result"] == "fail"
    assert by_name["ecc"]({"smi": smi(health="critical")}, 1)["result"] == "fail"
    old = Reading("biren", "modinfo", "ok", {"driver": "1.10.0"})
    assert by_name["driver-stays"]({**good, "module_file": old}, 1)["result"] == "fail"
    assert {check.judge({}, 2)["result"] for check in VENDOR.checks} == {"unknown"}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"biren_emulate_{name}", EMULATE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_rendered_is_read_again() -> None:
    card = {
        "index": 5, "name": "Biren106C", "bus_id": "00000002:1A:00.0", "ecc": 1, "temperature": 61, "perf": "P0",
        "power": 201, "limit": 300, "used": 9, "total": 32512, "utilization": "7%", "compute": "Default",
        "persistence": "Off", "svi": "Disabled", "memory.used": 9, "serial": "BR9",
    }  # fmt: skip
    render = load("render")
    (got,) = VENDOR.read("brsmi", render.table("now", "1.11.7", "1.11.8", "1.11", [card]), 0).accelerators
    assert (got["index"], got["bus_id"], got["power_w"], got["health"]) == (5, "0002:1a:00.0", 201, "critical")
    fields = ["index", "serial", "memory.used"]
    for header, units in ((True, True), (False, False)):
        words = ",".join(["csv", *([] if header else ["noheader"]), *([] if units else ["nounits"])])
        text = render.query(fields, [card], header, units)
        reading = VENDOR.read(f"brsmi gpu --query-gpu={','.join(fields)} --format={words}", text, 0)
        assert reading.accelerators == ({"index": 5, "serial": "BR9", "memory_used_mib": 9},)


def test_the_package_builder_names_files_as_the_adapter_does() -> None:
    stack = {"os": {"id": OS.id, "version": OS.version}, "components": {"driver": "1.11.0", "toolkit": "1.11"}}
    assert load("package").names(stack) == {
        "driver": artifacts.driver("1.11.0", "x86_64"),
        "toolkit": artifacts.toolkit("1.11", OS),
    }


def test_programs_refuse_to_run_outside_a_lab_node() -> None:
    assert not Path("/etc/fleet-lab").exists()
    env = {**os.environ, "PYTHONPATH": str(LAB), "PYTHONDONTWRITEBYTECODE": "1"}
    for program in ("smi.py", "install.py", "boot.py", "start.py", "faults.py"):
        done = subprocess.run([sys.executable, str(EMULATE / program)], env=env, capture_output=True, check=False)
        assert done.returncode == 97, program
    clean = {key: value for key, value in os.environ.items() if key != "FLEET_LAB_BUILD"}
    done = subprocess.run(
        [sys.executable, str(EMULATE / "package.py"), "x", "y"], env=clean, capture_output=True, check=False
    )
    assert done.returncode == 97


def test_packages_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    stack = {
        "name": "s", "os": {"id": "ubuntu", "version": "22.04"},
        "components": {"driver": "1.11.0", "toolkit": "1.11"},
    }  # fmt: skip
    order = tmp_path / "versions.json"
    order.write_text(json.dumps({"stacks": [stack], "labnode": str(LAB), "module_source": str(LAB / "module")}))
    built = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        done = subprocess.run(
            [sys.executable, str(EMULATE / "package.py"), str(tmp_path / name), str(order)],
            env={**os.environ, "FLEET_LAB_BUILD": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        built.append([(tmp_path / name / file).read_bytes() for file in json.loads(done.stdout)["s"]])
    assert built[0] == built[1]
    assert len(built[0]) == 2
