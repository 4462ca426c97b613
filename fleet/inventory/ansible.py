"""Ansible inventories: INI, YAML and the JSON of a dynamic inventory -> entries; nodes -> that JSON.

Variables that mean something here: `ansible_host`, `ansible_port`, `ansible_user` (and their old `ansible_ssh_*`
names), and variables named as our fields, with or without `fleet_` before them (`rack=r07`). Others are left to
Ansible: passwords above all are never stored. Membership of group `web` becomes the label `group/web=true`, and
`@web` names its members.

Source of the forms: Ansible user guide, "How to build your inventory"; plugins ansible.builtin.ini, yaml and script.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.core.errors import BadInput
from fleet.core.model import DOMAINS, Node
from fleet.inventory.record import FIELDS, Entry
from fleet.inventory.yamltree import Tree

GROUP_LABEL = "group/"
_VARIABLES = {
    "ansible_host": "address", "ansible_ssh_host": "address",
    "ansible_port": "port", "ansible_ssh_port": "port",
    "ansible_user": "user", "ansible_ssh_user": "user",
    **{name: name for name in FIELDS if name not in ("name", "address", "port", "user", "labels", "hold")},
    **{f"fleet_{name}": name for name in FIELDS if name not in ("name", "address", "port", "user")},
}  # fmt: skip
_SECTION = re.compile(r"\[([^\]:]+)(?::(\w+))?\]\s*(?:[#;].*)?")
_MAX_HOSTS = 1_000_000
_MAX_LEVELS = 30  # of variables that are the operator's own


@dataclass
class _Group:
    """Hosts with the line of first mention; variables are (value, line)."""

    line: int
    hosts: dict[str, int] = field(default_factory=dict)
    children: dict[str, int] = field(default_factory=dict)
    variables: dict[str, tuple[Any, int]] = field(default_factory=dict)


@dataclass
class _Inventory:
    path: str
    groups: dict[str, _Group] = field(default_factory=dict)
    hosts: dict[str, int] = field(default_factory=dict)
    variables: dict[str, dict[str, tuple[Any, int]]] = field(default_factory=dict)

    def group(self, name: str, line: int) -> _Group:
        return self.groups.setdefault(name, _Group(line))

    def host(self, group: str, name: str, line: int) -> dict[str, tuple[Any, int]]:
        self.hosts.setdefault(name, line)
        if len(self.hosts) > _MAX_HOSTS:
            raise BadInput(f"these are more than {_MAX_HOSTS} hosts", where=f"{self.path}:{line}")
        self.group(group, line).hosts.setdefault(name, line)
        return self.variables.setdefault(name, {})

    def entries(self) -> list[Entry]:
        """Variables as Ansible merges them: `all`, then groups from the outermost in, by name, then the host."""
        depth = self._depths()
        members: dict[str, list[str]] = {name: [] for name in self.hosts}
        for name in sorted(self.groups, key=lambda g: (depth[g], g)):
            for host in self._members(name):
                members[host].append(name)
        top = self.groups.get("all", _Group(0)).variables
        out: list[Entry] = []
        for host, line in self.hosts.items():
            merged = dict(top)
            for name in members[host]:
                if name != "all":
                    merged |= self.groups[name].variables
            merged |= self.variables.get(host, {})
            out.append(self._entry(host, line, merged, [g for g in members[host] if g not in ("all", "ungrouped")]))
        return out

    def _entry(self, host: str, line: int, variables: Mapping[str, tuple[Any, int]], groups: list[str]) -> Entry:
        values: dict[str, Any] = {"name": host}
        lines = {"name": line}
        for variable, (value, at) in variables.items():
            name = _VARIABLES.get(variable)
            if name is None:
                continue
            if isinstance(value, str) and "{{" in value:
                raise BadInput(
                    f"variable {variable!r} of {host!r} is a template, which only Ansible can fill in: {value!r}",
                    where=f"{self.path}:{at}",
                    slug="bad-field",
                )
            values[name], lines[name] = value, at
        if "fleet_labels" not in variables and groups:
            values["labels"] = {GROUP_LABEL + name: "true" for name in groups}
        return Entry(line, values, lines)

    def _depths(self) -> dict[str, int]:
        """group -> its longest way from the top. Raises BadInput when groups contain each other."""
        depth = dict.fromkeys(self.groups, 0)
        for turn in range(len(self.groups) + 1):
            moved = ""
            for name, group in self.groups.items():
                for child in group.children:
                    if depth[child] <= depth[name]:
                        depth[child] = depth[name] + 1
                        moved = child
            if not moved:
                return depth
            if turn == len(self.groups):
                raise BadInput(f"group {moved!r} contains itself", where=f"{self.path}:{self.groups[moved].line}")
        return depth

    def _members(self, name: str) -> list[str]:
        seen: dict[str, None] = {}
        todo, done = [name], {name}
        while todo:
            group = self.groups[todo.pop()]
            seen.update(dict.fromkeys(group.hosts))
            fresh = [child for child in group.children if child not in done]
            done.update(fresh)
            todo += fresh
        return list(seen)


# --- INI ------------------------------------------------------------------------------------------------------------


def read_ini(text: str, path: str) -> list[Entry]:
    """The hosts of an INI inventory. Raises BadInput with file and line."""
    inventory = _Inventory(path)
    section, kind = "ungrouped", "hosts"
    declared = {"all", "ungrouped"}
    wanted: dict[str, int] = {}
    for line, raw in enumerate(text.splitlines(), 1):
        stripped = raw.strip()
        if not stripped or stripped[0] in "#;":
            continue
        where = f"{path}:{line}"
        if stripped.startswith("["):
            match = _SECTION.fullmatch(stripped)
            if match is None:
                raise BadInput(f"section {stripped!r} cannot be read", where=where, hint="[group]", slug="half-written")
            section, kind = match[1].strip(), match[2] or "hosts"
            if kind not in ("hosts", "vars", "children"):
                raise BadInput(
                    f"section {stripped!r} is not known", where=where, hint="[group], [group:vars] or [group:children]"
                )
            if kind == "vars":
                wanted.setdefault(section, line)
            else:
                inventory.group(section, line)
                declared.add(section)
            continue
        if kind == "children":
            child = _split(stripped, where)
            if len(child) != 1:
                raise BadInput(f"one group's name is expected, not {stripped!r}", where=where)
            inventory.group(section, line).children.setdefault(child[0], line)
            wanted.setdefault(child[0], line)
            inventory.group(child[0], line)
        elif kind == "vars":
            key, equals, value = stripped.partition("=")
            if not equals:
                raise BadInput(f"KEY=VALUE is expected, not {stripped!r}", where=where, slug="half-written")
            inventory.group(section, line).variables[key.strip()] = (_literal(value.strip()), line)
        else:
            words = _split(stripped, where)
            variables: dict[str, tuple[Any, int]] = {}
            for word in words[1:]:
                key, equals, value = word.partition("=")
                if not equals or not key:
                    raise BadInput(
                        f"KEY=VALUE is expected after the host's name, not {word!r}", where=where, slug="half-written"
                    )
                variables[key] = (_literal(value), line)
            pattern, port = _host_and_port(words[0])
            if port is not None:
                variables.setdefault("ansible_port", (port, line))
            for name in _hosts(pattern, where):
                inventory.host(section, name, line).update(variables)
    for name, line in wanted.items():
        if name not in declared:
            raise BadInput(f"group {name!r} is not in this file", where=f"{path}:{line}", slug="unknown-group")
    return inventory.entries()


def _split(text: str, where: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise BadInput(f"the line cannot be read: {error}", where=where, slug="half-written") from None


def _literal(text: str) -> Any:
    """A value as text; only quotes and mappings are read as Ansible does: fields are text here, `07` stays `07`."""
    if not text.startswith(("{", "'", '"')):
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _host_and_port(word: str) -> tuple[str, str | None]:
    """`host:2222` -> host and port; colons inside brackets belong to ranges, and an IPv6 address has several."""
    outside = re.sub(r"\[[^\]]*\]", "", word)
    if outside.count(":") == 1 and (match := re.fullmatch(r"(.*):([0-9]+)", word)):
        return match[1], match[2]
    return word, None


def _hosts(pattern: str, where: str) -> Iterator[str]:
    """`www[01:50:2].example` -> its names. Ansible's ranges: `[1:9]`, `[01:09]`, `[a:f]`, each with a step."""
    match = re.search(r"\[([^\]]*)\]", pattern)
    if match is None:
        if "[" in pattern or "]" in pattern:
            raise BadInput(
                f"field 'name' cannot be {pattern!r}: the brackets do not match", where=where, slug="bad-field"
            )
        yield pattern
        return
    parts = match[1].split(":")
    head, tail = pattern[: match.start()], pattern[match.end() :]
    wrong = BadInput(
        f"field 'name' cannot be {pattern!r}: {match[1]!r} is no range",
        where=where,
        hint="Ansible writes ranges [01:50], [a:f] or [0:10:2]",
        slug="bad-field",
    )
    if len(parts) not in (2, 3) or (len(parts) == 3 and not re.fullmatch(r"[1-9][0-9]{0,6}", parts[2])):
        raise wrong
    begin, end, step = parts[0] or "0", parts[1], int(parts[2]) if len(parts) == 3 else 1
    if re.fullmatch(r"[0-9]{1,9}", begin) and re.fullmatch(r"[0-9]{1,9}", end):
        width = len(begin) if begin.startswith("0") else 0
        if (width > 1 and len(end) != width) or int(end) < int(begin) or int(end) - int(begin) > _MAX_HOSTS:
            raise wrong
        middle = [str(n).zfill(width) for n in range(int(begin), int(end) + 1, step)]
    elif re.fullmatch(r"[a-z]:[a-z]|[A-Z]:[A-Z]", f"{begin}:{end}") and begin <= end:
        middle = [chr(n) for n in range(ord(begin), ord(end) + 1, step)]
    else:
        raise wrong
    for text in middle:
        yield from _hosts(head + text + tail, where)


