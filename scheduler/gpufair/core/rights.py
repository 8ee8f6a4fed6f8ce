"""By which right somebody makes room for himself: whom he may tell to leave, the mildest right first.

1. What everybody has: unallocated work, lower priorities of the own leaf, outranked leaves (``preemption.rights``).
2. With these, what other leaves have beyond their take limit, if the own leaf is hungry (``take``).
3. The debug right, if the workload is small and short and the bounds of ``debug`` allow it, if need be in the place of
   somebody who runs under it.

A plan is made with the first of them that frees enough. Whoever is beyond his own take limit has none of them, but
unallocated work and lower priorities of his own leaf: nobody else has a right to what these hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from gpufair.core.chances import Chances
from gpufair.core.debug import is_debug
from gpufair.core.facts import Facts
from gpufair.core.model import PreemptReason
from gpufair.core.plan import Plan, plan
from gpufair.core.preemption import Candidate, Rights, bands, candidate, candidates, cost_of, rights
from gpufair.core.record import Record
from gpufair.core.running import sum_up
from gpufair.core.share import Shares
from gpufair.core.units import AllocationPath, WorkloadId


def room_for(facts: Facts, here: Chances, record: Record) -> Plan | None:
    """How an allocated workload makes room for itself in a pool; None if it has no right that frees enough."""
    if not here.running.freed():
        return None
    if here.take.holds_back(record.spec.allocation, record.gpus):
        return _at_home(facts, here, record)
    return _by_rank(facts, here, record) or _by_take_limit(facts, here, record) or _by_debug_right(facts, here, record)


def may_leave(facts: Facts, here: Chances, record: Record) -> set[WorkloadId]:
    """Everybody who may be told to leave for an allocated workload, by any right."""
    right = rights(facts, here.shares, here.running, record)
    if here.take.holds_back(record.spec.allocation, record.gpus):
        return right.unallocated.keys() | right.own.keys()
    found = {victim for group in right.groups() for victim in group}
    found.update(victim.id for victim in _beyond(here, record, right))
    if is_debug(facts.policy, record.min_runtime, record.gpus):
        found.update(victim.id for victim in _small(here, record))
    return found


def _by_rank(facts: Facts, here: Chances, record: Record) -> Plan | None:
    if here.is_harmless(record):
        return None
    # What all would free whom it may preempt is summed up once for all who may preempt the same; most have no more of
    # a right than somebody before them, and find that it frees too little.
    movers = here.movers(record)
    fits = here.fits_without(movers, record.spec.shape, here.ends(record))
    found = _plan_by_rank(facts, here, record) if fits else None
    if found is None:
        # Where there are horizons, the quick look may say too much.
        assert not fits or here.rooms.bounded, f"{record.id} would fit if all left whom it may preempt, yet cannot"
        here.found_harmless(record, nobody=not here.running.freed_by(movers))
    return found


def _plan_by_rank(facts: Facts, here: Chances, record: Record) -> Plan | None:
    right = rights(facts, here.shares, here.running, record)
    return plan(facts, candidates(facts, here.shares, right), record, here.pool, here.ends(record))


def _at_home(facts: Facts, here: Chances, record: Record) -> Plan | None:
    right = replace(rights(facts, here.shares, here.running, record), outranked=())
    ends = here.ends(record)
    if not here.rooms.fits(record.spec.shape, sum_up(*right.groups()), ends):
        return None
    return plan(facts, candidates(facts, here.shares, right), record, here.pool, ends)


def _beyond(here: Chances, record: Record, right: Rights) -> Iterator[Record]:
    """What leaves that are not outranked have beyond their take limit, each workload by itself."""
    for leaf, excess in here.take.excess(record.spec.allocation, record.gpus).items():
        if leaf not in right.outranked:
            yield from (victim for victim in here.running.exposed[leaf].values() if victim.gpus <= excess)


def _by_take_limit(facts: Facts, here: Chances, record: Record) -> Plan | None:
    excess, ends = here.take.excess(record.spec.allocation, record.gpus), here.ends(record)
    if not excess or not here.fits_without(here.movers(record, excess), record.spec.shape, ends):
        return None
    right = rights(facts, here.shares, here.running, record)
    beyond = {victim.id: victim for victim in _beyond(here, record, right)}
    if not beyond:
        return None
    leaves = {victim.spec.allocation: None for victim in beyond.values()}
    levels = bands(facts.policy, ((here.shares.metric(leaf), leaf) for leaf in (*right.outranked, *leaves)))
    found = [
        one.at(levels[one.record.spec.allocation])
        if one.reason is PreemptReason.RANK
        else one
        for one in candidates(facts, here.shares, right)
    ]
    taken = [
        candidate(facts, victim, PreemptReason.TAKE_LIMIT, levels[victim.spec.allocation]) for victim in beyond.values()
    ]
    first = plan(facts, sorted([*found, *taken], key=cost_of), record, here.pool, ends)
    if first is None:
        assert here.rooms.bounded, f"{record.id} would fit if all left that is beyond a limit, yet there is no plan"
        return None
    if within(here.take.excess(record.spec.allocation, record.gpus), first.victims) == list(first.victims):
        return first
    # The cheapest place would take a leaf below its limit. Then only so much of it counts as stays beyond.
    taken = within(here.take.excess(record.spec.allocation, record.gpus), sorted(taken, key=cost_of))
    freed = sum_up(*right.groups(), {one.record.id: one.record for one in taken})
    if not here.rooms.fits(record.spec.shape, freed, ends):
        return None
    return plan(facts, sorted([*found, *taken], key=cost_of), record, here.pool, ends)


def within(excess: Mapping[AllocationPath, int], victims: Iterable[Candidate]) -> list[Candidate]:
    """Those of some victims that can leave, one after the other, without taking a leaf below its take limit."""
    left, kept = dict(excess), []
    for victim in victims:
        leaf = victim.record.spec.allocation
        if victim.reason is PreemptReason.TAKE_LIMIT:
            if victim.record.gpus > left[leaf]:
                continue
            left[leaf] -= victim.record.gpus
        kept.append(victim)
    return kept


def _by_debug_right(facts: Facts, here: Chances, record: Record) -> Plan | None:
    leaf, shape, ends = record.spec.allocation, record.spec.shape, here.ends(record)
    if not is_debug(facts.policy, record.min_runtime, record.gpus) or not here.fits_debug(leaf, shape, ends):
        return None
    found = plan(facts, _debug_candidates(facts, here.shares, here, record), record, here.pool, ends)
    assert found is not None or here.rooms.bounded, f"{record.id} would fit if all small work left, yet cannot"
    return found


def _small(here: Chances, record: Record) -> Iterable[Record]:
    """Unprotected allocated work of the pool that may be moved for a debug workload."""
    leaf, gpus = record.spec.allocation, record.gpus
    for group in here.running.exposed.values():
        yield from (victim for victim in group.values() if here.debug.may_leave(leaf, gpus, victim))


def _debug_candidates(facts: Facts, shares: Shares, here: Chances, record: Record) -> list[Candidate]:
    leaf, hysteresis = record.spec.allocation, facts.policy.hysteresis
    small = list(_small(here, record))
    leaves = {victim.spec.allocation: None for victim in small}
    levels = bands(facts.policy, ((shares.metric(other), other) for other in leaves))
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
