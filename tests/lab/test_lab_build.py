"""Building layers: an interrupted build leaves nothing running and is made again; unused layers are removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fleet.lab.base import base, cache_dir, cache_lock, prune

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def _inside(folder: Path) -> list[str]:
    """The processes whose mounts or command line name that folder."""
    out = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            text = (process / "mountinfo").read_text() + (process / "cmdline").read_text().replace("\0", " ")
            name = (process / "comm").read_text().strip()
        except OSError:
            continue
        if str(folder) in text and int(process.name) != os.getpid():
            out.append(f"{process.name} {name}")
    return out


@pytest.mark.lab
@pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root")
def test_a_killed_build_is_cleaned_and_made_again(tmp_path: Path) -> None:
    with cache_lock(cache_dir(), print):
        root, _ = base(cache_dir(), print)
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "bases").symlink_to(root.parent.parent)
    spec = tmp_path / "one.yaml"
    text = (HERE / "two.yaml").read_text().replace("127.78.1", "127.78.2")
    spec.write_text(text[: text.index("  tr: {")])
    argv = [sys.executable, "-m", "fleet.cli.main", "--vendor-path", str(HERE / "vendor"), "lab"]
    env = {**os.environ, "FLEET_LAB_CACHE": str(cache), "FLEET_LAB_DIR": str(tmp_path / "lab")}
    up = [*argv, "up", "--nodes", str(spec)]
    with subprocess.Popen(up, env=env, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        end = time.monotonic() + 300
        while not list(cache.glob("systems/*.building/upper/*")) and time.monotonic() < end:
            time.sleep(0.02)
        assert first.poll() is None
        first.send_signal(signal.SIGKILL)
    end = time.monotonic() + 60
    while _inside(tmp_path) and time.monotonic() < end:
        time.sleep(0.05)
    assert _inside(tmp_path) == []
    try:
        second = subprocess.run(up, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
        assert second.returncode == 0, second.stderr
        assert "127.78.2.1" in second.stdout
        assert not list(cache.glob("*/*.building"))
    finally:
        down = subprocess.run([*argv, "down"], env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert down.returncode == 0
    assert _inside(tmp_path) == []


def test_layers_unused_for_weeks_are_removed(tmp_path: Path) -> None:
    for name, age_days in (("old", 20), ("new", 1)):
        mark = tmp_path / "systems" / name / "done"
        mark.parent.mkdir(parents=True)
        mark.touch()
        os.utime(mark, (time.time() - age_days * 86400,) * 2)
    said: list[str] = []
    assert [path.name for path in prune(tmp_path, said.append)] == ["old"]
    assert sorted(path.name for path in (tmp_path / "systems").iterdir()) == ["new"]
    assert len(said) == 1
