"""When a workload that waits could start, if nothing new arrives: an estimate, named as such."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate
from math import inf
from operator import attrgetter
from typing import TypeVar

from gpufair.core import words
from gpufair.core.amount import Amount, Quantity, asked, left
from gpufair.core.facts import LEAVING, Facts
from gpufair.core.model import Shape
from gpufair.core.placement import accepts, admits
from gpufair.core.record import NodeRecord, Record
from gpufair.core.share import Shares
from gpufair.core.units import AllocationPath, Instant, NodeName, PoolName, WorkloadId

Q = TypeVar("Q", bound=Quantity)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A moment, if there is one, and what it rests on."""

    at: Instant | None
    basis: str
    binding: bool = False  # a start-by time of a landing: later arrivals do not move it


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


def estimate(facts: Facts, record: Record, ahead: int, forecasts: Forecasts | None = None) -> Estimate:
    """The earliest moment at which enough GPUs are free or preemptible for it, plus the victims' grace.

    Args:
        facts: What is so.
        record: A queued workload.
        ahead: How many are before it in the queue.
        forecasts: What is known already about the same facts.
    """
    if record.reservation is not None:
        victims = [facts.records[victim] for victim in record.reservation.pending]
        at = max((victim.deadline or facts.now for victim in victims), default=facts.now)
        return Estimate(at, f"its GPUs are being released; {words.names(v.label for v in victims)} must stop by then")
    if record.landing is not None:
        return Estimate(record.landing.start_by, record.landing.why, binding=True)
    known = forecasts if forecasts is not None else Forecasts(facts)
    found = [known.of(record.spec.allocation, pool).start(record) for pool in record.spec.pools]
    times = [at for at in found if at is not None]
    if not times:
        return Estimate(None, _why_none(facts, record))
    behind = f"; {ahead} before it in the queue may take them first" if ahead else ""
    return Estimate(
        Instant(min(times)),
        f"an estimate: enough GPUs are free or preemptible for it then, grace included, if nothing new arrives{behind}",
    )


def _why_none(facts: Facts, record: Record) -> str:
    shape = record.spec.shape
    known = [node for pool in record.spec.pools for node in facts.by_pool.get(pool, ()) if accepts(shape, node.node)]
    if len(known) >= shape.nodes > sum(node.open for node in known):
        return "no estimate: it starts when enough of the nodes that are closed now (cordoned or lost) take work again"
    if not record.gpus:
        needs = " that has enough left" if shape.counted else ""
        return f"no estimate: it starts as soon as a node for it is there{needs}"
    if not record.spec.allocated:
        return "no estimate: unallocated work waits until GPUs are idle"
    return "no estimate: it starts when enough of those who hold the GPUs end by themselves"


class Forecasts:
    """What can be foreseen for the leaves of some facts, worked out once each."""

    def __init__(self, facts: Facts, shares: Callable[[PoolName], Shares] | None = None) -> None:
        self._facts, self._shares = facts, shares or facts.shares
        self._known: dict[tuple[AllocationPath, PoolName], Forecast] = {}

    def of(self, leaf: AllocationPath, pool: PoolName) -> Forecast:
        """That of one leaf in one pool."""
        known = self._known.get((leaf, pool))
        if known is None:
            known = self._known[leaf, pool] = Forecast(self._facts, leaf, pool, self._shares(pool))
        return known


