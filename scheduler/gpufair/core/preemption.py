"""Who may preempt whom, by which right, and what the eviction of each costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

from gpufair.core.facts import Facts
from gpufair.core.model import Policy, PreemptReason
from gpufair.core.record import Record
from gpufair.core.running import Running
from gpufair.core.share import Shares
from gpufair.core.units import AllocationPath, GpuMillis, Instant, NodeName, WorkloadId

# Level, loss, busy, release and workload of a ``Candidate``: the most important part first.
Cost = tuple[int, int, int, int, WorkloadId]


class Candidate:
    """A running workload that may be preempted, by which right, and what its eviction costs. It never changes.

    Args:
        record: The workload.
        reason: By which right.
        level: 0 unallocated, 1 lower priority in the own leaf, 2... bands of over-served leaves.
        loss: GPU-milliseconds of work.
        busy: 1 if it runs a cell now.
        release: Milliseconds until its GPUs are free.
    """

    # Many are made for each plan, so it is a plain class: what ``dataclass`` makes is not compiled.
    __slots__ = ("busy", "cost", "gpus", "level", "loss", "reason", "record", "release")

    def __init__(
        self, record: Record, reason: PreemptReason, level: int, loss: int, busy: int, release: int
    ) -> None:
        self.record, self.reason = record, reason
        self.level, self.loss, self.busy, self.release = level, loss, busy, release
        self.cost: Cost = (level, loss, busy, release, record.id)
        self.gpus: dict[NodeName, int] = {}
        if record.held is not None:
            for lease in record.held.leases:
                self.gpus[lease.node] = lease.gpus

    def at(self, level: int) -> Candidate:
        """The same on another level."""
        return Candidate(self.record, self.reason, level, self.loss, self.busy, self.release)


def loss(facts: Facts, record: Record) -> GpuMillis:
    """GPU time that an eviction loses: work since the last checkpoint or safe point, and saving and restoring, as long
    as they took the last time; all if not resumable."""
    return loss_at(record, facts.now)


def loss_at(record: Record, at: Instant) -> GpuMillis:
    """What an eviction at an instant would lose, if no checkpoint is taken before."""
    held = record.held
    if held is None:
        return GpuMillis(0)
    if not record.spec.resumable:
        return GpuMillis(record.gpus * (at - held.granted_at))
    since, moving = max(held.granted_at, record.safe_at or 0), 0
    if record.checkpoint is not None:
        since, moving = max(since, record.checkpoint.at), record.checkpoint.duration
        moving += record.checkpoint.duration if record.restored_in is None else record.restored_in
    return GpuMillis(record.gpus * (max(0, at - since) + moving))


@dataclass(frozen=True, slots=True)
class Rights:
    """Whom a workload may preempt now: all unallocated work, lower priorities of its own leaf, and outranked leaves."""

    unallocated: Mapping[WorkloadId, Record]
    own: Mapping[WorkloadId, Record]
    outranked: tuple[AllocationPath, ...]
    exposed: Mapping[AllocationPath, Mapping[WorkloadId, Record]]

    def groups(self) -> Iterator[Mapping[WorkloadId, Record]]:
        """All of them."""
        yield self.unallocated
        yield self.own
        for leaf in self.outranked:
            yield self.exposed[leaf]


def rights(facts: Facts, shares: Shares, running: Running, record: Record) -> Rights:
    """Whom ``record``, which is allocated, may preempt now."""
    leaf, hysteresis = record.spec.allocation, facts.policy.hysteresis
    colleagues = running.exposed.get(leaf, {})
    return Rights(
        unallocated=running.unallocated,
        own={one: victim for one, victim in colleagues.items() if record.spec.priority > victim.spec.priority},
        outranked=tuple(
            other for other in running.exposed if shares.outranks(leaf, other, record.commitment, hysteresis)
        ),
        exposed=running.exposed,
    )


def candidates(facts: Facts, shares: Shares, right: Rights) -> list[Candidate]:
    """Everybody who may be preempted by these rights, the cheapest first."""
    found = [candidate(facts, victim, PreemptReason.UNALLOCATED, 0) for victim in right.unallocated.values()]
    found += [candidate(facts, victim, PreemptReason.PRIORITY, 1) for victim in right.own.values()]
    for other, level in bands(facts.policy, ((shares.metric(leaf), leaf) for leaf in right.outranked)).items():
        found += [candidate(facts, victim, PreemptReason.RANK, level) for victim in right.exposed[other].values()]
    return sorted(found, key=cost_of)


def cost_of(candidate: Candidate) -> Cost:
    """The order of victims."""
    return candidate.cost


def bands(policy: Policy, outranked: Iterable[tuple[float, AllocationPath]]) -> dict[AllocationPath, int]:
    """The level of each leaf: the most over-served and all within a band of it first, then the next band."""
    levels: dict[AllocationPath, int] = {}
    level, top = 1, inf
    for metric, leaf in sorted(outranked, key=lambda pair: (-pair[0], pair[1])):
        if level == 1 or metric < top * (1 - policy.victim_band):
            level, top = level + 1, metric
        levels[leaf] = level
    return levels


def candidate(facts: Facts, victim: Record, reason: PreemptReason, level: int) -> Candidate:
    """A running workload as one who may be told to leave."""
    return Candidate(victim, reason, level, loss(facts, victim), int(victim.busy), facts.grace(victim))
