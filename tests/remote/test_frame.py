"""Reading framed answers: whatever a node sends, what is outside its frames changes nothing and nothing raises."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleet.remote import Frame, parse

NONCE = "aabbccddeeff0011"
OTHER = "aabbccddeeff0012"


def mark(words: str, nonce: str = NONCE) -> bytes:
    return f"\x1eFLEET1 {nonce} {words}\n".encode()


def section(name: str, output: bytes, rc: int = 0) -> bytes:
    return mark(f"begin {name}") + output + b"\n" + mark(f"end {name} rc={rc} t=10.00,10.25")


def test_sections_in_noise() -> None:
    frames = parse(b"motd\n" + section("a", b"1\n") + b"chatter" + section("b", b"2", 3) + mark("done") + b"bye", NONCE)
    assert frames.sections == {"a": Frame("a", b"1\n", 0, 0.25), "b": Frame("b", b"2", 3, 0.25)}
    assert frames.done
    assert frames.noise == len(b"motd\nchatterbye")
    assert frames.problems == ()


def test_another_nonce_is_noise() -> None:
    lie = b"".join([mark("begin a", OTHER), b"lie\n", mark("end a rc=0 t=1,2", OTHER), mark("done", OTHER)])
    frames = parse(lie + section("a", lie + b"truth\n"), NONCE)
    assert frames.sections["a"].output == lie + b"truth\n"
    assert not frames.done


def test_broken_off_within_a_section() -> None:
    whole = section("a", b"1\n") + section("b", b"22\n") + mark("done")
    for end in range(len(whole)):
        frames = parse(whole[:end], NONCE)
        assert not frames.done
        assert all(frame.state in ("complete", "truncated") for frame in frames.sections.values())
        complete = [name for name, frame in frames.sections.items() if frame.state == "complete"]
        assert complete == ["a", "b"][: len(complete)]


def test_a_section_that_comes_twice_or_only_ends_is_a_problem() -> None:
    assert "twice" in parse(section("a", b"1") + section("a", b"2"), NONCE).problems[0]
    assert "without a beginning" in parse(mark("end a rc=0 t=1,2"), NONCE).problems[0]


def test_a_begin_within_a_section_truncates_the_first() -> None:
    frames = parse(mark("begin a") + b"1\n" + section("b", b"2"), NONCE)
    assert frames.sections["a"] == Frame("a", b"1\n", state="truncated")
    assert frames.sections["b"].state == "complete"


def test_skipped_given_up_cut_and_odd_values() -> None:
    data = mark("skip s") + mark("begin g") + b"x\n" + mark("gave-up g")
    data += mark("begin q") + b"\n" + mark("end q rc=? t=,")
    frames = parse(data + section("c", b"y" * 64), NONCE, section_bytes=64)
    assert frames.sections["s"].state == "skipped"
    assert frames.sections["g"].state == "gave-up"
    assert frames.sections["c"].state == "cut"
    assert (frames.sections["q"].rc, frames.sections["q"].seconds) == (None, None)


def test_timed_out_needs_status_and_time() -> None:
    assert Frame("a", rc=124, seconds=5.0).timed_out(5)
    assert Frame("a", rc=137, seconds=None).timed_out(5)
    assert not Frame("a", rc=124, seconds=0.1).timed_out(5)  # the tool's own 124
    assert not Frame("a", rc=1, seconds=9.0).timed_out(5)


@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([
    mark("begin a"), mark("end a rc=0 t=1,2"), mark("skip a"), mark("done"), mark("gave-up a"), mark("begin b"),
    mark("end b rc=99999999 t=x,y"), b"\x1eFLEET1 ",
])), max_size=12))  # fmt: skip
def test_junk_never_raises(parts: list[bytes]) -> None:
    data = b"".join(parts)
    frames = parse(data, NONCE)
    assert frames.noise + sum(len(f.output) for f in frames.sections.values()) <= len(data)


@given(st.dictionaries(st.sampled_from(["a", "b", "c/d"]), st.binary(max_size=200)), st.binary(max_size=50))
def test_what_goes_in_comes_out(outputs: dict[str, bytes], noise: bytes) -> None:
    data = noise.join([b"", *(section(name, output) for name, output in outputs.items()), mark("done")])
    frames = parse(data, NONCE)
    assert {name: frame.output for name, frame in frames.sections.items()} == outputs
    assert frames.done
