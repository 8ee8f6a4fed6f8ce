"""EASY backfilling: whoever is first has a reservation, and others may start before it where they do not delay that.

The reservation is a set of nodes and the time at which they are reckoned to be free, from how long those who run there
said that they need their GPUs. Others start on what is free if they are reckoned to be gone by then, or take what the
first one will not need. It stands until its owner starts, or somebody else comes first; it is made anew when its time
has come and is a minute ago, when somebody left earlier than he was reckoned to, and when nodes come or go.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, replace
from typing import Final

from gpufair.core.amount import Freed
from gpufair.core.horizon import FOREVER, GUEST
from gpufair.core.model import Held, Lease, Policy, Shape
from gpufair.core.placement import admits, place
from gpufair.core.record import Bound
from gpufair.core.units import MINUTE, Instant, Millis, NodeName, PoolName, WorkloadId, after, since
from gpufair.core.waiting import Ticket
from gpufair.sim.policies.item import Item
from gpufair.sim.policies.queue import ENDLESS, Class, Queue, Rank, Want
from gpufair.sim.policies.scheduler import Scheduler

# Runs need a moment to come up, and are gone a moment later than they said.
LATE: Final = MINUTE


@dataclass(frozen=True, slots=True)
class Promise:
    """The reservation of whoever is first in a pool; no leases if nobody can say when it could start."""

    owner: WorkloadId
    at: Instant
    leases: tuple[Lease, ...]


class Backfill(Scheduler):
    """Order of submission with backfilling. Subclasses have other orders."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.queue = Queue(self.rank)
        self._promises: dict[PoolName, Promise] = {}
        self._ends: dict[PoolName, list[tuple[Instant, WorkloadId]]] = {}  # when those who hold are reckoned to be gone
        self._until: dict[WorkloadId, Instant] = {}  # the same by workload
        self._fresh: dict[PoolName, dict[Want, None]] = {}  # what was asked for since the last look
        self._changed: dict[PoolName, bool] = {}  # where more may be free than at the last look; True: reckon anew

    def class_of(self, item: Item) -> Class:
        """With whom it is equal in rank."""
        return ()

    def rank(self, of: Class) -> Rank:
        """Classes with a smaller one come first."""
        return ()

    # -- what the life of workloads tells -------------------------------------------------------------------------

    def enqueue(self, item: Item) -> None:
        """It is in the line of its class."""
        want = self.queue.add(item, self.class_of(item))
        for pool in want.pools:
            self._fresh.setdefault(pool, {})[want] = None

    def dequeue(self, item: Item) -> None:
        """It is not in its line any more, and nothing is reserved for it."""
        for pool in self.queue.remove(item, self.class_of(item)).pools:
            promise = self._promises.get(pool)
            if promise is not None and promise.owner == item.id:
                self._forget(pool)
                self._changed.setdefault(pool, False)

    def granted(self, item: Item) -> None:
        """It is reckoned to be gone when it has had what it needs."""
        held = item.held
        assert held is not None
        end = self._until[item.id] = after(self.now, item.needs)
        insort(self._ends.setdefault(held.pool, []), (end, item.id))
        promise = self._promises.get(held.pool)
        if promise is not None and end > promise.at:
            for lease in held.leases:
                self._outstay(lease)

    def released(self, item: Item, held: Held) -> None:
        """What it held is free, perhaps earlier than it was reckoned to be."""
        end = self._until.pop(item.id)
        ends = self._ends[held.pool]
        del ends[bisect_left(ends, (end, item.id))]
        self._changed[held.pool] = self._changed.get(held.pool, False) or end > self.now

    def rebuilt(self) -> None:
        """A node came, went, closed or opened."""
        self._changed.update(dict.fromkeys(self.ground.by_pool, True))

    def wakeup(self) -> Instant | None:
        """When the time of a reservation has come, and some more for those who are about to go."""
        due = min((promise.at for promise in self._promises.values() if promise.leases), default=None)
        return after(due, LATE) if due is not None else None

    def look_again(self, pool: PoolName) -> None:
        """Somebody else may be first there now."""
        self._fresh.setdefault(pool, {})

    # -- who starts -----------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Start whoever may start, pool by pool."""
        for pool, promise in self._promises.items():
            if after(promise.at, LATE) <= self.now:
                self._changed[pool] = True
        while self._changed or self._fresh:
            pool = min(self._changed.keys() | self._fresh.keys())
            fresh = self._fresh.pop(pool, {})
            if pool in self._changed:
                if self._changed.pop(pool):
                    self._forget(pool)
                self._fill(pool, None)
            else:
                self._fill(pool, fresh)

    def _fill(self, pool: PoolName, fresh: dict[Want, None] | None) -> None:
        """``fresh``: nothing is free that was not when all others were looked at."""
        while (head := self.queue.head(pool)) is not None:
            promise = self._promises.get(pool)
            if promise is not None and promise.owner == head.workload:
                # It was seen that it cannot start, unless more is free now.
                if fresh is None and self._start(self.items[head.workload], "it is first, and there is room"):
                    continue
                break
            if promise is not None:
                self._forget(pool)
                fresh = None  # who could not start for that reservation may now
            if not self._start(self.items[head.workload], "it is first, and there is room"):
                self._promise(pool, self.items[head.workload])
                break
        while (found := self._next(pool, fresh)) is not None:
            if not self._start(self.items[found.workload], "it does not delay whoever is first"):
                break

    def _next(self, pool: PoolName, fresh: dict[Want, None] | None) -> Ticket | None:
        """The first who may start now without delaying whoever has the reservation."""
        free, rooms = self.ground.free.get(pool, 0), self.ground.rooms.get(pool)
        promise = self._promises.get(pool)
        if not free or rooms is None:
            return None
        limits: dict[Want, Millis] = {}
        for want in self.queue.wants if fresh is None else fresh:
            if want.shape.gpus > free or pool not in want.pools:
                continue
            if rooms.fits(want.shape, until=FOREVER):
                limits[want] = ENDLESS
            elif promise is not None and promise.leases and rooms.fits(want.shape, until=GUEST):
                limits[want] = since(promise.at, self.now)
        return self.queue.first(limits)

    def _start(self, item: Item, why: str) -> bool:
        """Start it in the first of its pools where it delays nobody who comes before it."""
        shape = item.spec.shape
        for pool in item.spec.pools:
            promise, until = self._promises.get(pool), after(self.now, item.needs)
            if promise is not None and promise.owner == item.id:
                if not self._has_room(shape, pool):
                    continue
                self._forget(pool)  # else it would spare its own nodes
            leases = self.ground.place(shape, pool, until)
            if leases is not None:
                self.start(item, pool, leases, why)
                return True
        return False

    def _has_room(self, shape: Shape, pool: PoolName) -> bool:
        """Whether it would have room if nothing were reserved."""
        return self.ground.free.get(pool, 0) >= shape.gpus and self.ground.rooms[pool].fits(shape, until=GUEST)

    # -- reservations ---------------------------------------------------------------------------------------------

    def _promise(self, pool: PoolName, item: Item) -> None:
        shape, nodes = item.spec.shape, self.ground.nodes
        freed: dict[NodeName, int] = {}
        rest: dict[NodeName, tuple[int, int]] = {}
        wide = sum(
            1 for one in self.ground.by_pool.get(pool, ()) if admits(one, shape) and one.free >= shape.gpus_per_node
        )
        for end, workload in self._coming(pool):
            holder = self.items[workload]
            assert holder.held is not None
            wider = shape.counted
            for lease in holder.held.leases:
                node, before = nodes[lease.node], freed.get(lease.node, 0)
                freed[lease.node] = before + lease.gpus
                if node.free + before < shape.gpus_per_node <= node.free + before + lease.gpus and admits(node, shape):
                    wide, wider = wide + 1, True
                if holder.spec.shape.counted:
                    cpus, memory = rest.get(lease.node, (0, 0))
                    more = holder.spec.shape
                    rest[lease.node] = cpus + more.cpus_per_node, memory + more.memory_per_node
            if not wider or wide < shape.nodes:
                continue
            leases = place(self.ground.by_pool[pool], shape, self.policy.blocks, Freed(freed, rest=rest))
            if leases is not None:
                self._keep(pool, Promise(item.id, end, leases), freed)
                return
        self._promises[pool] = Promise(item.id, FOREVER, ())

    def _coming(self, pool: PoolName) -> list[tuple[Instant, WorkloadId]]:
        """When who is reckoned to be gone, in order. Who should be gone already is given as long again, and a minute at
        the least."""
        ends, now = self._ends.get(pool, []), self.now
        late = bisect_left(ends, (Instant(now + 1),))
        overdue = [(after(now, max(LATE, since(now, end))), workload) for end, workload in ends[:late]]
        return sorted(overdue + ends[late:])

    def _keep(self, pool: PoolName, promise: Promise, freed: dict[NodeName, int]) -> None:
        self._promises[pool] = promise
        for lease in promise.leases:
            node = self.ground.nodes[lease.node]
            left = node.free + freed.get(lease.node, 0) - lease.gpus
            bound = Bound(promise.at, left, left, promise.owner, lease.gpus, frozenset())
            self.ground.bind(lease.node, (bound,))

    def _outstay(self, lease: Lease) -> None:
        """Somebody takes what would be left when the time of the reservation has come."""
        bounds = self.ground.nodes[lease.node].bounds
        if bounds:
            left = bounds[0].left - lease.gpus
            self.ground.bind(lease.node, (replace(bounds[0], slack=left, left=left),))

    def _forget(self, pool: PoolName) -> None:
        promise = self._promises.pop(pool, None)
        for lease in promise.leases if promise is not None else ():
            self.ground.bind(lease.node, ())
