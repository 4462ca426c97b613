"""What a request says of a node class, in the words of the tables: model, architecture, system, flags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from compat_matrix.row import Model, Scope, System
from compat_matrix.table import Matrix
from fleet.core.errors import BadInput
from fleet.core.model import Request
from fleet.core.version import Range, kernel_tag, valid


@dataclass(frozen=True)
class NodeClass:
    """The facts of one class of nodes. An empty text is not known."""

    vendor: str
    model: str
    architecture: str
    tags: frozenset[str]
    count: int
    arch: str
    os_id: str
    os_version: str
    kernel: str
    flags: Mapping[str, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()  # flags that follow from model and count, because the probe said nothing of them

    @property
    def system(self) -> str:
        return f"{self.os_id} {self.os_version}".strip() or "an unknown system"


def os_version(text: str) -> str:
    """VERSION_ID and what people write for it in one form: `V10` -> 10, `22.03-LTS-SP3` -> 22.03.sp3."""
    lower = text.strip().lower()
    head = re.match(r"v?(\d+(?:\.\d+)*)", lower)
    if not head:
        return lower
    pack = re.search(r"sp\s*-?(\d+)", lower)
    return head.group(1) + (f".sp{pack.group(1)}" if pack else "")


def node_class(matrix: Matrix, request: Request) -> NodeClass | None:
    """The class of the request; None when the model is in no row."""
    model = matrix.find(request.vendor, request.model)
    if model is None:
        return None
    os_id, version = _system(matrix, request)
    flags = {name: _flag(value) for name, value in request.flags.items()}
    assumed = []
    for name, floor in model.flags_from_count.items():
        if name not in flags and request.count >= floor:
            flags[name] = "true"
            assumed.append(name)
    return NodeClass(
        request.vendor, model.name, model.architecture, frozenset(model.tags), request.count, request.os.arch.lower(),
        os_id, version, request.os.kernel.strip(), flags, tuple(assumed),
    )  # fmt: skip


def _flag(value: object) -> str:
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value).strip()


def _system(matrix: Matrix, request: Request) -> tuple[str, str]:
    """(canonical id, version), refined by the kernel's tag where VERSION_ID leaves the service pack out."""
    os_id, version = request.os.id.strip().lower(), os_version(request.os.version)
    rows = [row for row in matrix.systems if os_id == row.id or os_id in row.aliases]
    if rows:
        os_id = rows[0].id
        short = version  # a point release (22.04.4) of a system whose VERSION_ID is shorter
        while short and not any(_in(Range.parse(row.version), short) for row in rows):
            short = short.rpartition(".")[0]
        version = short or version
    kernel = request.os.kernel.strip()
    if kernel and "sp" not in version:
        for row in rows:
            if "*" not in row.version and row.version.startswith(f"{version}.sp") and _tagged(row, kernel):
                return os_id, row.version
    return os_id, version


def _tagged(row: System, kernel: str) -> bool:
    for tag in row.kernel_tags:
        if tag.endswith("*"):
            if valid(kernel, "kernel") and Range.parse(tag).contains(kernel, "kernel"):
                return True
        elif kernel_tag(kernel) == tag:
            return True
    return False


def known_system(matrix: Matrix, facts: NodeClass) -> System | None:
    """The row of the node's operating system; the one that fits most closely."""
    found = [r for r in matrix.systems if r.id == facts.os_id and _in(Range.parse(r.version), facts.os_version)]
    return max(found, key=lambda row: ("*" not in row.version, len(row.version)), default=None)


def _in(wanted: Range, version: str, scheme: str = "generic") -> bool:
    try:
        return wanted.contains(version, scheme)
    except BadInput:
        return False


def holds(scope: Scope, facts: NodeClass, *, lenient: bool = False) -> bool:
    """Whether the facts are in the scope; its components are not looked at.

    `lenient`: a kernel or arch that is not known counts as fitting (pairs tables: the answer tells that it was not
    checked). A flag that is not known never fits.
    """
    if scope.model and facts.model not in scope.model:
        return False
    if scope.architecture and facts.architecture not in scope.architecture:
        return False
    if scope.tag and not facts.tags & set(scope.tag):
        return False
    if scope.arch and facts.arch not in scope.arch and not (lenient and not facts.arch):
        return False
    if scope.os and not any(facts.os_id == name and _in(wanted, facts.os_version) for name, wanted in scope.os):
        return False
    if scope.kernel is not None:
        if not facts.kernel:
            if not lenient:
                return False
        elif not _in(scope.kernel, facts.kernel, "kernel"):
            return False
    if scope.count is not None and not _in(scope.count, str(facts.count)):
        return False
    return all(name in facts.flags and _in(wanted, facts.flags[name]) for name, wanted in scope.flags.items())


def model_of(matrix: Matrix, facts: NodeClass) -> Model:
    """The row of the model of this class."""
    found = matrix.find(facts.vendor, facts.model)
    assert found is not None
    return found
