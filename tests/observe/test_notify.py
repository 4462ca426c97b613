"""Webhooks: nothing is lost, nothing waits for them, nobody sends twice at once, no secret gets out."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from sqlalchemy import select, update

from fleet.config import Settings
from fleet.core.errors import BadInput
from fleet.core.model import Json
from fleet.core.task import NodeTask
from fleet.inventory import Inventory, outbox
from fleet.inventory.outbox import KINDS, NOTIFICATION, Outbox, enqueue, enqueue_endings, subscribe
from fleet.inventory.rollouts import Approval
from fleet.notify import GIVE_UP_S, LONGEST_S, Notifier, Target, notifying, pause_s, signature
from tests.observe.receiver import receiving
from tests.observe.site import NOW, Site

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/schema/Notification.json").read_text())


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def put(inventory: Inventory, kind: str = "rollout.paused", at: float = 1_000_000.0, rollout: str = "r-1") -> None:
    with inventory.database.writing() as connection:
        enqueue(connection, rollout, kind, {"reason": "two failed"}, at)


def notifier(
    inventory: Inventory, url: str, clock: Clock, said: list[str] | None = None, secret_file: str = ""
) -> Notifier:
    target = Target(url, secret_file, timeout_s=0.5)
    say: Callable[[str], None] = (said if said is not None else []).append
    return Notifier(Outbox(inventory.database, clock), target, threading.Event(), say=say, dice=lambda: 0.0)


def rows(inventory: Inventory) -> list[tuple[int, float, float, str]]:
    with inventory.database.reading() as connection:
        of = NOTIFICATION.c
        query = select(of.tries, of.next_at, of.delivered, of.error).order_by(of.id)
        return [(r.tries, r.next_at, r.delivered, r.error) for r in connection.execute(query)]


def test_nothing_is_written_for_nobody(inventory: Inventory) -> None:
    put(inventory)
    assert rows(inventory) == []
    subscribe(inventory.database, ["node"])
    put(inventory)
    put(inventory, "node.held")
    assert len(rows(inventory)) == 1
    subscribe(inventory.database, [])
    put(inventory)
    assert len(rows(inventory)) == 2
    with pytest.raises(BadInput) as caught:
        subscribe(inventory.database, ["node.fialed"])
    assert "'node.fialed'" in caught.value.what and "node.failed" in caught.value.hint


def test_an_event_is_undone_with_its_transaction(inventory: Inventory) -> None:
    subscribe(inventory.database, [])
    with pytest.raises(RuntimeError), inventory.database.writing() as connection:
        enqueue(connection, "r-1", "rollout.done", {}, 1.0)
        raise RuntimeError
    assert rows(inventory) == []


def test_an_event_is_posted_signed_and_as_promised(inventory: Inventory, tmp_path: Path) -> None:
    subscribe(inventory.database, [])
    clock = Clock()
    key = tmp_path / "key"
    key.write_text("s3cret\n")
    with receiving() as receiver:
        for kind in KINDS:
            put(inventory, kind)
        sender = notifier(inventory, receiver.url, clock, secret_file=str(key))
        while sender.round():
            pass
        assert [d["event"] for d in receiver.documents()] == list(KINDS)
        assert set(SCHEMA["properties"]["event"]["enum"]) == set(KINDS)
        for headers, body in receiver.got:
            document = json.loads(body)
            jsonschema.validate(document, SCHEMA)
            assert document["rollout"] == "r-1" and document["at"] == "1970-01-12T13:46:40Z"
            assert document["detail"] == {"reason": "two failed"}
            assert headers["Fleet-Event"] == document["event"] and headers["Fleet-Event-Id"] == document["id"]
            assert headers["Fleet-Signature"] == signature(b"s3cret", headers["Fleet-Timestamp"], body)
            assert headers["Fleet-Attempt"] == "1"
        assert len({d["id"] for d in receiver.documents()}) == len(KINDS)
    assert {(tries, after, error) for tries, after, _, error in rows(inventory)} == {(1, 0.0, "")}


@pytest.mark.parametrize(
    ("answer", "error"),
    [(500, "answered 500"), (302, "answered 302"), (404, "answered 404"), ("hang", "no answer within 0.5 s"),
     ("drip", "no answer within 0.5 s"), ("cut", "BadStatusLine: HTT")],
)  # fmt: skip
def test_what_fails_is_kept_and_tried_again_until_it_is_taken(
    inventory: Inventory, answer: int | str, error: str
) -> None:
    subscribe(inventory.database, [])
    clock, said = Clock(), list[str]()
    with receiving(answer, answer, 204) as receiver:
        put(inventory)
        sender = notifier(inventory, receiver.url, clock, said)
        began = time.monotonic()
        assert sender.round() == 1
        assert time.monotonic() - began < 5
        assert rows(inventory) == [(1, clock.now + 2.0, 0.0, error)]
        assert sender.round() == 0  # not before its time
        clock.now += 2.0
        assert sender.round() == 1
        assert rows(inventory) == [(2, clock.now + 4.0, 0.0, error)]
        clock.now += 4.0
        assert sender.round() == 1
        assert rows(inventory) == [(3, 0.0, clock.now, "")]
        assert sender.round() == 0
        ids = {headers["Fleet-Event-Id"] for headers, _ in receiver.got}
        assert len(receiver.got) == 3 and len(ids) == 1
        assert [headers["Fleet-Attempt"] for headers, _ in receiver.got] == ["1", "2", "3"]
    assert said == [f"webhook: {error}; events are kept and tried again", "webhook: events go out"]


def test_a_receiver_that_comes_back_gets_what_it_missed(inventory: Inventory) -> None:
    subscribe(inventory.database, [])
    clock = Clock()
    with receiving() as receiver:
        port, url = receiver.port, receiver.url
    put(inventory)
    sender = notifier(inventory, url, clock)
    for _ in range(12):
        sender.round()
        clock.now += LONGEST_S
    ((tries, _, delivered, error),) = rows(inventory)
    assert tries == 12 and delivered == 0 and "refused" in error
    with receiving(port=port) as receiver:
        assert sender.round() == 1
        assert [d["event"] for d in receiver.documents()] == ["rollout.paused"]
    assert Outbox(inventory.database, clock).depth().waiting == 0


def test_after_a_day_it_is_given_up_with_the_reason_kept(inventory: Inventory) -> None:
    subscribe(inventory.database, [])
    clock, said = Clock(), list[str]()
    with receiving(503) as receiver:
        put(inventory)
        put(inventory, at=clock.now + GIVE_UP_S)
        sender = notifier(inventory, receiver.url, clock, said)
        clock.now += GIVE_UP_S
        assert sender.round() == 2
        box = Outbox(inventory.database, clock)
        assert rows(inventory)[0] == (1, 0.0, 0.0, "answered 503")
        depth = box.depth()
        assert (depth.waiting, depth.given_up, depth.oldest_s) == (1, 1, 0.0)
        clock.now += 10.0
        assert sender.round() == 1  # only the younger one
        assert any("was given up after 1 tries: answered 503" in text for text in said)
    clock.now += outbox.KEPT_S + 1
    assert box.forget() == 1 and box.depth().given_up == 0 and len(rows(inventory)) == 1


def test_two_controllers_never_have_the_same_event_at_once(inventory: Inventory) -> None:
    subscribe(inventory.database, [])
    clock = Clock()
    for _ in range(40):
        put(inventory)
    taken: list[str] = []
    boxes = [Outbox(inventory.database, clock) for _ in range(3)]

    def work(box: Outbox) -> None:
        while events := box.take(3, 60.0):
            taken.extend(event.id for event in events)

    threads = [threading.Thread(target=work, args=(box,)) for box in boxes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(set(taken)) == 40
    assert boxes[0].take(3, 60.0) == []
    clock.now += 61.0  # they died before they had sent: the events are due again, under the same ids
    again = boxes[0].take(100, 60.0)
    assert {event.id for event in again} == set(taken) and {event.tries for event in again} == {2}


def test_pauses_double_up_to_five_minutes() -> None:
    assert [pause_s(n, 0.0) for n in (1, 2, 3, 8, 9, 5000)] == [2.0, 4.0, 8.0, 256.0, 300.0, 300.0]
    assert pause_s(9, 0.999) == pytest.approx(150.15)


def test_equal_endings_are_one_event(inventory: Inventory) -> None:
    subscribe(inventory.database, ["node"])
    held = NodeTask("n", 0, 1, state="held", owner="li", reason="canary: c1 failed", next_action="then fleet plan n")
    tasks = [
        *(replace(held, node=f"gpu{i}", next_action=f"then fleet plan gpu{i}") for i in (1, 2, 3)),
        replace(held, node="gpu4", reason="hands: switch it off", next_action="switch gpu4 off"),
        NodeTask("gpu5", 0, 1, state="failed", reason="no"),
        NodeTask("gpu6", 0, 1, state="rolled-back", reason="no"),
        NodeTask("gpu7", 0, 1, state="done"),
        NodeTask("gpu8", 0, 1, state="installing", cursor=1),
    ]
    with inventory.database.writing() as connection:
        enqueue_endings(connection, "r-1", tasks, 1.0)
    told = [(e.kind, e.body) for e in Outbox(inventory.database).take(10, 1.0)]
    assert [(kind, body["nodes"], body["count"]) for kind, body in told] == [
        ("node.held", "gpu[1-3]", 3), ("node.waiting", "gpu4", 1), ("node.failed", "gpu5", 1),
        ("node.failed", "gpu6", 1),
    ]  # fmt: skip
    assert told[0][1]["nextAction"] == "then fleet plan NODE" and told[1][1]["nextAction"] == "switch gpu4 off"


def test_a_node_past_its_limit_is_told_once(inventory: Inventory) -> None:
    subscribe(inventory.database, [])
    box = Outbox(inventory.database)
    late: tuple[str, dict[str, Json]] = ("r-1", {"nodes": "n1", "count": 1, "since": NOW, "limitS": 60})
    assert box.overdue([late]) == 1 and box.overdue([late]) == 0
    assert box.overdue([late, ("r-1", {"nodes": "n1", "count": 1, "since": "2031-05-02", "limitS": 60})]) == 1
    assert [e.kind for e in box.take(10, 1.0)] == ["node.overdue"] * 2


def test_the_sender_looks_for_overdue_nodes_itself(inventory: Inventory) -> None:
    site = Site(inventory)
    now = site.store.clock()
    subscribe(inventory.database, ["node.overdue"])
    late = {"state": "rebooting", "cursor": 3, "limit_s": 900}
    site.put(site.lease(), site.names[:1], since=now - 1000, reason="no answer", **late)
    site.put(site.lease(), site.names[1:2], since=now - 930, **late)  # within grace
    ticks = iter((0.0, 10.0, 100.0))
    with receiving() as receiver:
        box = Outbox(inventory.database, lambda: now)
        sender = Notifier(box, Target(receiver.url), threading.Event(), clock=lambda: next(ticks))
        assert [sender.round() for _ in range(3)] == [1, 0, 0]
        (told,) = receiver.documents()
    jsonschema.validate(told, SCHEMA)
    assert told["event"] == "node.overdue" and told["detail"]["nodes"] == site.names[0]
    assert told["detail"]["limitS"] == 900 and told["detail"]["reason"] == "no answer"


def test_the_thread_outlives_trouble_and_gives_the_last_events(inventory: Inventory) -> None:
    said: list[str] = []
    with receiving(500, 200) as receiver:
        subscribe(inventory.database, [])
        settings = Settings(notify_url=receiver.url)
        with notifying(settings, inventory.database, time.time, said.append):
            put(inventory, at=time.time())
            end = time.monotonic() + 20
            while len(receiver.got) < 2 and time.monotonic() < end:
                time.sleep(0.05)
            assert len(receiver.got) == 2, said
            put(inventory, "rollout.done", at=time.time())
        assert receiver.documents()[-1]["event"] == "rollout.done"


def test_a_hanging_receiver_delays_the_end_by_seconds_only(inventory: Inventory) -> None:
    with receiving("hang") as receiver:
        subscribe(inventory.database, [])
        began = time.monotonic()
        with notifying(Settings(notify_url=receiver.url), inventory.database, time.time, lambda _: None, flush_s=0.2):
            began = time.monotonic()
            put(inventory, at=time.time())
            wrote = time.monotonic() - began
            while not receiver.got and time.monotonic() - began < 10:
                time.sleep(0.02)
            ending = time.monotonic()
        assert wrote < 2 and time.monotonic() - ending < 5
    assert Outbox(inventory.database).depth().waiting == 1


def test_without_an_address_nothing_runs(inventory: Inventory) -> None:
    before = threading.active_count()
    with notifying(Settings(), inventory.database, time.time, lambda _: None):
        assert threading.active_count() == before


@pytest.mark.parametrize(
    "url", ["hook", "ftp://h/x", "http://", "http://user:pw@h/x", "http://h:99999/", "https://h:0/", "file:///nowhere"]
)
def test_a_bad_address_is_refused_before_anything_runs(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        Target.of(Settings(notify_url=url))
    assert caught.value.slug in ("bad-notify-url", "bad-notify-file") and "pw" not in caught.value.what


def test_address_and_secret_come_from_files_and_stay_there(inventory: Inventory, tmp_path: Path) -> None:
    subscribe(inventory.database, [])
    clock, said = Clock(), list[str]()
    hook, key = tmp_path / "hook", tmp_path / "key"
    key.write_text("")
    with pytest.raises(BadInput):
        Target.of(Settings(notify_url="http://127.0.0.1:9/", notify_secret_file=str(key)))
    key.write_text("k1")
    with receiving(500, 200) as receiver:
        hook.write_text(receiver.url + "\n")
        put(inventory)
        sender = notifier(inventory, f"file://{hook}", clock, said, secret_file=str(key))
        sender.round()
        key.unlink()
        clock.now += 10
        sender.round()  # unsigned it is not sent
        assert len(receiver.got) == 1 and "notify_secret_file" in rows(inventory)[0][3]
        key.write_text("k2")
        clock.now += 10
        sender.round()
        headers, body = receiver.got[-1]
        assert headers["Fleet-Signature"] == signature(b"k2", headers["Fleet-Timestamp"], body)
    hook.write_text("http://127.0.0.1:9/t0 ken")
    put(inventory, at=clock.now)
    sender.round()
    kept = json.dumps([said, [r[3] for r in rows(inventory)]])
    assert "t0" not in kept and "k1" not in kept and "k2" not in kept


def test_a_database_that_goes_away_does_not_end_the_thread(inventory: Inventory) -> None:
    subscribe(inventory.database, [])
    said: list[str] = []
    sender = notifier(inventory, "http://127.0.0.1:9/", Clock(), said)
    with inventory.database.writing() as connection:
        connection.execute(update(NOTIFICATION).values(error=""))

    class Away(Outbox):
        def take(self, limit: int, lease_s: float) -> list[outbox.Event]:
            raise BadInput(f"away: {limit} {lease_s}")

    sender.outbox = Away(inventory.database)
    assert sender._safely() is False and said == ["webhook: away: 4 60.0; events are kept and tried again"]


def test_a_yes_that_a_rollout_waited_for_is_told(inventory: Inventory) -> None:
    subscribe(inventory.database, ["rollout.resumed"])
    site = Site(inventory)
    site.store.set_state(site.lease(), "paused", "approval: plan p waits for a yes to begin", NOW)
    no = Approval("r-1", site.plan.id, "start", "no", "wang", "not tonight", NOW)
    site.store.approve(no)
    assert rows(inventory) == [] and site.store.rollout("r-1").state == "paused"
    site.store.approve(replace(no, verdict="yes"))
    (event,) = Outbox(inventory.database).take(9, 60.0)
    assert (event.kind, event.rollout, event.body["who"]) == ("rollout.resumed", "r-1", "wang")
