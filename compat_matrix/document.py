"""YAML text to a tree that knows its lines: limits against hostile files, no types guessed.

Scalars stay text, with whether they were quoted: a table decides what a field is. Only the events of the YAML library
are used, so nothing is constructed, and depth, size and aliases are bounded while reading.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

MAX_BYTES = 4 * 1024 * 1024
MAX_NODES = 300_000  # aliases count with all they stand for
MAX_DEPTH = 30
MAX_ALIASES = 200

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Problem:
    """One thing wrong in a table. Printed as `file:line: error: text [slug]`."""

    path: str
    line: int
    text: str
    slug: str
    severity: str = "error"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.severity}: {self.text} [{self.slug}]"


@dataclass
class Node:
    """A value in a YAML file: `value` is text, a list of nodes, or a mapping of text to nodes. `line` counts from 1."""

    value: str | list[Node] | dict[str, Node]
    line: int
    quoted: bool = False
    weight: int = 1  # nodes below, aliases counted in full
    key_lines: dict[str, int] = field(default_factory=dict)

    @property
    def is_null(self) -> bool:
        return isinstance(self.value, str) and not self.quoted and self.value in ("", "~", "null", "Null", "NULL")

    def plain(self) -> Any:
        """The value without lines: text, list, dict."""
        if isinstance(self.value, dict):
            return {k: v.plain() for k, v in self.value.items()}
        if isinstance(self.value, list):
            return [v.plain() for v in self.value]
        return None if self.is_null else self.value


def near(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` when a known word is near to one that is not known; else ""."""
    found = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f" (did you mean {found[0]!r}?)" if found else ""


class _Stop(Exception):
    def __init__(self, line: int, text: str, slug: str) -> None:
        super().__init__(text)
        self.line, self.text, self.slug = line, text, slug


def read(text: str, path: str) -> tuple[Node | None, list[Problem]]:
    """The tree of the one document in `text`, and what is wrong. None = nothing could be read or the file is empty."""
    if len(text) > MAX_BYTES:
        size = f"{len(text) / 1048576:.1f} MB"
        return None, [Problem(path, 1, f"the file has {size}, more than the 4 MB that a table may have", "too-large")]
    problems: list[Problem] = []
    try:
        return _build(text, path, problems), problems
    except _Stop as stop:
        problems.append(Problem(path, stop.line, stop.text, stop.slug))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        problems.append(Problem(path, mark.line + 1 if mark else 1, f"not YAML: {what}", "bad-yaml"))
    except RecursionError:
        problems.append(Problem(path, 1, "values are nested too deep", "yaml-bomb"))
    return None, problems


def _build(text: str, path: str, problems: list[Problem]) -> Node | None:
    events = cast("Iterator[Any]", yaml.parse(text, Loader=_LOADER))
    anchors: dict[str, Node] = {}
    aliases = 0
    root: Node | None = None
    stack: list[tuple[Node, str | None]] = []  # (collection, its anchor)
    keys: list[str | None] = []  # per mapping on the stack: the key that waits for its value

    def attach(node: Node) -> None:
        nonlocal root
        if not stack:
            root = node
            return
        parent = stack[-1][0]
        if isinstance(parent.value, list):
            parent.value.append(node)
        else:
            assert isinstance(parent.value, dict)
            key = keys[-1]
            if key is None:
                if not isinstance(node.value, str):
                    raise _Stop(node.line, "a key must be text", "bad-key")
                if node.value in parent.value:
                    problems.append(Problem(path, node.line, f"key {node.value!r} is there twice", "duplicate-key"))
                if node.value == "<<" and not node.quoted:
                    raise _Stop(node.line, "merge keys are not used: a row must be readable alone", "merge-key")
                keys[-1] = node.value
                parent.key_lines[node.value] = node.line
                return
            parent.value[key] = node
            keys[-1] = None
        parent.weight += node.weight
        if parent.weight > MAX_NODES:
            raise _Stop(node.line, "aliases blow the file up beyond all measure", "yaml-bomb")

    documents = 0
    for total, event in enumerate(events):
        line = event.start_mark.line + 1
        if total > MAX_NODES:
            raise _Stop(line, f"more than {MAX_NODES} values", "too-large")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _Stop(line, "more than one document in the file", "bad-yaml")
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
            target = anchors.get(str(event.anchor))
            if target is None:
                raise _Stop(line, f"alias {event.anchor!r} stands for nothing read before it", "bad-yaml")
            if aliases > MAX_ALIASES:
                raise _Stop(line, f"more than {MAX_ALIASES} aliases", "yaml-bomb")
            attach(target)
        elif isinstance(event, yaml.ScalarEvent):
            node = Node(event.value, line, quoted=event.style in ("'", '"', "|", ">"))
            if event.anchor:
                anchors[event.anchor] = node
            attach(node)
        elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            if len(stack) >= MAX_DEPTH:
                raise _Stop(line, "values are nested too deep", "yaml-bomb")
            is_list = isinstance(event, yaml.SequenceStartEvent)
            if stack and isinstance(stack[-1][0].value, dict) and keys[-1] is None:
                raise _Stop(line, "a key must be text", "bad-key")
            stack.append((Node([] if is_list else {}, line), event.anchor))
            if not is_list:
                keys.append(None)
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            node, anchor = stack.pop()
            if isinstance(node.value, dict):
                keys.pop()
            if anchor:
                anchors[anchor] = node  # only now: a collection cannot hold itself
            attach(node)
    return root
