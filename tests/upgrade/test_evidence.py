"""Evidence: a chain that shows every edit, outlives crashes, and is written by many at once."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.core.errors import FleetError, NotFound
from fleet.evidence import FIRST, EvidenceStore

NOW = "2031-05-01T08:00:00Z"


@pytest.fixture
def store(tmp_path: Path) -> EvidenceStore:
    made = EvidenceStore(tmp_path)
    for number in range(4):
        output = made.blob(f"output {number}".encode())
        made.append("r-1", NOW, "lab", "step", {"node": f"n{number}", "output": output, "说": "好"})
    return made


def lines(store: EvidenceStore) -> list[bytes]:
    return (store.folder / "runs/r-1.jsonl").read_bytes().splitlines(keepends=True)


def test_records_are_chained(store: EvidenceStore) -> None:
    records = list(store.records("r-1"))
    assert [r.seq for r in records] == [0, 1, 2, 3]
    assert records[0].prev == FIRST and [r.prev for r in records[1:]] == [r.digest for r in records[:-1]]
    verdict = store.verify("r-1")
    assert (verdict.ok, verdict.records, verdict.head) == (True, 4, records[-1].digest)
    assert store.read_blob(str(records[2].body["output"])) == b"output 2"
    assert store.runs() == ["r-1"]


def edit(line: bytes) -> bytes:
    raw = json.loads(line)
    raw["body"]["node"] = "other"
    return json.dumps(raw, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


@pytest.mark.parametrize(
    "damage",
    [
        lambda all_: [all_[0], edit(all_[1]), *all_[2:]],
        lambda all_: [*all_[:2], all_[3]],
        lambda all_: [all_[1], all_[0], *all_[2:]],
        lambda all_: [all_[0], all_[0], *all_[1:]],
        lambda all_: [all_[0], b"not json\n", *all_[1:]],
        lambda all_: [all_[0].replace(b",", b", ", 1), *all_[1:]],
        lambda all_: [b'{"a":1}\n', *all_],
        lambda all_: all_[1:],
    ],
)
def test_every_edit_is_seen(store: EvidenceStore, damage: Callable[[list[bytes]], list[bytes]]) -> None:
    (store.folder / "runs/r-1.jsonl").write_bytes(b"".join(damage(lines(store))))
    assert not store.verify("r-1").ok


def test_a_changed_output_is_seen_and_a_dropped_one_is_not_damage(store: EvidenceStore) -> None:
    blobs = sorted((store.folder / "blobs").iterdir())
    blobs[0].write_bytes(blobs[1].read_bytes())
    assert "was changed" in store.verify("r-1").problem
    blobs[0].unlink()
    assert store.verify("r-1").ok


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_last_line_is_dropped_and_the_chain_goes_on(store: EvidenceStore, cut: int) -> None:
    file = store.folder / "runs/r-1.jsonl"
    file.write_bytes(file.read_bytes()[:-cut])
    verdict = store.verify("r-1")
    assert verdict.ok and verdict.torn and verdict.records == 3
    assert store.append("r-1", NOW, "lab", "step", {}).seq == 3
    verdict = store.verify("r-1")
    assert verdict.ok and not verdict.torn and verdict.records == 4


def write(folder: str) -> None:
    store = EvidenceStore(Path(folder))
    for number in range(20):
        store.append("many", NOW, "hardware", "step", {"number": number, "text": "x" * number * 50})


def test_many_processes_write_one_chain(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write, args=(str(tmp_path),)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    verdict = EvidenceStore(tmp_path).verify("many")
    assert (verdict.ok, verdict.records) == (True, 60)


VALUES = st.one_of(st.text(max_size=300), st.integers(), st.none())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.text(max_size=5), st.one_of(st.text(max_size=300), st.integers(), st.none())), max_size=6
    )
)
def test_any_body_comes_back(tmp_path: Path, bodies: list[dict[str, str | int | None]]) -> None:
    store = EvidenceStore(tmp_path)
    run = f"run{len(store.runs())}"
    for body in bodies:
        store.append(run, NOW, "replay", "any", {**body})
    if bodies:
        assert [dict(r.body) for r in store.records(run)] == bodies
        assert store.verify(run).ok


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden"])
def test_a_run_is_no_path(store: EvidenceStore, name: str) -> None:
    with pytest.raises(NotFound):
        store.append(name, NOW, "lab", "step", {})
    with pytest.raises(NotFound):
        list(store.records("r-2"))
    with pytest.raises(NotFound):
        store.read_blob("sha256:" + "0" * 64)


def test_an_edit_or_loss_of_the_last_record_is_seen(store: EvidenceStore) -> None:
    file = store.folder / "runs/r-1.jsonl"
    whole = file.read_bytes()
    file.write_bytes(b"".join(lines(store)[:-1]))
    assert "removed from its end" in store.verify("r-1").problem
    file.write_bytes(whole.replace(b'"n3"', b'"n8"'))
    assert "line 4" in store.verify("r-1").problem
    store.append("r-1", NOW, "lab", "step", {})  # what is written after the edit does not make it good
    assert "line 5" in store.verify("r-1").problem
    file.write_bytes(whole)
    store.append("r-1", NOW, "lab", "step", {})
    (store.folder / "heads/r-1.json").write_text("{")  # a head that is not there, or no head, proves nothing
    assert store.verify("r-1").ok


def test_a_last_record_that_is_junk_takes_no_further_one(store: EvidenceStore) -> None:
    with (store.folder / "runs/r-1.jsonl").open("ab") as file:
        file.write(b'{"seq":"\n')
    with pytest.raises(FleetError) as caught:
        store.append("r-1", NOW, "lab", "step", {})
    assert caught.value.slug == "evidence-broken"


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file in place of the folder")
    (tmp_path / "blobs").write_text("")
    store = EvidenceStore(tmp_path)
    with pytest.raises(FleetError) as record:
        store.append("r", NOW, "lab", "step", {})
    with pytest.raises(FleetError) as blob:
        store.blob(b"x")
    for caught in (record, blob):
        assert caught.value.slug == "store-unwritable" and caught.value.cause


def test_a_run_is_found_by_its_beginning(store: EvidenceStore) -> None:
    store.append("r-12", NOW, "lab", "step", {})
    assert store.find("r-1") == "r-1" and store.find("r-12") == "r-12"
    store.append("other", NOW, "lab", "step", {})
    assert store.find("o") == "other"
    for beginning in ("r", "", "x", "y" * 400):
        with pytest.raises(NotFound):
            store.find(beginning)


def test_threads_that_keep_the_same_output_at_once_lose_nothing(tmp_path: Path) -> None:
    """Rollouts run side by side in one process, and equal nodes say the same."""
    store = EvidenceStore(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        kept = list(pool.map(lambda number: store.blob(b"the same %d" % (number // 8)), range(800)))
    assert len(set(kept)) == 100
    assert all(store.read_blob(digest) for digest in kept)
    assert not list(tmp_path.rglob(".*.z.*"))
