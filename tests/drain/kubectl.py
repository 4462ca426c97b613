"""The kubectl binaries that the tests' API server is held against."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNPACKED = ROOT / ".venv" / "kubectl"  # scripts/setup unpacks Debian's packages there, one folder a release


def binaries() -> dict[str, Path]:
    """Release of Debian, or `path`, -> kubectl. Raises FileNotFoundError when there is none."""
    found = {path.parent.name: path for path in sorted(UNPACKED.glob("*/kubectl"))}
    beside = shutil.which("kubectl")
    if beside is not None:
        found["path"] = Path(beside)
    if not found:
        raise FileNotFoundError("no kubectl: run scripts/setup, which unpacks Debian's")
    return found


def minor(binary: Path) -> int:
    """20 for 1.20."""
    done = subprocess.run([binary, "version", "--client", "-o", "json"], capture_output=True, check=True, timeout=60)
    return int(json.loads(done.stdout)["clientVersion"]["minor"].rstrip("+"))


def kubectl(binary: Path, config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run it against the server of that kubeconfig."""
    argv = [str(binary), "--kubeconfig", str(config), "--cache-dir", str(config.parent / "cache"), *words]
    home = {**os.environ, "HOME": str(config.parent)}
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=home)
