"""What a look at a node proves: that it may begin, that versions are in force, that it is still the same machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fleet.core import version
from fleet.core.errors import BadInput
from fleet.core.model import ComponentFact, Facts, Json, VersionChange
from fleet.core.plan import start_digest
from fleet.core.task import Outcome
from fleet.core.vendor import Vendor
from fleet.probe import Probed


def may_begin(seen: Probed, allowed: Iterable[str]) -> Outcome | None:
    """Why the node cannot begin, or None. `allowed` = digests of the states in which it may."""
    name = seen.name
    hints = {
        "unknown-key": f"fleet node trust {name}",
        "key-changed": _compare(name),
        "refused": "check ssh_user and ssh_key",
        "no-sudo": f"let the login user of {name} use sudo without a password",
    }
    if seen.facts is None:
        return Outcome(
            "failed", f"{seen.outcome}: {seen.detail}", "operator", hints.get(seen.outcome, f"fleet probe {name}")
        )
    if start_digest(seen.facts) not in set(allowed) and seen.outcome == "partial":
        # A node under load may answer half: that it differs from its plan is then not known. It is looked at again.
        return Outcome("ambiguous", f"partial: {seen.detail}", "operator", f"fleet probe {name}")
    if start_digest(seen.facts) not in set(allowed):
        return Outcome("stale", "the node is no longer as it was when it was planned")
    return None


def identity(facts: Facts) -> dict[str, Json]:
    """What must be the same when the node comes back."""
    lasting: list[Json] = [card.uuid or card.serial for card in facts.accelerators if card.uuid or card.serial]
    return {"count": len(facts.accelerators), "cards": lasting}


def same(vendor: Vendor | None, component: str, one: str | None, other: str | None) -> bool:
    """Whether two versions of a component are one, by the vendor's scheme."""
    if one is None or other is None:
        return one is other
    if one == other:
        return True
    scheme = (vendor.schemes.get(component) if vendor else None) or ("kernel" if component == "kernel" else "generic")
    try:
        return version.key(one, scheme) == version.key(other, scheme)
    except BadInput:
        return False


def owed(vendor: Vendor | None, changes: Iterable[VersionChange], facts: Facts) -> str:
    """What of these changes is not in force, or "" when all is: loaded and installed are both the new version."""
    for change in changes:
        fact = facts.components.get(change.component, ComponentFact())
        known = [(word, value) for word, value in (("loaded", fact.loaded), ("installed", fact.installed)) if value]
        if change.new is None:
            if known:
                return f"{change.component} is still there: {known[0][0]} {known[0][1]}"
            continue
        if not known:
            return f"{change.component} {change.new} is not to be seen on the node"
        for word, value in known:
            if not same(vendor, change.component, value, change.new):
                return f"{change.component} is {value} ({word}), not {change.new}"
    return ""


def identity_lost(prior: Mapping[str, Json], facts: Facts) -> str:
    """How the node differs from the `identity` stored before, or ""."""
    count = prior.get("count")
    if isinstance(count, int) and len(facts.accelerators) != count:
        return f"{len(facts.accelerators)} of {count} accelerators answer"
    return ""


def another_machine(prior: Mapping[str, Json], facts: Facts) -> Outcome | None:
    """That not one card is as in the `identity` stored before: nothing more is done there before a person has looked.

    Neither the new stack nor the old one may be put on a machine that nobody planned for. Some cards of before among
    new ones are the same machine, repaired. Where either look gave no serial number or UUID nothing is claimed.
    """
    before = prior.get("cards")
    was = {str(card) for card in before} if isinstance(before, list) else set()
    now = {card.uuid or card.serial for card in facts.accelerators if card.uuid or card.serial}
    if not was or not now or was & now:
        return None
    name = facts.node
    reason = f"identity-changed: {name} answers with other cards than before: {_some(now)}, not {_some(was)}"
    action = (
        f"which machine is it? fleet node show {name}, fleet probe {name}, its console; mend its address and fleet "
        "rollout resume, or abort and plan it anew"
    )
    return Outcome("hands", reason, "operator", action)


def another_key(name: str, detail: str, limit_s: int) -> Outcome:
    """That a node shows another host key after its restart, until the limit: it was made anew, or is another one."""
    reason = f"key-changed: within {limit_s} s after the restart {name} shows another host key: {detail}"
    return Outcome("hands", reason, "operator", f"{_compare(name)}; then fleet rollout resume")


def _compare(name: str) -> str:
    return f"find out why the host key of {name} changed, on its console, then fleet node trust {name} --replace"


def _some(cards: Iterable[str]) -> str:
    names = sorted(cards)
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def seen_as(seen: Probed | None) -> str:
    """A look without facts, in words."""
    return "the node did not answer" if seen is None else f"{seen.outcome}: {seen.detail}"
