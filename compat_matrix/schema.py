"""The form of a table: which rows and fields there are, and every way in which they can be wrong.

`read_file` checks one file by itself, `resolve` what needs its neighbours (schemes, models, sources). Both report all
problems, never only the first. A row comes out as plain JSON values for the cache; `row.py` makes objects of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias, get_args

from compat_matrix.document import Node, Problem, near
from compat_matrix.row import CHANNELS, RELATIONS
from fleet.core import model as core
from fleet.core.errors import BadInput
from fleet.core.version import SCHEMES, Range

Raw: TypeAlias = dict[str, Any]
Kind: TypeAlias = Callable[["Reader", Node, str], Any]

SECTIONS = ("models", "components", "order", "releases", "rules", "records", "notes", "systems")
BASE_SCHEMES = {"os": "generic", "kernel": "kernel", "gcc": "dotted"}  # facts of every vendor
FACTS = ("model", "architecture", "tag", "arch", "os", "kernel", "count", "flags")
ARCHES = ("x86_64", "aarch64")
_DATE = re.compile(r"\d{4}(-\d{2}(-\d{2})?)?")


class Reader:
    """Collects the problems of one file while its fields are read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.problems: list[Problem] = []

    def wrong(self, node: Node | int, text: str, slug: str) -> None:
        line = node if isinstance(node, int) else node.line
        self.problems.append(Problem(self.path, line, text, slug))


def _text(r: Reader, n: Node, name: str) -> str:
    if not isinstance(n.value, str) or n.is_null or not n.value.strip():
        r.wrong(n, f"{name} must be text", "bad-field")
        return ""
    return " ".join(n.value.split())


def _version(r: Reader, n: Node, name: str) -> str:
    text = _text(r, n, name)
    if text and not n.quoted:
        r.wrong(n, f"{name} {text} must be in quotes: an unquoted version may be read as a number", "unquoted-version")
    return text


def _range(r: Reader, n: Node, name: str) -> str:
    text = _version(r, n, name)
    if text:
        try:
            Range.parse(text)
        except BadInput as error:
            r.wrong(n, f"{name}: {error.what}", error.slug)
            return "*"
    return text or "*"


def _list(each: Kind, bare: bool = True) -> Kind:
    def read(r: Reader, n: Node, name: str) -> list[Any]:
        if isinstance(n.value, list):
            return [each(r, item, name) for item in n.value]
        if bare and isinstance(n.value, str):
            return [each(r, n, name)]
        r.wrong(n, f"{name} must be a list", "bad-field")
        return []

    return read


def _one_of(*words: str) -> Kind:
    def read(r: Reader, n: Node, name: str) -> str:
        text = _text(r, n, name)
        if text and text not in words:
            r.wrong(n, f"{name} {text!r} is not one of {', '.join(words)}{near(text, words)}", "bad-word")
        return text if text in words else words[0]

    return read


def _bool(r: Reader, n: Node, name: str) -> bool:
    if n.value not in ("true", "false"):
        r.wrong(n, f"{name} must be true or false", "bad-field")
    return n.value == "true"


def _date(r: Reader, n: Node, name: str) -> str:
    text = _text(r, n, name)
    if text and not _DATE.fullmatch(text):
        r.wrong(n, f"{name} {text!r} is no date like 2026-08-03 or 2026-08", "bad-date")
    return text


def _map(each: Kind, keys: Callable[[str], str | None] | None = None, what: str = "key") -> Kind:
    def read(r: Reader, n: Node, name: str) -> Raw:
        if not isinstance(n.value, dict):
            r.wrong(n, f"{name} must be a mapping", "bad-field")
            return {}
        out: Raw = {}
        for key, node in n.value.items():
            known = keys(key) if keys else key
            if known is None:
                r.wrong(
                    n.key_lines.get(key, node.line),
                    f"{name}: {what} {key!r} is not known{near(key, core.COMPONENTS)}",
                    "unknown-component",
                )
            else:
                out[known] = each(r, node, f"{name}.{key}")
        return out

    return read


def _component(r: Reader, n: Node, name: str) -> str:
    text = _text(r, n, name)
    known = core.component(text)
    if text and known is None:
        r.wrong(n, f"{name} {text!r} is not a component{near(text, core.COMPONENTS)}", "unknown-component")
    return known or ""


def os_condition(text: str) -> tuple[str, str]:
    """`ubuntu 22.04` -> (id, range); a bare id = every version. Raises BadInput."""
    name, _, rest = text.strip().partition(" ")
    Range.parse(rest.strip() or "*")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]*", name):
        raise BadInput(f"os {text!r} is not `id range`", slug="bad-os")
    return name.lower(), rest.strip() or "*"


