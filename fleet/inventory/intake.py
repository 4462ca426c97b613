"""Files of nodes -> entries: our YAML (and JSON), CSV, and Ansible inventories. Nothing is guessed: see `FORMATS`."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import yaml

from fleet.core.errors import BadInput
from fleet.inventory import ansible
from fleet.inventory.record import Entry, known_field, unknown_field
from fleet.inventory.yamltree import Tree, compose

FORMATS = ("yaml", "csv", "ansible-ini", "ansible-yaml", "ansible-json")
MAX_BYTES = 64 * 1024 * 1024


def read(data: bytes, path: str, form: str | None = None) -> list[Entry]:
    """What a file says of each node. `path` is for messages and, without `form`, its ending tells the form.

    Raises BadInput naming file, line and field.
    """
    text = _decoded(data, path)
    form = form or recognise(text, path)
    if form == "csv":
        return _csv(text, path)
    if form == "ansible-ini":
        return ansible.read_ini(text, path)
    tree = compose(text, path)
    if form == "ansible-yaml":
        return ansible.read_yaml(tree, path)
    if form == "ansible-json":
        return ansible.read_json(tree, path)
    return _yaml(tree, path)


def recognise(text: str, path: str) -> str:
    """The form of a file, by its ending, else by its first line. Raises BadInput when it cannot be told."""
    ending = PurePath(path).suffix.lower()
    if ending in (".csv", ".tsv"):
        return "csv"
    if ending in (".ini", ".cfg"):
        return "ansible-ini"
    lines = [line.strip() for line in text.splitlines()]
    first = next((line for line in lines if line and not line.startswith(("#", ";"))), "")
    if ending in (".yaml", ".yml", ".json") or re.match(r"---|- |\{|\[\s*\{|[A-Za-z_]+:(\s|$)", first):
        tree = compose(text, path)
        keys = tree.keys() if tree.is_mapping else []
        if "_meta" in keys:
            return "ansible-json"
        if tree.is_mapping and not {"nodes", "kind", "apiVersion"} & set(keys) and keys:
            return "ansible-yaml"
        return "yaml"
    columns = re.split(r"[,;\t]", first)
    if len(columns) > 1 and any(known_field(column.strip('"')) for column in columns):
        return "csv"
    if re.match(r"\[[\w.:-]+\]$|[\w.\[\]:-]+(\s+\w+=.*)?$", first):
        return "ansible-ini"
    raise BadInput("the form of this file cannot be told", where=path, hint=f"--format {'|'.join(FORMATS)}")


def _decoded(data: bytes, path: str) -> str:
    if len(data) > MAX_BYTES:
        raise BadInput(f"the file is larger than {MAX_BYTES >> 20} MiB", where=path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadInput(
            "the file is not UTF-8 text", where=f"{path}:{line}", cause=str(error.reason), hint="save it as UTF-8"
        ) from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise BadInput("the file holds a zero byte: it is binary, or was only half written", where=f"{path}:{line}")
    if not text.strip():
        raise BadInput("the file is empty", where=path, slug="empty-file")
    return text


def _yaml(tree: Tree, path: str) -> list[Entry]:
    """`[{name: …}, …]`, or that list under `nodes:` (`kind: NodeList`)."""
    listing = tree
    if tree.is_mapping:
        found = dict(tree.items())
        for key in found:
            if key not in ("apiVersion", "kind", "nodes"):
                raise BadInput(
                    f"top-level key {key!r} is not known", where=f"{path}:{found[key].key_line}",
                    hint="there can be apiVersion, kind and nodes", slug="unknown-field",
                )  # fmt: skip
        kind = found["kind"].value() if "kind" in found else "NodeList"
        if kind != "NodeList":
            raise BadInput(f"field 'kind' is {kind!r}, not 'NodeList'", where=f"{path}:{found['kind'].line}")
        if "nodes" not in found:
            raise BadInput("field 'nodes' is missing", where=f"{path}:{tree.line}")
        listing = found["nodes"]
    if not listing.is_sequence:
        raise BadInput("a list of nodes is expected", where=f"{path}:{listing.line}", hint="- name: gpu001")
    entries: list[Entry] = []
    for item in listing.children():
        if not item.is_mapping:
            raise BadInput("a node is a mapping of fields", where=f"{path}:{item.line}", hint="- name: gpu001")
        values: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, child in item.items():
            name = known_field(key)
            if name is None:
                raise unknown_field(key, path, child.key_line)
            if name in values:
                raise BadInput(f"field {name!r} is given twice", where=f"{path}:{child.key_line}")
            values[name], lines[name] = child.value(), child.line
        entries.append(Entry(item.line, values, lines))
    return entries


def _csv(text: str, path: str) -> list[Entry]:
    first = text.lstrip().splitlines()[0]
    delimiter = next((sign for sign in ",\t;" if sign in first), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    entries: list[Entry] = []
    line = 0
    try:
        for row in reader:
            line, start = reader.line_num, line + 1
            if not any(cell.strip() for cell in row):
                continue
            if not header:
                header = _columns(row, path, start)
                continue
            if len(row) != len(header):
                raise BadInput(
                    f"the row has {len(row)} fields, the header has {len(header)}"
                    + (f": {header[len(row)]!r} is missing" if len(row) < len(header) else ""),
                    where=f"{path}:{start}",
                    hint="is the file only half written?" if len(row) < len(header) else "quote fields with a comma",
                    slug="half-written",
                )
            entries.append(Entry(start, _csv_values(dict(zip(header, row, strict=True)), path, start)))
    except csv.Error as error:
        raise BadInput(
            f"the file is no whole CSV: {error}",
            where=f"{path}:{line + 1}",
            hint="is a quote not closed, or the file only half written?",
            slug="half-written",
        ) from None
    return entries


def _columns(row: Sequence[str], path: str, line: int) -> list[str]:
    out: list[str] = []
    for cell in row:
        text = cell.strip()
        label = re.fullmatch(r"labels?[.:](.+)", text)
        name = (
            f"label:{label[1]}"
            if label
            else text
            if text in ("hold_who", "hold_why", "hold_until")
            else known_field(text)
        )
        if name is None or name == "hold":
            raise unknown_field(text, path, line, "column")
        if name in out:
            raise BadInput(f"column {text!r} is given twice", where=f"{path}:{line}")
        out.append(name)
    if "name" not in out:
        raise BadInput("column 'name' is missing", where=f"{path}:{line}", hint="the first line names the columns")
    return out


def _csv_values(row: Mapping[str, str], path: str, line: int) -> dict[str, Any]:
    """An empty cell is a field not given."""
    values: dict[str, Any] = {}
    labels: dict[str, str] = {}
    hold: dict[str, str] = {}
    for name, cell in row.items():
        if not cell.strip():
            continue
        if name == "labels":
            for pair in filter(None, (part.strip() for part in cell.split(";"))):
                key, equals, value = pair.partition("=")
                if not equals:
                    raise BadInput(
                        f"field 'labels': {pair!r} is not KEY=VALUE", where=f"{path}:{line}", slug="bad-field"
                    )
                labels[key.strip()] = value.strip()
        elif name.startswith("label:"):
            labels[name.removeprefix("label:")] = cell.strip()
        elif name.startswith("hold_"):
            hold[name.removeprefix("hold_")] = cell
        else:
            values[name] = cell.strip()
    if labels:
        values["labels"] = labels
    if hold:
        values["hold"] = hold
    return values


def write_csv(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Nodes (see `record.plain`) as CSV that `read` gives back; labels are `key=value;key=value` in one column."""
    columns = ("name", "address", "port", "user", "bmc", "arch", "site", "rack", "leaf", "nvlink_domain", "superpod",
               "lifecycle", "labels", "hold_who", "hold_why", "hold_until")  # fmt: skip
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for node in nodes:
        hold = {f"hold_{key}": value for key, value in node.get("hold", {}).items()}
        labels = ";".join(f"{key}={value}" for key, value in node.get("labels", {}).items())
        row = {**node, **hold, "labels": labels}
        writer.writerow([row.get(column, "") for column in columns])
    return out.getvalue()


def write_yaml(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Nodes (see `record.plain`) as YAML that `read` gives back."""
    document = {"apiVersion": "fleet/v1", "kind": "NodeList", "nodes": [dict(node) for node in nodes]}
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True)
