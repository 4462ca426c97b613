"""The node-side runner under a POSIX shell: attach, fence, limits, and every kind of death."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import playbooks

SCRIPT = Path(playbooks.__file__).parent / "roles/common/files/fleet-run"
SHELLS = [name for name in ("dash", "bash") if shutil.which(name)]


class Target:
    """A folder that stands for a node's /var/lib/fleet."""

    def __init__(self, folder: Path, shell: str) -> None:
        self.state = folder / "state"
        self.effects = folder / "effects"
        self.shell = shell

    def command(self, text: str = "", seconds: float = 0.0, rc: int = 0) -> str:
        return f"echo begun >>{self.effects}; {text} sleep {seconds}; echo ended >>{self.effects}; exit {rc}"

    def argv(self, name: str, command: str, fence: int = 1, limit: int = 30, effect: str = "idempotent") -> list[str]:
        return [self.shell, str(SCRIPT), name, str(fence), str(limit), effect, command]

    def start(self, *args: object, **more: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.argv(*args, **more),  # type: ignore[arg-type]
            env={**os.environ, "FLEET_STATE": str(self.state)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *args: object, **more: object) -> tuple[int, str, str]:
        process = self.start(*args, **more)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def count(self, word: str) -> int:
        return self.effects.read_text().split().count(word) if self.effects.exists() else 0

    def until(self, word: str, number: int = 1) -> None:
        deadline = time.monotonic() + 20
        while self.count(word) < number:
            assert time.monotonic() < deadline, f"{word} was not seen"
            time.sleep(0.02)

    def pid(self, name: str, file: str) -> int:
        return int((self.state / "run" / name / file).read_text().split()[0])


@pytest.fixture(params=SHELLS)
def target(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Target]:
    made = Target(tmp_path, request.param)
    yield made
    for file in made.state.glob("run/*/*"):
        if file.name in ("waiter", "unit", "command.pid") and not (file.parent / "rc").exists():
            pid = int(file.read_text().split()[0])
            with contextlib.suppress(OSError):  # it may end at any moment by itself
                if str(tmp_path) in Path(f"/proc/{pid}/cmdline").read_text():
                    os.kill(pid, signal.SIGKILL)


def test_result_and_output_are_the_commands(target: Target) -> None:
    rc, out, err = target.run("a", "echo good; echo bad >&2; exit 7")
    assert (rc, out, err) == (7, "good\n", "bad\n")


def test_a_second_start_is_told_the_first_result(target: Target) -> None:
    for _ in range(3):
        assert target.run("a", target.command("echo once;", rc=3))[:2] == (3, "once\n")
    assert target.count("begun") == 1


def test_two_at_once_run_once(target: Target) -> None:
    both = [target.start("a", target.command("echo once;", 0.5)) for _ in range(4)]
    assert [p.communicate(timeout=30)[0] for p in both] == ["once\n"] * 4
    assert target.count("begun") == 1


def test_it_outlives_a_killed_caller_and_the_next_attaches(target: Target) -> None:
    first = target.start("a", target.command("echo once;", 1.5, rc=4))
    target.until("begun")
    first.kill()
    first.communicate(timeout=10)
    running = subprocess.run(
        [target.shell, str(SCRIPT), "--running"],
        env={**os.environ, "FLEET_STATE": str(target.state)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert running.stdout == "a\n"
    assert target.run("a", target.command("echo twice;"))[:2] == (4, "once\n")
    assert (target.count("begun"), target.count("ended")) == (1, 1)


def test_a_lower_fence_is_refused(target: Target) -> None:
    assert target.run("a", "true", fence=9)[0] == 0
    rc, _, err = target.run("b", target.command(), fence=8)
    assert rc == 75 and "fenced" in err
    assert target.count("begun") == 0
    assert target.run("b", target.command(), fence=9)[0] == 0


def test_a_waiting_run_is_refused_when_it_was_outranked_meanwhile(target: Target) -> None:
    holder = target.start("a", target.command("", 2), fence=1)
    target.until("begun")
    zombie = target.start("old", "echo zombie >>" + str(target.effects), fence=1)
    deadline = time.monotonic() + 10
    while not (target.state / "run/old/waiter").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (target.state / "fence").write_text("5\n")  # what a later controller's first start does
    assert zombie.wait(timeout=30) == 75
    holder.wait(timeout=30)
    assert target.count("zombie") == 0
    zombie.communicate()
    holder.communicate()


def test_only_one_run_at_a_time(target: Target) -> None:
    first = target.start("a", target.command("", 1))
    target.until("begun")
    assert target.run("b", f"cat {target.effects}")[1] == "begun\nended\n"
    first.communicate(timeout=10)


def test_a_run_cut_short_is_repeated_when_that_is_harmless(target: Target) -> None:
    first = target.start("a", target.command("", 30))
    target.until("begun")
    first.kill()
    first.communicate(timeout=10)
    os.kill(target.pid("a", "waiter"), signal.SIGKILL)
    subprocess.run(["pkill", "-KILL", "-P", str(target.pid("a", "command.pid"))], check=False)
    (target.state / "run/a/command").write_text("echo whole\n")
    assert target.run("a", "ignored")[:2] == (0, "whole\n")
    assert (target.state / "run/a/cut").exists()


def test_a_one_way_run_cut_short_is_ambiguous(target: Target) -> None:
    first = target.start("a", target.command("", 30), effect="one_way")
    target.until("begun")
    first.kill()
    first.communicate(timeout=10)
    os.kill(target.pid("a", "waiter"), signal.SIGKILL)
    subprocess.run(["pkill", "-KILL", "-P", str(target.pid("a", "command.pid"))], check=False)
    rc, _, err = target.run("a", target.command(), effect="one_way")
    assert rc == 76 and "ambiguous" in err
    assert target.count("begun") == 1


def test_another_boot_counts_as_cut_short(target: Target) -> None:
    folder = target.state / "run/a"
    folder.mkdir(parents=True)
    (folder / "command").write_text("echo again\n")
    for name in ("waiter", "unit", "command.pid"):
        (folder / name).write_text(f"{os.getpid()} 1 another-boot\n")
    assert target.run("a", "ignored")[:2] == (0, "again\n")


def test_the_limit_ends_a_run(target: Target) -> None:
    assert target.run("a", "sleep 30", limit=1)[0] == 124


@pytest.mark.parametrize("bad", [["../x", "1"], ["a b", "1"], ["a", "x"], ["a", "-1"]])
def test_bad_arguments_run_nothing(target: Target, bad: list[str]) -> None:
    argv = [target.shell, str(SCRIPT), bad[0], bad[1], "30", "idempotent", target.command()]
    done = subprocess.run(argv, env={**os.environ, "FLEET_STATE": str(target.state)}, capture_output=True, check=False)
    assert done.returncode == 77
    assert target.count("begun") == 0


# --- the dead man's switch (tests/qemu has it with a real systemd) ----------------------------------------------------


def switch(target: Target, *words: object) -> tuple[int, str, str]:
    ran = subprocess.run(
        [target.shell, str(SCRIPT), *map(str, words)],
        env={**os.environ, "FLEET_STATE": str(target.state)}, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    return ran.returncode, ran.stdout, ran.stderr


def test_a_switch_fires_once_and_cannot_be_disarmed_then(target: Target) -> None:
    flip = f"echo begun >>{target.effects}; echo back; exit 3"
    assert switch(target, "--arm", "s", 1, 1, flip)[0] == 0
    assert switch(target, "--armed")[1].split()[0] == "s"
    target.until("begun")
    rc, _, err = switch(target, "--disarm", "s", 1)
    assert rc == 78 and "fired" in err
    assert switch(target, "--arm", "s", 1, 60, flip)[0] == 78
    assert switch(target, "--armed")[1] == ""
    time.sleep(0.3)
    assert target.count("begun") == 1
    kept = target.state / "switch/s"
    assert ((kept / "rc").read_text(), (kept / "out").read_text()) == ("3\n", "back\n")


def test_a_disarmed_switch_does_not_fire(target: Target) -> None:
    assert switch(target, "--arm", "s", 1, 3, target.command())[0] == 0
    for _ in range(2):
        assert switch(target, "--disarm", "s", 1) == (0, "", "")
    time.sleep(3.3)
    assert target.count("begun") == 0
    assert not (target.state / "switch/s").exists()
    assert switch(target, "--arm", "s", 1, 60, "true")[0] == 0, "a name may be used again"


def test_to_arm_again_starts_the_time_and_the_command_anew(target: Target) -> None:
    assert switch(target, "--arm", "s", 1, 3, f"echo first >>{target.effects}")[0] == 0
    assert switch(target, "--arm", "s", 1, 5, f"echo second >>{target.effects}")[0] == 0
    assert int(switch(target, "--armed")[1].split()[1]) in range(1, 6)
    time.sleep(3.1)
    assert target.count("first") == 0
    target.until("second")
    assert target.count("first") == 0


def test_a_switch_fires_beside_a_run_that_hangs_and_outlives_its_caller(target: Target) -> None:
    """The step armed it, hangs, and its controller is gone: what the switch does must not wait for the step."""
    step = f"{target.shell} {SCRIPT} --arm s 1 1 'echo flipped >>{target.effects}'; {target.command('', 20)}"
    first = target.start("a", step)
    target.until("begun")
    first.kill()
    first.communicate(timeout=10)
    target.until("flipped")
    assert target.count("ended") == 0
    os.kill(target.pid("a", "command.pid"), signal.SIGKILL)


def test_a_step_that_ends_well_disarms_its_switch(target: Target) -> None:
    own = f"{target.shell} {SCRIPT}"
    step = f"{own} --arm s 1 3 'echo flipped >>{target.effects}' && {own} --disarm s 1; exit 0"
    assert target.run("a", step)[0] == 0
    time.sleep(3.3)
    assert target.count("flipped") == 0


def test_a_lower_fence_neither_arms_nor_disarms(target: Target) -> None:
    assert switch(target, "--arm", "s", 5, 60, "true")[0] == 0
    assert switch(target, "--arm", "s", 4, 1, target.command())[0] == 75
    assert switch(target, "--disarm", "s", 4)[0] == 75
    assert switch(target, "--armed")[1].startswith("s ")
    assert switch(target, "--disarm", "s", 6)[0] == 0
    assert target.run("a", "true", fence=5)[0] == 75, "the switch's fence counts for runs too"


def test_a_switch_of_an_earlier_boot_is_none(target: Target) -> None:
    assert switch(target, "--arm", "s", 1, 3, target.command())[0] == 0
    armed = target.state / "switch/s/armed"
    head, _, command = armed.read_text().partition("\n")
    armed.write_text(" ".join([*head.split()[:2], "another-boot"]) + "\n" + command)
    assert switch(target, "--armed")[1] == ""
    time.sleep(3.3)
    assert target.count("begun") == 0
    assert switch(target, "--disarm", "s", 1)[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("--arm", "../s", 1, 1, "true"), ("--arm", "s", "x", 1, "true"), ("--arm", "s", 1, "", "true"), ("--arm", "s"),
        ("--disarm", "", 1), ("--disarm", "s"),
    ],
)  # fmt: skip
def test_a_switch_with_bad_words_is_refused(target: Target, words: tuple[object, ...]) -> None:
    rc, _, err = switch(target, *words)
    assert rc == 77 and err.startswith("FLEET: ")
    assert not list(target.state.glob("switch/*"))
