"""When a workload that waits could start, if nothing new arrives: an estimate, named as such."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from operator import attrgetter
from typing import TypeVar

from gpufair.core import words
from gpufair.core.amount import Amount, asked, left
from gpufair.core.facts import LEAVING, STAYING, Facts
from gpufair.core.model import Shape
from gpufair.core.placement import admits
from gpufair.core.record import NodeRecord, Record
from gpufair.core.units import AllocationPath, Instant, NodeName, PoolName

Q = TypeVar("Q", int, Amount)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A moment, if there is one, and what it rests on."""

    at: Instant | None
    basis: str


@dataclass(frozen=True, slots=True)
class _Ready:
    """From ``at`` on, ``gpus`` of a node can be had, and the rest that ``holder`` has there; free ``grace`` later."""

    at: int
    grace: int
    node: NodeName
    gpus: int
    holder: Shape

    @property
    def amount(self) -> Amount:
        """All of it."""
        return Amount(self.gpus, self.holder.cpus_per_node, self.holder.memory_per_node)


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
        needs = " that has enough left" if record.spec.shape.counted else ""
        return f"no estimate: it starts as soon as a node for it is there{needs}"
    if not record.spec.allocated:
        return "no estimate: unallocated work waits until GPUs are idle"
    return "no estimate: it starts when enough of those who hold the GPUs end by themselves"


def _in_pool(facts: Facts, record: Record, pool: PoolName) -> int | None:
    shape = record.spec.shape
    nodes = {node.node.name: node for node in facts.by_pool.get(pool, ()) if admits(node, shape)}
    if len(nodes) < shape.nodes:
        return None
    ready = sorted(_readiness(facts, record, pool), key=lambda one: (one.at, one.node, one.gpus))
    if shape.counted:
        return _enough(facts, record, nodes, ready, left, asked(shape), attrgetter("amount"))
    return _enough(facts, record, nodes, ready, lambda node: max(0, node.room), shape.gpus_per_node, attrgetter("gpus"))


def _enough(
    facts: Facts,
    record: Record,
    nodes: Mapping[NodeName, NodeRecord],
    every: list[_Ready],
    room: Callable[[NodeRecord], Q],
    each: Q,
    amount: Callable[[_Ready], Q],
) -> int | None:
    """When as much as the shape takes of each node is to be had on enough nodes, in one block if it demands one."""
    shape = record.spec.shape
    rooms = {name: room(node) for name, node in nodes.items()}
    reached = Counter(node.node.labels.get(shape.block) for name, node in nodes.items() if rooms[name] >= each)
    if max(reached.values(), default=0) >= shape.nodes:
        return facts.now
    grace = 0
    for ready in every:
        if ready.node not in rooms:
            continue
        before = rooms[ready.node]
        rooms[ready.node] = after = before + amount(ready)
        grace = max(grace, ready.grace)
        if after >= each and not before >= each:
            block = nodes[ready.node].node.labels.get(shape.block)
            reached[block] += 1
            if reached[block] >= shape.nodes:
                return ready.at + grace
    return None


def _readiness(facts: Facts, record: Record, pool: PoolName) -> Iterator[_Ready]:
    """When ``record`` can have the GPUs of whoever holds some now."""
    ranks = _Ranks(facts, record, pool)
    for workload in sorted(facts.holding):
        holder = facts.holding[workload]
        held = holder.held
        if held is None or held.pool != pool or not (holder.gpus or holder.spec.shape.counted):
            continue
        grace = 0
        at: int | None
        if holder.phase in LEAVING:
            at = max(facts.now, holder.deadline or facts.now)
        else:
            at, grace = _ready_at(facts, record, holder, ranks), facts.grace(holder)
        if at is not None:
            for lease in held.leases:
                yield _Ready(at, grace, lease.node, lease.gpus, holder.spec.shape)


def _ready_at(facts: Facts, record: Record, holder: Record, ranks: _Ranks) -> int | None:
    # Work without GPUs evicts nobody and is not evicted.
    if not record.spec.allocated or holder.held is None or not record.gpus or not holder.gpus:
        return None
    if not holder.spec.allocated:
        return facts.now
    until = max(facts.now, holder.held.protected_until)
    if holder.spec.allocation == record.spec.allocation:
        return until if record.spec.priority > holder.spec.priority else None
    rank = ranks.over(holder.spec.allocation)
    return max(until, rank) if rank is not None else None


class _Growth:
    """How much more than now a tree node will have had, if everybody in it runs on: GPUs x time beyond protection.

    Occupancy replaces commitment while a protection lasts; only what runs on beyond it adds to O + K.
    """

    def __init__(self, parts: list[tuple[int, int]]) -> None:
        parts.sort()
        self._since = [since for since, _ in parts]
        self._gpus = list(accumulate((gpus for _, gpus in parts), initial=0))
        self._gpu_since = list(accumulate((since * gpus for since, gpus in parts), initial=0))

    def until(self, at: int) -> int:
        """GPU time grown until ``at``."""
        count = bisect_left(self._since, at)
        return self._gpus[count] * at - self._gpu_since[count]


class _Ranks:
    """When a workload will outrank other leaves, if everybody goes on as now; the window's far end is left aside."""

    def __init__(self, facts: Facts, record: Record, pool: PoolName) -> None:
        self._facts, self._record = facts, record
        self._shares = facts.shares(pool)
        self._known: dict[AllocationPath, int | None] = {}
        # Only siblings are compared, so only the children of its own line matter.
        tree = facts.tree
        children = {child for above in tree[record.spec.allocation].lineage for child in tree[above].children}
        parts: dict[AllocationPath, list[tuple[int, int]]] = {child: [] for child in children}
        for holder in facts.holding.values():
            held = holder.held
            if held is not None and held.pool == pool and holder.spec.allocated and holder.phase in STAYING:
                for path in tree[holder.spec.allocation].lineage:
                    if path in children:
                        parts[path].append((max(facts.now, held.protected_until), holder.gpus))
        self._growth = {path: _Growth(each) for path, each in parts.items()}

    def over(self, leaf: AllocationPath) -> int | None:
        """The moment for one leaf; None if never within a window."""
        sides = self._facts.tree.diverge(self._record.spec.allocation, leaf)
        if sides is None:
            return None
        if sides[1] not in self._known:
            self._known[sides[1]] = self._moment(*sides)
        return self._known[sides[1]]

    def _moment(self, mine: AllocationPath, theirs: AllocationPath) -> int | None:
        now, policy = self._facts.now, self._facts.policy
        if self._outranks(mine, theirs, now):
            return now
        if not policy.commitment or not self._outranks(mine, theirs, now + policy.window):
            return None
        # The first moment of the grid at which it does.
        low, high = now // policy.grid, -(-(now + policy.window) // policy.grid)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._outranks(mine, theirs, middle * policy.grid) else (middle, high)
        return high * policy.grid

    def _outranks(self, mine: AllocationPath, theirs: AllocationPath, at: int) -> bool:
        ours = self._shares.metric_with(mine, self._grown(mine, at) + self._record.commitment)
        factor = 1 - self._facts.policy.hysteresis
        return ours < inf and ours <= factor * self._shares.metric_with(theirs, self._grown(theirs, at))

    def _grown(self, path: AllocationPath, at: int) -> int:
        growth = self._growth.get(path)
        return growth.until(at) if growth is not None else 0