def _os(r: Reader, n: Node, name: str) -> list[list[str]]:
    out: list[list[str]] = []
    for text in _list(_text)(r, n, name):
        try:
            out.append(list(os_condition(text)))
        except BadInput as error:
            r.wrong(n, f"{name}: {error.what}", error.slug)
    return out


def _scope(r: Reader, n: Node, name: str) -> Raw:
    """Facts by their names, every other key is a component with a range."""
    if not isinstance(n.value, dict):
        r.wrong(n, f"{name} must be a mapping", "bad-field")
        return {}
    out: Raw = {}
    components: Raw = {}
    for key, node in n.value.items():
        label = f"{name}.{key}"
        if key in ("model", "architecture", "tag"):
            out[key] = _list(_text)(r, node, label)
        elif key == "arch":
            out[key] = _list(_one_of(*ARCHES))(r, node, label)
        elif key == "os":
            out[key] = _os(r, node, label)
        elif key in ("kernel", "count"):
            out[key] = _ranges(r, node, label)
        elif key == "flags":
            out[key] = _map(_range)(r, node, label)
        elif core.component(key):
            components[str(core.component(key))] = _ranges(r, node, label)
        else:
            facts = ", ".join(FACTS)
            text = f"{label} is neither a fact ({facts}) nor a component{near(key, (*FACTS, *core.COMPONENTS))}"
            r.wrong(n.key_lines.get(key, node.line), text, "bad-key")
    if components:
        out["components"] = components
    return out


def _ranges(r: Reader, n: Node, name: str) -> str:
    """One range, or a list of them = any of these."""
    return " || ".join(_list(_range)(r, n, name)) or "*"


def _scopes(r: Reader, n: Node, name: str) -> list[Raw]:
    return [_scope(r, item, name) for item in n.value] if isinstance(n.value, list) else [_scope(r, n, name)]


def _source(r: Reader, n: Node, name: str) -> Raw:
    """An id of `sources:`, `{ref: id, section: …}`, or title, section, seen, url written out. Resolved later."""
    if isinstance(n.value, str):
        return {"ref": _text(r, n, name)}
    if not isinstance(n.value, dict):
        r.wrong(n, f"{name} must be the id of a source, or title, section, seen and url", "bad-field")
        return {}
    out: Raw = {}
    for key, node in n.value.items():
        if key not in ("ref", "title", "section", "url", "seen"):
            known = ("title", "section", "url", "seen", "ref")
            r.wrong(node, f"{name}.{key} is not known ({', '.join(known)}){near(key, known)}", "unknown-field")
        elif key == "seen":
            out[key] = _date(r, node, f"{name}.{key}")
        else:
            out[key] = _text(r, node, f"{name}.{key}")
            if key == "url" and not re.match(r"https?://\S+$", out[key]):
                r.wrong(node, f"{name}.url {out[key]!r} is no address", "bad-url")
    if "ref" not in out and "title" not in out:
        r.wrong(n, f"{name} has no title", "missing-source")
    return out


_SCHEME = _one_of(*SCHEMES)
_LEVEL = _one_of(*core.LEVELS)
_COMMON: dict[str, Kind] = {"source": _source, "level": _LEVEL, "because": _text, "seen": _date}
_PAIRS = _map(_ranges, core.component, "component")

# section -> field -> how it is read; a name in capitals is demanded.
FIELDS: dict[str, dict[str, Kind]] = {
    "models": {
        "MODEL": _text, "ARCHITECTURE": _text, "pci": _list(_text), "aliases": _list(_text), "tags": _list(_text),
        "flags_from_count": _map(_text),
    },
    "components": {
        "COMPONENT": _component, "SCHEME": _SCHEME, "choose": _one_of("always", "keep"), "when": _scopes,
        "ACTIVATION": _one_of(*get_args(core.Activation)), "releases_of": _component, "removable": _bool,
        "alone": _bool, "prefer": _list(_version),
    },
    "order": {"CASE": _one_of("first_install", "upgrade"), "SEQUENCE": _list(_component), "when": _scope},
    "releases": {
        "COMPONENT": _component, "VERSION": _version, "CHANNEL": _one_of(*CHANNELS), "released": _date, "eol": _date,
        "when": _scope, "artifacts": _list(_text),
    },
    "rules": {
        "RELATION": _one_of(*RELATIONS), "id": _text, "when": _scope, "needs": _scope, "pairs": _PAIRS, "table": _text,
        "components": _list(_component), "component": _component, "from": _ranges, "to": _ranges,
        "verdict": _one_of("supported", "via", "forbidden"), "via": _ranges, "flag": _text,
    },
    "records": {
        "STACK": _map(_version, core.component, "component"), "when": _scope, "RESULT": _one_of("pass", "fail"),
        "evidence": _list(_text),
    },
    "notes": {
        "TOPIC": _text, "component": _component, "when": _scope, "pci": _list(_text), "facts": _map(_text),
    },
    "systems": {
        "ID": _text, "VERSION": _range, "name": _text, "aliases": _list(_text), "kernel_tags": _list(_text),
        "facts": _map(_text),
    },
}  # fmt: skip

