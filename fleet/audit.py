"""The audit: nodes as the inventory knows them, against baselines. Reads only; changes nothing on any node."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from fleet.core import drift, errors
from fleet.core.model import Facts, Json, Node
from fleet.core.nodeset import fold
from fleet.inventory.selection import scheme

if TYPE_CHECKING:
    from fleet.inventory import Inventory
    from fleet.probe import Probed


@dataclass(frozen=True)
class AuditReport:
    """What an audit found: the baseline of each node, and every finding, the ok ones too."""

    at: str
    baselines: Mapping[str, str]  # node -> name of its baseline, "" = none is meant for it
    findings: tuple[drift.Finding, ...]

    @property
    def counts(self) -> dict[str, int]:
        """result -> how many findings, of all four."""
        seen = Counter(finding.result for finding in self.findings)
        return {result: seen[result] for result in drift.RESULTS}

    @property
    def nodes(self) -> dict[str, str]:
        """node -> its worst result, in the order drift, unknown, waived, ok. A node without findings is ok."""
        order = ("drift", "unknown", "waived", "ok")
        worst = dict.fromkeys(self.baselines, "ok")
        for finding in self.findings:
            worst[finding.node] = min(worst[finding.node], finding.result, key=order.index)
        return worst

    def exit_code(self, detailed: bool = False) -> int:
        """0 clean; 4 drift, with `detailed` 3; 6 where anything is unknown."""
        codes = {"drift": errors.DIFFERENCES if detailed else errors.CHECK_SAID_NO, "unknown": errors.NODES_FAILED}
        return errors.worst(codes.get(finding.result, errors.DONE) for finding in self.findings)

    def as_dict(self) -> dict[str, Json]:
        """The body of the document `kind: AuditReport`."""
        return {
            "at": self.at,
            "summary": {**self.counts},
            "nodes": [
                {"name": name, "baseline": self.baselines[name], "result": result}
                for name, result in self.nodes.items()
            ],
            "findings": [finding.as_dict() for finding in self.findings],
        }

    def folded(self) -> list[tuple[str, drift.Finding]]:
        """Findings that are not ok, with equal nodes folded into one nodeset: what a person reads."""
        alike: dict[tuple[object, ...], list[drift.Finding]] = {}
        for f in self.findings:
            if f.result != "ok":
                alike.setdefault((f.result, f.component, f.kind, f.expected, f.found, f.detail), []).append(f)
        return [(fold(f.node for f in some), some[0]) for some in alike.values()]

    def junit(self) -> str:
        """JUnit XML: a suite for each node, a case for each finding; unknown is an error, waived is skipped."""
        counts = self.counts
        root = ET.Element(
            "testsuites",
            name="fleet audit",
            tests=str(len(self.findings)),
            failures=str(counts["drift"]),
            errors=str(counts["unknown"]),
        )
        by_node: dict[str, list[drift.Finding]] = {node: [] for node in self.baselines}
        for finding in self.findings:
            by_node[finding.node].append(finding)
        for node, mine in by_node.items():
            seen = Counter(finding.result for finding in mine)
            suite = ET.SubElement(
                root,
                "testsuite",
                name=node,
                tests=str(len(mine)),
                failures=str(seen["drift"]),
                errors=str(seen["unknown"]),
                skipped=str(seen["waived"]),
                timestamp=self.at.removesuffix("Z"),
            )
            for finding in mine:
                name = f"{finding.component or 'node'} {finding.kind}"
                case = ET.SubElement(suite, "testcase", classname=node, name=name, time="0")
                if finding.result != "ok":
                    tag = {"drift": "failure", "unknown": "error", "waived": "skipped"}[finding.result]
                    ET.SubElement(case, tag, message=sentence(finding), type=finding.result)
        ET.indent(root)
        return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def audit(
    names: Sequence[str],
    facts: Mapping[str, Facts],
    baselines: Sequence[drift.Baseline],
    now: datetime,
    *,
    max_age: timedelta | None = None,
    silent: Mapping[str, str] | None = None,
    waivers: Iterable[drift.Waiver] = (),
    vendor_path: Iterable[str] = (),
) -> AuditReport:
    """Compare nodes with the baselines that are meant for them.

    Facts older than `max_age` are not judged: the node is unknown. `silent` maps a node that did not answer a look just
    now to the reason. Raises BadInput when two baselines are equally meant for a node.
    """
    path = tuple(vendor_path)
    findings: list[drift.Finding] = []
    chosen: dict[str, str] = {}
    for name in names:
        said = facts.get(name)
        baseline = drift.choose(baselines, said) if said is not None else None
        chosen[name] = baseline.name if baseline is not None else ""
        if silent and name in silent:
            findings.append(drift.Finding(name, "", "probe", "unknown", None, None, silent[name]))
        elif said is not None and max_age is not None and _age(said, now) > max_age:
            detail = f"the last answer is older than {max_age}: {said.at}"
            findings.append(drift.Finding(name, "", "probe", "unknown", None, None, detail))
        else:
            vendor = said.vendor if said is not None else ""
            findings += drift.compare(name, said, baseline, partial(scheme, path, vendor))
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return AuditReport(at, chosen, drift.waive(findings, waivers, at))


def look(nodes: Sequence[Node], inventory: Inventory, probed: Iterable[Probed]) -> dict[str, str]:
    """Record a fresh look at nodes; the answer maps those that gave no facts to the reason, for `audit`'s `silent`."""
    silent = {node.name: "not looked at" for node in nodes}
    for result in probed:
        if result.facts is not None:
            inventory.record([result.facts], result.raw)
            del silent[result.name]
        else:
            silent[result.name] = f"{result.outcome}: {result.detail}" if result.detail else result.outcome
    return silent


def sentence(finding: drift.Finding) -> str:
    """One finding in words."""
    if finding.expected is None:
        return finding.detail + (f" ({finding.found})" if finding.found else "")
    said = f"{finding.kind} {finding.found or 'not known'}, expected {finding.expected}"
    return f"{finding.component} {said}" + (f": {finding.detail}" if finding.detail else "")


def _age(facts: Facts, now: datetime) -> timedelta:
    try:
        return now - datetime.fromisoformat(facts.at)
    except (ValueError, TypeError):
        return timedelta.max  # no time, or none with a zone: as old as can be
