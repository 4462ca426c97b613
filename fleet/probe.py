"""One look at many nodes: a script out, facts back. What a node says, or that it says nothing, never touches another.

Identification is by PCI bus first; a vendor's tools are asked only where the bus shows that vendor, all in one round
trip. Recording the facts is the caller's.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from drivers.text import clean
from fleet.core.model import Accelerator, ComponentFact, Facts, Node, canonical, digest
from fleet.core.vendor import Gathered, PciDevice, Probe, Reading, Seen, Vendor, unparsed
from fleet.remote import Answer, Frame, Phase, Section, Transport, build, parse, sweep
from fleet.remote import ground as grounds
from fleet.remote.ground import Ground

Outcome = Literal["answered", "partial", "silent", "refused", "key-changed", "unknown-key", "no-sudo", "garbled"]
Model = Callable[[str, str], str | None]
"""(vendor, what a tool printed or `10de:2330[/subsystem]`) -> canonical model, None when the matrix has none."""


@dataclass(frozen=True)
class Probed:
    """What one look at a node gave.

    `answered`: everything asked came back whole; `partial`: something is missing, `detail` says what; the others gave
    no facts. `raw` is digest -> output of every vendor command, `sections` names them. `host_key` is the key shown.
    """

    node: Node
    outcome: Outcome
    phase: Phase
    facts: Facts | None = None
    raw: Mapping[str, bytes] = field(default_factory=dict)
    detail: str = ""
    readings: Mapping[str, Reading] = field(default_factory=dict)
    sections: Mapping[str, str] = field(default_factory=dict)  # probe name -> digest
    host_key: str = ""
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return self.node.name


def probe(
    nodes: Iterable[Node],
    transport: Transport,
    vendors: Mapping[str, Vendor],
    matrix_model: Model,
    now: Callable[[], str],
    *,
    fanout: int = 64,
    timeout_s: float = 60.0,
    sudo: bool = True,
    nonce: str = "",
) -> Iterator[Probed]:
    """Look at `nodes`, at most `fanout` at a time; each result as soon as it is there.

    `now` gives ISO 8601 UTC, taken when a node's answer arrives. `nonce` (hex digits) marks the frames of this sweep;
    a fresh one when empty.
    """
    nonce = nonce or secrets.token_hex(8)
    script = build(sections(vendors.values()), nonce)
    for answer in sweep(transport, nodes, script, fanout=fanout, timeout_s=timeout_s, sudo=sudo):
        yield judge(answer, nonce, vendors, matrix_model, now())


def recorded(
    looks: Iterable[Probed], record: Callable[[list[Facts], dict[str, bytes]], object], batch: int = 256
) -> Iterator[Probed]:
    """The looks as they come; their facts and raw outputs are handed to `record`, some nodes at a time.

    What is passed on has no raw output any more: that of a whole fleet would fill the memory.
    """
    facts: list[Facts] = []
    raw: dict[str, bytes] = {}
    try:
        for seen in looks:
            if seen.facts is not None:
                facts.append(seen.facts)
                raw.update(seen.raw)
            if len(facts) >= batch:
                record(facts, raw)
                facts, raw = [], {}
            yield replace(seen, raw={})
    finally:
        if facts:
            record(facts, raw)


def sections(vendors: Iterable[Vendor]) -> list[Section]:
    """Everything one probe asks: the common ground, then each vendor's own commands where the bus shows that vendor."""
    known = list(vendors)
    return [
        *grounds.sections(known),
        *(
            Section(f"{v.name}/{p.name}", p.command, p.timeout_s, p.needs, grounds.variable(v.name))
            for v in known
            for p in v.probes
        ),
    ]


def judge(answer: Answer, nonce: str, vendors: Mapping[str, Vendor], matrix_model: Model, at: str) -> Probed:
    """What an answer means. Pure: the same answer gives the same result."""
    base = Probed(answer.node, "silent", answer.phase, host_key=answer.host_key, seconds=answer.seconds)
    if answer.phase not in ("run", "done"):
        outcome: Outcome = "silent"
        if answer.trouble in ("key-changed", "unknown-key"):
            outcome = "key-changed" if answer.trouble == "key-changed" else "unknown-key"
        elif answer.trouble == "login-refused":
            outcome = "refused"
        return replace(base, outcome=outcome, detail=answer.detail)
    frames = parse(answer.stdout, nonce)
    if not frames.sections:
        return _without_frames(base, answer)
    if frames.problems:
        return replace(base, outcome="garbled", detail=frames.problems[0])
    ground = grounds.read(frames.sections)
    if ground is None:
        cause = answer.detail or "operating system, kernel or PCI bus could not be read"
        outcome = "partial" if answer.trouble and answer.trouble != "output-cap" else "garbled"
        return replace(base, outcome=outcome, detail=cause)
    return _with_facts(base, answer, frames.sections, frames.done, ground, vendors, matrix_model, at)