# --- YAML -----------------------------------------------------------------------------------------------------------


def read_yaml(tree: Tree, path: str) -> list[Entry]:
    """The hosts of a YAML inventory: groups with hosts, vars and children."""
    inventory = _Inventory(path)
    if not tree.is_mapping:
        raise BadInput("a mapping of groups is expected", where=f"{path}:{tree.line}", hint="all: {hosts: {gpu001: }}")
    for name, group in tree.items():
        _yaml_group(inventory, name, group)
    return inventory.entries()


def _yaml_group(inventory: _Inventory, name: str, tree: Tree) -> None:
    where = f"{inventory.path}:{tree.key_line}"
    group = inventory.group(name, tree.key_line)
    if tree.is_null:
        return
    if not tree.is_mapping:
        raise BadInput(f"group {name!r} must be a mapping with hosts, vars and children", where=where)
    for key, part in tree.items():
        at = f"{inventory.path}:{part.key_line}"
        if key not in ("hosts", "vars", "children"):
            raise BadInput(f"group {name!r} has {key!r}: only hosts, vars and children can be there", where=at)
        if part.is_null:
            continue
        if not part.is_mapping:
            raise BadInput(f"{key!r} of group {name!r} must be a mapping", where=at, hint="a colon after each name?")
        for member, value in part.items():
            line = value.key_line
            if key == "vars":
                if member in _VARIABLES:
                    group.variables[member] = (_plain(value), value.line)
            elif key == "children":
                group.children.setdefault(member, line)
                _yaml_group(inventory, member, value)
            else:
                if not (value.is_null or value.is_mapping):
                    raise BadInput(
                        f"host {member!r} must hold a mapping of variables", where=f"{inventory.path}:{line}"
                    )
                given = {} if value.is_null else dict(value.items())
                variables = {k: (_plain(v), v.line) for k, v in given.items() if k in _VARIABLES}
                pattern, port = _host_and_port(member)
                for host in _hosts(pattern, f"{inventory.path}:{line}"):
                    known = inventory.host(name, host, line)
                    known.update(variables)
                    if port is not None:
                        known.setdefault("ansible_port", (port, line))


