"""Whoever waits alone and fits at once: the pass of a cluster on which nobody waits for anybody.

With one workload in the queue there is no order to work out, nobody hungry who could hold it back, and nobody who
comes after it. Where it fits on what is free in the pool that it names first, the walk through the queue would start it
right there, whatever else could be done for it, and then find nobody. So all that is needed is its place and, for the
sentence that says why, the metric of its leaf.

It does not hold where something is kept for it, where it has a landing, or where room depends on how long one stays.
"""

from __future__ import annotations

from gpufair.core import words
from gpufair.core.facts import Facts
from gpufair.core.metrics import metric_of
from gpufair.core.model import Lease
from gpufair.core.record import Record


def nobody_waits(facts: Facts) -> bool:
    """Whether nobody waits for GPUs."""
    waiting = facts.waiting
    return not waiting.length or (not waiting.allocated.lines and not waiting.unallocated.lines)


def alone(facts: Facts) -> Record | None:
    """The one who waits for GPUs, if there is no other, it is allocated, and nothing is kept for it."""
    only = facts.waiting.unlisted
    if only is not None:
        return _free_to_start(facts.records[only])
    lines = facts.waiting.allocated.lines
    if len(lines) != 1 or facts.waiting.unallocated.lines:
        return None
    for line in lines.values():
        if len(line) == 1:
            for queues in line.values():
                for tickets in queues.values():
                    if len(queues) == 1 and len(tickets) == 1:
                        return _free_to_start(facts.records[tickets[0].workload])
    return None


def _free_to_start(record: Record) -> Record | None:
    return record if record.reservation is None and record.landing is None else None


def at_once(facts: Facts, record: Record) -> tuple[tuple[Lease, ...], str] | None:
    """Where it can start now in the pool that it names first, and why there; None if the walk has to look closer."""
    pool = record.spec.pools[0]
    rooms = facts.rooms.get(pool)
    if rooms is None or rooms.bounded:
        return None
    leases = rooms.place(record.spec.shape, facts.policy.blocks)
    return (leases, was_next(record, metric_of(facts, pool, record.spec.allocation), leases)) if leases else None


def was_next(record: Record, metric: float, leases: tuple[Lease, ...]) -> str:
    """Why an allocated workload starts on what is free."""
    turn = f"{record.spec.allocation} ({words.metric(metric)}) was next"
    return f"{turn}; {words.were(record.gpus)} free on {words.places(leases)}"
