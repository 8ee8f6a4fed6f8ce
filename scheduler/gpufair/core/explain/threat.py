"""Who of those who wait could preempt somebody who runs, by which right, when, and what would be lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from gpufair.core.chances import Chances
from gpufair.core.debug import is_debug
from gpufair.core.explain.answer import Threat
from gpufair.core.explain.compare import Comparison, compare
from gpufair.core.facts import Facts
from gpufair.core.model import PreemptReason
from gpufair.core.preemption import loss_at
from gpufair.core.queue import leaves_in_order
from gpufair.core.reading import Reading
from gpufair.core.record import Record
from gpufair.core.units import AllocationPath
from gpufair.core.waiting import Line, WaitClass, class_of, in_order


@dataclass(frozen=True, slots=True)
class Found:
    """The first in the queue that could preempt somebody."""

    by: Record
    threat: Threat
    comparison: Comparison | None  # where rank decides


def first_threat(reading: Reading, record: Record) -> Found | None:
    """The first in the queue that could preempt one who runs as soon as he is unprotected, as the metrics are now.

    Whoever has GPUs kept for him already is left out: he has his victims.
    """
    facts, held = reading.facts, record.held
    if not record.gpus or held is None:
        return None
    here = reading.chances(held.pool)
    lands = _lands(facts, record)
    for asker, right in _askers(reading, here, record):
        earliest = max(facts.now, held.protected_until)
        if lands is not None and lands.threat.earliest < earliest:
            return lands
        threat = Threat(asker.id, right, earliest, loss_at(record, earliest))
        ranked = right is PreemptReason.RANK
        return Found(asker, threat, compare(facts, here.shares, asker, record.spec.allocation) if ranked else None)
    return lands


def _lands(facts: Facts, record: Record) -> Found | None:
    """The first landing for which it would have to leave."""
    held = record.held
    nodes = {lease.node for lease in held.leases} if held is not None else set()
    found: Found | None = None
    for owner in facts.landed.values():
        landing = owner.landing
        if landing is None or nodes.isdisjoint(lease.node for lease in landing.leases):
            continue
        at = max(facts.now, landing.at)
        if (record.id, record.incarnation) not in landing.staying and (found is None or at < found.threat.earliest):
            found = Found(owner, Threat(owner.id, PreemptReason.LANDING, at, loss_at(record, at)), None)
    return found


def _askers(reading: Reading, here: Chances, victim: Record) -> Iterator[tuple[Record, PreemptReason]]:
    facts = reading.facts
    for leaf, pool in leaves_in_order(facts, reading.shares):
        found: dict[WaitClass, PreemptReason] = {}
        line: Line = {}
        for key, queues in facts.waiting.allocated.lines[leaf].items():
            if key.pools[0] == pool and here.pool in key.pools:
                right = right_over(facts, here, leaf, key, victim)
                if right is not None:
                    line[key], found[key] = queues, right
        if not line:
            continue
        for ticket in in_order(line, partial(reading.shares(pool).had, leaf)):
            asker = facts.records[ticket.workload]
            if asker.reservation is None:
                yield asker, found[class_of(asker.spec, asker.min_runtime)]


def right_over(
    facts: Facts, here: Chances, leaf: AllocationPath, key: WaitClass, victim: Record
) -> PreemptReason | None:
    """The mildest right of allocated workloads of a class over one who runs, were he unprotected; None if none."""
    theirs, gpus = victim.spec.allocation, key.nodes * key.gpus_per_node
    if not victim.spec.allocated:
        return PreemptReason.UNALLOCATED
    if leaf == theirs and -key.urgency > victim.spec.priority:
        return PreemptReason.PRIORITY
    if here.take.holds_back(leaf, gpus):
        return None
    if here.shares.outranks(leaf, theirs, gpus * key.min_runtime, facts.policy.hysteresis):
        return PreemptReason.RANK
    if victim.gpus <= here.take.excess(leaf, gpus).get(theirs, 0):
        return PreemptReason.TAKE_LIMIT
    short = is_debug(facts.policy, key.min_runtime, gpus)
    if short and here.debug.may_leave(leaf, gpus, victim):
        return PreemptReason.DEBUG
    return None
