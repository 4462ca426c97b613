"""The artifact store: whole or not at all, one content for a name, ranges over HTTP."""

from __future__ import annotations

import hashlib
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.artifact import ArtifactStore, byte_range, server
from fleet.core.errors import BadInput, FleetError, NotFound, Refused
from fleet.core.vendor import ArtifactName

NOW = "2031-05-01T08:00:00Z"
CONTENT = bytes(range(256)) * 40


def recognise(name: str) -> ArtifactName | None:
    return ArtifactName("acme", "driver", name.split("-")[1], "run") if name.startswith("acme-") else None


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "store", recognise)


def made(folder: Path, name: str = "acme-1.0-x.run", content: bytes = CONTENT) -> Path:
    file = folder / name
    file.write_bytes(content)
    return file


def test_a_file_is_kept_by_its_content(store: ArtifactStore, tmp_path: Path) -> None:
    file = made(tmp_path)
    found, new = store.add(file, NOW)
    assert new and (found.vendor, found.component, found.version) == ("acme", "driver", "1.0")
    assert found.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert store.path(found).read_bytes() == CONTENT
    assert store.add(file, "2040-01-01T00:00:00Z") == (found, False)
    assert store.has(file.name) and not store.has("acme-2.0-x.run")
    assert [a.name for a in store.list()] == [file.name]
    assert store.find(found.sha256) == store.find(file.name) == store.need(file.name) == found
    with pytest.raises(NotFound):
        store.find("nothing")


def test_two_contents_under_one_name_collide(store: ArtifactStore, tmp_path: Path) -> None:
    file = made(tmp_path)
    store.add(file, NOW)
    file.write_bytes(b"other")
    with pytest.raises(Refused) as caught:
        store.add(file, NOW)
    assert caught.value.slug == "artifact-collision"
    replaced, new = store.add(file, NOW, replace=True)
    assert new and replaced.size == 5
    assert [f.state for f in store.verify()] == ["ok", "left-over"]


@pytest.mark.parametrize(
    ("name", "content", "sha256", "slug"),
    [
        ("acme-1.0-x.run.part", b"x", "", "partial-file"),
        ("acme-1.0-x.run", b"", "", "partial-file"),
        ("readme.txt", b"x", "", "unrecognised-artifact"),
        ("acme-1.0-x.run", b"x", "0" * 64, "bad-sha256"),
        ("acme-1.0-x.run", b"x", "abc", "bad-sha256"),
    ],
)
def test_what_is_refused_leaves_nothing(
    store: ArtifactStore, tmp_path: Path, name: str, content: bytes, sha256: str, slug: str
) -> None:
    with pytest.raises(BadInput) as caught:
        store.add(made(tmp_path, name, content), NOW, sha256=sha256)
    assert caught.value.slug == slug
    assert list(store.list()) == []
    assert list((store.folder / "blobs").glob("*")) == [] and list((store.folder / "blobs").glob(".*")) == []


def test_a_download_under_way_and_a_missing_file_are_named(store: ArtifactStore, tmp_path: Path) -> None:
    file = made(tmp_path)
    (tmp_path / f"{file.name}.aria2").touch()
    with pytest.raises(BadInput, match="partial"):
        store.add(file, NOW)
    with pytest.raises(BadInput, match="no file"):
        store.add(tmp_path / "acme-9-x.run", NOW)
    assert store.add(made(tmp_path, "readme.txt"), NOW, unrecognised=True)[0].vendor == ""


def test_damage_is_found_before_use(store: ArtifactStore, tmp_path: Path) -> None:
    found, _ = store.add(made(tmp_path), NOW)
    store.path(found).write_bytes(CONTENT[:-1] + b"!")
    assert [f.state for f in store.verify()] == ["damaged"]
    with pytest.raises(Refused, match="damaged"):
        store.need(found.name)
    store.path(found).unlink()
    assert not store.has(found.name)
    assert [f.state for f in store.verify()] == ["missing"]
    (store.folder / "names" / f"{found.name}.json").write_text("{")
    with pytest.raises(FleetError) as caught:
        store.get(found.name)
    assert caught.value.slug == "store-damaged"


