"""The site that the tests of rollouts, and the processes they kill, work on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleet import decision
from fleet.core.model import Node, Plan
from fleet.core.plan import Candidate, make
from fleet.core.policy import PlanPolicy
from fleet.engine.leases import LeaseEngine
from fleet.evidence import EvidenceStore
from fleet.inventory import open_inventory
from fleet.inventory.rollouts import Rollouts
from fleet.telling import Transition
from fleet.upgrade import Upgrade
from tests.upgrade.simfleet import ACME, NOW, SimFleet, hands, plan, solution


class Site:
    """Everything that a rollout touches, in one folder."""

    def __init__(
        self, folder: Path, kill: Callable[[str, str], None] = lambda _p, _n: None, parallel: int = 1, url: str = ""
    ) -> None:
        self.folder = folder
        self.fleet = SimFleet(folder / "fleet", kill)
        self.inventory = open_inventory(url or f"sqlite:///{folder / 'fleet.db'}")
        self.store = Rollouts(self.inventory.database)
        self.evidence = EvidenceStore(folder / "evidence")
        self.seen: list[Transition] = []
        self.upgrade = Upgrade(
            self.store, self.inventory, hands(self.fleet), self.evidence, origin="lab", operator="tester",
            parallel=parallel, poll_s=0.01, watch=self.seen.append,
        )  # fmt: skip
        self.engine = LeaseEngine(self.store, self.upgrade.tick)

    def close(self) -> None:
        self.upgrade.close()
        self.inventory.close()

    def nodes(self, *names: str, **more: Any) -> list[Node]:
        """New nodes, in the fleet and in the inventory."""
        made = [self.fleet.add(name, **more) for name in names]
        self.inventory.add(made)
        self.inventory.record([self.fleet.facts(name) for name in names])
        return made

    def plan_of(self, nodes: list[Node], inventory: list[Node], **policy: Any) -> Plan:
        """A plan of those nodes, of an inventory that has these."""
        rules = PlanPolicy(wish={"driver": "2.0"}, limits={"fleet": "100%"}, **policy)
        candidates = [Candidate(node, self.fleet.facts(node.name), solution()) for node in nodes]
        return make(candidates, {"acme": ACME}, lambda _: True, rules, "sha256:m", NOW, inventory)

    def start(self, nodes: list[Node], rollout: str = "r-1", **more: Any) -> Plan:
        made = plan(self.fleet, nodes, **more)
        decision.start(self.upgrade, rollout, made, "command", "sha256:m")
        return made

    def states(self, rollout: str = "r-1") -> dict[str, str]:
        return {name: stored.task.state for name, stored in self.store.tasks(rollout).items()}

    def go_on(self, rollout: str = "r-1") -> None:
        """What `fleet rollout resume` does."""
        lease = self.store.acquire(rollout, self.engine.owner, 30, self.engine.clock(), lambda _: True)
        decision.reopen(self.upgrade, rollout, lease)
        self.engine.submit(rollout)

    def go_on_then_abort(self, rollout: str = "r-1") -> None:
        """Resume, begin a node, then abort."""
        lease = self.store.acquire(rollout, self.engine.owner, 600, 0.0, lambda _: True)
        decision.reopen(self.upgrade, rollout, lease)
        for _ in range(4):
            self.upgrade.tick(rollout, lease, False)
        self.engine.signal(rollout, "abort")
        self.engine.submit(rollout)
