"""`fleet upgrade` of the guest, killed twice and run again: a real compile, a real reboot, each effect once."""

from __future__ import annotations

import os

import pytest

from tests.qemu.shell import LIMIT_S, RUN, Guest

pytestmark = [pytest.mark.qemu, pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root")]
OPTIONS = ("--to", "toolkit==3.1", "--soak", "0s", "--max-unavailable", "100%", "--max-failures", "100%", "-y")
TARGET = {"driver": "2.0.0", "firmware": "10.2", "toolkit": "3.1"}


def test_killed_in_the_middle_and_resumed(guest: Guest) -> None:
    site, name = guest.site, guest.name
    packages = site.lab.folder / "packages"
    site.fleet("artifact", "add", *(str(p) for p in sorted(packages.iterdir()) if not p.name.startswith(".")))
    before, boots = guest.boot_id(), site.lab.state(name).read()["boots"]
    begun = site.begin("upgrade", name, *OPTIONS)
    seen: list[str] = []

    def compiling() -> bool:
        seen[:] = guest.sh(f"{RUN} --running").split()[:1]
        return bool(seen)

    site.await_phase(begun, name, "install", compiling, LIMIT_S)
    begun.kill()
    unit = guest.properties(f"fleet-{seen[0]}")
    assert unit["ActiveState"] == "active", "the step goes on without its controller"

    begun = site.begin("upgrade", name, *OPTIONS)
    site.await_phase(begun, name, "reboot", lambda: site.lab.phase(name) != "up", LIMIT_S)
    begun.kill()
    done = site.document("upgrade", name, *OPTIONS, kind="Rollout")
    assert [(node["name"], node["state"]) for node in done["nodes"]] == [(name, "done")]

    after = site.current(name)[name]
    assert {component: after[component] for component in TARGET} == TARGET
    assert site.effects(name) == {
        ("install", "driver", "2.0.0"): 1, ("install", "toolkit", "3.1"): 1, ("flash", "firmware", "10.2"): 1,
    }  # fmt: skip
    assert set(site.effects(name, ("dkms",)).values()) == {1}
    assert guest.boot_id() != before
    assert site.lab.state(name).read()["boots"] == boots + 1, "one reboot, though it was asked for twice"
    with site.store() as store:
        reboots = [attempt for attempt in store.attempts(done["id"], name) if attempt.phase == "reboot"]
    (reboot,) = reboots
    assert reboot.state in ("already", "done"), "the resumed step saw the other boot id"
    site.evidence_is_whole(done["id"])
