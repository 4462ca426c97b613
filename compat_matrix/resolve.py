"""What a row can only be held against with its neighbours: schemes, models, systems and sources of the whole vendor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from compat_matrix.document import Problem, near
from compat_matrix.schema import BASE_SCHEMES, SECTIONS, Raw
from fleet.core.errors import BadInput
from fleet.core.version import SCHEMES, Range, valid


def resolve(
    vendor: str, rows: Mapping[str, list[Raw]], sources: Mapping[int, Mapping[str, Raw]], os_rows: Iterable[Raw]
) -> list[Problem]:
    """What needs the whole vendor: fills the sources in (in place), holds versions against schemes, looks names up.

    `sources` are those of each root; a row's own root is asked first, then those before it.
    """
    problems: list[Problem] = []

    def wrong(raw: Raw, text: str, slug: str) -> None:
        path, _, line = raw["at"].rpartition(":")
        problems.append(Problem(path, int(line), text, slug))

    ranks = {0, *sources, *(raw.get("root", 0) for section in SECTIONS for raw in rows.get(section, ()))}
    known: dict[int, dict[str, Raw]] = {
        rank: {name: raw for n in sorted(sources) if n <= rank for name, raw in sources[n].items()} for rank in ranks
    }
    for section in SECTIONS:
        for raw in rows.get(section, ()):
            _fill_source(raw, known[raw.pop("root", 0)], wrong)
    schemes = {**BASE_SCHEMES, **{c["component"]: c["scheme"] for c in rows.get("components", ())}}
    models = {m["model"] for m in rows.get("models", ())}
    architectures = {m["architecture"] for m in rows.get("models", ())}
    tags = {t for m in rows.get("models", ()) for t in m.get("tags", ())}
    systems = {name for s in os_rows for name in (s["id"], *s.get("aliases", ()))}

    def version(raw: Raw, component: str, text: str) -> None:
        if component not in schemes:
            wrong(raw, f"component {component} has no row in components of {vendor}", "no-component-row")
        elif not valid(text, schemes[component]):
            example = SCHEMES[schemes[component]].example
            wrong(
                raw,
                f"{component} {text!r} is not of the form {schemes[component]} (like {example!r})",
                "bad-version",
            )

    def range_(raw: Raw, component: str, text: str) -> None:
        if component not in schemes:
            wrong(raw, f"component {component} has no row in components of {vendor}", "no-component-row")
            return
        try:
            Range.parse(text).check(schemes[component])
        except BadInput as error:
            wrong(raw, f"{component}: {error.what}", error.slug)

    def scope(raw: Raw, part: Raw) -> None:
        for name, known, slug in (
            ("model", models, "unknown-model"),
            ("architecture", architectures, "unknown-architecture"),
            ("tag", tags, "unknown-tag"),
        ):
            for text in part.get(name, ()):
                if text not in known:
                    wrong(raw, f"{name} {text!r} is in no row of models{_near(text, known)}", slug)
        for name, _ in part.get("os", ()):
            if systems and name not in systems:
                wrong(raw, f"os {name!r} is in no row of the tables in os/{_near(name, systems)}", "unknown-os")
        for component, text in part.get("components", {}).items():
            range_(raw, component, text)
        if "kernel" in part:
            range_(raw, "kernel", part["kernel"])

    for section in SECTIONS:
        for raw in rows.get(section, ()):
            for part in raw["when"] if isinstance(raw.get("when"), list) else [raw.get("when", {})]:
                scope(raw, part)
    for raw in rows.get("releases", ()):
        version(raw, raw["component"], raw["version"])
    for raw in rows.get("records", ()):
        for component, text in raw["stack"].items():
            version(raw, component, text)
        if raw["level"] == "validated" and not raw.get("evidence"):
            wrong(raw, "a validated record names its evidence", "missing-evidence")
    for raw in rows.get("rules", ()):
        scope(raw, raw.get("needs", {}))
        for component, text in raw.get("pairs", {}).items():
            range_(raw, component, text)
        for component in (*raw.get("components", ()), *([raw["component"]] if raw.get("component") else ())):
            if component not in schemes:
                wrong(raw, f"component {component} has no row in components of {vendor}", "no-component-row")
        for name in ("from", "to", "via"):
            if name in raw:
                range_(raw, raw["component"], raw[name])
    for raw in rows.get("notes", ()):
        if raw.get("component") and raw["component"] not in schemes:
            wrong(raw, f"component {raw['component']} has no row in components of {vendor}", "no-component-row")
    for raw in (*rows.get("models", ()), *rows.get("notes", ())):
        for text in raw.get("pci", ()):
            if not re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{4}(/[0-9a-f]{4}:[0-9a-f]{4})?", text):
                wrong(raw, f"pci {text!r} is not like 10de:2330 or 10de:2330/10de:16c1, lower case", "bad-pci")
    for raw in rows.get("components", ()):
        for text in raw.get("prefer", ()):
            version(raw, raw["component"], text)
        if raw.get("releases_of") and raw["releases_of"] not in schemes:
            wrong(raw, f"releases_of names {raw['releases_of']!r}, which has no row", "no-component-row")
    for raw in rows.get("models", ()):
        for flag, text in raw.get("flags_from_count", {}).items():
            if not text.isdigit():
                wrong(raw, f"flags_from_count.{flag} must be a number of cards", "bad-field")
    return problems


def _near(word: str, known: Iterable[str]) -> str:
    """As `near`, for words whose case counts."""
    lower = {name.lower(): name for name in known}
    said = near(word, lower)
    return next((said.replace(repr(low), repr(name)) for low, name in lower.items() if repr(low) in said), said)


def _fill_source(raw: Raw, sources: Mapping[str, Raw], wrong: Callable[[Raw, str, str], None]) -> None:
    source = dict(raw.get("source", {}))
    ref = source.pop("ref", None)
    if ref is not None:
        if ref not in sources:
            wrong(raw, f"source {ref!r} is in no `sources:` of this vendor{_near(ref, sources)}", "unknown-source")
            ref = None
        else:
            source = {**{k: v for k, v in sources[ref].items() if k != "at"}, **source}
    seen = raw.pop("seen", None)
    if seen:
        source["seen"] = seen
    if not source.get("seen") and (ref or "title" in source):
        wrong(raw, "the source has no `seen`: the date on which it was read", "missing-seen")
    if not source.get("section") and (ref or "title" in source):
        wrong(raw, "the source has no `section`: where in the document", "missing-section")
    if not source.get("url") and raw.get("level") in ("vendor", "validated") and not raw.get("evidence"):
        wrong(raw, f"level {raw['level']} needs a source with an address; without one it is at most observed", "no-url")
    raw["source"] = {name: source.get(name, "") for name in ("title", "section", "seen", "url")}
