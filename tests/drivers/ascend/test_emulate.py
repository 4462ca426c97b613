"""The emulated side: what it renders is read back, its packages are reproducible and refuse to run outside a lab."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import drivers.ascend
from drivers.ascend import VENDOR
from fleet.core.model import Json

EMULATE = Path(drivers.ascend.__file__).parent / "emulate"
LAB = Path(__file__).parents[3] / "fleet/lab/node"
STACK: dict[str, Json] = {
    "name": "s", "vendor": "ascend", "model": "910B3", "arch": "x86_64", "kind": "deb", "pci_id": "19e5:d802",
    "os": {"id": "ubuntu", "version": "22.04"}, "kernel": "5.15.0-1-generic",
    "components": {"driver": "24.1.rc3", "firmware": "7.5.0.1.129", "mcu": "25.50.10", "toolkit": "8.0.RC3"},
}  # fmt: skip


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"ascend_emulate_{name}", EMULATE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(folder: Path) -> dict[str, list[str]]:
    order = folder / "versions.json"
    order.write_text(json.dumps({"stacks": [STACK], "labnode": str(LAB), "module_source": str(LAB / "module")}))
    done = subprocess.run(
        [sys.executable, str(EMULATE / "package.py"), str(folder), str(order)],
        env={**os.environ, "FLEET_LAB_BUILD": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def test_rendered_texts_are_read_back() -> None:
    text = load("npu_text")
    chip = {
        "npu": 4, "chip": 0, "name": "910B4", "health": "Alarm", "power": "91.5", "temp": 40, "huge": (0, 0),
        "bus": "0000:C1:00.0", "aicore": 0, "memory": (0, 0), "hbm": (3100, 32768),
    }  # fmt: skip
    reading = VENDOR.read("npu-smi info", text.info("24.1.0", "24.1.rc3", [chip], processes=[4]), 0)
    assert reading.components == {"smi": "24.1.0", "driver": "24.1.rc3"}
    assert reading.accelerators[0]["health"] == "critical" and reading.accelerators[0]["memory_total_mib"] == 32768
    versions = {0: dict.fromkeys(text.KINDS, "7.5.0.1.129"), 1: dict.fromkeys(text.KINDS, "7.3.0.1.231")}
    assert VENDOR.read("upgrade-tool --version", text.components(versions), 0).status == "driver-mismatch"
    floor = VENDOR.read("upgrade-tool --hw_base_version", text.base_version({0: 0, 1: 238}), 0)
    assert floor.measure == {"hw_base_version": 238}


def test_packages_have_the_vendor_s_names_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    files = build(folders[0])["s"]
    assert build(folders[1])["s"] == files
    kinds = [found.component for name in files if (found := VENDOR.artifact(name)) is not None]
    assert kinds == ["driver", "firmware", "mcu", "toolkit"]
    for name in files:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_a_package_refuses_to_run_outside_a_lab(tmp_path: Path) -> None:
    if Path("/etc/fleet-lab").exists():
        raise AssertionError("this test does not run inside a lab node")
    name = build(tmp_path)["s"][0]
    done = subprocess.run(["bash", str(tmp_path / name), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 97 and "lab" in done.stderr


def test_faults_and_tools_name_programs_that_are_there() -> None:
    faults = json.loads((EMULATE / "faults.json").read_text())
    assert len(faults) >= 8 and all(row["says"] for row in faults.values())
    tools = json.loads((EMULATE / "install.json").read_text())
    programs = [*tools["with_driver"].values(), *(row["run"] for row in faults.values() if row.get("run"))]
    assert programs and all((EMULATE / program).is_file() for program in programs)
