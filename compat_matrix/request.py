"""A request file: hardware, os, current, wish, policy. Every mistake is one error with file, line and field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

from compat_matrix.document import Node, near, read
from compat_matrix.row import CHANNELS
from fleet.core import model as core
from fleet.core.errors import BadInput, Refused
from fleet.core.model import LEVELS, Facts, Json, OsFacts, Policy, Request
from fleet.core.version import Range

_STRATEGIES = ("validated", "newest", "minimal")
_ARCH = {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64", "sbsa": "aarch64"}
_HINT = "hardware: {vendor, model, count, arch}, os: {id, version, kernel}, current, wish, policy"


def parse_request(text: str, path: str = "-") -> Request:
    """The request in a YAML text; `path` is for errors. Raises BadInput naming `path:line` and the field.

    Versions may be written without quotes here: they are taken as they stand.
    """
    root, problems = read(text, path)
    if problems:
        first = problems[0]
        slug = "too-large" if first.slug == "too-large" else "bad-input"
        raise BadInput(first.text, where=f"{first.path}:{first.line}", hint=_HINT, slug=slug)
    if root is None or not isinstance(root.value, dict):
        raise BadInput("the request is not a mapping", where=f"{path}:1", hint=_HINT)
    top = _Fields(root, path, "")
    top.only("hardware", "os", "current", "wish", "policy", "apiVersion", "kind", "name", "metadata")
    hardware = top.section("hardware")
    if hardware is None:
        raise BadInput("field 'hardware' is missing", where=f"{path}:{root.line}", hint=_HINT)
    vendor = hardware.text("vendor", needed=True).lower()
    model = hardware.text("model", needed=True)
    arch = hardware.text("arch").lower()
    system = top.section("os")
    if system:
        system.only("id", "version", "kernel", "arch")
    current, wish = top.section("current"), top.section("wish")
    return Request(
        vendor=vendor,
        model=model,
        count=hardware.number("count", 1),
        os=OsFacts(
            system.text("id") if system else "",
            system.text("version") if system else "",
            system.text("kernel") if system else "",
            _ARCH.get(arch, arch),
        ),
        current=current.components() if current else {},
        wish=wish.ranges() if wish else {},
        policy=_policy(top.section("policy")),
        flags=hardware.flags("vendor", "model", "count", "arch"),
    )


def _policy(fields: _Fields | None) -> Policy:
    policy = Policy()
    if fields is None:
        return policy
    fields.only("channel", "min_level", "strategy", "allow_unknown")
    if channel := fields.word("channel", CHANNELS):
        policy = replace(policy, channel=next(c for c in CHANNELS if c == channel))
    if level := fields.word("min_level", LEVELS):
        policy = replace(policy, min_level=next(known for known in LEVELS if known == level))
    strategy = fields.word("strategy", _STRATEGIES)
    if strategy == "newest":
        policy = replace(policy, strategy="newest")
    elif strategy == "minimal":
        policy = replace(policy, strategy="minimal")
    if fields.word("allow_unknown", ("true", "false")) == "true":
        policy = replace(policy, allow_unknown=True)
    return policy


def request_of(facts: Facts, policy: Policy, wish: Mapping[str, str] | None = None) -> Request:
    """The request that what a node said amounts to. Raises Refused when its cards are none, or not of one model."""
    models = sorted({card.model for card in facts.accelerators})
    if not facts.vendor or not models:
        raise Refused(f"node {facts.node!r} has no accelerator that fleet knows", hint=f"fleet probe {facts.node}")
    if len(models) > 1:
        shown = ", ".join(models)
        raise Refused(f"node {facts.node!r} has cards of different models: {shown}", slug="mixed-models")
    return Request(
        vendor=facts.vendor,
        model=models[0],
        count=len(facts.accelerators),
        os=facts.os,
        current={c: v for c, v in facts.current().items() if c not in ("os", "kernel")},
        wish=dict(wish or {}),
        policy=policy,
        flags={name: value for name, value in facts.flags.items() if isinstance(value, str | int | bool)},
    )


class _Fields:
    """The fields of one mapping, each read with its own error."""

    def __init__(self, node: Node, path: str, name: str) -> None:
        self.node, self.path, self.name = node, path, name
        self.values: dict[str, Node] = node.value if isinstance(node.value, dict) else {}

    def wrong(self, field: str, text: str, line: int = 0, hint: str = "") -> BadInput:
        label = f"{self.name}.{field}" if self.name else field
        node = self.values.get(field, self.node)
        return BadInput(f"field {label!r} {text}", where=f"{self.path}:{line or node.line}", hint=hint)

    def only(self, *names: str) -> None:
        for name in self.values:
            if name not in names:
                line = self.node.key_lines.get(name, self.node.line)
                raise self.wrong(name, f"is not known{near(name, names)}", line, f"known are: {', '.join(names)}")

    def section(self, name: str) -> _Fields | None:
        node = self.values.get(name)
        if node is None or node.is_null:
            return None
        if not isinstance(node.value, dict):
            raise self.wrong(name, "must be a mapping")
        return _Fields(node, self.path, f"{self.name}.{name}" if self.name else name)

    def text(self, name: str, needed: bool = False) -> str:
        node = self.values.get(name)
        if node is None or node.is_null:
            if needed:
                raise self.wrong(name, "is missing", self.node.line)
            return ""
        if not isinstance(node.value, str):
            raise self.wrong(name, "must be text")
        if len(node.value) > 200 or not node.value.isprintable():
            raise self.wrong(name, "is too long or not printable")
        text = node.value.strip()
        if needed and not text:
            raise self.wrong(name, "is empty")
        return text

    def word(self, name: str, words: tuple[str, ...]) -> str:
        text = self.text(name)
        if text and text not in words:
            raise self.wrong(name, f"cannot be {text!r}{near(text, words)}", hint=f"one of {', '.join(words)}")
        return text

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        if not text:
            return default
        if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 4096:
            raise self.wrong(name, f"cannot be {text!r}", hint="a number of cards, 1 or more")
        return int(text)

    def _component(self, name: str) -> str:
        known = core.component(name)
        if known is None:
            line = self.node.key_lines.get(name, self.node.line)
            raise self.wrong(
                name,
                f"is not a component{near(name, core.COMPONENTS)}",
                line,
                f"components are: {', '.join(core.COMPONENTS)}",
            )
        return known

    def components(self) -> dict[str, str]:
        """component -> version; those without a value are left out."""
        return {self._component(name): text for name in self.values if (text := self.text(name))}

    def ranges(self) -> dict[str, str]:
        out: dict[str, str] = {}
        for name, node in self.values.items():
            component = self._component(name)
            if isinstance(node.value, list):  # a YAML list = any of these
                if not all(isinstance(item.value, str) for item in node.value):
                    raise self.wrong(name, "must be a range or a list of versions")
                text = f"in [{', '.join(str(item.value) for item in node.value)}]"
            else:
                text = self.text(name)
            if not text:
                continue
            try:
                Range.parse(text)
            except BadInput as error:
                raise BadInput(
                    f"field '{self.name}.{name}': {error.what}",
                    where=f"{self.path}:{node.line}",
                    hint=error.hint,
                    slug="bad-range",
                ) from None
            out[component] = text
        return out

    def flags(self, *known: str) -> dict[str, Json]:
        """Every other field is a flag a probe may know: true and false become boolean, the rest stays text."""
        out: dict[str, Json] = {}
        for name in self.values:
            if name in known:
                continue
            text = self.text(name)
            if text:
                quoted = self.values[name].quoted
                out[name] = text.lower() == "true" if text.lower() in ("true", "false") and not quoted else text
        return out


assert set(get_args(core.Channel)) == set(CHANNELS)
