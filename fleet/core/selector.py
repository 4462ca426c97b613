"""Label selectors: the grammar of Kubernetes, over labels and facts, plus version comparison of components.

    selector    = requirement { "," requirement }        all must hold; empty = every node
    requirement = key | "!" key | key ("=" | "==" | "!=") value | key ("in" | "notin") "(" value { "," value } ")"
                | key ("<" | "<=" | ">" | ">=") value

As in Kubernetes, `!=` and `notin` hold where the key is absent, and `<` and `>` on a label compare whole numbers.
Ours are `<=` and `>=`, and that on a component (`driver<580`) all four compare versions by the component's scheme; a
node whose version is not known, or not of that scheme, never matches: unknown is not a yes.

Source of the grammar: kubernetes/apimachinery, pkg/labels/selector.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fleet.core import version
from fleet.core.errors import BadInput
from fleet.core.model import COMPONENTS, DOMAINS, component

Operator = Literal["=", "!=", "in", "notin", "exists", "!", "<", "<=", ">", ">="]
Scheme: TypeAlias = Callable[[str], str]

# What a node has besides labels: its own fields, and the newest facts. A label cannot take one of these names.
FIELDS = ("name", "arch", *DOMAINS, "state", "hold", "vendor", "model", "count", "os_version")
_SYMBOLS = ("==", "!=", "<=", ">=", "=", "!", "<", ">", "(", ")", ",")
_KEY = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
# Kubernetes allows ASCII letters only; sites name racks and owners in Chinese too, so any letter is a letter here.
_VALUE = re.compile(r"(?:\w(?:[\w.-]{0,61}\w)?)?")


@dataclass(frozen=True)
class Requirement:
    """One condition. `values` is empty for `exists` and `!`."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, values: Mapping[str, str], scheme: Scheme) -> bool:
        """Whether a node with these values meets it."""
        value = values.get(self.key)
        if self.operator == "exists":
            return value is not None
        if self.operator == "!":
            return value is None
        if self.operator in ("!=", "notin"):
            return value not in self.values
        if value is None:
            return False
        if self.operator in ("=", "in"):
            return value in self.values
        if self.key in COMPONENTS:
            try:
                return version.Range.parse(self.operator + self.values[0]).contains(value, scheme(self.key))
            except BadInput:
                return False  # the node's version does not follow its scheme: it cannot be compared
        return _WHOLE.fullmatch(value) is not None and _ordered(int(value), self.operator, int(self.values[0]))

    def __str__(self) -> str:
        if self.operator == "exists":
            return self.key
        if self.operator == "!":
            return f"!{self.key}"
        if self.operator in ("in", "notin"):
            return f"{self.key} {self.operator} ({','.join(self.values)})"
        return f"{self.key}{self.operator}{self.values[0]}"


@dataclass(frozen=True)
class Selector:
    """Conditions that must all hold."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, values: Mapping[str, str], scheme: Scheme = lambda _: "generic") -> bool:
        """Whether a node with these values (labels, fields, component versions) is meant."""
        return all(requirement.matches(values, scheme) for requirement in self.requirements)

    @property
    def asks_facts(self) -> bool:
        """Whether any key is answered by what nodes said, not by their record."""
        asked = {"vendor", "model", "count", "os_version", *COMPONENTS}
        return any(requirement.key in asked for requirement in self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def parse(text: str) -> Selector:
    """The selector of a text. Raises BadInput that names the place and what was expected."""
    return _Parser(text).selector()


def field(key: str) -> str | None:
    """The field or component of that name (hyphens accepted, `lifecycle` = `state`); None when it is a label's."""
    name = key.lower().replace("-", "_")
    if name == "lifecycle":
        return "state"
    return name if name in FIELDS else component(key)


def check_label(key: str, value: str) -> None:
    """Raise BadInput unless this may be a label: the key as in Kubernetes and no field's name, the value up to 63."""
    if not _KEY.fullmatch(key):
        raise BadInput(
            f"label key {key!r} is not one: letters, digits, '-', '_', '.', up to 63, an optional prefix/",
            slug="bad-label",
        )
    if field(key) is not None:
        raise BadInput(f"{key!r} is a field of nodes and cannot be a label", slug="bad-label")
    if not _VALUE.fullmatch(value):
        raise BadInput(
            f"label {key!r} cannot be {value!r}: up to 63 letters, digits, '-', '_', '.', no sign at an end",
            slug="bad-label",
        )


