"""One guest for all tests of this folder: a lab of one node, known to fleet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab.rehearsal import ROOT, rehearsal
from tests.qemu.shell import LIMIT_S, Guest

SPEC = Path(__file__).with_name("guest.yaml")
PATIENT = {"FLEET_PROBE_TIMEOUT": "900"}  # an emulated processor on a busy host


@pytest.fixture(scope="session")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    with rehearsal(
        tmp_path_factory.mktemp("guest"), yaml.safe_load(SPEC.read_text()), [str(ROOT / "tests/acme")], known=False,
        settings=PATIENT, limit_s=LIMIT_S,
    ) as site:  # fmt: skip
        site.fleet("node", "import", str(site.lab.folder / "nodes.yaml"))
        site.fleet("node", "trust", "@all", "-y")
        one = Guest(site, "qg-a")
        print(f"\nguest: booted in {one.boot_s():.1f} s, {one.cpu_s():.1f} CPU s of QEMU, to the first login")
        one.bring_runner()
        yield one
        print(f"\nguest: {one.cpu_s():.0f} CPU s of QEMU since its last start")