def _plain(tree: Tree) -> Any:
    # A tag such as !vault is Ansible's own: such a variable is never one of ours, so its text is as good as any.
    return str(tree.node.value) if tree.node.tag.startswith("!") else tree.value()


# --- the JSON of a dynamic inventory --------------------------------------------------------------------------------


def read_json(tree: Tree, path: str) -> list[Entry]:
    """The hosts of what `inventory --list` prints."""
    inventory = _Inventory(path)
    if not tree.is_mapping:
        raise BadInput("a mapping of groups is expected", where=f"{path}:{tree.line}")
    document = dict(tree.items())
    for name, part in document.items():
        if name == "_meta":
            continue
        body = part.value(_MAX_LEVELS)
        where = f"{path}:{part.line}"
        if isinstance(body, list):
            body = {"hosts": body}
        if not isinstance(body, dict):
            raise BadInput(f"group {name!r} must be a mapping or a list of hosts", where=where)
        group = inventory.group(name, part.line)
        for key, kind in (("hosts", list), ("children", list), ("vars", dict)):
            if not isinstance(body.get(key, kind()), kind):
                raise BadInput(f"{key!r} of group {name!r} has the wrong type", where=where)
        for host in body.get("hosts", []):
            inventory.host(name, str(host), part.line)
        for child in body.get("children", []):
            group.children.setdefault(str(child), part.line)
            inventory.group(str(child), part.line)
        group.variables |= {key: (value, part.line) for key, value in body.get("vars", {}).items()}
    meta = dict(document["_meta"].items()) if "_meta" in document and document["_meta"].is_mapping else {}
    for host, variables in meta["hostvars"].items() if "hostvars" in meta and meta["hostvars"].is_mapping else ():
        if variables.is_mapping:
            known = inventory.host("ungrouped", host, variables.key_line)
            known.update({k: (v.value(), v.line) for k, v in variables.items() if k in _VARIABLES})
    return inventory.entries()


