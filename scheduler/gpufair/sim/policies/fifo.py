"""First come, first served: nobody starts before whoever was submitted before him."""

from __future__ import annotations

from heapq import heappop, heappush

from gpufair.core.model import Phase, Policy
from gpufair.core.units import PoolName
from gpufair.core.waiting import Ticket
from gpufair.sim.policies.item import Item
from gpufair.sim.policies.scheduler import Scheduler

Pools = tuple[PoolName, ...]


class Fifo(Scheduler):
    """Strict order of submission. Whoever cannot start blocks the pools that he accepts for all who came later."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        # By the pools that they accept. Entries of those who do not wait any more are dropped when they come up.
        self._lines: dict[Pools, list[Ticket]] = {}

    def enqueue(self, item: Item) -> None:
        """Its place is that of its first submission."""
        heappush(self._lines.setdefault(item.spec.pools, []), Ticket(item.submitted_at, item.id))

    def dequeue(self, item: Item) -> None:
        """Its entry is found to mean nothing when it comes up."""

    def fill(self) -> None:
        """Start from the head on, as long as the head can start."""
        blocked: set[PoolName] = set()
        while (first := self._first(blocked)) is not None:
            for pool in first.spec.pools:
                leases = self.ground.place(first.spec.shape, pool) if pool not in blocked else None
                if leases is not None:
                    self.start(first, pool, leases, "it was submitted first of all who wait")
                    break
            else:
                blocked.update(first.spec.pools)

    def _first(self, blocked: set[PoolName]) -> Item | None:
        best: Ticket | None = None
        for pools, line in self._lines.items():
            while line and not self._waits(line[0]):
                heappop(line)
            if line and not blocked.issuperset(pools) and (best is None or line[0] < best):
                best = line[0]
        return self.items[best.workload] if best is not None else None

    def _waits(self, ticket: Ticket) -> bool:
        item = self.items.get(ticket.workload)
        return item is not None and item.phase is Phase.QUEUED
