"""The framed script under the shells that nodes have, with and without timeout, setsid and head."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from fleet.core.model import Node
from fleet.remote import Frames, Local, Section, build, parse
from fleet.remote.script import nonce_of

NONCE = "0123456789abcdef"
HERE = Node("here", "127.0.0.1")
SHELLS = [shell for shell in (("dash",), ("bash",), ("bash", "--posix"), ("busybox", "sh")) if shutil.which(shell[0])]
ID = [" ".join(shell) for shell in SHELLS]


def ask(shell: tuple[str, ...], *sections: Section, cap: int = 65536, give_up_s: int = 5) -> Frames:
    script = build(sections, NONCE, section_bytes=cap, give_up_s=give_up_s)
    answer = Local(shell).run(HERE, script, timeout_s=60, sudo=False)
    assert (answer.phase, answer.rc) == ("done", 0), (answer.detail, answer.stderr)
    return parse(answer.stdout, NONCE, section_bytes=cap)


WITHOUT = {"all tools": (), "no timeout": ("timeout",), "no timeout, setsid, head": ("timeout", "setsid", "head")}


def cripple(monkeypatch: pytest.MonkeyPatch, folder: Path, without: str) -> None:
    """A PATH on which some tools do not work, as on old or BusyBox-poor systems."""
    for tool in WITHOUT[without]:
        (folder / tool).write_text("#!/bin/sh\nexit 1\n")
        (folder / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.fixture(params=WITHOUT)
def poorer(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cripple(monkeypatch, tmp_path, request.param)


def test_busybox_and_dash_are_here() -> None:
    """The point of this file; `apt-get install busybox dash` where they are not."""
    assert {shell[0] for shell in SHELLS} >= {"dash", "bash"}


@pytest.mark.parametrize("shell", SHELLS, ids=ID)
def test_sections_come_back_with_output_and_status(shell: tuple[str, ...], poorer: None) -> None:  # noqa: ARG001
    frames = ask(
        shell,
        Section("fast", "echo fast; read x; echo $x", 0),
        Section("plain", "echo one; echo two >&2; exit 7", 5),
        Section("no-newline", "printf abc", 5),
        Section("blank-end", "echo a; echo; echo", 5),
        Section("stdin", "cat; echo end", 5),
        Section("quotes", """printf '%s' "it's \\$HOME \\"and\\" `echo more`" """, 5),
        Section("missing", "no-such-tool-anywhere", 5),
        Section("empty", ":", 5),
    )
    assert frames.done
    assert frames.problems == ()
    assert frames.noise == 0
    got = {name: (frame.output, frame.rc, frame.state) for name, frame in frames.sections.items()}
    assert got["fast"] == (b"fast\n\n", 0, "complete")
    assert all(frame.seconds is not None for frame in frames.sections.values())
    assert got["plain"] == (b"one\ntwo\n", 7, "complete")
    assert got["no-newline"] == (b"abc", 0, "complete")
    assert got["blank-end"] == (b"a\n\n\n", 0, "complete")
    assert got["stdin"] == (b"end\n", 0, "complete")
    assert got["quotes"][0] == b'it\'s $HOME "and" more'
    assert got["missing"][1] == 127
    assert b"not found" in got["missing"][0]
    assert got["empty"] == (b"", 0, "complete")


@pytest.mark.parametrize("shell", SHELLS, ids=ID)
def test_needs_and_when(shell: tuple[str, ...]) -> None:
    frames = ask(
        shell,
        Section("set", "FLEET_SEES_x=1", 0),
        Section("file", "echo yes", 5, needs="/bin/sh"),
        Section("no-file", "echo yes", 5, needs="/no/such/file"),
        Section("tool", "echo yes", 5, needs="sh"),
        Section("no-tool", "echo yes", 5, needs="no-such-tool"),
        Section("seen", "echo yes", 5, when="FLEET_SEES_x"),
        Section("unseen", "echo yes", 5, when="FLEET_SEES_y"),
    )
    states = {name: frame.state for name, frame in frames.sections.items()}
    assert states == {
        "set": "complete",
        "file": "complete",
        "no-file": "skipped",
        "tool": "complete",
        "no-tool": "skipped",
        "seen": "complete",
    }


@pytest.mark.parametrize(
    ("shell", "without"), list(zip(SHELLS, [*WITHOUT, "no timeout"], strict=False)), ids=ID[: len(WITHOUT) + 1]
)
def test_each_section_has_its_own_limit(
    shell: tuple[str, ...], without: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cripple(monkeypatch, tmp_path, without)
    started = time.monotonic()
    frames = ask(
        shell,
        Section("slow", "echo before; exec sleep 60", 1),
        Section("stubborn", "trap '' TERM; while :; do sleep 0.2; done", 1),
        Section("after", "echo still here", 5),
    )
    assert time.monotonic() - started < 30
    assert frames.sections["slow"].timed_out(1)
    assert frames.sections["slow"].output == b"before\n"
    assert frames.sections["stubborn"].timed_out(1)
    assert frames.sections["after"].output == b"still here\n"
    assert not frames.sections["after"].timed_out(5)
    assert frames.done


@pytest.mark.parametrize("shell", SHELLS, ids=ID)
def test_what_cannot_be_killed_is_given_up(shell: tuple[str, ...]) -> None:
    """A process that left its group and holds the output open: like one stuck in the kernel, it survives every signal
    that fleet sends."""
    frames = ask(
        shell,
        Section("stuck", "echo begun; setsid sleep 12 & wait", 1),
        Section("after", "echo still here", 5),
        give_up_s=1,
    )
    assert frames.sections["stuck"].state == "gave-up"
    assert frames.sections["stuck"].timed_out(1)
    assert frames.sections["after"].output == b"still here\n"
    assert frames.done


@pytest.mark.parametrize("shell", SHELLS, ids=ID)
def test_nothing_is_left_on_the_node(shell: tuple[str, ...]) -> None:
    """Each section has a sleeping guard: 40 short sections end 40 of them."""
    frames = ask(shell, *(Section(f"s{i}", ":", 54321) for i in range(40)))
    assert len(frames.sections) == 40
    time.sleep(0.2)
    left = subprocess.run(["pgrep", "-f", "^sleep 5432[16]"], capture_output=True, text=True, check=False).stdout
    assert left == ""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's list of children")
def test_what_was_given_up_does_not_write_into_later_sections() -> None:
    frames = ask(
        SHELLS[0],
        Section("stuck", "setsid sh -c 'sleep 3; echo late' & wait", 1),
        Section("after", "sleep 3; echo mine", 9),
        give_up_s=1,
    )
    assert frames.sections["stuck"].state == "gave-up"
    assert frames.sections["after"].output == b"mine\n"


@pytest.mark.parametrize("shell", SHELLS, ids=ID)
def test_too_much_output_is_cut_and_the_tool_ends(shell: tuple[str, ...], poorer: None) -> None:  # noqa: ARG001
    frames = ask(shell, Section("endless", "yes", 10), Section("after", "echo ok", 5))
    assert frames.sections["endless"].state == "cut"
    assert 16384 < len(frames.sections["endless"].output) <= 65536
    assert frames.sections["after"].output == b"ok\n"


@pytest.mark.parametrize("shell", SHELLS, ids=ID)
def test_binary_output_survives(shell: tuple[str, ...]) -> None:
    frames = ask(shell, Section("binary", r"printf '\001\036\377\200FLEET1 end binary\n\n'", 5))
    assert frames.sections["binary"].output == b"\x01\x1e\xff\x80FLEET1 end binary\n\n"


@pytest.mark.parametrize("shell", SHELLS, ids=ID)
def test_locale_of_the_caller_does_not_matter(shell: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LC_ALL", "LANG", "LC_MESSAGES"):
        monkeypatch.setenv(name, "zh_CN.UTF-8")
    frames = ask(shell, Section("locale", "echo $LC_ALL $LANG; ls /no/such", 5))
    assert frames.sections["locale"].output.startswith(b"C C\n")
    assert b"No such file" in frames.sections["locale"].output


@pytest.mark.parametrize("shell", SHELLS, ids=ID)
def test_a_script_cut_off_on_the_way_does_nothing(shell: tuple[str, ...], tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    script = build([Section("act", f"echo > {touched}", 5)], NONCE)
    for end in range(40, script.rindex("fleet_main"), 97):
        answer = Local(shell).run(HERE, script[:end], timeout_s=10, sudo=False)
        assert b"FLEET1" not in answer.stdout
    assert not touched.exists()
    assert Local(shell).run(HERE, script, timeout_s=10, sudo=False).rc == 0
    assert touched.exists()


def test_nonce_is_found_again_and_names_are_checked() -> None:
    assert nonce_of(build([], NONCE)) == NONCE
    assert nonce_of("echo hello") == ""
    with pytest.raises(ValueError, match="nonce"):
        build([], "not hex $(reboot)")
    with pytest.raises(ValueError, match="two sections"):
        build([Section("a", ":"), Section("a", ":")], NONCE)
    with pytest.raises(ValueError, match="called"):
        build([Section("a b", ":")], NONCE)
