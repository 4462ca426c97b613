"""The steps of a road: what a vendor does between two reboots, and what fleet does around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fleet.core.errors import FleetError
from fleet.core.model import Facts, Stage, Step, VersionChange
from fleet.core.policy import PlanPolicy
from fleet.core.vendor import Change, Vendor

# Phases that leave the software of the node as it was; the first step outside them is where a way back is needed.
SAFE_PHASES = ("preflight", "cordon", "drain", "stage")
OURS = ("cordon", "drain", "validate", "uncordon")  # a vendor does not say when these happen
RPM_SYSTEMS = (
    "rhel", "centos", "rocky", "almalinux", "fedora", "openeuler", "kylin", "anolis", "alinux", "opensuse", "sles",
    "amzn", "tencentos", "opencloudos", "bclinux", "ctyunos", "hce", "ol", "velinux",
)  # fmt: skip


def package_kind(facts: Facts) -> str:
    """`deb` or `rpm`: what the node's system installs."""
    said = facts.flags.get("package_kind")
    if said in ("deb", "rpm"):
        return str(said)
    return "rpm" if facts.os.id.lower() in RPM_SYSTEMS else "deb"


def _vendor_steps(vendor: Vendor, facts: Facts, policy: PlanPolicy, stage: Stage, now: Mapping[str, str]) -> list[Step]:
    change = Change(
        model=facts.accelerators[0].model,
        count=len(facts.accelerators),
        os=facts.os,
        now=dict(now),
        changes=stage.changes,
        reboot=stage.reboot,
        flags=facts.flags,
        delivery=dict(policy.delivery or {}),  # type: ignore[arg-type]  # names checked where the option is read
        package_kind="rpm" if package_kind(facts) == "rpm" else "deb",
    )
    steps = [step for step in vendor.steps(change) if step.phase not in OURS]
    if stage.changes and not any(step.changes for step in steps):
        names = ", ".join(c.component for c in stage.changes)
        raise FleetError(f"vendor {vendor.name} has no steps that change {names}", slug="no-steps")
    if stage.reboot in ("reboot", "power_cycle") and not any(step.phase == "reboot" for step in steps):
        steps.append(
            Step(
                "reboot",
                effect="probeable",
                activation=stage.reboot,
                off_seconds=10 if stage.reboot == "power_cycle" else 0,
                limit_s=1800,
                why="what was installed takes effect at the next boot",
            )
        )
    return steps


def after(stack: Mapping[str, str], changes: Iterable[VersionChange]) -> dict[str, str]:
    """The stack once those changes are made."""
    out = dict(stack)
    for change in changes:
        if change.new is None:
            out.pop(change.component, None)
        else:
            out[change.component] = change.new
    return out


def artifacts_of(steps: Iterable[Step]) -> tuple[str, ...]:
    """The packages that those steps need, each once, in the order in which they are needed."""
    return tuple(dict.fromkeys(name for step in steps for name in step.artifacts))


def stages_of(
    vendor: Vendor, facts: Facts, policy: PlanPolicy, start: Mapping[str, str], road: Sequence[Stage], *, back: bool
) -> tuple[tuple[Step, ...], ...]:
    """The full step lists of a road. On the way back nothing is drained: the node is ours already."""
    now = dict(start)
    bodies: list[list[Step]] = []
    for stage in road:
        steps = _vendor_steps(vendor, facts, policy, stage, now)
        if not any(step.phase == "verify" for step in steps):
            steps.append(Step("verify", changes=stage.changes, limit_s=600, why="a fresh probe shows what is loaded"))
        bodies.append([replace(s, changes=stage.changes) if s.phase == "verify" else s for s in steps])
        now = after(now, stage.changes)
    everything = [step for body in bodies for step in body]
    changes = tuple(change for stage in road for change in stage.changes)
    artifacts = artifacts_of(everything)
    if back:  # what would stop an upgrade must not stop a rescue
        bodies = [[step for step in body if step.phase != "preflight"] for body in bodies]
    head: list[Step] = [Step("stage", artifacts=artifacts, limit_s=1800, why="packages on the node, sha256 checked")]
    if not back:
        own = [step for step in bodies[0] if step.phase == "preflight"]
        bodies[0] = [step for step in bodies[0] if step.phase != "preflight"]
        looks = own or [Step("preflight", limit_s=300, why="everything that would stop the upgrade, before any change")]
        looks = [replace(s, changes=s.changes or changes, artifacts=s.artifacts or artifacts) for s in looks]
        away = [
            Step("cordon", undo="uncordon", limit_s=120, why="no new jobs"),
            Step("drain", undo="uncordon", limit_s=policy.drain_limit_s, why="running jobs end"),
        ]
        head = [*away, *looks, *head] if policy.drained else [*looks, *away, *head]
    if any(step.phase == "stage" for step in bodies[0]):
        bodies[0] = [step for step in bodies[0] if step.phase != "stage"]
    bodies[0] = [*head, *bodies[0]]
    bodies[-1] += [
        Step("validate", limit_s=600, why="smoke checks on the new stack"),
        Step("uncordon", limit_s=900, why="back to service, as it was found"),
    ]
    return tuple(tuple(body) for body in bodies)


def flat(stages: Sequence[Sequence[Step]]) -> tuple[Step, ...]:
    """The steps of all stages in order."""
    return tuple(step for stage in stages for step in stage)