def _without_frames(base: Probed, answer: Answer) -> Probed:
    """A shell was reached, but not one marker came back."""
    said = " ".join((answer.stderr[-400:] + b"\n" + answer.stdout[:400]).decode("utf-8", "replace").split())
    said = "".join(c if c.isprintable() else "?" for c in said)[:200]
    if answer.trouble == "output-cap":
        return replace(base, outcome="garbled", detail=f"{answer.detail}, none of it an answer")
    if answer.trouble:
        return replace(base, outcome="silent", detail=answer.detail)
    if re.search(rb"\bsudo\b", answer.stderr):
        return replace(base, outcome="no-sudo", detail=said)
    return replace(base, outcome="garbled", detail=f"no answer but: {said}" if said else "an empty answer")


def _with_facts(
    base: Probed,
    answer: Answer,
    frames: Mapping[str, Frame],
    done: bool,
    ground: Ground,
    vendors: Mapping[str, Vendor],
    matrix_model: Model,
    at: str,
) -> Probed:
    vendor, problems = _identify(ground, vendors)
    outputs = _outputs(vendor, frames) if vendor else _Outputs()
    wanting = [
        *outputs.wanting,
        *(
            f"{name} did not come over whole"
            for name in ("modules", "disks", "dkms")
            if name in frames and frames[name].state not in ("complete", "skipped")
        ),
    ]
    gathered, broke = _gathered(vendor, ground, outputs.readings) if vendor else (Gathered(), "")
    if broke:
        problems.append(broke)
        wanting.append("nothing could be gathered")
    cards, disagreements = _cards(vendor, gathered, ground, vendors, matrix_model)
    components = dict(gathered.components)
    components["os"] = ComponentFact(installed=ground.os.version or None)
    components["kernel"] = ComponentFact(loaded=ground.os.kernel)
    if not done:
        wanting.append(answer.detail or "the answer broke off")
    if outputs.missing:
        wanting.append(f"nothing of {', '.join(outputs.missing)}")
    facts = Facts(
        node=answer.node.name,
        os=ground.os,
        vendor=vendor.name if vendor else "",
        components=dict(sorted(components.items())),
        accelerators=cards,
        flags={**ground.flags, **gathered.flags},
        statuses={name: reading.status for name, reading in outputs.readings.items()},
        problems=tuple(dict.fromkeys([*problems, *disagreements, *gathered.problems])),
        faults=gathered.faults,
        boot_id=ground.boot_id,
        at=at,
    )
    try:
        canonical(facts.content()).encode()
    except UnicodeEncodeError:  # half a character, smuggled in by an escape: no database takes it
        detail = "it says text that is no text (half a surrogate pair)"
        return replace(base, outcome="garbled", detail=detail, raw=outputs.raw)
    return replace(
        base,
        outcome="partial" if wanting else "answered",
        facts=facts,
        raw=outputs.raw,
        detail="; ".join(wanting),
        readings=outputs.readings,
        sections=outputs.digests,
    )


@dataclass
class _Outputs:
    """What the commands of one vendor said, by probe name; `raw` by digest. `missing` = of these nothing came over."""

    readings: dict[str, Reading] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    raw: dict[str, bytes] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    wanting: list[str] = field(default_factory=list)


def _outputs(vendor: Vendor, frames: Mapping[str, Frame]) -> _Outputs:
    out = _Outputs()
    for item in vendor.probes:
        frame = frames.get(f"{vendor.name}/{item.name}")
        if frame is not None and frame.state == "skipped":
            continue
        out.readings[item.name], lack = _read(vendor, item, frame)
        if frame is None or frame.state == "truncated":
            out.missing.append(item.name)
        elif lack:
            out.wanting.append(lack)
        if frame is not None and frame.output:
            out.digests[item.name] = digest(frame.output)
            out.raw[out.digests[item.name]] = frame.output
    return out


def _gathered(vendor: Vendor, ground: Ground, readings: Mapping[str, Reading]) -> tuple[Gathered, str]:
    """What the adapter makes of the readings; or nothing, and how it broke."""
    try:
        return vendor.gather(Seen(ground.os, _functions(ground, vendor), readings, ground.modules)), ""
    except Exception as error:  # an adapter that breaks on one node's words must not cost the others
        return Gathered(), f"the {vendor.name} adapter could not make sense of this node: {error!r}"


def _functions(ground: Ground, vendor: Vendor) -> tuple[PciDevice, ...]:
    return tuple(device for device in ground.pci if device.vendor in vendor.pci_vendors)


