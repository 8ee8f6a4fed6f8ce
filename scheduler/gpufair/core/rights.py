"""By which right somebody makes room for himself: whom he may tell to leave, the mildest right first.

1. What everybody has: unallocated work, lower priorities of the own leaf, outranked leaves (``preemption.rights``).
2. The debug right, if the workload is small and short and the bounds of ``debug`` allow it.

A plan is made with the first of them that frees enough.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpufair.core.chances import Chances
from gpufair.core.debug import is_debug, largest_victim
from gpufair.core.facts import Facts
from gpufair.core.model import PreemptReason
from gpufair.core.plan import Plan, plan
from gpufair.core.preemption import Candidate, bands, candidate, candidates, cost_of, rights
from gpufair.core.record import Record
from gpufair.core.running import sum_up
from gpufair.core.share import Shares
from gpufair.core.units import WorkloadId


def room_for(facts: Facts, here: Chances, record: Record) -> Plan | None:
    """How an allocated workload makes room for itself in a pool; None if it has no right that frees enough."""
    if not here.running.freed():
        return None
    return _by_rank(facts, here, record) or _by_debug_right(facts, here, record)


def may_leave(facts: Facts, here: Chances, record: Record) -> set[WorkloadId]:
    """Everybody who may be told to leave for an allocated workload, by any right."""
    found = {victim for group in rights(facts, here.shares, here.running, record).groups() for victim in group}
    if has_debug_right(facts, here, record):
        found.update(victim.id for victim in _small(here, record))
    return found


def _by_rank(facts: Facts, here: Chances, record: Record) -> Plan | None:
    if here.is_harmless(record):
        return None
    right = rights(facts, here.shares, here.running, record)
    freed = sum_up(*right.groups())
    if not here.rooms.fits(record.spec.shape, freed):
        here.found_harmless(record, nobody=not freed)
        return None
    found = plan(facts, candidates(facts, here.shares, right), record, here.pool)
    assert found is not None, f"{record.id} would fit if all left whom it may preempt, yet there is no plan"
    return found


def has_debug_right(facts: Facts, here: Chances, record: Record) -> bool:
    """Whether a workload may start under the debug right in this pool now."""
    return is_debug(facts.policy, record.min_runtime, record.gpus) and here.debug.allows(
        record.spec.allocation, record.gpus
    )


def _by_debug_right(facts: Facts, here: Chances, record: Record) -> Plan | None:
    if not has_debug_right(facts, here, record) or not here.fits_debug(record.spec.shape):
        return None
    found = plan(facts, _debug_candidates(facts, here.shares, here, record), record, here.pool)
    assert found is not None, f"{record.id} would fit if all small work left, yet there is no plan"
    return found


def _small(here: Chances, record: Record) -> Iterable[Record]:
    """Unprotected allocated work of the pool that is small enough for the debug right."""
    most = largest_victim(record.gpus)
    for group in here.running.exposed.values():
        yield from (victim for victim in group.values() if victim.gpus <= most)


def _debug_candidates(facts: Facts, shares: Shares, here: Chances, record: Record) -> list[Candidate]:
    leaf, hysteresis = record.spec.allocation, facts.policy.hysteresis
    small = list(_small(here, record))
    leaves = {victim.spec.allocation: None for victim in small}
    levels = bands((shares.metric(other), other) for other in leaves)
    outranked = {other for other in leaves if shares.outranks(leaf, other, record.commitment, hysteresis)}
    found = [candidate(facts, victim, PreemptReason.UNALLOCATED, 0) for victim in here.running.unallocated.values()]
    for victim in small:
        other = victim.spec.allocation
        if other == leaf and record.spec.priority > victim.spec.priority:
            found.append(candidate(facts, victim, PreemptReason.PRIORITY, 1))
        else:
            reason = PreemptReason.RANK if other in outranked else PreemptReason.DEBUG
            found.append(candidate(facts, victim, reason, levels[other]))
    return sorted(found, key=cost_of)
