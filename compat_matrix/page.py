"""The tables as one static HTML file: no script, no address that is fetched, usable by keyboard alone.

Each cell is a `<details>`: Tab reaches it, Enter opens its rows with their sources. Rows link to the list of all rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from compat_matrix import grid
from compat_matrix.row import Row, Rule
from compat_matrix.table import Matrix, VendorTables

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --yes: #2e7d3233; --part: #b2770033; --no: #b71c1c33; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 100rem; padding: 0 1rem; }
nav a { margin-right: 1rem; } .scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; } caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { border: 1px solid var(--line); padding: .2rem .5rem; text-align: left; vertical-align: top; }
thead th { position: sticky; top: 0; background: Canvas; } td.yes { background: var(--yes); }
td.part { background: var(--part); } td.no { background: var(--no); } summary { cursor: pointer; white-space: nowrap; }
:focus-visible { outline: 3px solid Highlight; outline-offset: 2px; } details[open] { min-width: 22rem; }
.skip { position: absolute; left: -99rem; } .skip:focus { left: 1rem; } small { opacity: .8; }
:target { outline: 2px solid; }
"""
_WORDS = {"yes": "yes", "part": "some", "no": "no", "unknown": "?"}


def page(matrix: Matrix, vendors: Sequence[str]) -> str:
    """The whole file, for these vendors."""
    body = "\n".join(part for name in vendors for part in _vendor(matrix, matrix.tables[name]))
    links = "".join(f'<a href="#{_id(name)}">{escape(name)}</a>' for name in vendors)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Compatibility matrix: {escape(", ".join(vendors))}</title>
<style>{_STYLE}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the tables</a>
<header>
<h1>Compatibility matrix</h1>
<p>What the tables say of drivers, and where each statement comes from. Open a cell (Tab, then Enter) for its rows.
<b>yes</b>: allowed; <b>some</b>: some versions of the line; <b>no</b>: refused, or no row allows it; <b>?</b>: no row
speaks, and unknown is not a yes. <small>Tables {escape(matrix.digest)}</small></p>
<nav aria-label="Vendors">{links}</nav>
</header>
<main id="main">
{body}
</main>
</body>
</html>
"""


def _vendor(matrix: Matrix, tables: VendorTables) -> Iterator[str]:
    name = escape(tables.name)
    releases = sum(map(len, tables.releases.values()))
    yield f'<section id="{_id(tables.name)}" aria-label="{name}"><h2>{name}</h2>'
    counts = f"{len(tables.models)} models, {releases} releases, {len(tables.rules)} rules, {len(tables.notes)} notes"
    yield f"<p>{counts}.</p>"
    lines = list(grid.driver_lines(tables))
    yield from _grid(f"Models of {name} against drivers", "Model", lines, grid.models(tables))
    yield from _grid(f"Systems against drivers of {name}", "System", lines, grid.systems(matrix, tables))
    yield from _releases(tables)
    yield from _rules(tables)
    yield "</section>"


def _grid(caption: str, first: str, lines: Sequence[str], rows: Sequence[grid.Line]) -> Iterator[str]:
    if not rows:
        return
    yield f'<div class="scroll" role="region" aria-label="{caption}" tabindex="0"><table><caption>{caption}</caption>'
    heads = "".join(f'<th scope="col">{escape(line)}</th>' for line in lines)
    yield f'<thead><tr><th scope="col">{first}</th>{heads}</tr></thead><tbody>'
    for row in rows:
        cells = "".join(_cell(row.cells.get(line)) for line in lines)
        yield f'<tr><th scope="row">{escape(row.name)}<br><small>{escape(row.kind)}</small></th>{cells}</tr>'
    yield "</tbody></table></div>"


def _cell(cell: grid.Cell | None) -> str:
    if cell is None:
        return '<td class="unknown"><span aria-label="no release here">·</span></td>'
    word = _WORDS[cell.state]
    some = f" {len(cell.allowed)}/{len(cell.versions)}" if cell.state == "part" else ""
    allowed = f"<p>{escape(', '.join(cell.allowed))}</p>" if cell.state == "part" else ""
    return (
        f'<td class="{cell.state}"><details><summary>{word}{some}</summary>{allowed}{_list(cell.rows)}</details></td>'
    )


def _list(rows: Iterable[Row]) -> str:
    return "<ul>" + "".join(f"<li>{_sentence(row)}</li>" for row in rows) + "</ul>"


def _sentence(row: Row) -> str:
    version = getattr(row, "version", "")
    said = escape(row.because or (f"{getattr(row, 'component', '')} {version} is released." if version else ""))
    where = f'<a href="#{_id(row.at)}">{escape(row.at)}</a>' if isinstance(row, Rule) else escape(row.at)
    return f"{said} <small>[{escape(row.level)}] {_source(row)} {where}</small>"


def _source(row: Row) -> str:
    source = row.source
    title = escape(", ".join(filter(None, (source.title, source.section))))
    if re.match(r"https?://", source.url):
        title = f'<a href="{escape(source.url)}" rel="noreferrer">{title}</a>'
    return f"{title} (seen {escape(source.seen)})"


def _releases(tables: VendorTables) -> Iterator[str]:
    yield f"<details><summary>Releases of {escape(tables.name)}</summary>"
    for component, found in tables.releases.items():
        yield f'<div class="scroll"><table><caption>{escape(component)}</caption><thead><tr>'
        yield "".join(f'<th scope="col">{head}</th>' for head in ("Version", "Channel", "Released", "End", "Source"))
        yield "</tr></thead><tbody>"
        for r in found:
            cells = "".join(f"<td>{escape(text)}</td>" for text in (r.channel, r.released, r.eol))
            opened = f"<details><summary>source</summary>{_source(r)} <small>{escape(r.at)}</small></details>"
            yield f'<tr><th scope="row">{escape(r.version)}</th>{cells}<td>{opened}</td></tr>'
        yield "</tbody></table></div>"
    yield "</details>"


def _rules(tables: VendorTables) -> Iterator[str]:
    yield f'<h3 id="{_id(tables.name)}-rules">Rules of {escape(tables.name)}</h3><ol>'
    for rule in tables.rules:
        label = escape(" ".join(filter(None, (rule.relation, rule.table, rule.id))))
        yield f'<li id="{_id(rule.at)}"><b>{label}</b>: {escape(rule.because)} '
        yield f"<small>[{escape(rule.level)}] {_source(rule)} {escape(rule.at)}</small></li>"
    yield "</ol>"
    if tables.notes:
        yield f"<h3>Notes of {escape(tables.name)}</h3>{_list(tables.notes)}"


def _id(text: str) -> str:
    """A fragment name: letters, digits and dashes."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")
