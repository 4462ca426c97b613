"""What `fleet matrix check` found, as JUnit, SARIF 2.1.0 and annotations of GitHub Actions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.etree import ElementTree as Xml

from fleet import __version__

if TYPE_CHECKING:
    from compat_matrix import Problem

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def junit(problems: Sequence[Problem], bad: Sequence[Problem]) -> str:
    """One test case for each problem, one that passed when there is none. `bad` are those that count as errors."""
    suite = Xml.Element(
        "testsuite", name="fleet matrix check", tests=str(max(1, len(problems))), failures=str(len(bad))
    )
    if not problems:
        Xml.SubElement(suite, "testcase", classname="matrix", name="tables")
    for problem in problems:
        case = Xml.SubElement(suite, "testcase", classname=problem.path, name=f"{problem.slug} line {problem.line}")
        if problem in bad:
            failure = Xml.SubElement(case, "failure", message=_printable(problem.text), type=problem.slug)
            failure.text = _printable(str(problem))
        else:
            Xml.SubElement(case, "system-out").text = _printable(str(problem))
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(suite, encoding="unicode")


def _printable(text: str) -> str:
    """Without the control characters that XML cannot hold."""
    return "".join(c if c.isprintable() or c in "\t\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def sarif(problems: Sequence[Problem], bad: Sequence[Problem], base: Path) -> str:
    """A SARIF 2.1.0 log with one run; paths below `base` (the working folder) are relative to it.

    Fingerprints hold over moved lines: they are of path, slug and text, and of the place among equal ones.
    """
    slugs = sorted({p.slug for p in problems})
    results: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    for problem in problems:
        mark = hashlib.sha256("\0".join((problem.path, problem.slug, problem.text)).encode()).hexdigest()[:32]
        seen[mark] = seen.get(mark, 0) + 1
        place = {
            "artifactLocation": {"uri": address(problem.path, base)},
            "region": {"startLine": max(1, problem.line)},
        }
        results.append(
            {
                "ruleId": problem.slug,
                "ruleIndex": slugs.index(problem.slug),
                "level": "error" if problem in bad else "warning",
                "message": {"text": problem.text},
                "locations": [{"physicalLocation": place}],
                "partialFingerprints": {"fleetMatrix/v1": f"{mark}:{seen[mark]}"},
            }
        )
    rules = [{"id": slug, "shortDescription": {"text": slug.replace("-", " ")}} for slug in slugs]
    driver = {"name": "fleet matrix check", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)


def address(path: str, base: Path) -> str:
    """A path as a URI reference: relative below `base`, else `file://`."""
    found = Path(path)
    if found.is_absolute():
        if not found.is_relative_to(base):
            return "file://" + quote(found.as_posix())
        found = found.relative_to(base)
    return quote(found.as_posix())


def github(problems: Sequence[Problem], bad: Sequence[Problem], base: Path) -> str:
    """Workflow commands, one a line: GitHub shows them at the line of the file."""
    lines = []
    for problem in problems:
        found = Path(problem.path)
        shown = found.relative_to(base) if found.is_absolute() and found.is_relative_to(base) else found
        kind = "error" if problem in bad else "warning"
        head = f"file={_property(shown.as_posix())},line={max(1, problem.line)},title={_property(problem.slug)}"
        lines.append(f"::{kind} {head}::{_data(problem.text)}")
    return "\n".join(lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
