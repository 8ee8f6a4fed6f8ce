"""When the next pass is due if nothing happens before: protections that end, deadlines, and the grid."""

from __future__ import annotations

from gpufair.core.facts import STAYING, Facts
from gpufair.core.model import Phase
from gpufair.core.units import Instant, PoolName


def next_wakeup(facts: Facts) -> Instant | None:
    """The earliest moment at which a pass could decide something; None if only an event can.

    A protection that ends matters to somebody who could preempt, or to a drain. The grid matters while somebody waits
    who could preempt by rank: the window slides, so the ranks change with time alone. It is finer in a pool in which a
    checkpoint is in flight.
    """
    waiting_pools = {pool for line in facts.waiting.allocated.values() for key in line for pool in key.pools}
    # Those with a reservation need no grid, but they wait for victims to leave.
    somebody_waits = facts.waiting.length > 0
    cordoned = {workload for node in facts.nodes.values() if node.cordoned for workload in node.holders}
    moments: list[int] = []
    # Pools in which time alone can change a decision, and those in which a checkpoint is in flight.
    sliding: set[PoolName] = set()
    saving: set[PoolName] = set()
    for record in facts.holding.values():
        held = record.held
        assert held is not None
        if record.phase in STAYING:
            wanted = record.gpus > 0 and held.pool in waiting_pools
            if held.protected_until > facts.now:
                if wanted or record.id in cordoned:
                    moments.append(held.protected_until)
            elif wanted and record.spec.allocated:
                sliding.add(held.pool)
            continue
        if record.phase is Phase.CHECKPOINTING:
            saving.add(held.pool)
        # A stop has no further deadline, but once it is late nobody counts on its GPUs any more.
        due = record.phase is Phase.CHECKPOINTING or (record.phase is Phase.STOPPING and somebody_waits)
        if due and record.deadline is not None and record.deadline > facts.now:
            moments.append(record.deadline)
    policy = facts.policy
    for pool in sliding:
        grid = min(policy.grid, policy.grid_checkpoint) if pool in saving else policy.grid
        moments.append((facts.now // grid + 1) * grid)
    return Instant(min(moments)) if moments else None
