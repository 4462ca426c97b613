"""The pure parts of a guest: what a spec may say, its initrd, its quoting, the faults it cannot have. No QEMU."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from fleet.core.errors import BadInput, NotFound
from fleet.lab import guest, spec
from fleet.lab.guest_image import cpio
from fleet.lab.lab import Lab

SPEC = Path(__file__).with_name("guest.yaml")


def test_a_spec_names_its_guests(tmp_path: Path) -> None:
    (node,) = spec.load(SPEC, 1).nodes
    assert node.guest
    document = yaml.safe_load(SPEC.read_text())
    document["nodes"]["plain"] = {"class": "acme-guest"}
    file = tmp_path / "spec.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    assert [one.guest for one in spec.load(file, 1).nodes] == [True, False]


@pytest.mark.parametrize(("system", "wish"), [("rocky-9.4", True), ("debian-12", "yes"), ("debian-12", 1)])
def test_a_guest_is_said_by_true_and_runs_debs(tmp_path: Path, system: str, wish: object) -> None:
    document = yaml.safe_load(SPEC.read_text())
    document["classes"]["acme-guest"]["os"] = system
    document["nodes"]["qg-a"]["guest"] = wish
    file = tmp_path / "spec.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    with pytest.raises(BadInput, match="guest must be") as caught:
        spec.load(file, 1)
    assert "qg-a" in str(caught.value.where)


@pytest.mark.skipif(not shutil.which("busybox"), reason="reads the archive with busybox")
def test_the_initrd_is_an_archive_that_another_program_reads(tmp_path: Path) -> None:
    content = {"init": b"#!/bin/sh\n", "odd": b"12345", "empty": b"", "big": bytes(range(256)) * 300}
    entries = [("lib", stat.S_IFDIR | 0o755, b"")]
    entries += [(name, stat.S_IFREG | 0o755, data) for name, data in content.items()]
    entries += [("lib/inner", stat.S_IFREG | 0o600, b"inner")]
    subprocess.run(["busybox", "cpio", "-i"], input=cpio(entries), cwd=tmp_path, check=True, capture_output=True)
    assert {name: (tmp_path / name).read_bytes() for name in content} == content
    assert (tmp_path / "lib/inner").read_bytes() == b"inner"
    assert stat.S_IMODE((tmp_path / "init").stat().st_mode) == 0o755


def test_words_reach_the_guest_as_they_are() -> None:
    """The far end of ssh is a shell."""
    words = ["a b", "it's", "$HOME", "`id`", "", "*"]
    ran = guest.run(["sh", "-c"], ["printf", "%s|", *words])
    assert ran.stdout.decode() == "".join(f"{word}|" for word in words)


def test_faults_of_the_labs_own_process_1_are_not_for_guests(tmp_path: Path) -> None:
    folder = tmp_path / "nodes/qg-a"
    folder.mkdir(parents=True)
    (folder / "node.json").write_text(json.dumps({"vendor": "nvidia", "guest": {"kernel": "k"}}))
    lab = Lab(tmp_path, lambda _: None)
    assert set(lab.own_faults()) >= guest.NOT_FOR_GUESTS
    for fault in guest.NOT_FOR_GUESTS:
        with pytest.raises(NotFound, match="for guests"):
            lab.fault("qg-a", fault)
