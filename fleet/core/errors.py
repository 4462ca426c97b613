"""Every error that fleet raises on purpose, and the exit statuses.

    FleetError                 exit 1   something failed and was reported
    ├── UsageError             exit 2   the command line or a setting is wrong
    │   └── BadInput           exit 2   a file or a value is wrong: names file, line and field
    ├── NotFound               exit 2   a node, vendor, artifact or rollout of that name is not known
    ├── CheckFailed            exit 4   a check ran and said no
    ├── Refused                exit 5   policy, matrix or a missing artifact forbids it
    │   └── NoSolution         exit 5   no stack satisfies the rules
    ├── NodesFailed            exit 6   some nodes failed or were silent
    ├── Locked                 exit 7   another rollout or process owns this
    │   └── StalePlan          exit 7   the facts under a plan have moved
    ├── Paused                 exit 8   a gate stopped the rollout, or it waits for approval
    └── Interrupted            exit 130 the operator stopped it

An error is one sentence (`what`), a place (`where`), a `cause`, a `hint` that is the next command, and a `slug` that is
its stable name in JSON, in docs/errors.md and for `fleet help SLUG`. It is printed in one place, `fleet.cli.output`.
"""

from __future__ import annotations

from collections.abc import Iterable

DONE = 0
FAILED = 1
USAGE = 2
DIFFERENCES = 3
CHECK_SAID_NO = 4
REFUSED = 5
NODES_FAILED = 6
LOCKED = 7
PAUSED = 8
INTERRUPTED = 130

# Where several apply, the first in this list is the exit status of the command.
PRECEDENCE = (INTERRUPTED, USAGE, LOCKED, REFUSED, FAILED, NODES_FAILED, PAUSED, CHECK_SAID_NO, DIFFERENCES, DONE)


def worst(codes: Iterable[int]) -> int:
    """The exit status of a command in which all of `codes` happened; `DONE` for none."""
    seen = set(codes)
    for code in PRECEDENCE:
        if code in seen:
            return code
    return FAILED if seen else DONE


class FleetError(Exception):
    """The root: something failed and was reported."""

    exit_code = FAILED
    slug = "failed"

    def __init__(self, what: str, *, where: str = "", cause: str = "", hint: str = "", slug: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.cause = cause
        self.hint = hint
        if slug:
            self.slug = slug

    def as_dict(self) -> dict[str, str]:
        """The error as the JSON document `kind: Error` carries it."""
        return {"slug": self.slug, "what": self.what, "where": self.where, "cause": self.cause, "hint": self.hint}


class UsageError(FleetError):
    """The command line or a setting is wrong."""

    exit_code = USAGE
    slug = "usage"


class BadInput(UsageError):
    """A file or a value is wrong. `where` is `file:line` and the field's name stands in `what`."""

    slug = "bad-input"


class NotFound(FleetError):
    """A node, vendor, artifact or rollout of that name is not known."""

    exit_code = USAGE
    slug = "not-found"


class CheckFailed(FleetError):
    """A check ran and said no."""

    exit_code = CHECK_SAID_NO
    slug = "check-failed"


class Refused(FleetError):
    """Policy, matrix or a missing artifact forbids it."""

    exit_code = REFUSED
    slug = "refused"


class NoSolution(Refused):
    """No stack satisfies the rules."""

    slug = "no-solution"


class NodesFailed(FleetError):
    """Some nodes failed or were silent."""

    exit_code = NODES_FAILED
    slug = "nodes-failed"


class Locked(FleetError):
    """Another rollout or process owns this."""

    exit_code = LOCKED
    slug = "locked"


class StalePlan(Locked):
    """The facts under a plan have moved."""

    slug = "stale-plan"


class Paused(FleetError):
    """A gate stopped the rollout, or it waits for an approval."""

    exit_code = PAUSED
    slug = "paused"


class Interrupted(FleetError):
    """The operator stopped it."""

    exit_code = INTERRUPTED
    slug = "interrupted"
