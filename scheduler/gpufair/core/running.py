"""Who runs in a pool and has not been told to leave, by what may be done to them and what they were promised.

An index over the records, kept as workloads start, expire and leave. It says nothing that the records do not, and
``invariants`` checks that it says the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush

from gpufair.core.amount import Freed
from gpufair.core.lines import Known, Lines, Values
from gpufair.core.model import Kind, Lease
from gpufair.core.record import Record
from gpufair.core.sizes import Everyone
from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath, Instant, NodeName, WorkloadId

# Who makes way: outranked leaves; the own leaf and priority, where its own lower priorities do; and leaves with what they
# hold beyond their limits.
Movers = tuple[tuple[AllocationPath, ...], tuple[AllocationPath, int] | None, tuple[tuple[AllocationPath, int], ...]]


class Promised:
    """Unexpired protection: the sum over workloads of GPUs x time left, as a function of the present."""

    __slots__ = ("gpu_ends", "gpus")

    def __init__(self) -> None:
        self.gpu_ends, self.gpus = 0, 0

    def add(self, gpus: int, end: int) -> None:
        """Count GPUs that are protected until ``end`` (take them out, if negative)."""
        self.gpus += gpus
        self.gpu_ends += gpus * end

    def left(self, now: int) -> int:
        """GPU time that is still promised; no end that is counted lies before ``now``."""
        return self.gpu_ends - self.gpus * now


class Running:
    """The workloads with GPUs in one pool that stay until somebody tells them to leave."""

    __slots__ = (
        "_by_size",
        "_ends",
        "_everyone",
        "_freed",
        "_freed_by_guests",
        "_freed_by_movers",
        "_freed_by_small",
        "_known",
        "_leases",
        "_leaves",
        "_lines",
        "_lowest",
        "_protected",
        "_sums",
        "_unsummed",
        "_weights",
        "changes",
        "exposed",
        "gpus",
        "promised",
        "restorable",
        "sessions",
        "unallocated",
    )

    def __init__(self) -> None:
        self.changes = 0  # how often somebody may be told to leave who might not before, or the other way round
        self.unallocated: dict[WorkloadId, Record] = {}
        self.exposed: dict[AllocationPath, dict[WorkloadId, Record]] = {}  # unprotected allocated work, by leaf
        self.promised: dict[AllocationPath, dict[str, Promised]] = {}  # by leaf and researcher
        self.gpus: dict[AllocationPath, int] = {}  # of allocated work, by leaf
        self.restorable: dict[WorkloadId, Record] = {}  # allocated work on one node that could go on elsewhere
        self.sessions: dict[WorkloadId, Record] = {}  # those of them that are
        self._leaves: dict[AllocationPath, Promised] = {}
        self._lines: Lines | None = None  # the sums of these over the tree, kept from one pass to the next
        self._unsummed: dict[AllocationPath, None] = {}  # leaves that have changed since
        self._known = Known()
        self._protected: dict[WorkloadId, int] = {}
        self._weights: dict[WorkloadId, int] = {}  # of the protected: as what their GPUs were promised
        self._ends: list[tuple[int, WorkloadId]] = []
        # What may be told to leave, node by node, by leaf; unallocated work apart. A workload is taken out as it came.
        self._sums: dict[AllocationPath | None, dict[NodeName, int]] = {}
        self._everyone = Everyone()  # the sum of all of these
        self._by_size: dict[int, dict[NodeName, int]] = {}  # the sums of those of one size, unallocated work apart
        self._leases: dict[WorkloadId, tuple[Lease, ...]] = {}
        self._freed: Freed | None = None
        self._freed_by_guests: Freed | None = None
        self._freed_by_small: dict[int, Freed] = {}
        self._freed_by_movers: dict[Movers, Freed] = {}
        self._lowest: dict[AllocationPath, int] = {}

    def enter(self, record: Record, now: Instant) -> None:
        """It holds GPUs here."""
        held = record.held
        if held is None or not record.gpus:
            return
        if not record.spec.allocated:
            self.unallocated[record.id] = record
            self._count_in(record, None)
            return
        leaf = record.spec.allocation
        self.gpus[leaf] = self.gpus.get(leaf, 0) + record.gpus
        if _is_restorable(record):
            self.restorable[record.id] = record
            if record.spec.kind is Kind.SESSION:
                self.sessions[record.id] = record
        if held.protected_until > now:
            self._protected[record.id] = held.protected_until
            heappush(self._ends, (held.protected_until, record.id))
            self._weights[record.id] = record.rate
            self._promise(record, record.rate, held.protected_until)
        else:
            self._expose(record)

    def expire(self, now: Instant, records: dict[WorkloadId, Record]) -> None:
        """Protections until ``now`` are over."""
        while self._ends and self._ends[0][0] <= now:
            end, workload = heappop(self._ends)
            if self._protected.get(workload) == end:
                record = records[workload]
                self._unprotect(record)
                self._expose(record)

    def leave(self, record: Record) -> None:
        """It was told to leave, or is gone."""
        leaf = record.spec.allocation
        if record.id in self._protected:
            self._unprotect(record)
            self._count_out(record)
            return
        here = self.exposed.get(leaf, {}) if record.spec.allocated else self.unallocated
        if here.pop(record.id, None) is not None:
            self._count_freed(record, leaf if record.spec.allocated else None, -1)
            if not record.spec.allocated:
                return
            self._count_out(record)
            if not here:
                del self.exposed[leaf]

    def _count_out(self, record: Record) -> None:
        leaf = record.spec.allocation
        self.restorable.pop(record.id, None)
        self.sessions.pop(record.id, None)
        self.gpus[leaf] -= record.gpus
        if not self.gpus[leaf]:
            del self.gpus[leaf]

    def next_end(self) -> Instant | None:
        """When the next protection ends."""
        ends = self._ends
        while ends and self._protected.get(ends[0][1]) != ends[0][0]:
            heappop(ends)
        return Instant(ends[0][0]) if ends else None

    def promised_to_each(self, now: Instant) -> dict[AllocationPath, int]:
        """K of every leaf that was ever promised some, reservations aside."""
        return {leaf: promised.left(now) for leaf, promised in self._leaves.items()}

    def commitments(self, tree: Tree, now: Instant) -> Values:
        """K of every tree node now, reservations aside: it stays so whoever starts or leaves later."""
        if self._lines is None or self._lines.tree is not tree:
            self._lines = Lines(tree)
            self._unsummed = dict.fromkeys(self._leaves)
        for leaf in self._unsummed:
            promised = self._leaves[leaf]
            self._lines.put(leaf, promised.gpu_ends, -promised.gpus)
        self._unsummed.clear()
        return self._lines.frozen(now)

    def commitment_of(self, tree: Tree, leaf: AllocationPath, now: Instant) -> int:
        """The same of one leaf."""
        if not tree.is_leaf(leaf) or not self._known.within(self._leaves, tree):
            return self.commitments(tree, now)[leaf]
        promised = self._leaves.get(leaf)
        return promised.left(now) if promised is not None else 0

    def freed(self) -> Freed:
        """What would be free if everybody left who may be told to; to be read only."""
        if self._freed is None:
            self._freed = Freed.of_all(self._everyone, (self.unallocated, *self.exposed.values()))
        return self._freed

    def freed_by_guests(self) -> Freed:
        """What would be free without unallocated work; to be read only."""
        if self._freed_by_guests is None:
            self._freed_by_guests = Freed(self._sum_of(None), (self.unallocated,))
        return self._freed_by_guests

    def freed_by_small(self, most: int) -> Freed:
        """The same for unallocated work, and allocated work of at most ``most`` GPUs; to be read only."""
        known = self._freed_by_small.get(most)
        if known is None:
            gpus = self._sum_of(None)
            for size, sums in self._by_size.items():
                if size <= most:
                    _add(gpus, sums)
            known = self._freed_by_small[most] = Freed(gpus, self._small(most))
        return known

    def _small(self, most: int) -> Iterator[Mapping[WorkloadId, Record]]:
        yield self.unallocated
        for group in self.exposed.values():
            yield {one.id: one for one in group.values() if one.gpus <= most}

    def freed_by(self, movers: Movers) -> Freed:
        """The same for unallocated work, some leaves, lower priorities of a leaf, and of others each workload that is no
        larger than what they have beyond their limits; to be read only."""
        known = self._freed_by_movers.get(movers)
        if known is None:
            exposed, (outranked, own, excess) = self.exposed, movers
            whole, parts = [self.unallocated, *(exposed[other] for other in outranked)], []
            if own is not None:
                leaf, priority = own
                parts.append({one: it for one, it in exposed[leaf].items() if priority > it.spec.priority})
            for other, gpus in excess:
                if other not in outranked:
                    parts.append({one: it for one, it in exposed[other].items() if it.gpus <= gpus})
            sums = self._sum_of(None, *outranked)
            _add(sums, sum_up(*parts).gpus)
            known = self._freed_by_movers[movers] = Freed(sums, (*whole, *parts))
        return known

    def lowest(self, leaf: AllocationPath) -> int:
        """The lowest priority of a leaf's exposed work, of which there is some."""
        known = self._lowest.get(leaf)
        if known is None:
            known = self._lowest[leaf] = min([one.spec.priority for one in self.exposed[leaf].values()])
        return known

    def _changed(self) -> None:
        self.changes += 1
        self._freed = self._freed_by_guests = None
        self._freed_by_small.clear()
        self._freed_by_movers.clear()

    def _expose(self, record: Record) -> None:
        leaf = record.spec.allocation
        self.exposed.setdefault(leaf, {})[record.id] = record
        self._count_in(record, leaf)

    def _count_in(self, record: Record, leaf: AllocationPath | None) -> None:
        assert record.held is not None
        self._leases[record.id] = record.held.leases
        self._count_freed(record, leaf, +1)

    def _count_freed(self, record: Record, leaf: AllocationPath | None, sign: int) -> None:
        sums = self._sums.setdefault(leaf, {})
        alike = self._by_size.setdefault(record.gpus, {}) if leaf is not None else None
        for lease in self._leases[record.id]:
            more = sign * lease.gpus
            _count(sums, lease.node, more)
            if alike is not None:
                _count(alike, lease.node, more)
            self._everyone.add(lease.node, more)
        if sign < 0:
            del self._leases[record.id]
        if leaf is not None:
            self._lowest.pop(leaf, None)
        self._changed()

    def _sum_of(self, *leaves: AllocationPath | None) -> dict[NodeName, int]:
        """What would be free if all of these left."""
        gpus: dict[NodeName, int] = {}
        for leaf in leaves:
            _add(gpus, self._sums.get(leaf, {}))
        return gpus

    def _unprotect(self, record: Record) -> None:
        self._promise(record, -self._weights.pop(record.id), self._protected.pop(record.id))

    def _promise(self, record: Record, gpus: int, end: int) -> None:
        self._leaves.setdefault(record.spec.allocation, Promised()).add(gpus, end)
        self._unsummed[record.spec.allocation] = None
        users = self.promised.setdefault(record.spec.allocation, {})
        promised = users.setdefault(record.spec.user, Promised())
        promised.add(gpus, end)
        if not promised.gpus:
            del users[record.spec.user]


def _count(sums: dict[NodeName, int], node: NodeName, more: int) -> None:
    gpus = sums.get(node, 0) + more
    if gpus:
        sums[node] = gpus
    else:
        del sums[node]


def _add(sums: dict[NodeName, int], more: Mapping[NodeName, int]) -> None:
    if not sums:
        sums.update(more)
        return
    for node, count in more.items():
        sums[node] = sums.get(node, 0) + count


def sum_up(*groups: Mapping[WorkloadId, Record]) -> Freed:
    """What these workloads hold. It is good as long as none of them leaves its group."""
    gpus: dict[NodeName, int] = {}
    for group in groups:
        for record in group.values():
            for lease in record.held.leases if record.held is not None else ():
                gpus[lease.node] = gpus.get(lease.node, 0) + lease.gpus
    return Freed(gpus, groups)


def _is_restorable(record: Record) -> bool:
    shape = record.spec.shape
    return record.spec.resumable and shape.nodes == 1 and not shape.counted