def value_ok(text: str) -> bool:
    """Whether a text may be the value of a label or the name of a failure domain."""
    return _VALUE.fullmatch(text) is not None


def _ordered(left: int, operator: str, right: int) -> bool:
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[operator]


class _Parser:
    """A recursive-descent parser over tokens of (place, kind, text)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._scan()
        self.next = 0

    def selector(self) -> Selector:
        if not self.tokens:
            return Selector()
        found = [self._requirement()]
        while self._take(","):
            found.append(self._requirement())
        if self.next < len(self.tokens):
            raise self._wrong("a comma")
        return Selector(tuple(found))

    def _scan(self) -> list[tuple[int, str]]:
        tokens: list[tuple[int, str]] = []
        place = 0
        while place < len(self.text):
            if self.text[place].isspace():
                place += 1
                continue
            symbol = next((s for s in _SYMBOLS if self.text.startswith(s, place)), None)
            if symbol is None:
                word = re.match(r"[^\s=!<>(),]+", self.text[place:])
                symbol = word[0] if word else self.text[place]
            tokens.append((place, symbol))
            place += len(symbol)
        return tokens

    def _peek(self) -> str:
        return self.tokens[self.next][1] if self.next < len(self.tokens) else ""

    def _take(self, token: str) -> bool:
        if self._peek() == token:
            self.next += 1
            return True
        return False

    def _wrong(self, expected: str) -> BadInput:
        where = self.tokens[self.next][0] + 1 if self.next < len(self.tokens) else len(self.text) + 1
        found = repr(self._peek()) if self._peek() else "the end"
        return BadInput(
            f"selector {self.text!r}: expected {expected} at character {where}, found {found}",
            hint="like 'vendor=ascend,model in (910B3,910B4),!quarantine,driver<24.1'",
            slug="bad-selector",
        )

    def _key(self) -> str:
        word = self._peek()
        if word in _SYMBOLS or word in ("", "in", "notin"):
            raise self._wrong("a key")
        if not _KEY.fullmatch(word):
            raise self._wrong("a key of letters, digits, '-', '_', '.'")
        self.next += 1
        return field(word) or word

    def _requirement(self) -> Requirement:
        if self._take("!"):
            return Requirement(self._key(), "!")
        key = self._key()
        operator = self._peek()
        if operator in ("", ","):
            return Requirement(key, "exists")
        if operator in ("in", "notin"):
            self.next += 1
            return Requirement(key, "in" if operator == "in" else "notin", self._set(key))
        if operator not in ("=", "==", "!=", "<", "<=", ">", ">="):
            raise self._wrong("an operator")
        self.next += 1
        if operator in ("=", "==", "!="):
            return Requirement(key, "!=" if operator == "!=" else "=", (self._value(key),))
        bound = self._peek()
        if key in COMPONENTS:
            try:
                version.Range.parse(operator + bound)
            except BadInput:
                raise self._wrong("a version") from None
        elif not _WHOLE.fullmatch(bound):
            raise self._wrong("a whole number")
        self.next += 1
        return Requirement(key, _comparison(operator), (bound,))

    def _set(self, key: str) -> tuple[str, ...]:
        if not self._take("("):
            raise self._wrong("'('")
        values = [self._value(key)]
        while self._take(","):
            values.append(self._value(key))
        if not self._take(")"):
            raise self._wrong("',' or ')'")
        return tuple(dict.fromkeys(values))

    def _value(self, key: str) -> str:
        """A value; none written is the empty one, as in Kubernetes."""
        word = self._peek()
        if word in ("", ",", ")"):
            return ""
        if word in _SYMBOLS:
            raise self._wrong("a value")
        if field(key) is None and not _VALUE.fullmatch(word):
            raise self._wrong("a label's value")
        self.next += 1
        return word


def _comparison(operator: str) -> Literal["<", "<=", ">", ">="]:
    return "<" if operator == "<" else "<=" if operator == "<=" else ">" if operator == ">" else ">="
