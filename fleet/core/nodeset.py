"""Nodesets: `gpu[001-128],rack[1-4]n[1-8],@rack:r07` <-> names, in the grammar that users of clush know.

    set     = term { operator term }          evaluated from left to right
    operator= ","  union   "!"  without   "&"  in both   "^"  in one of both
    term    = pattern | "@" group             a group's name may hold ranges too: @rack:r[01-04]
    pattern = text with any number of [ranges]
    ranges  = range { "," range }             range = N | N-N | N-N/STEP; leading zeros give the width

What a group holds is asked of a function, so that this module knows no inventory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from fleet.core.errors import BadInput

MAX_NAMES = 1_000_000  # a slip such as [1-9999999999] must not fill the memory
_NAME = re.compile(r"[\w.-]*")  # letters of any script: racks and labels have Chinese names too
_GROUP = re.compile(r"[\w.:*/-]*")
# Only ASCII digits count as numbers: full-width ones would not come back as they were.
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?:/([0-9]{1,18}))?)?")
_DIGITS = re.compile(r"([0-9]{1,18})")  # a longer number is several: no name has one, and int() has its limits
MAX_LENGTH = 255  # characters of one name

Groups = Callable[[str], Iterable[str]]


def expand(text: str, groups: Groups | None = None) -> list[str]:
    """The names of a nodeset, in the order written, each once.

    `groups("rack:r07")` gives the names of `@rack:r07`, and raises for a group that is not. Raises BadInput naming the
    term that cannot be read.
    """
    result: dict[str, None] = {}
    for operator, term in _terms(text):
        if term.startswith("@"):
            if groups is None:
                raise _bad(text, f"groups such as {term!r} are not known here")
            names = [name for group in _pattern(term[1:], text, _GROUP) for name in groups(group)]
        else:
            names = _pattern(term, text)
        if operator == ",":
            result.update(dict.fromkeys(names))
        elif operator == "!":
            for name in names:
                result.pop(name, None)
        elif operator == "&":
            both = set(names)
            result = {name: None for name in result if name in both}
        else:
            for name in dict.fromkeys(names):
                if name in result:
                    del result[name]
                else:
                    result[name] = None
        if len(result) > MAX_NAMES:
            raise _bad(text, f"this is more than {MAX_NAMES} names")
    return list(result)


def fold(names: Iterable[str]) -> str:
    """The shortest usual nodeset of these names: `gpu[001-009,012],login1`. `expand` gives the same names back."""
    patterns: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for name in dict.fromkeys(names):
        parts = _DIGITS.split(name)
        patterns.setdefault(tuple(parts[0::2]), []).append(tuple(parts[1::2]))
    folded: list[tuple[tuple[object, ...], str]] = []
    for literals, numbers in patterns.items():
        for vector in _fold_numbers(numbers):
            text = literals[0] + "".join(n + literal for n, literal in zip(vector, literals[1:], strict=True))
            folded.append((natural(text.replace("[", "")), text))
    return ",".join(text for _, text in sorted(folded))


def natural(name: str) -> tuple[object, ...]:
    """A sort key under which gpu2 comes before gpu10."""
    parts = _DIGITS.split(name)
    return tuple((int(part), part) if place % 2 else part for place, part in enumerate(parts))


def _terms(text: str) -> Iterator[tuple[str, str]]:
    operator, term, depth, seen = ",", "", 0, False
    for character in text.strip():
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        if depth not in (0, 1):
            raise _bad(text, "the brackets do not match")
        if depth == 0 and (character in ",!&^" or character.isspace()):
            if character.isspace():
                character = ","
                if not term:
                    continue
            if term:
                yield operator, term
                seen = True
            elif character == "," or not seen or operator != ",":
                raise _bad(text, f"a name is missing before {character!r}")
            operator, term = character, ""
        else:
            term += character
    if depth:
        raise _bad(text, "a bracket is not closed")
    if not term and (operator != "," or not seen):
        raise _bad(text, "a name is missing at the end" if seen else "it is empty")
    if term:
        yield operator, term


def _pattern(pattern: str, text: str, allowed: re.Pattern[str] = _NAME) -> list[str]:
    """Every name of one pattern."""
    names = [""]
    for place, piece in enumerate(re.split(r"\[([^\]]*)\]", pattern)):
        if place % 2 == 0:
            if not allowed.fullmatch(piece):
                colon = ": union is ',', difference '!', ranges are [01-50]" if ":" in piece else ""
                raise _bad(text, f"{pattern!r} has a character that no name has{colon}")
            options = [piece]
        else:
            options = _ranges(piece, pattern, text)
        if len(names) * len(options) > MAX_NAMES:
            raise _bad(text, f"{pattern!r} is more than {MAX_NAMES} names")
        names = [name + option for name in names for option in options]
    if names == [""]:
        raise _bad(text, "a name is missing")
    if len(names[0]) > MAX_LENGTH:
        raise _bad(text, f"a name has at most {MAX_LENGTH} characters")
    return names


def _ranges(ranges: str, pattern: str, text: str) -> list[str]:
    numbers: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match:
            raise _bad(text, f"{part!r} in {pattern!r} is no range: they are written 01-50, not 01:50")
        first, last, step = match[1], match[2] or match[1], int(match[3] or 1)
        width = len(first) if first.startswith("0") else 0
        if last.startswith("0") and len(last) > 1 and len(last) != width:
            raise _bad(text, f"{part!r} in {pattern!r}: both ends need the same number of digits")
        if int(last) < int(first) or step < 1:
            raise _bad(text, f"{part!r} in {pattern!r} runs backwards")
        if (int(last) - int(first)) // step >= MAX_NAMES:
            raise _bad(text, f"{pattern!r} is more than {MAX_NAMES} names")
        numbers += [str(n).zfill(width) for n in range(int(first), int(last) + 1, step)]
        if len(numbers) > MAX_NAMES:
            raise _bad(text, f"{pattern!r} is more than {MAX_NAMES} names")
    return numbers


def _bad(text: str, why: str) -> BadInput:
    return BadInput(f"nodeset {text!r}: {why}", hint="like gpu[001-128],@rack:r07", slug="bad-nodeset")


def _fold_numbers(vectors: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Merge vectors that differ in one place only, from the last place to the first."""
    for place in reversed(range(len(vectors[0]))):
        alike: dict[tuple[str, ...], list[str]] = {}
        for vector in vectors:
            alike.setdefault(vector[:place] + vector[place + 1 :], []).append(vector[place])
        vectors = [(*rest[:place], _fold_range(values), *rest[place:]) for rest, values in alike.items()]
    return vectors


def _fold_range(values: list[str]) -> str:
    """`001`, `002`, `004` -> `[001-002,004]`. A number without leading zeros joins those of its width that have."""
    if len(values) == 1:
        return values[0]
    widths = sorted({len(value) for value in values if value.startswith("0") and len(value) > 1}, reverse=True)
    classes: dict[int, list[int]] = {}
    for value in values:
        padded = value.startswith("0") and len(value) > 1
        width = len(value) if padded else next((w for w in widths if w <= len(value)), 0)
        classes.setdefault(width, []).append(int(value))
    parts: list[str] = []
    for width, numbers in sorted(classes.items()):
        # Within a run of consecutive numbers, number minus place is the same.
        for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
            found = [number for _, number in run]
            first, last = str(found[0]).zfill(width), str(found[-1]).zfill(width)
            parts.append(first if first == last else f"{first}-{last}")
    return f"[{','.join(parts)}]"
