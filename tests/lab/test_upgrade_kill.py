"""`fleet upgrade` killed at every kind of step, then the same command again: every node right, nothing done twice.

The kill is SIGKILL to the fleet process alone. Its playbook must die with it; what it had begun on the node goes on
there and is found by the next start.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.rehearsal import Begun, Rehearsal, default_spec, rehearsal

pytestmark = [pytest.mark.lab, pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root")]
OPTIONS = ("--strategy", "newest", "--max-failures", "100%", "-y")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    spec = default_spec("127.92.2", ("as-a", "as-b", "nv-a", "nv-b"))
    with rehearsal(tmp_path_factory.mktemp("kill"), spec) as one:
        yield one


def kill_at(site: Rehearsal, name: str, phase: str, direction: str = "forward") -> int:
    """Run the upgrade until that phase is really under way, kill it, and see its playbook die; the fence it had."""
    begun = site.begin("upgrade", name, *OPTIONS)
    attempt = site.await_phase(begun, name, phase, _under_way(site, name, phase))
    assert attempt.direction == direction
    begun.kill()
    _playbooks_end(site, begun)
    row, stored = site.rollout(name)
    assert not row.finished
    assert not stored.task.ended
    return attempt.fence


def _under_way(site: Rehearsal, name: str, phase: str) -> Callable[[], bool]:
    if phase in ("firmware", "install", "remove"):
        return lambda: bool(site.runs_on(name))
    if phase == "reboot":
        return lambda: site.lab.phase(name) != "up"
    return lambda: bool(site.playbooks()) or phase == "validate"


def _playbooks_end(site: Rehearsal, begun: Begun, limit_s: float = 10) -> None:
    end = time.monotonic() + limit_s
    while site.playbooks():
        assert time.monotonic() < end, f"a playbook outlived its controller: {site.playbooks()}, {begun.words}"
        time.sleep(0.1)


def folders_left(site: Rehearsal) -> list[Path]:
    """What playbook runs left behind."""
    return list((site.lab.folder / "fleet/playbook").glob("run-*"))


@pytest.mark.parametrize(
    ("name", "phases"),
    [
        ("as-a", ("preflight", "firmware", "install", "reboot", "validate")),
        ("nv-b", ("stage", "stop", "remove", "install", "reboot", "verify")),
    ],
)
def test_killed_at_five_steps_and_run_again(site: Rehearsal, name: str, phases: tuple[str, ...]) -> None:
    wanted = site.wanted(name, "--strategy", "newest")[name]
    before = site.current(name)[name]
    fences = [kill_at(site, name, phase) for phase in phases]
    assert sorted(set(fences)) == fences  # each start owns the node anew
    done = site.document("upgrade", name, *OPTIONS, kind="Rollout")
    assert [(node["name"], node["state"]) for node in done["nodes"]] == [(name, "done")]
    with site.store() as store:
        mine = [row for row in store.rollouts() if name in store.tasks(row.id)]
        assert [row.id for row in mine] == [done["id"]]  # one rollout, carried through by one command after the other

    after = site.current(name)[name]
    assert {c: after.get(c) for c in wanted} == {c: new for c, (_, new) in wanted.items()}
    assert {c: v for c, v in after.items() if c not in wanted} == {c: v for c, v in before.items() if c not in wanted}
    effects = site.effects(name)
    assert set(effects.values()) == {1}, effects
    for component in ("driver", *(["firmware"] if "firmware" in wanted else [])):
        assert effects["install", component, str(wanted[component][1])] == 1
    assert set(site.effects(name, ("dkms",)).values()) == {1}
    assert site.lab.state(name).read()["boots"] == 2  # the lab's own start, and one reboot
    site.evidence_is_whole(done["id"])
    shown = site.document("node", "show", name, kind="Node")
    kept = {c: fact["loaded"] or fact["installed"] for c, fact in shown["facts"]["components"].items()}
    assert {c: kept[c] for c in wanted} == {c: new for c, (_, new) in wanted.items()}
    assert shown["node"]["lifecycle"] not in ("maintenance", "broken")
    assert site.runs_on(name) == []
    assert folders_left(site) == []


@pytest.mark.parametrize(
    ("name", "forward", "back"),
    [
        ("as-b", "validate", ("firmware", "install", "reboot", "verify")),
        ("nv-a", "validate", ("stop", "install", "reboot", "validate")),
    ],
)
def test_killed_on_the_way_back_too(site: Rehearsal, name: str, forward: str, back: tuple[str, ...]) -> None:
    before = site.current(name)[name]
    wanted = site.wanted(name, "--strategy", "newest")[name]
    site.lab.fault(name, "validation-fail")
    kill_at(site, name, forward)
    for phase in back:
        with back_only(site, name):
            kill_at(site, name, phase, "back")
    ran = site.fleet("upgrade", name, *OPTIONS, ok=(6,))
    row, stored = site.rollout(name)
    assert stored.task.state == "rolled-back", str(ran)
    assert stored.task.reason.startswith("validation: ")
    site.lab.fault(name, "validation-fail", on=False)
    after = site.current(name)[name]
    assert after == before
    # Each version went on once and came back once.
    effects = site.effects(name)
    driver = wanted["driver"]
    assert [effects["install", "driver", str(version)] for version in driver] == [1, 1], effects
    assert max(effects.values()) == 1, effects
    assert site.lab.state(name).read()["boots"] == 3
    site.evidence_is_whole(row.id)


@contextlib.contextmanager
def back_only(site: Rehearsal, name: str) -> Iterator[None]:
    """The node has turned before the next kill: phases of the way there are over."""
    begun = site.begin("upgrade", name, *OPTIONS)
    end = time.monotonic() + 300
    while site.rollout(name)[1].task.direction != "back":
        assert time.monotonic() < end
        assert begun.process.poll() is None, str(begun.ran())
        time.sleep(0.05)
    begun.kill()
    yield
