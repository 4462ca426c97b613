"""What a wish means: bare beginnings of versions, and wishes for facts that the solver does not exchange."""

from __future__ import annotations

import re
from collections.abc import Iterator

from compat_matrix.facts import NodeClass
from compat_matrix.problem import Group, request_source
from compat_matrix.table import VendorTables
from fleet.core.errors import BadInput
from fleet.core.model import Reason, Request
from fleet.core.version import Range, valid


def completed(tables: VendorTables, component: str, wish: str) -> str:
    """A wish as it is meant: a bare beginning (`580`, `12.8`) that is no release itself means all that begin so."""
    row = tables.components.get(component)
    if row is None or not re.fullmatch(r"\d+(\.\d+)*", wish):
        return wish
    exact, longer = Range.parse(f"=={wish}"), Range.parse(f"{wish}.*")
    versions = [r.version for r in tables.releases.get(row.releases_of or component, ())]
    if any(exact.contains(v, row.scheme) for v in versions):
        return wish
    return str(longer) if any(longer.contains(v, row.scheme) for v in versions) else wish


def wished_kernel(request: Request) -> str:
    """The kernel that is wished by exactly one name; "" when the wish is no name or is met already."""
    wanted = request.wish.get("kernel", "")
    if not wanted:
        return ""
    parsed = Range.parse(wanted)
    names = parsed.versions()
    exact = len(names) == 1 and len(parsed.alternatives) == 1 and valid(names[0], "kernel")
    return names[0] if exact and names[0] != request.os.kernel else ""


def fact_wishes(request: Request, facts: NodeClass) -> Iterator[Group]:
    """A wish for os, kernel or gcc is held against the fact: the solver does not exchange them."""
    have = {"os": f"{facts.os_version}", "kernel": facts.kernel, "gcc": request.current.get("gcc", "")}
    for name, value in have.items():
        wanted = request.wish.get(name)
        if wanted is None or (name == "kernel" and wished_kernel(request)):
            continue
        try:
            met = bool(value) and Range.parse(wanted).contains(value, {"kernel": "kernel"}.get(name, "generic"))
        except BadInput:
            met = False
        if not met:
            reasons = (
                Reason(f"you wish {name} {wanted}", request_source(f"wish.{name}")),
                Reason(f"{name} is {value or 'not known'}, and is a fact of the node", request_source("os")),
            )
            yield Group(f"wish:{name}", "hardware", (), (), reasons, True)
