"""Nodes, and what is free on them: the part of a cluster that every policy needs, with the core's way to place."""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import attrgetter

from gpufair.core import placement
from gpufair.core.amount import Rest, whole
from gpufair.core.horizon import FOREVER
from gpufair.core.model import Lease, Node, Shape
from gpufair.core.record import UNCOUNTED, Bound, NodeRecord
from gpufair.core.rooms import Rooms
from gpufair.core.units import Instant, NodeName, PoolName, WorkloadId


class Ground:
    """The nodes of all pools.

    Args:
        blocks: Labels of which a gang's nodes should have one value, the best first.
    """

    def __init__(self, blocks: tuple[str, ...]) -> None:
        self.nodes: dict[NodeName, NodeRecord] = {}
        self.by_pool: dict[PoolName, list[NodeRecord]] = {}  # by name
        self.rooms: dict[PoolName, Rooms] = {}
        self.free: dict[PoolName, int] = {}  # GPUs that nobody holds, on nodes on which something may start
        self._rest: dict[NodeName, Rest] = {}  # held, where there is any
        self._kept: dict[NodeName, int] = {}
        self._blocks = blocks

    def capacity(self, pool: PoolName) -> int:
        """GPUs on nodes that are not lost."""
        return sum(record.node.gpus for record in self.by_pool.get(pool, ()) if not record.lost)

    def join(self, node: Node) -> None:
        """A node is there (again), with this inventory; what is held on it fits."""
        record = self.nodes.get(node.name)
        if record is None:
            record = self.nodes[node.name] = NodeRecord(node)
            insort(self.by_pool.setdefault(node.pool, []), record, key=_name)
        elif record.node.pool != node.pool:
            self._count(record, 0)
            before = self.by_pool[record.node.pool]
            del before[bisect_left(before, node.name, key=_name)]
            self.rooms[record.node.pool].drop(node.name)
            record.node = node
            insort(self.by_pool.setdefault(node.pool, []), record, key=_name)
        record.node, record.lost = node, False
        self._recount(record)

    def rest_held(self, name: NodeName) -> Rest:
        """CPUs and memory that are held on a node."""
        return self._rest.get(name, (0, 0))

    def lose(self, name: NodeName) -> None:
        """A node, on which nobody holds anything any more, is gone."""
        self.nodes[name].lost = True
        self._recount(self.nodes[name])

    def close(self, name: NodeName, closed: bool) -> None:
        """From now on nothing starts there, or something may again."""
        self.nodes[name].cordoned = closed
        self._recount(self.nodes[name])

    def keep(self, name: NodeName, gpus: int) -> None:
        """So many GPUs of a node are kept for somebody (no longer, if negative): they are not free."""
        self._kept[name] = self._kept.get(name, 0) + gpus
        self._recount(self.nodes[name])

    def bind(self, name: NodeName, bounds: tuple[Bound, ...]) -> None:
        """From then on some of its GPUs are spoken for."""
        record = self.nodes[name]
        record.bounds = bounds
        self.rooms[record.node.pool].put(record)

    def place(self, shape: Shape, pool: PoolName, until: Instant = FOREVER) -> tuple[Lease, ...] | None:
        """The tightest nodes of a pool that hold the whole shape now, for somebody who stays until then."""
        if not shape.gpus:
            return placement.place(self.by_pool.get(pool, ()), shape, self._blocks, until=until)
        if self.free.get(pool, 0) < shape.gpus:
            return None
        return self.rooms[pool].place(shape, self._blocks, until)

    def take(self, workload: WorkloadId, leases: tuple[Lease, ...], shape: Shape) -> None:
        """Somebody holds these leases from now on."""
        for lease in leases:
            record = self.nodes[lease.node]
            record.holders[workload] = lease.gpus
            self._use(record, lease.gpus, shape)

    def give(self, workload: WorkloadId, leases: tuple[Lease, ...], shape: Shape) -> None:
        """They are free again."""
        for lease in leases:
            record = self.nodes[lease.node]
            del record.holders[workload]
            self._use(record, -lease.gpus, shape, -1)

    def _use(self, record: NodeRecord, gpus: int, shape: Shape, sign: int = 1) -> None:
        if shape.counted:
            cpus, memory = self.rest_held(record.node.name)
            more = sign * shape.cpus_per_node, sign * shape.memory_per_node
            self._rest[record.node.name] = cpus + more[0], memory + more[1]
            self._recount(record)
        elif gpus and record.open:
            self._count(record, record.free - gpus)

    def _recount(self, record: NodeRecord) -> None:
        cpus, memory = self.rest_held(record.node.name)
        has = whole(record.node)
        record.cpus_left = UNCOUNTED if record.node.cpus is None else has.cpus - cpus
        record.memory_left = UNCOUNTED if record.node.memory is None else has.memory - memory
        kept = self._kept.get(record.node.name, 0)
        self._count(record, record.node.gpus - sum(record.holders.values()) - kept if record.open else 0)

    def _count(self, record: NodeRecord, free: int) -> None:
        pool = record.node.pool
        self.free[pool] = self.free.get(pool, 0) + free - record.free
        record.free = record.room = free
        if pool not in self.rooms:
            self.rooms[pool] = Rooms()
        self.rooms[pool].put(record)


_name = attrgetter("node.name")