def write(nodes: Iterable[Node], facts: Mapping[str, Mapping[str, str]] | None = None) -> dict[str, Any]:
    """What `inventory --list` prints: groups by domain, state, vendor and group label, and the variables of each host.

    `facts` maps a node to what it said: vendor, model. The `fleet_*` variables bring every field back on import.
    """
    hostvars: dict[str, dict[str, Any]] = {}
    groups: dict[str, list[str]] = {}
    names: list[str] = []
    for node in nodes:
        names.append(node.name)
        hostvars[node.name] = host_variables(node, (facts or {}).get(node.name))
        for group in _groups(node, (facts or {}).get(node.name, {})):
            groups.setdefault(group, []).append(node.name)
    out: dict[str, Any] = {"_meta": {"hostvars": hostvars}}
    out["all"] = {"children": [*sorted(groups), "ungrouped"]}
    out["ungrouped"] = {"hosts": sorted(set(names) - {name for some in groups.values() for name in some})}
    return out | {name: {"hosts": some} for name, some in sorted(groups.items())}


def host_variables(node: Node, facts: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What `inventory --host NAME` prints."""
    out: dict[str, Any] = {"ansible_host": node.address, "ansible_port": node.port}
    if node.user:
        out["ansible_user"] = node.user
    for name in ("bmc", "arch", *DOMAINS):
        if text := getattr(node, name):
            out[f"fleet_{name}"] = text
    out["fleet_lifecycle"] = node.lifecycle
    out["fleet_labels"] = dict(node.labels)
    if node.hold is not None:
        out["fleet_hold"] = {key: text for key, text in vars(node.hold).items() if text}
    return out | {f"fleet_{key}": value for key, value in (facts or {}).items() if key in ("vendor", "model")}


def _groups(node: Node, facts: Mapping[str, str]) -> Iterator[str]:
    for name in DOMAINS:
        if text := getattr(node, name):
            yield _group_name(f"{name}_{text}")
    yield _group_name(f"state_{node.lifecycle}")
    if facts.get("vendor"):
        yield _group_name(f"vendor_{facts['vendor']}")
    for key, value in node.labels.items():
        if key.startswith(GROUP_LABEL) and value == "true":
            yield _group_name(key.removeprefix(GROUP_LABEL))


def _group_name(text: str) -> str:
    """Ansible wants groups to be identifiers; other characters become `_`."""
    name = re.sub(r"\W", "_", text)
    return name if not name[:1].isdigit() else f"_{name}"
