"""Expectations as folders: `<name>/request.yaml` with `<name>/expect.yaml`, for tests and for `fleet matrix check`.

kind: Solution                        # or Conflict
stack: {driver: "580.*"}              # component: range that the answer must be in
absent: [fabricmanager]               # components that must not be in the stack
level: vendor                         # the weakest evidence it rests on
stages: 1                             # length of the road
order: [firmware, driver]             # in which these components change, over all stages
reboot: [reboot]                      # the activation of each stage
back: true                            # whether there is a way back
reasons: {driver: ["words"]}          # text that some reason of the component contains
causes: ["words"]                     # text that some cause of a Conflict contains
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from compat_matrix.document import Problem, read
from compat_matrix.request import parse_request
from compat_matrix.solve import solve
from compat_matrix.table import Matrix
from fleet.core.errors import FleetError
from fleet.core.model import Conflict, Request, Solution
from fleet.core.version import Range

KEYS = ("kind", "stack", "absent", "level", "stages", "order", "reboot", "back", "reasons", "causes", "note")


def cases(folder: Path) -> list[Path]:
    """Every case below a folder."""
    return sorted(p.parent for p in folder.rglob("request.yaml"))


def requests_of(folders: Iterable[str]) -> dict[str, Request]:
    """name of a case -> its request; those that cannot be read are left out (`run_case` tells them)."""
    out: dict[str, Request] = {}
    for folder in folders:
        for case in cases(Path(folder)):
            file = case / "request.yaml"
            try:
                out[case.relative_to(folder).as_posix()] = parse_request(file.read_text(encoding="utf-8"), str(file))
            except (OSError, UnicodeDecodeError, FleetError):
                continue
    return out


def run_case(matrix: Matrix, case: Path) -> list[Problem]:
    """What differs from the expectation; [] when nothing does."""
    file = case / "expect.yaml"
    shown = str(file)
    if not file.is_file():
        return [Problem(shown, 1, "the case has no expect.yaml", "expectation")]
    root, problems = read(file.read_text(), shown)
    if root is None or not isinstance(root.value, dict):
        return problems or [Problem(shown, 1, "the expectation is no mapping", "expectation")]
    out = [
        Problem(shown, root.key_lines[key], f"key {key!r} is not known ({', '.join(KEYS)})", "expectation")
        for key in root.value
        if key not in KEYS
    ]
    try:
        answer = solve(matrix, parse_request((case / "request.yaml").read_text(), str(case / "request.yaml")))
    except FleetError as error:
        return [*out, Problem(error.where or shown, 1, error.what, "expectation")]
    wanted = root.plain()
    for key, text in _differences(matrix, answer, wanted):
        out.append(Problem(shown, root.key_lines.get(key, root.line), text, "expectation"))
    return out


def _differences(matrix: Matrix, answer: Solution | Conflict, wanted: dict[str, Any]) -> Iterator[tuple[str, str]]:
    kind = type(answer).__name__
    if kind != wanted.get("kind", "Solution"):
        if isinstance(answer, Solution):
            found = ", ".join(f"{c} {v}" for c, v in answer.stack.items())
        else:
            found = "; ".join(reason.text for reason in answer.causes)
        yield "kind", f"the answer is a {kind}: {found}"
        return
    if isinstance(answer, Conflict):
        text = " | ".join(reason.text for reason in answer.causes)
        for words in wanted.get("causes", ()):
            if words.lower() not in text.lower():
                yield "causes", f"no cause says {words!r}; they say: {text}"
        return
    yield from _stack(matrix, answer, wanted)
    changes = [change.component for stage in answer.road for change in stage.changes]
    if "stages" in wanted and int(wanted["stages"]) != len(answer.road):
        yield "stages", f"the road has {len(answer.road)} stages, not {wanted['stages']}"
    if "reboot" in wanted and list(wanted["reboot"]) != [stage.reboot for stage in answer.road]:
        yield "reboot", f"the stages end with {[stage.reboot for stage in answer.road]}"
    order = list(wanted.get("order", ()))
    if order and [c for c in changes if c in order] != order:
        yield "order", f"the components change in the order {changes}"
    if "back" in wanted and (wanted["back"] == "true") != (answer.back is not None):
        yield "back", "there is a way back" if answer.back is not None else "there is no way back"
    for component, sentences in wanted.get("reasons", {}).items():
        text = " | ".join(reason.text for reason in answer.reasons.get(component, ()))
        for words in sentences:
            if words.lower() not in text.lower():
                yield "reasons", f"no reason of {component} says {words!r}; they say: {text}"


def _stack(matrix: Matrix, answer: Solution, wanted: dict[str, Any]) -> Iterator[tuple[str, str]]:
    schemes = {c: row.scheme for tables in matrix.tables.values() for c, row in tables.components.items()}
    for component, text in wanted.get("stack", {}).items():
        version = answer.stack.get(component)
        if version is None:
            yield "stack", f"{component} is not in the stack"
        elif not Range.parse(text).contains(version, _scheme(schemes, component, version)):
            yield "stack", f"{component} is {version}, not {text}"
    for component in wanted.get("absent", ()):
        if component in answer.stack:
            yield "absent", f"{component} is in the stack: {answer.stack[component]}"
    if "level" in wanted and wanted["level"] != answer.level:
        yield "level", f"the level is {answer.level}"


def _scheme(schemes: dict[str, str], component: str, version: str) -> str:
    from fleet.core.version import valid

    scheme = schemes.get(component, "generic")
    return scheme if valid(version, scheme) else "generic"
