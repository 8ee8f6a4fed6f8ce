"""When the next pass is due if nothing happens before: protections that end, deadlines, and the grid."""

from __future__ import annotations

from gpufair.core import draining, maintenance
from gpufair.core.facts import Facts
from gpufair.core.model import Phase
from gpufair.core.units import Instant, PoolName


def next_wakeup(facts: Facts) -> Instant | None:
    """The earliest moment at which a pass could decide something; None if only an event can. Worked out once for all who
    ask between two events."""
    if not facts.wakeup_known:
        facts.wakeup, facts.wakeup_known = _find(facts), True
    return facts.wakeup


def _find(facts: Facts) -> Instant | None:
    """The earliest moment at which a pass could decide something; None if only an event can.

    A protection that ends matters to somebody who could preempt, or to a drain. The grid matters while somebody waits
    who could preempt by rank: the window slides, so the ranks change with time alone. It is finer in a pool in which a
    checkpoint is in flight.
    """
    waiting, policy = facts.waiting, facts.policy
    wanted = waiting.allocated.pools()
    moments: list[int] = []
    for pool in wanted & facts.running.keys() if wanted else ():
        running = facts.running[pool]
        end = running.next_end()
        if end is not None:
            moments.append(end)
        if running.exposed:
            grid = min(policy.grid, policy.grid_checkpoint) if _saves(facts, pool) else policy.grid
            moments.append((facts.now // grid + 1) * grid)
    moments += draining.moments(facts) if facts.closed else ()
    rested = facts.resting.next(facts.now, facts.records)
    if rested is not None:
        moments.append(rested)
    idle = facts.idling.next(facts.records)
    if idle is not None:
        moments.append(idle)
    for record in facts.landed.values():
        if record.landing is not None and record.landing.at > facts.now:
            moments.append(record.landing.at)
    if facts.maintenance:
        moments += maintenance.moments(facts)
    for record in facts.leaving.values():
        # A stop has no further deadline, but once it is late nobody counts on its GPUs any more. Those with a
        # reservation need no grid, but they wait for victims to leave.
        if record.deadline is None:
            continue
        if record.phase is Phase.CHECKPOINTING:
            moments.append(max(record.deadline, facts.now + 1))  # at the next instant, if its grace is nothing
        elif waiting.length and record.deadline > facts.now:
            moments.append(record.deadline)
    return Instant(min(moments)) if moments else None


def _saves(facts: Facts, pool: PoolName) -> bool:
    return any(
        record.phase is Phase.CHECKPOINTING and record.held is not None and record.held.pool == pool
        for record in facts.leaving.values()
    )
