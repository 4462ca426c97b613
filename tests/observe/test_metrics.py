"""Metrics as Prometheus itself reads them: names, types and figures; over HTTP and in a file."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fleet.core.errors import FleetError, UsageError
from fleet.inventory import Inventory
from fleet.inventory.outbox import enqueue, subscribe
from fleet.metrics import CONTENT_TYPE, Family, Metrics, address, kept, render, serving, write
from tests.observe.site import STEPS, Site


def read(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """(sample, labels) -> value, as Prometheus' own parser understands it."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.type in ("gauge", "counter", "histogram"), family.name
        assert family.name.startswith("fleet_")
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def value(found: dict[tuple[str, tuple[tuple[str, str], ...]], float], name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


@pytest.fixture
def site(inventory: Inventory) -> Site:
    return Site(inventory)


def test_figures_agree_with_the_tables(site: Site) -> None:
    now = site.store.clock()
    lease = site.lease()
    names = site.names
    site.put(lease, names[:1], state="done", cursor=6, since=now - 50)
    site.put(lease, names[1:2], state="rebooting", cursor=3, since=now - 1000, limit_s=900)
    site.put(lease, names[2:4], state="installing", direction="back", cursor=0, since=now - 10, limit_s=900)
    site.put(lease, names[4:5], state="failed", cursor=2, since=now - 5)
    for step in STEPS:
        site.step(lease, names[:1], step.phase, 30.0)
    site.step(lease, names[4:5], "install", 4000.0, "failed")
    nodes = {node.name: node for node in site.inventory.nodes()}
    site.store.claim(lease, [names[1:2], names[2:3], names[3:4]], {}, nodes, (), now)
    site.store.heartbeat("controller:c1", "1", now - 7)
    site.store.heartbeat("host:1:1", "1", now)  # a command that drives: no label of its own
    subscribe(site.inventory.database, [])
    with site.inventory.database.writing() as connection:
        enqueue(connection, "r-1", "node.failed", {}, now - 90)
    found = read(Metrics(site.store).text())
    r = {"rollout": "r-1"}
    assert [value(found, "fleet_rollout_state", state=s, **r) for s in ("running", "paused", "done")] == [1, 0, 0]
    for state, count in {"done": 1, "rebooting": 1, "installing": 2, "failed": 1, "waiting": 5, "held": 0}.items():
        assert value(found, "fleet_rollout_nodes", state=state, **r) == count
    assert value(found, "fleet_rollout_failures", **r) == 3
    assert value(found, "fleet_rollout_overdue_nodes", **r) == 1
    assert value(found, "fleet_rollout_driven", **r) == 1
    assert value(found, "fleet_rollout_state_age_seconds", state="rebooting", **r) == pytest.approx(1000, abs=60)
    assert ("fleet_rollout_state_age_seconds", (("rollout", "r-1"), ("state", "failed"))) not in found
    assert value(found, "fleet_budget_claimed_nodes", kind="fleet", **r) == 3
    assert value(found, "fleet_budget_limit_nodes", kind="fleet", **r) == 5
    assert value(found, "fleet_budget_claimed_nodes", kind="rack", **r) == 1
    assert value(found, "fleet_budget_limit_nodes", kind="rack", **r) == 1
    assert value(found, "fleet_steps_total", phase="install", result="done") == 1
    assert value(found, "fleet_steps_total", phase="install", result="failed") == 1
    buckets = [
        value(found, "fleet_step_duration_seconds_bucket", phase="install", le=le) for le in ("15", "60", "7200")
    ]
    assert buckets == [0, 1, 2]
    assert value(found, "fleet_step_duration_seconds_bucket", phase="install", le="+Inf") == 2
    assert value(found, "fleet_step_duration_seconds_count", phase="install") == 2
    assert value(found, "fleet_step_duration_seconds_sum", phase="install") == pytest.approx(4030, abs=1)
    assert value(found, "fleet_controller_heartbeat_age_seconds", controller="c1") == pytest.approx(7, abs=60)
    assert not any("host:1:1" in str(key) for key in found)
    assert value(found, "fleet_notifications_waiting") == 1
    assert value(found, "fleet_notifications_oldest_seconds") == pytest.approx(90, abs=60)
    assert value(found, "fleet_rollout_eta_seconds", **r) > 0


def test_no_series_for_a_node(inventory: Inventory) -> None:
    text = Metrics(Site(inventory, 300).store).text()
    assert "gpu0" not in text and len(text.splitlines()) < 100


def test_an_empty_database_and_a_finished_rollout_read_well(inventory: Inventory) -> None:
    before = Metrics(Site(inventory).store)
    store = before.store
    store.set_state(store.acquire("r-1", "me", 60.0, store.clock(), lambda _: True), "done", "", "2031-05-01T09:00:00Z")
    just_after = 1935393000.0  # half an hour later
    found = read(Metrics(store, clock=lambda: just_after).text())
    assert value(found, "fleet_rollout_state", rollout="r-1", state="done") == 1
    assert ("fleet_budget_claimed_nodes", (("kind", "fleet"), ("rollout", "r-1"))) not in found
    gone = read(Metrics(store, clock=lambda: just_after + 2 * 86400).text())
    assert not any("r-1" in str(key) for key in gone)


def test_labels_are_escaped_and_numbers_are_numbers() -> None:
    family = Family("fleet_x", "gauge", "X.")
    family.add(1.5, rollout='a"b\\c\nd')
    family.add(1e20, rollout="big")
    ((_, labels), number), (_, big) = read(render([family, Family("fleet_none", "gauge", "None.")])).items()
    assert labels == (("rollout", 'a"b\\c\nd'),) and number == 1.5 and big == 1e20
    assert "fleet_none" not in render([Family("fleet_none", "gauge", "None.")])


def get(port: int, path: str = "/metrics", method: str = "GET") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, answer.headers["Content-Type"], body


def test_they_are_given_over_http(site: Site) -> None:
    ticks = iter(range(1000, 9000, 100))
    metrics = Metrics(site.store, clock=lambda: float(next(ticks)))
    with serving(metrics, address("127.0.0.1:0")) as port:
        status, kind, body = get(port)
        assert (status, kind) == (200, CONTENT_TYPE) and read(body)
        assert get(port, "/metrics?x=1")[0] == 200 and get(port, "/")[0] == 404
        assert get(port, method="HEAD")[2] == ""
        with socket.create_connection(("127.0.0.1", port)):  # somebody who says nothing keeps nobody
            assert get(port)[0] == 200
        with pytest.raises(UsageError) as caught, serving(metrics, ("127.0.0.1", port)):
            pass
        assert caught.value.slug == "bad-metrics-address"
        listening = socket.create_connection(("127.0.0.1", port))
        listening.close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_a_database_that_is_away_fails_the_scrape(site: Site) -> None:
    class Away(Metrics):
        def text(self, *, fresh: bool = False) -> str:  # noqa: ARG002
            raise FleetError("the database cannot be reached")

    with serving(Away(site.store), address("127.0.0.1:0")) as port:
        assert get(port)[::2] == (503, "the database cannot be reached\n")


@pytest.mark.parametrize(
    ("text", "found"),
    [("127.0.0.1:80", ("127.0.0.1", 80)), (":9000", ("127.0.0.1", 9000)), ("9000", ("127.0.0.1", 9000)),
     ("0.0.0.0:1", ("0.0.0.0", 1)), ("[::1]:9000", ("::1", 9000)), ("::1", ("::1", 9436)), ("host", ("host", 9436))],
)  # fmt: skip
def test_addresses(text: str, found: tuple[str, int]) -> None:
    assert address(text) == found


@pytest.mark.parametrize("text", ["host:port", "127.0.0.1:65536", "a b:1", "127.0.0.1:-1", "[::1]:x"])
def test_bad_addresses(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        address(text)
    assert caught.value.slug == "bad-metrics-address"


def test_the_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "fleet.prom"
    old, new = "fleet_a 1\n" * 20_000, "fleet_b 2\n" * 20_000
    write(file, old)
    assert file.stat().st_mode & 0o777 == 0o644
    over, torn = threading.Event(), []

    def watch() -> None:
        while not over.is_set():
            if (text := file.read_text()) not in (old, new):
                torn.append(text)

    thread = threading.Thread(target=watch)
    thread.start()
    for _ in range(30):
        write(file, new)
        write(file, old)
    over.set()
    thread.join()
    assert torn == [] and list(tmp_path.iterdir()) == [file]
    with pytest.raises(FleetError) as caught:
        write(tmp_path / "none" / "fleet.prom", "")
    assert caught.value.slug == "metrics-file"


def test_the_file_is_kept_up_to_date_and_trouble_is_said_once(site: Site, tmp_path: Path) -> None:
    file, said = tmp_path / "fleet.prom", list[str]()
    ticks = iter(range(10_000, 10**9, 100))
    metrics = Metrics(site.store, clock=lambda: float(next(ticks)))
    with kept(metrics, file, said.append, every_s=0.05):
        end = time.monotonic() + 20
        while not file.exists() and time.monotonic() < end:
            time.sleep(0.02)
        site.store.set_state(site.lease(), "paused", "by hand", "")
    assert value(read(file.read_text()), "fleet_rollout_state", rollout="r-1", state="paused") == 1
    with kept(metrics, tmp_path / "none" / "x", said.append, every_s=0.02):
        time.sleep(0.2)
    assert len(said) == 1 and "cannot be written" in said[0]