# relation -> what it must have; the rest of the rule fields must not be there.
_RELATION_FIELDS: dict[str, tuple[str, ...]] = {
    "requires": ("needs",), "forbids": ("when",), "equals": ("components",), "pairs": ("table", "pairs"),
    "prefers": ("needs",), "transition": ("component", "verdict"), "unit": ("components", "flag"),
}  # fmt: skip
_OPTIONAL = {"transition": ("from", "to", "via"), "forbids": ()}


def read_file(root: Node | None, path: str, vendor: str) -> tuple[dict[str, list[Raw]], dict[str, Raw], Reader]:
    """(section -> raw rows, source id -> source, the problems) of one file. Rows carry `at` and `vendor`."""
    r = Reader(path)
    rows: dict[str, list[Raw]] = {}
    sources: dict[str, Raw] = {}
    if root is None:
        return rows, sources, r
    if not isinstance(root.value, dict):
        r.wrong(root, "a table is a mapping of sections: " + ", ".join(SECTIONS), "bad-file")
        return rows, sources, r
    for section, node in root.value.items():
        line = root.key_lines.get(section, node.line)
        if section == "vendor":
            continue
        if section == "sources":
            for name, source in node.value.items() if isinstance(node.value, dict) else ():
                sources[name] = {**_source(r, source, f"sources.{name}"), "at": f"{path}:{source.line}"}
        elif section == "strip":
            rows["strip"] = [{"words": _list(_text)(r, node, "strip"), "vendor": vendor, "at": f"{path}:{line}"}]
        elif section not in FIELDS:
            text = f"section {section!r} is not known ({', '.join(SECTIONS)}){near(section, (*SECTIONS, 'sources'))}"
            r.wrong(line, text, "unknown-section")
        elif not isinstance(node.value, list):
            r.wrong(line, f"section {section!r} must be a list of rows", "bad-file")
        else:
            rows[section] = [row for item in node.value if (row := _row(r, item, section, vendor)) is not None]
    return rows, sources, r


def _row(r: Reader, node: Node, section: str, vendor: str) -> Raw | None:
    if not isinstance(node.value, dict):
        r.wrong(node, f"a row of {section} must be a mapping", "bad-row")
        return None
    before = len(r.problems)
    fields = FIELDS[section]
    kinds = {**_COMMON, **{name.lower(): kind for name, kind in fields.items()}}
    out: Raw = {"vendor": vendor, "at": f"{r.path}:{node.line}"}
    for name, value in node.value.items():
        if name not in kinds:
            text = f"field {name!r} is not known in {section}{near(name, kinds)}"
            r.wrong(node.key_lines.get(name, value.line), text, "unknown-field")
        else:
            out[name] = kinds[name](r, value, name)
    for name in [name.lower() for name in fields if name.isupper()] + ["source"]:
        if name not in out:
            r.wrong(node, f"the row has no {name}", "missing-source" if name == "source" else "missing-field")
    if "level" not in out:
        r.wrong(node, "the row has no level of evidence", "missing-field")
    if section == "notes" and "because" not in out:
        r.wrong(node, "the note has no `because`: its sentence", "missing-because")
    if section == "rules" and "relation" in out:
        _rule(r, node, out)
    return out if len(r.problems) == before else None


def _rule(r: Reader, node: Node, out: Raw) -> None:
    relation = out["relation"]
    wanted = _RELATION_FIELDS[relation]
    for name in wanted:
        if not out.get(name):
            r.wrong(node, f"a rule that {relation} has no {name}", "missing-field")
    allowed = {*wanted, *_OPTIONAL.get(relation, ()), "when", "id", "relation", "vendor", "at", *_COMMON}
    for name in out:
        if name not in allowed:
            r.wrong(node, f"a rule that {relation} has no use for {name}", "unknown-field")
    if "because" not in out:
        r.wrong(node, "the rule has no `because`: the sentence that explains it", "missing-because")
    if relation == "transition" and out.get("verdict") == "via" and "via" not in out:
        r.wrong(node, "a transition by way of a version must say `via`", "missing-field")
    if relation == "equals" and len(set(out.get("components", ()))) < 2:
        r.wrong(node, "equality needs two components", "bad-field")
