"""The vendors' emulated packages: built on the host by each vendor folder's package.py into one folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import drivers
from fleet.core.errors import FleetError, NotFound
from fleet.lab.base import NODE

EMULATE = "emulate"


def vendor_folder(name: str, vendor_path: Sequence[str] = ()) -> Path:
    """`drivers/<name>/emulate`, ours or of a folder in `vendor_path`."""
    roots = [Path(drivers.__file__).parent, *(Path(root) / "drivers" for root in vendor_path)]
    for root in reversed(roots):
        if (root / name / EMULATE / "install.json").is_file():
            return root / name / EMULATE
    raise NotFound(
        f"vendor {name!r} has no emulated software",
        where=f"drivers/{name}/{EMULATE}/install.json",
        hint="fleet vendor list; FLEET_VENDOR_PATH for vendors of your own",
        slug="unknown-vendor",
    )


def install_facts(folder: Path) -> dict[str, Any]:
    """The folder's install.json."""
    loaded: dict[str, Any] = json.loads((folder / "install.json").read_text())
    return loaded


def boot_modules(name: str, vendor_path: Sequence[str] = ()) -> list[str]:
    """The vendor's kernel modules in the order in which they are loaded at boot."""
    named = install_facts(vendor_folder(name, vendor_path)).get("modules", {})
    return list(named) or list(drivers.get(name, tuple(vendor_path)).modules)


def faults(name: str, vendor_path: Sequence[str] = ()) -> dict[str, dict[str, str]]:
    """The vendor's own faults: name -> {says, run}; {} without a faults.json."""
    file = vendor_folder(name, vendor_path) / "faults.json"
    if not file.is_file():
        return {}
    out = {}
    for fault, row in json.loads(file.read_text()).items():
        values = {"says": row} if isinstance(row, str) else dict(row)
        says = values.get("says") or values.get("text") or values.get("description") or fault
        out[fault] = {"says": str(says), "run": str(values.get("run", ""))}
    return out


def build(folder: Path, out: Path, stacks: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Build the packages of these stacks into `out`; stack name -> file names in the order of installation."""
    if not stacks:
        return {}
    out.mkdir(parents=True, exist_ok=True)
    order = out / f".versions-{folder.parent.name}.json"
    order.write_text(
        json.dumps({"stacks": list(stacks), "labnode": str(NODE), "module_source": str(NODE / "module")}, indent=1)
    )
    done = subprocess.run(
        [sys.executable, str(folder / "package.py"), str(out), str(order)],
        env={**os.environ, "FLEET_LAB_BUILD": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        answer = json.loads(done.stdout.strip().splitlines()[-1]) if done.returncode == 0 else None
    except (ValueError, IndexError):
        answer = None
    if not isinstance(answer, dict):
        raise FleetError(
            f"the emulated packages of {folder.parent.name} cannot be built",
            where=str(folder / "package.py"),
            cause=(done.stderr or done.stdout).strip()[-800:] or f"exit status {done.returncode}",
            slug="lab-packages",
        )
    return {str(name): [str(file) for file in files] for name, files in answer.items()}
