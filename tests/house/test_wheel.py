"""The wheel holds exactly the five packages, with tables, roles and emulators in it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_wheel_is_complete(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("accelfleet-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert top == {"fleet", "drivers", "compat_matrix", "playbooks", "pxe"}
    for vendor in ("nvidia", "ascend", "metax", "biren"):
        assert f"compat_matrix/{vendor}/models.yaml" in names
        assert f"playbooks/roles/{vendor}/tasks/install.yml" in names
        assert f"drivers/{vendor}/emulate/package.py" in names
    assert "playbooks/phase.yml" in names
    assert any(name.startswith("fleet/inventory/migrations/versions/0001") for name in names)
    assert "fleet/lab/node/labnode.py" in names
