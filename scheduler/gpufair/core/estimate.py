"""When a workload that waits could start, if nothing new arrives: an estimate, named as such."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpufair.core import words
from gpufair.core.facts import LEAVING, STAYING, Facts
from gpufair.core.placement import admits
from gpufair.core.record import Record
from gpufair.core.share import Shares
from gpufair.core.units import AllocationPath, Instant, NodeName, PoolName


@dataclass(frozen=True, slots=True)
class Estimate:
    """A moment, if there is one, and what it rests on."""

    at: Instant | None
    basis: str


@dataclass(frozen=True, slots=True)
class _Ready:
    """From ``at`` on, ``gpus`` of a node can be had; they are free ``grace`` later."""

    at: int
    grace: int
    node: NodeName
    gpus: int


def estimate(facts: Facts, record: Record, ahead: int) -> Estimate:
    """The earliest moment at which enough GPUs are free or preemptible for it, plus the victims' grace.

    Args:
        facts: What is so.
        record: A queued workload.
        ahead: How many are before it in the queue.
    """
    if record.reservation is not None:
        victims = [facts.records[victim] for victim in record.reservation.pending]
        at = max((victim.deadline or facts.now for victim in victims), default=facts.now)
        return Estimate(at, f"its GPUs are being released; {words.names(v.label for v in victims)} must stop by then")
    found = [_in_pool(facts, record, pool) for pool in record.spec.pools]
    times = [at for at in found if at is not None]
    if not times:
        return Estimate(None, _why_none(record))
    behind = f"; {ahead} before it in the queue may take them first" if ahead else ""
    return Estimate(
        Instant(min(times)),
        f"an estimate: enough GPUs are free or preemptible for it then, grace included, if nothing new arrives{behind}",
    )


def _why_none(record: Record) -> str:
    if not record.gpus:
        return "no estimate: it starts as soon as a node for it is there"
    if not record.spec.allocated:
        return "no estimate: unallocated work waits until GPUs are idle"
    return "no estimate: it starts when enough of those who hold the GPUs end by themselves"


def _in_pool(facts: Facts, record: Record, pool: PoolName) -> int | None:
    shape = record.spec.shape
    rooms = {node.node.name: max(0, node.room) for node in facts.by_pool.get(pool, ()) if admits(node, shape)}
    if len(rooms) < shape.nodes:
        return None
    enough = sum(1 for room in rooms.values() if room >= shape.gpus_per_node)
    if enough >= shape.nodes:
        return facts.now
    grace = 0
    for ready in sorted(_readiness(facts, record, pool), key=lambda one: (one.at, one.node, one.gpus)):
        if ready.node not in rooms:
            continue
        before = rooms[ready.node]
        rooms[ready.node] += ready.gpus
        grace = max(grace, ready.grace)
        if before < shape.gpus_per_node <= rooms[ready.node]:
            enough += 1
            if enough >= shape.nodes:
                return ready.at + grace
    return None


def _readiness(facts: Facts, record: Record, pool: PoolName) -> Iterator[_Ready]:
    """When ``record`` can have the GPUs of whoever holds some now."""
    shares = facts.shares(pool)
    ranks: dict[AllocationPath, int | None] = {}
    for workload in sorted(facts.holding):
        holder = facts.holding[workload]
        held = holder.held
        if held is None or held.pool != pool or not holder.gpus:
            continue
        grace = 0
        at: int | None
        if holder.phase in LEAVING:
            at = max(facts.now, holder.deadline or facts.now)
        else:
            leaf = holder.spec.allocation
            if leaf not in ranks:
                ranks[leaf] = _rank_time(facts, shares, record, leaf, pool)
            at, grace = _ready_at(facts, record, holder, ranks[leaf]), facts.grace(holder)
        if at is not None:
            for lease in held.leases:
                yield _Ready(at, grace, lease.node, lease.gpus)


def _ready_at(facts: Facts, record: Record, holder: Record, rank: int | None) -> int | None:
    if not record.spec.allocated or holder.held is None:
        return None
    if not holder.spec.allocated:
        return facts.now
    until = max(facts.now, holder.held.protected_until)
    if holder.spec.allocation == record.spec.allocation:
        return until if record.spec.priority > holder.spec.priority else None
    return max(until, rank) if rank is not None else None


def _rank_time(facts: Facts, shares: Shares, record: Record, theirs: AllocationPath, pool: PoolName) -> int | None:
    """When ``record`` will outrank a leaf, if everybody goes on as now; the window's far end is left aside."""
    mine = record.spec.allocation
    sides = facts.tree.diverge(mine, theirs)
    if sides is None:
        return None
    hysteresis = facts.policy.hysteresis
    if shares.outranks(mine, theirs, record.commitment, hysteresis):
        return facts.now
    running = [
        (side, holder.gpus, max(facts.now, holder.held.protected_until))
        for holder in facts.holding.values()
        if holder.held is not None and holder.held.pool == pool and holder.spec.allocated and holder.phase in STAYING
        for side in sides
        if side in facts.tree[holder.spec.allocation].lineage
    ]

    def outranks(at: int) -> bool:
        # Occupancy replaces commitment while a protection lasts; only what runs on beyond it adds to O + K.
        grown = dict.fromkeys(sides, 0)
        for side, gpus, since in running:
            grown[side] += gpus * max(0, at - since)
        ours = shares.metric_with(sides[0], grown[sides[0]] + record.commitment)
        return ours <= (1 - hysteresis) * shares.metric_with(sides[1], grown[sides[1]])

    low, high = int(facts.now), facts.now + facts.policy.window
    if not facts.policy.commitment or not outranks(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if outranks(middle) else (middle, high)
    grid = facts.policy.grid
    return -(-high // grid) * grid
