"""All version order: a total key per scheme, and ranges.

A scheme is a strict form plus an order, so that a typing error in a table is an error and never a silent drop. Letters
are compared without case; what is shown stays as it was written.

The generic order: numbers compare as numbers; `~`, then dev, alpha, beta, rc (and what means the same) sort below the
end of the text; any other word above it and below a number. So `24.1.rc2 < 24.1.rc2.2 < 24.1.rc3 < 24.1.0 < 24.1.0.3`,
`8.0.RC2.alpha001 < 8.0.RC2`, `550.90.07 < 550.100`, `1.0~rc1 < 1.0 < 1.0.1`.

Kernels are comparable only inside one release of a distribution: a range whose bound carries a distribution tag
(`.oe2203sp3`, `.ky10`, `.el9`, `-generic`) contains no kernel with another tag.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from fleet.core.errors import BadInput

Token: TypeAlias = tuple[int, int, str]
Key: TypeAlias = tuple[Token, ...]

_TILDE, _PRE, _END, _WORD, _NUMBER = -2, -1, 0, 1, 2
_PRE_WORDS = {"dev": 0, "alpha": 1, "a": 1, "beta": 2, "pre": 3, "preview": 3, "rc": 4}
_TOKEN = re.compile(r"\d+|[a-z]+|~")


def _generic(text: str) -> Key:
    out: list[Token] = []
    for token in _TOKEN.findall(text):
        if token == "~":
            out.append((_TILDE, 0, ""))
        elif token.isdigit():
            out.append((_NUMBER, int(token), ""))
        elif token in _PRE_WORDS:
            out.append((_PRE, _PRE_WORDS[token], ""))
        else:
            out.append((_WORD, 0, token))
    out.append((_END, 0, ""))
    return tuple(out)


_BUILD = re.compile(r"\.b(\d+)$")


def _hdk(text: str) -> Key:
    """Ascend HDK: `.bNNN` is a build of that version: after it, before every longer version."""
    match = _BUILD.search(text)
    key = _generic(text[: match.start()] if match else text)
    return (*key, (_NUMBER, int(match.group(1)) + 1, "") if match else (_NUMBER, 0, ""))


_ARCH = re.compile(r"[.\-+_](x86_64|aarch64|amd64|arm64|noarch)$")


def _kernel(text: str) -> Key:
    return _generic(_ARCH.sub("", text))


def _hexadecimal(text: str) -> Key:
    return (*((_NUMBER, int(part, 16), "") for part in text.split(".")), (_END, 0, ""))


def _ofed(text: str) -> Key:
    """MLNX_OFED by year and month, then its successor DOCA, whose numbers begin anew."""
    return ((_NUMBER, int(text.startswith("doca-")), ""), *_generic(text.removeprefix("doca-")))


def _word(text: str) -> Key:
    return ((_WORD, 0, text), (_END, 0, ""))


def _deb_part(text: str) -> list[Token]:
    """The order of Debian policy 5.6.12: `~` below the end, the end below letters, letters below other signs."""
    out: list[Token] = []
    while text:
        signs = re.match(r"\D*", text)
        head = signs.group() if signs else ""
        out += [(_TILDE, 0, "") if c == "~" else (_WORD if c.isalpha() else _NUMBER, ord(c), "") for c in head]
        out.append((_END, 0, ""))
        digits = re.match(r"\d*", text[len(head) :])
        number = digits.group() if digits else ""
        out.append((_NUMBER, int(number or 0), ""))
        text = text[len(head) + len(number) :]
    # The end of a part is an empty run of signs followed by zero: so `1.0` and `1.0-0` are the same.
    out += [(_END, 0, ""), (_NUMBER, 0, ""), (_END, -1, "")]
    return out


def _deb(text: str) -> Key:
    epoch, _, rest = text.rpartition(":")
    upstream, _, revision = rest.rpartition("-") if "-" in rest else (rest, "", "")
    return ((_NUMBER, int(epoch or 0), ""), *_deb_part(upstream), *_deb_part(revision))


def _rpm_part(text: str) -> list[Token]:
    """rpmvercmp: separators count for nothing, numbers above words, `~` below the end, `^` just above it."""
    out: list[Token] = []
    for token in re.findall(r"\d+|[a-zA-Z]+|~|\^", text):
        if token == "~":
            out.append((_TILDE, 0, ""))
        elif token == "^":
            out.append((_END, 1, ""))
        elif token.isdigit():
            out.append((_NUMBER, int(token), ""))
        else:
            out.append((_WORD, 0, token))
    out.append((_END, 0, ""))
    return out


def _rpm(text: str) -> Key:
    epoch, _, rest = text.rpartition(":")
    version, _, release = rest.rpartition("-") if "-" in rest else (rest, "", "")
    return ((_NUMBER, int(epoch or 0), ""), *_rpm_part(version), *_rpm_part(release))


@dataclass(frozen=True)
class Scheme:
    """The form a version must have, with an example for the error, and its order."""

    form: re.Pattern[str]
    key: Callable[[str], Key]
    example: str
    fold: bool = True  # letters without case


def _scheme(form: str, key: Callable[[str], Key], example: str, fold: bool = True) -> Scheme:
    return Scheme(re.compile(form, re.ASCII | (re.IGNORECASE if fold else 0)), key, example, fold)


SCHEMES: dict[str, Scheme] = {
    "generic": _scheme(r"[0-9a-z][0-9a-z.+~_:^-]*", _generic, "1.2.3"),
    "dotted": _scheme(r"\d+(\.\d+)*", _generic, "2.33.0.5"),
    "nvidia_driver": _scheme(r"\d{3}\.\d{1,3}(\.\d{2})?", _generic, "580.95.05"),
    "ascend_hdk": _scheme(r"\d{2}\.\d{1,2}\.(rc\d+|\d+)(\.\d+)*(\.b\d+)?", _hdk, "24.1.rc2.2"),
    "cann": _scheme(r"\d+\.\d+\.(rc\d+|\d+)(\.\d+)*(\.(alpha|beta)\d+)?", _generic, "8.0.RC2.alpha001"),
    "kernel": _scheme(r"\d+\.\d+[0-9a-z.+~_-]*", _kernel, "5.10.0-182.0.0.95.oe2203sp3"),
    "firmware": _scheme(r"\d+(\.\d+){1,7}", _generic, "7.5.0.1.129"),
    "vbios": _scheme(r"[0-9a-f]{1,4}(\.[0-9a-f]{1,4}){1,6}", _hexadecimal, "96.00.A5.00.01"),
    "release": _scheme(r"\d+(\.\d+)*(\.?(rc|alpha|beta|b|post)\d+)?(-\d+)?", _generic, "4.6.0-1"),
    "ofed": _scheme(r"(doca-)?\d+(\.\d+)*(-\d+(\.\d+)*)?", _ofed, "24.10-1.1.4.0.105"),
    "word": _scheme(r"[a-z][a-z0-9_-]*", _word, "open"),
    "deb": _scheme(r"(\d+:)?[0-9][0-9A-Za-z.+~-]*", _deb, "1:3.3.9-1", fold=False),
    "rpm": _scheme(r"(\d+:)?[0-9A-Za-z][0-9A-Za-z._+~^-]*", _rpm, "580.95.05-1.el9", fold=False),
}


@lru_cache(maxsize=65536)
def key(version: str, scheme: str = "generic") -> Key:
    """The sort key of `version`: a total order inside one scheme; equal keys = the same version.

    Raises BadInput `bad-version` when the text has not the form of the scheme.
    """
    if scheme not in SCHEMES:
        raise BadInput(
            f"version scheme {scheme!r} is not known", slug="bad-scheme", hint=f"one of {', '.join(SCHEMES)}"
        )
    rule = SCHEMES[scheme]
    text = version.strip()
    if len(text) > 200 or not rule.form.fullmatch(text):
        raise BadInput(
            f"version {version[:80]!r} is not of the form {scheme}",
            hint=f"a version of this form is {rule.example!r}",
            slug="bad-version",
        )
    return rule.key(text.lower() if rule.fold else text)


def valid(version: str, scheme: str = "generic") -> bool:
    """Whether `version` has the form of `scheme`."""
    try:
        key(version, scheme)
    except BadInput:
        return False
    return True


_TAG = re.compile(r"[.\-_](oe\d+(?:sp\d+)?|ky\d+|el\d+|al\d+|an\d+|azl\d+|amzn\d+|uelc?\d+|ctl\d+|tl\d+|[a-z]+)", re.I)
_TAG_WORDS = {"generic", "lowlatency", "aws", "azure", "gcp", "oracle", "nvidia", "default", "rt"}


def kernel_tag(version: str) -> str:
    """What tells the distribution's release in a kernel's name: `oe2203sp3`, `ky10`, `el9`, `generic`; else ""."""
    for found in reversed(_TAG.findall(_ARCH.sub("", version.lower()))):
        word = str(found)
        if any(c.isdigit() for c in word) or word in _TAG_WORDS:
            return word
    return ""


_PREFIX = re.compile(r"\d+(\.\d+)*", re.ASCII)  # what a bound may be although no version of the scheme has that form
_OPERATORS = ("==", ">=", "<=", "!=", ">", "<")


def _compare(version: str, bound: str, scheme: str) -> int:
    """-1, 0, 1. A build (`.bNNN`) of an Ascend version counts as that version unless the bound names a build too."""
    text = version.strip()
    if scheme == "ascend_hdk" and not _BUILD.search(bound.lower()):
        text = _BUILD.sub("", text.lower())
    a, b = key(text, scheme), bound_key(bound, scheme)
    return (a > b) - (a < b)


def bound_key(bound: str, scheme: str) -> Key:
    """The key of a bound, which may be a shorter beginning of a version: `<580`, `>=24.1`."""
    if not valid(bound, scheme) and _PREFIX.fullmatch(bound):
        return SCHEMES[scheme].key(bound)
    return key(bound, scheme)


def _under(version: str, prefix: str, scheme: str) -> bool:
    """Whether `version` is `prefix` or begins with it, token by token (`580` covers 580.95.05, not 5801)."""
    if scheme == "vbios":
        return version.lower().split(".")[: prefix.count(".") + 1] == prefix.lower().split(".")
    return key(version, "generic")[: len(head := key(prefix, "generic")[:-1])] == head


@dataclass(frozen=True)
class Term:
    """One condition: an operator with a version, or `in` with patterns, or `*`."""

    op: str
    values: tuple[str, ...]

    def holds(self, version: str, scheme: str) -> bool:
        if self.op == "*":
            return True
        if self.op == "in":
            return any(
                _under(version, v[:-1].rstrip(".-_"), scheme) if v.endswith("*") else _compare(version, v, scheme) == 0
                for v in self.values
            )
        bound = self.values[0]
        if scheme == "kernel":
            tag = kernel_tag(bound)
            if tag and tag != kernel_tag(version):
                return False
        order = _compare(version, bound, scheme)
        return {
            "==": order == 0, "!=": order != 0, ">=": order >= 0, "<=": order <= 0, ">": order > 0, "<": order < 0,
        }[self.op]  # fmt: skip

    def __str__(self) -> str:
        if self.op == "*":
            return "*"
        if self.op == "in":
            return self.values[0] if len(self.values) == 1 else f"in [{', '.join(self.values)}]"
        return f"{self.op}{self.values[0]}"


@dataclass(frozen=True)
class Range:
    """A set of versions: alternatives (`||`) of conditions that hold together (`,`).

    `>=570.26,<580`, `==1.2`, `!=1.2`, `in [1.2, 1.4.*]`, `580.*` (580 and what begins with it), bare `580.95.05` =
    equality, `*` = any, `>=535.161.07,<536 || >=550.54.14`.
    """

    alternatives: tuple[tuple[Term, ...], ...]

    @classmethod
    def parse(cls, text: str) -> Range:
        """The range that `text` writes. Raises BadInput `bad-range`."""
        return _parse_range(text)

    def contains(self, version: str, scheme: str = "generic") -> bool:
        """Whether `version` is in the range. Raises BadInput when version or a bound has not the scheme's form."""
        return any(all(term.holds(version, scheme) for term in terms) for terms in self.alternatives)

    def check(self, scheme: str) -> None:
        """Raises BadInput when a bound has not the form of `scheme`. Bounds may be a shorter beginning (`<580`)."""
        for term in (term for terms in self.alternatives for term in terms):
            for value in term.values:
                text = value.rstrip("*").rstrip(".-_")
                if text and not _bound_ok(text, scheme):
                    key(text, scheme)

    def versions(self) -> tuple[str, ...]:
        """The versions written with `==`, bare or in `in [..]`, patterns left out."""
        return tuple(
            value
            for terms in self.alternatives
            for term in terms
            if term.op in ("==", "in")
            for value in term.values
            if not value.endswith("*")
        )

    @property
    def any(self) -> bool:
        return all(len(terms) == 1 and terms[0].op == "*" for terms in self.alternatives)

    @property
    def names(self) -> bool:
        """Whether each alternative names a version or branch, or is bounded on both sides."""
        return all(_named(terms) for terms in self.alternatives)

    def __str__(self) -> str:
        return " || ".join(",".join(map(str, terms)) for terms in self.alternatives)


