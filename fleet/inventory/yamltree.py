"""YAML with line numbers: a thin view of PyYAML's node tree. Safe tags only, no key twice; anchors and merges work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from fleet.core.errors import BadInput

_MAX_DEPTH = 40
MAX_VALUES = 2_000_000  # that the aliases of one document may stand for
# JSON writes a character beyond U+FFFF as two escapes, which YAML does not know.
_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same answers, some ten times faster


@dataclass(frozen=True)
class Tree:
    """One value of a document with its line, and the line of its key."""

    node: yaml.Node
    path: str
    key_line: int = 0
    depth: int = 0

    @property
    def line(self) -> int:
        return self.node.start_mark.line + 1

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_sequence(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    @property
    def is_null(self) -> bool:
        return self.node.tag == "tag:yaml.org,2002:null"

    def keys(self) -> list[str]:
        """The keys of a mapping as text."""
        return [key for key, _ in self.items()]

    def items(self) -> Iterator[tuple[str, Tree]]:
        """The members of a mapping, merged ones (`<<`) first filled in, then overridden."""
        members: dict[str, Tree] = {}
        own: set[str] = set()
        for key_node, value_node in self.node.value:
            line = key_node.start_mark.line + 1
            child = Tree(value_node, self.path, line, self._deeper())
            if key_node.tag == "tag:yaml.org,2002:merge":
                for merged in child.children() if child.is_sequence else [child]:
                    if not merged.is_mapping:
                        raise BadInput("'<<' takes a mapping", where=f"{self.path}:{line}")
                    for key, value in merged.items():
                        members.setdefault(key, value)
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise BadInput("a key must be text", where=f"{self.path}:{line}")
            key = str(key_node.value)
            if key in own:
                raise BadInput(f"field {key!r} is given twice", where=f"{self.path}:{line}", slug="duplicate-field")
            own.add(key)
            members[key] = child
        yield from members.items()

    def children(self) -> Iterator[Tree]:
        """The members of a sequence."""
        for node in self.node.value:
            yield Tree(node, self.path, node.start_mark.line + 1, self._deeper())

    def value(self, levels: int = 4) -> Any:
        """The plain value: text, number, list, mapping. Raises BadInput for a tag that is not plain YAML.

        `levels` bounds how deep it may be nested: aliases of aliases could else stand for more than fits any memory.
        """
        if self.is_mapping or self.is_sequence:
            if levels == 0:
                raise BadInput("the value is nested too deeply", where=f"{self.path}:{self.line}")
            if self.is_mapping:
                return {key: child.value(levels - 1) for key, child in self.items()}
            return [child.value(levels - 1) for child in self.children()]
        if self.node.tag == "tag:yaml.org,2002:timestamp":
            return str(self.node.value)  # a day stays the text that was written
        if self.node.tag == "tag:yaml.org,2002:str":
            return str(self.node.value)
        try:
            return SafeConstructor().construct_object(self.node, deep=True)
        except (yaml.YAMLError, ValueError) as error:
            raise BadInput(
                f"{self.node.value!r} cannot be read", where=f"{self.path}:{self.line}", cause=str(error).split("\n")[0]
            ) from None

    def _deeper(self) -> int:
        if self.depth >= _MAX_DEPTH:
            raise BadInput("the file is nested too deeply, or contains itself", where=f"{self.path}:{self.line}")
        return self.depth + 1


def compose(text: str, path: str) -> Tree:
    """The tree of the one document in `text`, YAML or JSON. Raises BadInput with the line for what is neither."""
    if text.lstrip()[:1] in ("{", "["):
        text = _PAIR.sub(lambda m: m[1] + bytes.fromhex(m[2] + m[3]).decode("utf-16-be"), text)
    try:
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        context = getattr(error, "context", None)
        line = min(mark.line + 1, text.count("\n") + 1) if mark is not None else 1
        raise BadInput(
            f"the file is no whole YAML: {problem}",
            where=f"{path}:{line}",
            cause=str(context) if context else "",
            hint="is the file only half written?",
            slug="half-written",
        ) from None
    except (RecursionError, ValueError) as error:
        raise BadInput("the file is no YAML that can be read", where=f"{path}:1", cause=str(error)) from None
    if node is None:
        raise BadInput("the file is empty", where=path, slug="empty-file")
    if "*" in text and "&" in text and _weight(node, path) > MAX_VALUES:
        raise BadInput(
            f"its aliases stand for more than {MAX_VALUES} values", where=f"{path}:{node.start_mark.line + 1}",
            hint="write them out, or split the file", slug="too-large",
        )  # fmt: skip
    return Tree(node, path)


def _weight(root: yaml.Node, path: str) -> int:
    """How many values a document stands for with every alias written out; each node itself is visited once."""
    weights: dict[int, int] = {}
    under_way: set[int] = set()
    todo: list[tuple[yaml.Node, bool]] = [(root, False)]
    while todo:
        node, seen = todo.pop()
        if id(node) in weights:
            continue
        children: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            children = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            children = node.value
        if seen or not children:
            weights[id(node)] = 1 + sum(weights[id(child)] for child in children)
            under_way.discard(id(node))
            continue
        under_way.add(id(node))
        todo.append((node, True))
        for child in children:
            if id(child) in under_way:
                raise BadInput("a value contains itself", where=f"{path}:{child.start_mark.line + 1}")
            if id(child) not in weights:
                todo.append((child, False))
    return weights[id(root)]