def _identify(ground: Ground, vendors: Mapping[str, Vendor]) -> tuple[Vendor | None, list[str]]:
    """The vendor whose cards the bus shows, and what on this node speaks for another one."""
    counts = {
        name: count
        for name, vendor in vendors.items()
        if (count := sum(1 for d in _functions(ground, vendor) if vendor.is_accelerator(d)))
    }
    problems: list[str] = []
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    vendor = vendors[ranked[0]] if ranked else None
    for other in ranked[1:]:
        problems.append(
            f"vendors: the PCI bus shows {counts[ranked[0]]} cards of {ranked[0]} and {counts[other]} of {other}"
        )
    for name, other_vendor in vendors.items():
        main = other_vendor.modules[:1]
        if name not in counts and main and main[0].replace("-", "_") in ground.modules:
            problems.append(
                f"vendors: the module {main[0]} of {name} is loaded, but the PCI bus shows no card of {name}"
            )
    known = {pci_id for v in vendors.values() for pci_id in v.pci_vendors}
    strange = sorted({d.pci_id for d in ground.pci if d.vendor not in known})
    if strange and vendor is None:
        problems.append(f"vendors: the PCI bus shows {', '.join(strange)}, of no vendor known here")
    return vendor, problems


def _read(vendor: Vendor, item: Probe, frame: Frame | None) -> tuple[Reading, str]:
    """The reading of one section, and what it lacks ("" = nothing)."""
    command = item.read_as or item.command
    if frame is None or frame.state == "truncated":
        note = f"{item.name}: the answer broke off before its end"
        return unparsed(vendor.name, command, note), note
    if frame.state == "gave-up" or frame.timed_out(item.timeout_s):
        stuck = " and could not be ended" if frame.state == "gave-up" else ""
        note = f"{item.name}: did not end within {item.timeout_s} s{stuck}"
        return Reading(vendor.name, command, "failed", note=note), note
    if frame.state == "cut":
        note = f"{item.name}: more output than fleet reads"
        return unparsed(vendor.name, command, note), note
    text = clean(frame.output)
    if text is None or "\0" in text:
        return unparsed(vendor.name, command, "the output is binary"), f"{item.name}: the output is binary"
    try:
        return vendor.read(command, text, frame.rc), ""
    except Exception as error:  # parsers promise never to raise; one that does costs only its own reading
        note = f"{item.name}: the parser failed with {error!r}"
        return unparsed(vendor.name, command, note), note


def _cards(
    vendor: Vendor | None, gathered: Gathered, ground: Ground, vendors: Mapping[str, Vendor], matrix_model: Model
) -> tuple[tuple[Accelerator, ...], list[str]]:
    """The cards with their canonical models, and where bus and banner disagree. The bus is believed."""
    if vendor is None:
        return (), []
    on_bus = {device.bus_id: device for device in _functions(ground, vendor) if vendor.is_accelerator(device)}
    cards = gathered.accelerators or tuple(
        Accelerator(vendor.name, "", bus_id=device.bus_id, pci_id=device.pci_id) for device in on_bus.values()
    )
    named: list[Accelerator] = []
    problems: dict[str, None] = {}
    for card in cards:
        device = on_bus.get(card.bus_id)
        if card.bus_id and device is None:
            problems[
                f"banner: the tool names a card at {card.bus_id}, where the PCI bus shows none of {vendor.name}"
            ] = None
        if device is not None and card.pci_id and card.pci_id != device.pci_id:
            problems[f"banner: the tool says {card.pci_id} at {card.bus_id}, the PCI bus {device.pci_id}"] = None
        pci_id = device.pci_id if device is not None else card.pci_id
        subsystem = device.subsystem if device is not None else ""
        by_bus = (matrix_model(vendor.name, f"{pci_id}/{subsystem}") if pci_id and subsystem else None) or (
            matrix_model(vendor.name, pci_id) if pci_id else None
        )
        by_name = matrix_model(vendor.name, card.model) if card.model else None
        model, contradiction = _model(card.model, by_bus, by_name, vendor.name)
        if contradiction:
            problems[f"banner: the tool names a {by_name}, the PCI bus shows a {by_bus}"] = None
        elif card.model and not by_name and (other := _whose(card.model, vendor, vendors, matrix_model)):
            problems[f"banner: the tool names a card of {other}, the PCI bus shows {vendor.name}"] = None
        if model is None:
            said = f"{card.model!r} " if card.model else ""
            problems[f"model: no model is known for {said}{pci_id or card.bus_id}"] = None
        named.append(replace(card, model=model or card.model or pci_id, pci_id=pci_id))
    return tuple(named), list(problems)


def _model(said: str, by_bus: str | None, by_name: str | None, vendor: str) -> tuple[str | None, bool]:
    """The model to believe, and whether bus and tool contradict each other.

    One PCI id may stand for a series of which the tool names the member (910B and 910B3), and a tool may name a card
    more loosely than its id does (Ascend910 on a 910C): neither is a contradiction. In one the bus is believed.
    """
    if not (by_bus and by_name) or by_bus == by_name:
        return by_bus or by_name, False
    bus, name, loose = (re.sub(r"[^a-z0-9]", "", text.lower()) for text in (by_bus, by_name, said))
    if name.startswith(bus):
        return by_name, False
    return by_bus, not bus.startswith(loose.removeprefix(vendor))


def _whose(name: str, vendor: Vendor, vendors: Mapping[str, Vendor], matrix_model: Model) -> str:
    return next((other for other in vendors if other != vendor.name and matrix_model(other, name)), "")
