"""Why a workload is where it is, computed from the same state that decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gpufair.core import words
from gpufair.core.brief import rest_left
from gpufair.core.chances import Chances
from gpufair.core.change import Change, smallest_change
from gpufair.core.estimate import estimate
from gpufair.core.facts import STAYING, Facts
from gpufair.core.model import Phase
from gpufair.core.placement import admits
from gpufair.core.queue import position, queue
from gpufair.core.record import Record
from gpufair.core.rights import may_leave
from gpufair.core.share import Shares, Standing
from gpufair.core.units import AllocationPath, Instant, NodeName, PoolName, WorkloadId
from gpufair.core.waiting import class_of


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody who holds GPUs that the workload could use."""

    workload: WorkloadId
    user: str
    allocation: AllocationPath
    node: NodeName
    gpus: int
    protected_until: Instant
    preemptible_now: bool  # by the workload that is explained, were this enough for it


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a workload is where it is. ``position`` counts from 1; None where it does not wait.

    ``mine`` counts what a start would promise the workload, as the rule of preemption does.
    """

    workload: WorkloadId
    phase: Phase
    position: int | None
    sentence: str
    level: tuple[AllocationPath, AllocationPath] | None = None  # the siblings that decided: mine, theirs
    mine: Standing | None = None
    theirs: Standing | None = None
    holders: tuple[Holder, ...] = ()
    estimate: Instant | None = None
    estimate_basis: str = ""
    binding: bool = False  # start-by times that hold come with landings
    smallest_change: Change | None = None


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Two siblings of the tree and how they stand to each other, for one workload that waits."""

    mine: Standing
    theirs: Standing
    wins: bool

    @property
    def level(self) -> tuple[AllocationPath, AllocationPath]:
        return self.mine.path, self.theirs.path

    def __str__(self) -> str:
        return (
            f"{self.mine.path} ({words.metric(self.mine.metric)} with this start) "
            f"{'is under-served' if self.wins else 'is not under-served'} against "
            f"{self.theirs.path} ({words.metric(self.theirs.metric)})"
        )


def explain(facts: Facts, record: Record) -> Explanation:
    """Explain one workload."""
    return _EXPLAINERS[record.phase](facts, record)


# -- waiting ------------------------------------------------------------------------------------------------------


def _queued(facts: Facts, record: Record) -> Explanation:
    place = position(facts, record)
    guess = estimate(facts, record, place - 1)
    holders, comparison = _obstacles(facts, record)
    if record.reservation is not None:
        victims = words.names(facts.label(victim) for victim in record.reservation.pending)
        where = words.places(record.reservation.leases)
        sentence = f"GPUs on {where} are kept for it; it starts there when {victims} has left. {_first(record.reason)}"
    else:
        sentence = f"{_blocked(facts, record, holders, comparison)}{_colleague(facts, record)}"
    return Explanation(
        workload=record.id,
        phase=record.phase,
        position=place,
        sentence=f"{_earlier(record)}{sentence}",
        level=comparison.level if comparison else None,
        mine=comparison.mine if comparison else None,
        theirs=comparison.theirs if comparison else None,
        holders=holders,
        estimate=guess.at,
        estimate_basis=guess.basis,
        smallest_change=None if record.reservation is not None else smallest_change(facts, record),
    )


def _colleague(facts: Facts, record: Record) -> str:
    """Who of the same leaf comes first for having had less, of equal priority."""
    spec = record.spec
    if not spec.allocated or not record.gpus:
        return ""
    shares = facts.shares(spec.pools[0])
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
    counted = ", protection granted included" if facts.policy.commitment else ""
    return (
        f" In {spec.allocation} {user} comes before {spec.user}: of equal priority, who has had less is first "
        f"({words.gpu_time(had)} and {words.gpu_time(mine)}{counted})."
    )


def _earlier(record: Record) -> str:
    """What happened to it before, where it ran already."""
    return f"{_first(record.reason)} " if record.starts and record.reservation is None else ""


def _first(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:]}."


def _obstacles(facts: Facts, record: Record) -> tuple[tuple[Holder, ...], _Comparison | None]:
    """Who holds the GPUs that it could use, and the comparison with the most over-served of them."""
    holders: list[Holder] = []
    decisive: _Comparison | None = None
    for pool in record.spec.pools:
        shares = facts.shares(pool)
        mine_to_take = _may_preempt(facts, pool, record)
        leaves: set[AllocationPath] = set()
        for node in facts.by_pool.get(pool, ()):
            if not record.gpus or not admits(node, record.spec.shape):
                continue
            for workload in sorted(node.holders):
                other = facts.records[workload]
                if not other.gpus or other.held is None:
                    continue
                if other.spec.allocated and other.phase in STAYING:
                    leaves.add(other.spec.allocation)
                holders.append(
                    Holder(
                        workload=workload,
                        user=other.spec.user,
                        allocation=other.spec.allocation,
                        node=node.node.name,
                        gpus=node.holders[workload],
                        protected_until=other.held.protected_until,
                        preemptible_now=workload in mine_to_take,
                    )
                )
        if decisive is None and record.spec.allocated:
            decisive = _most_over_served(facts, shares, record, leaves)
    return tuple(holders), decisive


def _may_preempt(facts: Facts, pool: PoolName, record: Record) -> set[WorkloadId]:
    return may_leave(facts, Chances(facts, pool), record) if record.spec.allocated else set()


