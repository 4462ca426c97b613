"""The emulated programs: layouts by the readers, package names by the adapter, packages that can be built again."""

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

import drivers.nvidia
from drivers.nvidia import VENDOR, naming
from fleet.core.model import OsFacts

EMULATE = Path(drivers.nvidia.__file__).parent / "emulate"
LAB = Path(__file__).parents[3] / "fleet/lab/node"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"nvidia_emulate_{name}", EMULATE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CARD = {
    "index": 3, "name": "NVIDIA H20", "bus_id": "00000000:17:00.0", "uuid": "GPU-aa", "fan": "N/A", "temperature": 31,
    "pstate": "P0", "power": 74, "limit": 500, "used": 12, "total": 97871, "utilisation": "0%", "compute": "Default",
    "persistence": "On", "display": "Off", "ecc": "0", "mig": "Disabled",
}  # fmt: skip


@pytest.mark.parametrize("version", ["565.11.02", "612.10.01"])
def test_what_is_rendered_is_read_again(version: str) -> None:
    render = load("render")
    reading = VENDOR.read("nvidia-smi", render.table("Mon", version, version, "13.9", [CARD]), 0)
    assert (reading.status, reading.components["driver"], reading.components["cuda"]) == ("ok", version, "13.9")
    (card,) = reading.accelerators
    assert (card["index"], card["name"], card["memory_total_mib"], card["power_w"]) == (3, "NVIDIA H20", 97871, 74)
    text = render.csv(["index", "uuid", "memory.total"], [["3", "GPU-aa", "97871"]])
    assert VENDOR.read("nvidia-smi --query-gpu=x --format=csv", text, 0).accelerators[0]["memory_total_mib"] == 97871
    assert (
        VENDOR.read("nvidia-smi --version", render.versions(version, version, "13.9"), 0).components["smi"] == version
    )
    assert VENDOR.read("nvidia-smi -L", render.listing([CARD]), 0).accelerators[0]["uuid"] == "GPU-aa"
    links = VENDOR.read("nvidia-smi nvlink -s", render.links([{**CARD, "speeds": ["25 GB/s"] * 4}]), 0)
    assert links.links == ({"index": 3, "links_total": 4, "links_up": 4, "speed_gbps": 25.0},)
    assert VENDOR.read("nvidia-smi", render.NO_DRIVER, 9).status == "driver-not-loaded"


def test_the_package_builder_names_files_as_the_adapter_does() -> None:
    package = load("package")
    pinned = ("driver", *naming.COMPANIONS)
    for component, version in (
        *((name, version) for name in pinned for version in ("535.9.01", "581.10.02")),
        ("nvlsm", "2025.06.5"), ("dcgm", "3.3.9"), ("dcgm", "4.5.2"), ("container_toolkit", "1.17.9"),
        ("toolkit", "13.1.0"), ("gdrcopy", "2.6"),
    ):  # fmt: skip
        for kind in ("deb", "rpm"):
            for arch in ("x86_64", "aarch64"):
                for word in ("open", "proprietary"):
                    name = package.package_name(component, version, kind, word)
                    want = naming.file_name(component, version, kind, OsFacts(arch=arch), word)
                    assert package.file_name(name, version, kind, arch) == want


def test_programs_refuse_to_run_outside_a_lab_node() -> None:
    assert not Path("/etc/fleet-lab").exists()
    env = {**os.environ, "PYTHONPATH": str(LAB), "PYTHONDONTWRITEBYTECODE": "1"}
    for program in ("smi.py", "fabricmanager.py", "dcgmi.py", "install.py", "boot.py", "module.py", "faults.py"):
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
        "name": "s", "model": "H20-96GB", "kind": "deb", "arch": "x86_64",
        "components": {"driver": "565.11.02", "fabricmanager": "565.11.02"},
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
        names = json.loads(done.stdout)["s"]
        assert names == [
            "nvidia-driver-565-open_565.11.02-1_amd64.deb",
            "nvidia-fabricmanager-565_565.11.02-1_amd64.deb",
        ]
        built.append([(tmp_path / name / file).read_bytes() for file in names])
    assert built[0] == built[1]


def test_faults_are_described() -> None:
    faults = json.loads((EMULATE / "faults.json").read_text())
    assert set(faults) == {"holders", "module-mismatch", "xid79", "fabric-stuck", "validation-fail"}
    assert all((EMULATE / row["run"]).is_file() and row["says"] for row in faults.values())