@pytest.fixture
def url(store: ArtifactStore, tmp_path: Path) -> Iterator[str]:
    store.add(made(tmp_path), NOW)
    httpd = server(store)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}"
    httpd.shutdown()
    httpd.server_close()
    thread.join(10)


def get(url: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
        return answer.status, answer.read(), dict(answer.headers)


def test_the_server_gives_whole_files_and_ranges(url: str, store: ArtifactStore) -> None:
    artifact = next(iter(store.list()))
    assert get(f"{url}/{artifact.name}")[:2] == (200, CONTENT)
    assert get(f"{url}/sha256/{artifact.sha256}")[1] == CONTENT
    status, part, headers = get(f"{url}/{artifact.name}", Range="bytes=100-199")
    assert (status, part, headers["Content-Range"]) == (206, CONTENT[100:200], f"bytes 100-199/{len(CONTENT)}")
    assert get(f"{url}/{artifact.name}", Range="bytes=-5")[1] == CONTENT[-5:]
    assert get(f"{url}/{artifact.name}", Range="bytes=10230-")[1] == CONTENT[10230:]
    for path, header, status in (
        ("/nothing", "", 404),
        ("/../../etc/passwd", "", 404),
        (f"/{artifact.name}", "bytes=99999-", 416),
    ):
        with pytest.raises(urllib.error.HTTPError) as caught:
            get(url + path, **({"Range": header} if header else {}))
        assert caught.value.code == status


def test_ranges() -> None:
    assert (
        byte_range("", 10) is None and byte_range("bytes=0-1,3-4", 10) is None and byte_range("lines=1-2", 10) is None
    )
    assert byte_range("bytes=0-99", 10) == (0, 9)
    assert byte_range("bytes=-99", 10) == (0, 9)
    for bad in ("bytes=10-", "bytes=5-4", "bytes=-0"):
        with pytest.raises(ValueError, match="bytes"):
            byte_range(bad, 10)


def test_what_is_no_regular_file_is_refused_at_once(store: ArtifactStore, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "acme-1.0-x.run")
    (tmp_path / "acme-2.0-x.run").mkdir()
    for file in (tmp_path / "acme-1.0-x.run", tmp_path / "acme-2.0-x.run", Path("/dev/zero"), tmp_path / ("x" * 300)):
        with pytest.raises(BadInput):
            store.add(file, NOW, unrecognised=True)
    assert not list(store.list())


@pytest.mark.parametrize("name", ["acme-1.0\n.run", ".acme-1.0", "acme-1.0 ", "acme-\x1b[31m.run", "acme-" + "y" * 240])
def test_names_that_nobody_can_show_or_store(store: ArtifactStore, tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput) as caught:
        store.add(made(tmp_path, name), NOW, unrecognised=True)
    assert caught.value.slug == "unrecognised-artifact"


def test_a_refused_copy_leaves_nothing_behind(store: ArtifactStore, tmp_path: Path) -> None:
    store.add(made(tmp_path), NOW)
    with pytest.raises(Refused):
        store.add(made(tmp_path, content=b"other"), NOW)
    assert [finding.state for finding in store.verify()] == ["ok"]


def test_a_damaged_note_is_named_and_spoils_nothing_else(store: ArtifactStore, tmp_path: Path) -> None:
    store.add(made(tmp_path), NOW)
    (store.folder / "names/zz.json").write_text("{")
    (store.folder / "names/yy.json").write_text((store.folder / "names/acme-1.0-x.run.json").read_text())
    assert {f.name: f.state for f in store.verify()} == {"acme-1.0-x.run": "ok", "yy": "damaged", "zz": "damaged"}
    assert store.need("acme-1.0-x.run").name == "acme-1.0-x.run"
    for name in ("../names/zz", "a/b", "", "."):
        assert store.get(name) is None


def test_a_store_that_cannot_be_written(store: ArtifactStore, tmp_path: Path) -> None:
    store.folder.mkdir()
    (store.folder / "names").write_text("a file in place of the folder")
    with pytest.raises(FleetError) as caught:
        store.add(made(tmp_path), NOW)
    assert caught.value.slug == "store-unwritable"