def _most_over_served(facts: Facts, shares: Shares, record: Record, leaves: set[AllocationPath]) -> _Comparison | None:
    """The comparison that it is the likeliest to win; None if only its own leaf holds GPUs."""
    best: tuple[float, AllocationPath] | None = None
    for leaf in sorted(leaves):
        sides = facts.tree.diverge(record.spec.allocation, leaf)
        if sides is None:
            continue
        # What it would need to be ahead by; the sides differ with the level, so the metrics alone do not tell.
        gap = shares.metric_with(sides[0], record.commitment) - (1 - facts.policy.hysteresis) * shares.metric(sides[1])
        if best is None or gap < best[0]:
            best = (gap, leaf)
    return _compare(facts, shares, record, best[1]) if best is not None else None


def _compare(facts: Facts, shares: Shares, record: Record, theirs: AllocationPath) -> _Comparison | None:
    sides = facts.tree.diverge(record.spec.allocation, theirs)
    if sides is None:
        return None
    wins = shares.outranks(record.spec.allocation, theirs, record.commitment, facts.policy.hysteresis)
    return _Comparison(shares.standing(sides[0], record.commitment), shares.standing(sides[1]), wins)


def _blocked(facts: Facts, record: Record, holders: tuple[Holder, ...], comparison: _Comparison | None) -> str:
    shape = words.shape(record.spec.shape)
    nodes = [node for pool in record.spec.pools for node in facts.by_pool.get(pool, ())]
    usable = [node for node in nodes if admits(node, record.spec.shape)]
    if len(usable) < record.spec.shape.nodes:
        shut = sum(1 for node in nodes if not node.open)
        return (
            f"It waits for {shape}: of {len(nodes)} nodes only {len(usable)} could take a part of it now; "
            f"{shut} are cordoned or lost."
        )
    beside = rest_left(record.spec.shape, usable)
    if not record.gpus:
        return f"It waits for {shape}{beside}; it starts as soon as there is enough."
    free = sum(max(0, node.room) for node in usable)
    begin = f"It waits for {shape}; {words.gpus(free)} {'is' if free == 1 else 'are'} free{beside}"
    begin += f", and {_holding(facts, holders)}." if holders else "."
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


# -- holding ------------------------------------------------------------------------------------------------------


def _staying(facts: Facts, record: Record) -> Explanation:
    held = record.held
    assert held is not None
    verb = {Phase.STARTING: "It is starting", Phase.RESTORING: "It is being restored"}.get(record.phase, "It runs")
    begin = f"{verb} on {words.places(held.leases)} since {words.moment(held.granted_at)}"
    if not record.spec.allocated and record.gpus:
        begin += ", unallocated: any allocated workload may preempt it at any time"
    elif facts.now < held.protected_until:
        begin += f", protected until {words.moment(held.protected_until)}"
    else:
        begin += f"; its protection ended at {words.moment(held.protected_until)}"
    shares = facts.shares(held.pool)
    when = " from then on" if record.spec.allocated and facts.now < held.protected_until else " now"
    threat, comparison = _first_threat(facts, shares, record)
    if threat is None:
        sentence = f"{begin}. Nobody who waits now could preempt it."
    elif comparison is None:
        sentence = f"{begin}. {threat.label} ({threat.spec.allocation}) could preempt it{when}."
    else:
        sentence = f"{begin}. {threat.label} could preempt it{when}: {comparison}."
    return Explanation(
        workload=record.id,
        phase=record.phase,
        position=None,
        sentence=f"{sentence} It was started because {record.reason}.",
        level=(comparison.theirs.path, comparison.mine.path) if comparison else None,
        mine=comparison.theirs if comparison else None,
        theirs=comparison.mine if comparison else None,
    )


def _first_threat(facts: Facts, shares: Shares, record: Record) -> tuple[Record | None, _Comparison | None]:
    """The first in the queue that could preempt it once it is unprotected, as the metrics are now."""
    if not record.gpus or record.held is None:
        return None, None
    for workload in queue(facts):
        other = facts.records[workload]
        if not other.spec.allocated or not other.gpus or record.held.pool not in other.spec.pools:
            continue
        if not record.spec.allocated:
            return other, None
        comparison = _compare(facts, shares, other, record.spec.allocation)
        if comparison is None and other.spec.priority > record.spec.priority:
            return other, None
        if comparison is not None and comparison.wins:
            return other, comparison
    return None, None


def _leaving(facts: Facts, record: Record) -> Explanation:
    whom = f" for {facts.label(record.beneficiary)}" if record.beneficiary is not None else ""
    deadline = words.moment(record.deadline or facts.now)
    if record.phase is Phase.CHECKPOINTING:
        begin = f"It was told to leave{whom} and saves its state; it must have left by {deadline}"
    else:
        begin = f"It was told to stop{whom}; its GPUs are held until its processes are really gone"
    return Explanation(record.id, record.phase, None, f"{begin}. {_first(record.reason)}")


def _resting(facts: Facts, record: Record) -> Explanation:
    whom = f" Its GPUs went to {facts.label(record.beneficiary)}." if record.beneficiary is not None else ""
    return Explanation(record.id, record.phase, None, f"{_first(record.reason)}{whom}")


_EXPLAINERS: Final[Mapping[Phase, Callable[[Facts, Record], Explanation]]] = MappingProxyType(
    {
        Phase.QUEUED: _queued,
        Phase.STARTING: _staying,
        Phase.RESTORING: _staying,
        Phase.RUNNING: _staying,
        Phase.CHECKPOINTING: _leaving,
        Phase.STOPPING: _leaving,
        Phase.PARKED: _resting,
        Phase.ENDED: _resting,
    }
)

__all__ = ["Change", "Explanation", "Holder", "explain"]