class Forecast:
    """When the workloads of one leaf could have the GPUs of those who hold some in a pool now."""

    def __init__(self, facts: Facts, leaf: AllocationPath, pool: PoolName, shares: Shares) -> None:
        self._facts, self._leaf, self._pool = facts, leaf, pool
        self._leaving: list[tuple[int, WorkloadId, Record]] = []
        self._unallocated: list[tuple[int, WorkloadId, Record]] = []
        self._own: list[tuple[int, WorkloadId, Record]] = []
        self._others: dict[AllocationPath, list[tuple[int, WorkloadId, Record]]] = {}  # by whom they are compared as
        grows: dict[AllocationPath, list[tuple[int, int]]] = {}  # by leaf: since when how many GPUs add to what it had
        now, tree = facts.now, facts.ranking
        sides: dict[AllocationPath, list[tuple[int, WorkloadId, Record]]] = {leaf: self._own}
        for holder in facts.holding.values():
            held, spec = holder.held, holder.spec
            if held is None or held.pool != pool:
                continue
            gpus = spec.shape.gpus
            if holder.phase in LEAVING:
                if gpus or spec.shape.counted:
                    self._leaving.append((max(now, holder.deadline or now), holder.id, holder))
            elif not gpus:
                continue  # work without GPUs is not evicted
            elif not spec.min_runtime:
                self._unallocated.append((now, holder.id, holder))
            else:
                until = max(now, held.protected_until)
                own = grows.get(spec.allocation)
                if own is None:
                    own = grows[spec.allocation] = []
                own.append((until, holder.rate))
                other = sides.get(spec.allocation)
                if other is None:
                    diverging = tree.diverge(leaf, spec.allocation)
                    assert diverging is not None
                    other = sides[spec.allocation] = self._others.setdefault(diverging[1], [])
                other.append((until, holder.id, holder))
        for each in (self._leaving, self._unallocated, self._own, *self._others.values()):
            each.sort()
        self._ranks = Ranks(facts, leaf, shares, grows)

    def start(self, record: Record) -> int | None:
        """When one of the leaf could start, if it were the first; None if nobody can say."""
        shape, facts = record.spec.shape, self._facts
        nodes = {node.node.name: node for node in facts.by_pool.get(self._pool, ()) if admits(node, shape)}
        if len(nodes) < shape.nodes:
            return None
        ready = self._readiness(record)
        if shape.counted:
            return self._enough(shape, nodes, ready, left, asked(shape), attrgetter("amount"))
        wanted = shape.gpus_per_node
        return self._enough(shape, nodes, ready, lambda node: max(0, node.room), wanted, attrgetter("gpus"))

    def _enough(
        self,
        shape: Shape,
        nodes: Mapping[NodeName, NodeRecord],
        every: Iterable[_Ready],
        room: Callable[[NodeRecord], Q],
        each: Q,
        amount: Callable[[_Ready], Q],
    ) -> int | None:
        """When as much as the shape takes of each node is to be had on enough nodes, in one block if it demands one."""
        rooms = {name: room(node) for name, node in nodes.items()}
        reached = Counter(node.node.labels.get(shape.block) for name, node in nodes.items() if rooms[name] >= each)
        if max(reached.values(), default=0) >= shape.nodes:
            return self._facts.now
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

    def _readiness(self, record: Record) -> Iterator[_Ready]:
        """When ``record`` can have the GPUs of whoever holds some now, the first first."""
        # What is not known yet of a stream is when its rank is had; a lower bound will do until it is its turn.
        heap: list[tuple[int, WorkloadId, int, int, bool]] = []
        streams = [(self._leaving, None), *self._streams(record)]
        since = [0] * len(streams)
        for number, (holders, theirs) in enumerate(streams):
            if holders:
                heappush(heap, (holders[0][0], holders[0][1], number, 0, theirs is None))
        while heap:
            at, _, number, index, exact = heappop(heap)
            holders, theirs = streams[number]
            if not exact:
                rank = self._ranks.over(theirs or self._leaf, record.commitment)
                if rank is not None:
                    since[number] = rank
                    heappush(heap, (max(at, rank), holders[0][1], number, 0, True))
                continue
            holder = holders[index][2]
            grace = 0 if number == 0 else self._facts.grace(holder)
            for lease in holder.held.leases if holder.held is not None else ():
                yield _Ready(at, grace, lease.node, lease.gpus, holder.spec.shape)
            if index + 1 < len(holders):
                until, workload, _ = holders[index + 1]
                heappush(heap, (max(until, since[number]), workload, number, index + 1, True))

    def _streams(self, record: Record) -> Iterator[tuple[list[tuple[int, WorkloadId, Record]], AllocationPath | None]]:
        """Those whom it could preempt, by when their protections end; with whom rank decides about, where it does."""
        # Work without GPUs evicts nobody.
        if not record.spec.allocated or not record.gpus:
            return
        yield self._unallocated, None
        lower = [one for one in self._own if record.spec.priority > one[2].spec.priority]
        yield lower, None
        for theirs, holders in self._others.items():
            yield holders, theirs


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


class Ranks:
    """When a workload will outrank other leaves, if everybody goes on as now; the window's far end is left aside."""

    def __init__(
        self,
        facts: Facts,
        leaf: AllocationPath,
        shares: Shares,
        grows: Mapping[AllocationPath, list[tuple[int, int]]],
    ) -> None:
        self._facts, self._leaf, self._shares, self._grows = facts, leaf, shares, grows
        self._known: dict[tuple[AllocationPath, int], int | None] = {}
        self._growth: dict[AllocationPath, _Growth] | None = None

    def over(self, theirs: AllocationPath, commitment: int) -> int | None:
        """When a start that promises so much outranks a sibling of the leaf's line; None if never within a window."""
        key = theirs, commitment
        if key not in self._known:
            parent = self._facts.ranking[theirs].parent
            mine = next(
                path for path in self._facts.ranking[self._leaf].lineage if self._facts.ranking[path].parent == parent
            )
            self._known[key] = self._moment(mine, theirs, commitment)
        return self._known[key]

    def _moment(self, mine: AllocationPath, theirs: AllocationPath, commitment: int) -> int | None:
        now, policy = self._facts.now, self._facts.policy
        factor = 1 - policy.hysteresis
        ours = self._shares.metric_with(mine, commitment)
        if ours < inf and ours <= factor * self._shares.metric(theirs):
            return now
        if not policy.commitment or not self._outranks(mine, theirs, commitment, now + policy.window):
            return None
        # The first moment of the grid at which it does.
        low, high = now // policy.grid, -(-(now + policy.window) // policy.grid)
        while high - low > 1:
            middle = (low + high) // 2
            ahead = self._outranks(mine, theirs, commitment, middle * policy.grid)
            low, high = (low, middle) if ahead else (middle, high)
        return high * policy.grid

    def _outranks(self, mine: AllocationPath, theirs: AllocationPath, commitment: int, at: int) -> bool:
        ours = self._shares.metric_with(mine, self._grown(mine, at) + commitment)
        factor = 1 - self._facts.policy.hysteresis
        return ours < inf and ours <= factor * self._shares.metric_with(theirs, self._grown(theirs, at))

    def _grown(self, path: AllocationPath, at: int) -> int:
        if self._growth is None:
            self._growth = self._grow()
        growth = self._growth.get(path)
        return growth.until(at) if growth is not None else 0

    def _grow(self) -> dict[AllocationPath, _Growth]:
        tree = self._facts.ranking
        # Only siblings are compared, so only the children of the leaf's own line matter.
        children = {child for above in tree[self._leaf].lineage for child in tree[above].children}
        parts: dict[AllocationPath, list[tuple[int, int]]] = {}
        for leaf, grown in self._grows.items():
            for path in tree[leaf].lineage:
                if path in children:
                    parts.setdefault(path, []).extend(grown)
        return {path: _Growth(each) for path, each in parts.items()}
