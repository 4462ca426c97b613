"""A rollout in the tables, at any size and in any state, without anybody that carries it out."""

from __future__ import annotations

from dataclasses import replace

from fleet.core.model import Accelerator, Facts, Group, Node, OsFacts, Plan, Step
from fleet.core.plan import sealed
from fleet.inventory import Inventory
from fleet.inventory.rollouts import Lease, Result, Rollouts

NOW = "2031-05-01T08:00:00Z"
STEPS = (Step("preflight"), Step("drain"), Step("install"), Step("reboot"), Step("validate"), Step("uncordon"))


class Site:
    """Rollout `r-1` of `size` nodes: one canary, then a tenth, then the rest."""

    def __init__(self, inventory: Inventory, size: int = 10, limits: dict[str, str] | None = None) -> None:
        self.inventory = inventory
        self.store = Rollouts(inventory.database)
        self.names = tuple(f"gpu{i:05}" for i in range(size))
        inventory.add([Node(name, "192.0.2.1", rack=f"k{i % 5}") for i, name in enumerate(self.names)])
        inventory.record([
            Facts(node=name, os=OsFacts(), vendor="acme", components={}, accelerators=(Accelerator("acme", "A1"),),
                  boot_id="b", at=NOW)
            for name in self.names
        ])  # fmt: skip
        group = Group(self.names, "acme", "A1", {}, {}, (STEPS,), (STEPS[2:],))
        tenth = 1 + max(1, size // 10)
        waves = (self.names[:1], self.names[1:tenth], self.names[tenth:])
        policy = {"limits": limits or {"fleet": "50%", "rack": "1"}, "chunk": 16}
        starts = dict.fromkeys(self.names, "sha256:0")
        self.plan = sealed(Plan("", (group,), waves, {}, starts, "sha256:m", policy))  # type: ignore[arg-type]  # JSON, as a policy is
        self.store.create("r-1", self.plan, "", (), "li", NOW)

    def lease(self, owner: str = "host:1:1") -> Lease:
        return self.store.acquire("r-1", owner, 600.0, self.store.clock(), lambda _: True)

    def put(self, lease: Lease, names: tuple[str, ...], **values: object) -> None:
        """Give those nodes' tasks these values."""
        tasks = self.store.tasks("r-1")
        self.store.put(lease, [(replace(tasks[name].task, **values), None, None) for name in names])  # type: ignore[arg-type]  # fields of a task

    def step(self, lease: Lease, names: tuple[str, ...], phase: str, took: float, result: str = "done") -> None:
        """An attempt at that phase, ended after so many seconds; the nodes stand where they stood."""
        tasks = [self.store.tasks("r-1")[name].task for name in names]
        now = self.store.clock()
        numbers = self.store.intend(lease, tasks, phase, now - took)
        self.store.finish(lease, [Result(numbers[t.node], result, replace(t, open="")) for t in tasks], now)
