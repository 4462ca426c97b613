"""Validation: a suite of checks on nodes, judged from a fresh probe. Skip is not pass; unknown is not a yes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fleet.core import errors
from fleet.core.errors import UsageError
from fleet.core.model import Item, Json
from fleet.core.vendor import Vendor
from fleet.probe import Probed

SUITES = ("smoke",)
RESULTS = ("pass", "fail", "warn", "skip", "unsupported", "unknown")


@dataclass(frozen=True)
class NodeReport:
    """The checks of one node. `outcome` is the probe's; `note` says why there are no checks."""

    node: str
    vendor: str
    outcome: str
    checks: tuple[Item, ...] = ()
    note: str = ""

    @property
    def problem(self) -> str:
        """Why the node does not pass, or "". A node that no check called good has not passed."""
        for wanted in ("fail", "unknown"):
            for item in self.checks:
                if item.get("result") == wanted:
                    return f"{item.get('name')}: {item.get('detail') or wanted}"
        if self.note:
            return self.note
        return "" if any(item.get("result") == "pass" for item in self.checks) else "no check could say that it is well"

    @property
    def verdict(self) -> str:
        """pass, fail or unknown."""
        if any(item.get("result") == "fail" for item in self.checks):
            return "fail"
        return "unknown" if self.problem else "pass"

    def as_dict(self) -> dict[str, Json]:
        """One entry of the document `kind: ValidationReport`."""
        return {
            "name": self.node,
            "vendor": self.vendor,
            "outcome": self.outcome,
            "verdict": self.verdict,
            "checks": [dict(item) for item in self.checks],
            "note": self.note,
        }


def judge(seen: Probed, vendor: Vendor, count: int) -> NodeReport:
    """The smoke checks of one look at a node. `count` = accelerators that it should have.

    A check that breaks on a node's words gives `unknown`.
    """
    checks: list[Item] = []
    for check in vendor.checks:
        try:
            item = check.judge(seen.readings, count)
        except Exception as error:  # one vendor's check must not end the validation of a fleet
            item = {"name": check.name, "result": "unknown", "detail": f"the check broke: {error!r}"}
        if item.get("result") not in RESULTS:
            item = {"name": check.name, "result": "unknown", "detail": f"it said {item.get('result')!r}"}
        checks.append(item)
    return NodeReport(seen.name, vendor.name, seen.outcome, tuple(checks))


def validate(
    looks: Iterable[Probed], vendors: Mapping[str, Vendor], suite: str, counts: Mapping[str, int]
) -> Iterator[NodeReport]:
    """A report for each node looked at. `counts` = accelerators that the inventory knows of a node."""
    if suite not in SUITES:
        raise UsageError(f"suite {suite!r} is not known", hint=f"known are: {', '.join(SUITES)}", slug="unknown-suite")
    for seen in looks:
        if seen.facts is None:
            yield NodeReport(seen.name, "", seen.outcome, note=f"{seen.outcome}: {seen.detail}")
        elif seen.facts.vendor not in vendors:
            yield NodeReport(seen.name, seen.facts.vendor, seen.outcome, note="no accelerator of a known vendor")
        else:
            count = counts.get(seen.name, len(seen.facts.accelerators))
            yield judge(seen, vendors[seen.facts.vendor], count)


def exit_code(reports: Iterable[NodeReport]) -> int:
    """0 all pass; 4 a check said no; 6 a node was silent or nothing could be said of it."""
    codes = {"pass": errors.DONE, "fail": errors.CHECK_SAID_NO, "unknown": errors.NODES_FAILED}
    return errors.worst(codes[report.verdict] for report in reports)


def summary(reports: Iterable[NodeReport]) -> dict[str, int]:
    """verdict -> how many nodes."""
    seen = Counter(report.verdict for report in reports)
    return {verdict: seen[verdict] for verdict in ("pass", "fail", "unknown")}
