"""Why somebody waits: what he waits for, who holds it and until when, what decided, and what would start him now."""

from __future__ import annotations

from gpufair.core import words
from gpufair.core.brief import not_offered, rest_left
from gpufair.core.change import smallest_change
from gpufair.core.estimate import estimate
from gpufair.core.explain.answer import Explanation, Holder
from gpufair.core.explain.compare import Comparison, most_over_served
from gpufair.core.explain.cpu_turn import turn_for_cpus
from gpufair.core.explain.resting import first, preemption
from gpufair.core.facts import STAYING, Facts
from gpufair.core.placement import admits
from gpufair.core.queue import position
from gpufair.core.reading import Reading
from gpufair.core.record import Record
from gpufair.core.rights import may_leave
from gpufair.core.units import AllocationPath
from gpufair.core.waiting import class_of


def queued(reading: Reading, record: Record) -> Explanation:
    """Why a workload waits."""
    facts = reading.facts
    place = position(facts, record, reading.shares)
    guess = estimate(facts, record, place - 1, reading.forecasts)
    holders, comparison = _obstacles(reading, record)
    if record.reservation is not None:
        victims = words.names(facts.label(victim) for victim in record.reservation.pending)
        where = words.places(record.reservation.leases)
        when = f"it starts there when {victims} has left" if victims else "it starts there at once"
        sentence = f"GPUs on {where} are kept for it; {when}. {first(record.reason, facts.nodes)}"
    elif record.landing is not None:
        landing = record.landing
        sentence = f"It owns a landing on {words.places(landing.leases)} at {words.moment(landing.at)}: {landing.why}."
    else:
        ahead = _colleague(reading, record) if record.gpus else turn_for_cpus(facts, record, place)
        sentence = f"{_blocked(facts, record, holders, comparison)}{ahead}"
    return Explanation(
        workload=record.id,
        phase=record.phase,
        position=place,
        sentence=f"{_earlier(facts, record)}{sentence}",
        level=comparison.level if comparison else None,
        mine=comparison.mine if comparison else None,
        theirs=comparison.theirs if comparison else None,
        holders=holders,
        estimate=guess.at,
        estimate_basis=guess.basis,
        binding=guess.binding,
        smallest_change=None if record.reservation is not None else smallest_change(reading, record),
        preempted=preemption(record),
    )


def _colleague(reading: Reading, record: Record) -> str:
    """Who of the same leaf comes first for having had less, of equal priority."""
    spec = record.spec
    if not spec.allocated:
        return ""
    facts, shares = reading.facts, reading.shares(spec.pools[0])
    mine, urgency = shares.had(spec.allocation, spec.user), class_of(spec, record.min_runtime).urgency
    less = [
        (had, user)
        for key, queues in facts.waiting.allocated.lines[spec.allocation].items()
        if key.urgency == urgency and key.pools[0] == spec.pools[0]
        for user in queues
        if (had := shares.had(spec.allocation, user)) < mine
    ]
    if not less:
        return ""
    had, user = min(less)
    unit = facts.weights.unit
    counted = ", protection granted included" if facts.policy.commitment else ""
    return (
        f" In {spec.allocation} {user} comes before {spec.user}: of equal priority, who has had less is first "
        f"({words.gpu_time(had / unit)} and {words.gpu_time(mine / unit)}{counted})."
    )


def _earlier(facts: Facts, record: Record) -> str:
    """What happened to it before, where it ran already."""
    if not record.starts or record.reservation is not None:
        return ""
    lost = preemption(record)
    because = f"It was preempted because {lost.why}. " if lost is not None else ""
    return f"{first(record.reason, facts.nodes)} {because}"


def _obstacles(reading: Reading, record: Record) -> tuple[tuple[Holder, ...], Comparison | None]:
    """Who holds the GPUs that it could use, and the comparison with the most over-served of them."""
    facts = reading.facts
    holders: list[Holder] = []
    decisive: Comparison | None = None
    for pool in record.spec.pools:
        mine_to_take = may_leave(facts, reading.chances(pool), record) if record.spec.allocated else set()
        leaves: set[AllocationPath] = set()
        for node in facts.by_pool.get(pool, ()):
            if not record.gpus or not admits(node, record.spec.shape):
                continue
            name = node.node.name
            for workload, gpus in sorted(node.holders.items()):
                other = facts.records[workload]
                held, spec = other.held, other.spec
                if not gpus or held is None:
                    continue
                if spec.min_runtime and other.phase in STAYING:
                    leaves.add(spec.allocation)
                takes = workload in mine_to_take
                holders.append(Holder(workload, spec.user, spec.allocation, name, gpus, held.protected_until, takes))
        if decisive is None and record.spec.allocated:
            decisive = most_over_served(facts, reading.shares(pool), record, leaves)
    return tuple(holders), decisive


def _blocked(facts: Facts, record: Record, holders: tuple[Holder, ...], comparison: Comparison | None) -> str:
    shape = words.shape(record.spec.shape)
    nodes = [node for pool in record.spec.pools for node in facts.by_pool.get(pool, ())]
    usable = [node for node in nodes if admits(node, record.spec.shape)]
    if len(usable) < record.spec.shape.nodes:
        shut = sum(1 for node in nodes if not node.open)
        return (
            f"It waits for {shape}: of {len(nodes)} node{'' if len(nodes) == 1 else 's'} {len(usable) or 'none'} could take a part of it now; "
            f"{shut} {'is' if shut == 1 else 'are'} cordoned or lost."
        )
    kept = sum(node.free - max(0, node.room) for node in usable if node.bounds)
    beside = rest_left(record.spec.shape, usable)
    others = not_offered(record.spec.shape, usable)
    beside += others
    if not record.gpus:
        return f"It waits for {shape}{beside}; it starts as soon as there is enough."
    free = sum(max(0, node.room) for node in usable)
    begin = f"It waits for {shape}; {words.gpus(free)} {'is' if free == 1 else 'are'} free{beside}"
    begin += f", {kept} more until others land or a maintenance begins" if kept > 0 else ""
    begin += f", and {_holding(facts, holders)}." if holders else "."
    if others:
        return f"{begin} It cannot start before these are there, whoever else leaves."
    if not record.spec.allocated:
        return f"{begin} It is unallocated, so it starts only on GPUs that nobody else can use."
    takers = sum(holder.gpus for holder in holders if holder.preemptible_now)
    if takers:
        return f"{begin} It may preempt {words.gpus(takers)} of these now, which is not enough on the nodes it needs."
    if comparison is None:
        return f"{begin} They belong to its own allocation, where only a higher priority preempts."
    if comparison.wins:
        return f"{begin} {comparison}, so it may preempt as soon as a protection there ends."
    return f"{begin} {comparison}, so it may not preempt yet."


def _holding(facts: Facts, holders: tuple[Holder, ...]) -> str:
    shown = sorted(holders, key=lambda holder: (holder.protected_until, holder.workload, holder.node))[:3]
    said = ", ".join(
        f"{facts.label(holder.workload)} ({holder.allocation}) holds {holder.gpus} on {holder.node} "
        f"{_until(facts, holder)}"
        for holder in shown
    )
    more = len(holders) - len(shown)
    return f"{said} and {more} more hold the others" if more else said


def _until(facts: Facts, holder: Holder) -> str:
    record = facts.records[holder.workload]
    if record.phase not in STAYING:
        return f"and is leaving by {words.moment(record.deadline or facts.now)}"
    if not record.spec.allocated:
        return "unallocated"
    if holder.protected_until <= facts.now:
        return f"unprotected since {words.moment(holder.protected_until)}"
    return f"protected until {words.moment(holder.protected_until)}"