def _named(terms: tuple[Term, ...]) -> bool:
    ops = {term.op for term in terms}
    return bool(ops & {"==", "in"}) or (bool(ops & {">", ">="}) and bool(ops & {"<", "<="}))


def _bound_ok(text: str, scheme: str) -> bool:
    return valid(text, scheme) or (scheme != "word" and _PREFIX.fullmatch(text) is not None)


@lru_cache(maxsize=16384)
def _parse_range(text: str) -> Range:
    def wrong(why: str) -> BadInput:
        return BadInput(
            f"range {text[:80]!r} cannot be read: {why}",
            hint="write >=570.26,<580 or ==1.2 or in [1.2, 1.3] or 580.* or *",
            slug="bad-range",
        )

    if len(text) > 2000:
        raise wrong("it is too long")
    alternatives: list[tuple[Term, ...]] = []
    for part in text.split("||"):
        terms: list[Term] = []
        for piece in re.split(r",(?![^\[]*\])", part):  # commas outside brackets
            condition = piece.strip()
            inside = re.fullmatch(r"in\s*\[([^\[\]]*)\]", condition)
            op = next((o for o in _OPERATORS if condition.startswith(o)), "")
            value = condition[len(op) :].strip()
            if not condition:
                raise wrong("a condition is empty")
            if inside:
                values = tuple(v.strip().strip("'\"") for v in inside.group(1).split(","))
                if not all(map(_value_ok, values)):
                    raise wrong("a version in the list is empty or badly written")
                terms.append(Term("in", values))
            elif condition == "*":
                terms.append(Term("*", ()))
            elif not _value_ok(value) or (op and value.endswith("*")):
                raise wrong(f"{condition!r} is no condition")
            else:
                terms.append(Term(op, (value,)) if op else Term("in", (value,)))
        alternatives.append(tuple(terms))
    return Range(tuple(alternatives))


def _value_ok(value: str) -> bool:
    return re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.+~_:^-]*\*?", value, re.ASCII) is not None
