"""The emulated MetaX programs: layouts by the readers, file names by the adapter, the same bytes each time."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import drivers.metax
from drivers.metax import VENDOR, artifacts

EMULATE = Path(drivers.metax.__file__).parent / "emulate"
LAB = Path(__file__).parents[3] / "fleet/lab/node"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"metax_emulate_{name}", EMULATE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CARD = {
    "board": 2, "index": 3, "name": "MetaX C588", "chip": "MXC588", "bus_id": "0003:0a:00.0", "uuid": "GPU-ab",
    "temperature": "47", "power": "120", "limit": "500", "used": 77, "total": 131072, "utilization": "9%",
    "sgpu": "Disabled", "persistence": "Off", "perf": "P1", "reason": "", "state": "Available",
}  # fmt: skip


@pytest.mark.parametrize("smi", ["2.0.3", "2.2.1", "2.2.8", "2.3.9"])
def test_what_is_rendered_is_read_again(smi: str) -> None:
    render = load("render")
    text = render.log_head("mx-smi", "now", 1) + render.table("mx-smi", smi, "9.8.7", "6.5.4.3", "2.1.0.9", [CARD])
    got = VENDOR.read("mx-smi", text, 0)
    assert got.components == {"smi": smi, "driver": "9.8.7", "toolkit": "6.5.4.3", "firmware": "2.1.0.9"}
    (card,) = got.accelerators
    assert (card["index"], card["bus_id"], card["power_w"], card["temperature_c"]) == (3, "0003:0a:00.0", 120, 47)
    assert VENDOR.read("mx-smi -L", render.listing([CARD]), 0).accelerators[0]["uuid"] == "GPU-ab"


def test_the_package_builder_names_files_as_the_adapter_does() -> None:
    package = load("package")
    for kmd in ("3.10.14", "3.4.4"):
        for kind in ("deb", "rpm"):
            stack = {
                "kind": kind, "arch": "aarch64", "model": "C550",
                "components": {"driver": kmd, "firmware": "1.25.0.0", "toolkit": "3.5.0.1"},
            }  # fmt: skip
            names, _ = package.names(stack)
            assert names == {
                "driver": artifacts.driver(kmd, kind, "aarch64"),
                "firmware": artifacts.vbios("1.25.0.0", "C550"),
                "toolkit": artifacts.toolkit("3.5.0.1", kind, "aarch64"),
            }


def test_programs_refuse_to_run_outside_a_lab_node() -> None:
    assert not Path("/etc/fleet-lab").exists()
    env = {**os.environ, "PYTHONPATH": str(LAB), "PYTHONDONTWRITEBYTECODE": "1"}
    for program in ("smi.py", "install.py", "boot.py", "module.py", "start.py", "faults.py"):
        done = subprocess.run([sys.executable, str(EMULATE / program)], env=env, capture_output=True, check=False)
        assert done.returncode == 97, program
    clean = {key: value for key, value in os.environ.items() if key != "FLEET_LAB_BUILD"}
    done = subprocess.run(
        [sys.executable, str(EMULATE / "package.py"), "x", "y"], env=clean, capture_output=True, check=False
    )
    assert done.returncode == 97


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="builds a deb package: dpkg-deb is needed")
def test_packages_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    stack = {
        "name": "s", "model": "C500", "kind": "deb", "arch": "x86_64",
        "components": {"driver": "3.4.4", "firmware": "1.30.0.0", "toolkit": "3.3.0.15"},
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
    assert len(built[0]) == 3
