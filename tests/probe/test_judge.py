"""What one node's answer means: outcomes, identification, models. Pure functions over made-up answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from fleet.core.model import Accelerator, ComponentFact, Node, canonical
from fleet.core.vendor import Gathered, Probe, Reading, Seen, Vendor, unparsed
from fleet.probe import Probed, judge, sections
from fleet.remote import Answer, build
from fleet.remote.answer import Phase, Trouble

NONCE = "abcdefabcdef0123"
NODE = Node("n1", "127.0.0.1")
AT = "2026-01-02T03:04:05+00:00"
MODELS = {
    ("toy", "aaaa:0001"): "Toy-1",
    ("toy", "aaaa:0002/aaaa:00ff"): "Toy-2-Big",
    ("toy", "TOY ONE"): "Toy-1",
    ("toy", "TOY TWO"): "Toy-2-Big",
    ("toy", "aaaa:0003"): "Toy-3",
    ("toy", "TOY 3B"): "Toy-3-B",
    ("toy", "TOY"): "Toy-1",
    ("other", "OTHER ONE"): "Other-1",
}


def model(vendor: str, name: str) -> str | None:
    return MODELS.get((vendor, name))


def read(command: str, text: str, rc: int | None) -> Reading:
    if command == "explode":
        raise RuntimeError("bug")
    if rc != 0 or not text.startswith("toy "):
        return unparsed("toy", command, "no toy")
    names = text.split("\n")[0].split(" ")[1:]
    return Reading("toy", command, "ok", components={"driver": "1.2"}, accelerators=tuple({"name": n} for n in names))


def gather(seen: Seen) -> Gathered:
    banner = seen.readings.get("banner")
    cards = tuple(
        Accelerator("toy", str(item["name"]).replace("_", " "), bus_id=device.bus_id)
        for item, device in zip(banner.accelerators if banner else (), seen.pci, strict=False)
    )
    loaded = seen.modules.get("toydrv")
    return Gathered({"driver": ComponentFact(loaded=loaded)}, cards, {"fabric": True}, ("toy: a problem",))


def vendor(name: str = "toy", ids: frozenset[str] = frozenset({"aaaa"}), module: str = "toydrv") -> Vendor:
    return Vendor(
        name=name,
        title=name.title(),
        pci_vendors=ids,
        is_accelerator=lambda d: d.vendor in ids and d.pci_class.startswith("12"),
        modules=(module,),
        schemes={"driver": "generic"},
        probes=(Probe("banner", "toy-smi", 10), Probe("log", "toy-log", 10, needs="/usr/bin/toy-log")),
        read=read,
        gather=gather,
        steps=lambda _: (),
        artifact=lambda _: None,
    )


VENDORS = {"toy": vendor(), "other": vendor("other", frozenset({"bbbb"}), "otherdrv")}
GROUND = {
    "os": b'NAME="Test Linux"\nID=debian\nVERSION_ID="12"\n',
    "kernel": b"release=6.1.0-1-amd64\nmachine=x86_64\nuid=0\nboot_id=b-1\nheaders=yes\npackages=deb\n"
    b"cmdline=ro iommu=pt\n",
    "pci": b"bus\n0000:0B:00.0 0xaaaa 0x0001 0x120000 0xaaaa 0x0011 toydrv\n"
    b"0000:0c:00.0 0xaaaa 0x0002 0x120000 0xaaaa 0x00ff toydrv\n0000:0d:00.0 0xaaaa 0x0009 0x020000 - - \n",
    "modules": b"toydrv 1.2\n",
    "disks": b"",
    "dkms": b"toydrv/1.2, 6.1.0-1-amd64, x86_64: installed\n",
    "toy/banner": b"toy TOY_ONE TOY_TWO\n",
    "toy/log": b"toy\n",
}


def mark(words: str) -> bytes:
    return f"\x1eFLEET1 {NONCE} {words}\n".encode()


def frames(said: Mapping[str, bytes | None], *, rc: Mapping[str, str] | None = None, done: bool = True) -> bytes:
    """An answer; None = skipped."""
    out = b""
    for name, text in said.items():
        if text is None:
            out += mark(f"skip {name}")
        else:
            end = (rc or {}).get(name, "rc=0 t=1.0,1.5")
            out += mark(f"begin {name}") + text + b"\n" + mark(f"end {name} {end}")
    return out + (mark("done") if done else b"")


def look(stdout: bytes, phase: Phase = "done", trouble: Trouble = "", stderr: bytes = b"", detail: str = "") -> Probed:
    return judge(Answer(NODE, phase, 0, stdout, stderr, detail, "", trouble), NONCE, VENDORS, model, AT)


def but(**changes: bytes | None) -> dict[str, bytes | None]:
    return {**GROUND, **{name.replace("__", "/"): value for name, value in changes.items()}}


def test_a_whole_answer() -> None:
    result = look(frames(GROUND))
    facts = result.facts
    assert (result.outcome, result.detail) == ("answered", "")
    assert facts is not None
    assert (facts.os.id, facts.os.version, facts.os.kernel, facts.os.arch) == (
        "debian",
        "12",
        "6.1.0-1-amd64",
        "x86_64",
    )
    assert facts.vendor == "toy"
    assert [(c.model, c.bus_id, c.pci_id) for c in facts.accelerators] == [
        ("Toy-1", "0000:0b:00.0", "aaaa:0001"),
        ("Toy-2-Big", "0000:0c:00.0", "aaaa:0002"),
    ]
    assert facts.current() == {"driver": "1.2", "kernel": "6.1.0-1-amd64", "os": "12"}
    assert facts.flags["package_kind"] == "deb"
    assert facts.flags["kernel_headers"] is True
    assert facts.flags["iommu"] == "pt"
    assert facts.flags["fabric"] is True
    assert facts.flags["dkms"] == [
        {"name": "toydrv", "version": "1.2", "kernel": "6.1.0-1-amd64", "state": "installed"}
    ]
    assert facts.statuses == {"banner": "ok", "log": "unparsed"}
    assert facts.problems == ("toy: a problem",)
    assert (facts.boot_id, facts.at) == ("b-1", AT)
    assert sorted(result.raw.values()) == [b"toy\n", b"toy TOY_ONE TOY_TWO\n"]
    assert result.raw[result.sections["banner"]] == b"toy TOY_ONE TOY_TWO\n"
    assert result.readings["banner"].status == "ok"


def test_a_section_that_was_skipped_has_no_status() -> None:
    result = look(frames(but(toy__log=None)))
    assert result.outcome == "answered"
    assert result.facts is not None
    assert "log" not in result.facts.statuses


@pytest.mark.parametrize(
    ("phase", "trouble", "outcome"),
    [
        ("connect", "unreachable", "silent"),
        ("banner", "timeout", "silent"),
        ("handshake", "protocol", "silent"),
        ("hostkey", "unknown-key", "unknown-key"),
        ("hostkey", "key-changed", "key-changed"),
        ("auth", "login-refused", "refused"),
        ("auth", "timeout", "silent"),
        ("session", "closed", "silent"),
        ("run", "timeout", "silent"),
        ("run", "closed", "silent"),
        ("run", "output-cap", "garbled"),
    ],
)
def test_outcomes_without_any_frame(phase: Phase, trouble: Trouble, outcome: str) -> None:
    result = look(b"login noise", phase, trouble, detail="why")
    assert (result.outcome, result.phase, result.facts) == (outcome, phase, None)
    assert "why" in result.detail


def test_no_sudo_and_no_answer() -> None:
    denied = look(b"", stderr=b"sudo: a password is required\n")
    assert (denied.outcome, denied.detail) == ("no-sudo", "sudo: a password is required")
    missing = look(b"", stderr=b"env: 'sudo': No such file or directory\n")
    assert missing.outcome == "no-sudo"
    nologin = look(b"This account is \x1b[1mnot available.\n")
    assert nologin.outcome == "garbled"
    assert "not available" in nologin.detail
    assert nologin.detail.isprintable()


def test_a_lying_node_is_garbled() -> None:
    forged = frames(GROUND).replace(NONCE.encode(), b"0000000000000000")
    assert look(forged).outcome == "garbled"
    twice = look(frames(GROUND) + frames({"pci": b"bus\n"}))
    assert (twice.outcome, twice.facts) == ("garbled", None)


@pytest.mark.parametrize("name", ["os", "kernel", "pci"])
def test_without_the_ground_there_are_no_facts(name: str) -> None:
    rest = {k: v for k, v in GROUND.items() if k != name}
    assert look(frames(rest)).outcome == "garbled"
    assert look(frames(rest, done=False), "run", "closed", detail="broke off").outcome == "partial"
    assert look(frames({**rest, name: b""} if name != "os" else rest)).facts is None


def test_every_cut_of_an_answer_is_named_and_never_invents_cards() -> None:
    whole = frames(GROUND)
    for end in range(0, len(whole), 7):
        result = look(whole[:end], "run", "closed", detail="the connection broke off")
        assert result.outcome in ("partial", "silent")
        if result.facts is not None:
            assert len(result.facts.accelerators) == 2  # the bus is read before any tool
            assert result.facts.vendor == "toy"


def test_a_tool_that_hangs_costs_only_its_own_reading() -> None:
    result = look(frames(GROUND, rc={"toy/banner": "rc=124 t=1.0,11.0"}))
    assert result.outcome == "partial"
    assert "banner: did not end within 10 s" in result.detail
    assert result.facts is not None
    assert result.facts.statuses == {"banner": "failed", "log": "unparsed"}
    assert [card.model for card in result.facts.accelerators] == ["Toy-1", "Toy-2-Big"]


def test_what_is_missing_is_named_once() -> None:
    result = look(frames({k: v for k, v in GROUND.items() if not k.startswith("toy/")}, done=False), "run", "closed")
    assert (result.outcome, result.detail) == ("partial", "the answer broke off; nothing of banner, log")
    assert result.facts is not None
    assert result.facts.statuses == {"banner": "unparsed", "log": "unparsed"}


def test_a_tool_that_could_not_be_ended() -> None:
    stuck = frames({k: v for k, v in GROUND.items() if k != "toy/banner"}, done=False)
    stuck += mark("begin toy/banner") + b"\n" + mark("gave-up toy/banner") + mark("done")
    result = look(stuck)
    assert result.outcome == "partial"
    assert "could not be ended" in result.detail


def test_binary_output_of_a_tool() -> None:
    result = look(frames(but(toy__banner=b"\x7fELF\x00\x00\x01")))
    assert result.outcome == "partial"
    assert result.facts is not None
    assert result.facts.statuses["banner"] == "unparsed"


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("os", b"ID=debi\x00an\nVERSION_ID=\x1b[31m12\n"),
        ("kernel", GROUND["kernel"].replace(b"x86_64", b"x86\x00\x9b64")),
        ("toy__banner", b"\xff\xfe\x00\x00t\x00"),
        ("pci", GROUND["pci"] + b"\x1b]0;title\x07 \x00\n"),
    ],
)
def test_zero_bytes_and_terminal_codes_never_become_facts(section: str, text: bytes) -> None:
    result = look(frames(but(**{section: text})))
    assert result.facts is not None
    stored = canonical(result.facts.content())
    assert not re.search(r"\\u00[01]|[\x7f-\x9f]", stored)


def test_half_a_character_costs_one_node_its_facts_and_not_the_batch() -> None:
    bad = replace(vendor(), gather=lambda seen: Gathered(flags={"x": "\ud800"}))  # noqa: ARG005
    answer = Answer(NODE, "done", 0, frames(GROUND))
    result = judge(answer, NONCE, {"toy": bad}, model, AT)
    assert (result.outcome, result.facts) == ("garbled", None) and "half" in result.detail


def test_a_node_without_known_cards() -> None:
    result = look(frames(but(pci=b"bus\n0000:01:00.0 0xcccc 0x0007 0x120000 - - \n")))
    assert result.outcome == "answered"
    assert result.facts is not None
    assert (result.facts.vendor, result.facts.accelerators) == ("", ())
    assert any("cccc:0007" in problem for problem in result.facts.problems)


def test_two_vendors_on_one_bus() -> None:
    both = GROUND["pci"] + b"0000:0e:00.0 0xbbbb 0x0001 0x120000 - - \n"
    result = look(frames(but(pci=both, modules=b"toydrv 1.2\notherdrv \n")))
    assert result.facts is not None
    assert result.facts.vendor == "toy"
    assert "vendors: the PCI bus shows 2 cards of toy and 1 of other" in result.facts.problems


def test_a_module_of_a_vendor_that_is_not_on_the_bus() -> None:
    result = look(frames(but(modules=b"toydrv 1.2\notherdrv 3\n")))
    assert result.facts is not None
    assert any("otherdrv" in problem for problem in result.facts.problems)


@pytest.mark.parametrize(
    ("banner", "said"),
    [
        (b"toy TOY_TWO\n", "the tool names a Toy-2-Big, the PCI bus shows a Toy-1"),
        (b"toy OTHER_ONE\n", "the tool names a card of other"),
    ],
)
def test_bus_and_banner_disagree(banner: bytes, said: str) -> None:
    result = look(frames(but(toy__banner=banner)))
    assert result.facts is not None
    assert any(said in problem for problem in result.facts.problems)
    assert result.facts.accelerators[0].model == "Toy-1"  # the bus is believed


@pytest.mark.parametrize(("said", "model_"), [("TOY_3B", "Toy-3-B"), ("TOY", "Toy-3")])
def test_a_tool_may_name_a_card_more_closely_or_more_loosely_than_the_bus(said: str, model_: str) -> None:
    pci = b"bus\n0000:0b:00.0 0xaaaa 0x0003 0x120000 - - \n"
    result = look(frames(but(pci=pci, toy__banner=f"toy {said}\n".encode())))
    assert result.facts is not None
    assert result.facts.accelerators[0].model == model_
    assert result.facts.problems == ("toy: a problem",)


def test_an_unknown_model_keeps_its_name_and_is_a_problem() -> None:
    pci = b"bus\n0000:0b:00.0 0xaaaa 0x0077 0x120000 - - \n"
    result = look(frames(but(pci=pci, toy__banner=b"toy TOY_NEW\n")))
    assert result.facts is not None
    assert result.facts.accelerators[0].model == "TOY NEW"
    assert any(p.startswith("model: ") and "aaaa:0077" in p for p in result.facts.problems)


def test_adapters_that_break_cost_one_node_its_readings_only() -> None:
    def broken(_: Seen) -> Gathered:
        raise KeyError("x")

    toy = replace(VENDORS["toy"], gather=broken, probes=(Probe("banner", "toy-smi", 10, read_as="explode"),))
    answer = Answer(NODE, "done", 0, frames(GROUND))
    result = judge(answer, NONCE, {"toy": toy}, model, AT)
    assert result.outcome == "partial"
    assert result.facts is not None
    assert result.facts.statuses == {"banner": "unparsed"}
    assert len(result.facts.accelerators) == 2


@pytest.mark.parametrize(
    ("text", "os_id", "version", "kind"),
    [
        (b'ID="openEuler"\nVERSION_ID="22.03"\n', "openEuler", "22.03", "rpm"),
        (b'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\n', "ubuntu", "22.04", "deb"),
        (b"ID=kylin\nVERSION_ID=V10\n", "kylin", "V10", "rpm"),
        (b"RELEASE=CentOS release 6.10 (Final)\n", "centos", "6.10", "rpm"),
        (b"RELEASE=Red Hat Enterprise Linux Server release 6.5 (Santiago)\n", "rhel", "6.5", "rpm"),
        (b"RELEASE=7.11\n", "debian", "7.11", "deb"),
        (b"RELEASE=", "", "", "deb"),
    ],
)
def test_operating_systems_old_and_new(text: bytes, os_id: str, version: str, kind: str) -> None:
    result = look(frames(but(os=text)))
    assert result.facts is not None
    assert (result.facts.os.id, result.facts.os.version) == (os_id, version)
    assert result.facts.flags["package_kind"] == kind


def test_disks_that_are_nearly_full() -> None:
    disks = b"Filesystem 1024-blocks Used Available Capacity Mounted on\n"
    disks += b"/dev/a 9 9 9999999 1% /\n/dev/b 9 9 1000 99% /var\n"
    result = look(frames(but(disks=disks)))
    assert result.facts is not None
    assert result.facts.flags["disk_low"] == ["/var"]


def test_the_script_asks_a_vendor_only_where_the_bus_shows_it() -> None:
    script = build(sections(VENDORS.values()), NONCE)
    assert "0xaaaa) FLEET_SEES_toy=1" in script
    assert script.index("_b pci") < script.index("_run toy/banner")
    assert script.count('"${FLEET_SEES_toy:-}" = 1') == 2
