"""GPU time that was free while somebody waited: because the free GPUs lay scattered, or because they were kept.

One sweep over everything that changes what is free or who waits. It looks at GPUs alone: demands for labels, CPUs or
memory are left aside.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gpufair.core.model import Shape
from gpufair.core.units import Instant, NodeName, PoolName
from gpufair.sim.measures.cluster import Cluster, Presence
from gpufair.sim.measures.period import Period
from gpufair.sim.measures.stints import queued
from gpufair.sim.story import Life

SHUT: Final = 1 << 20  # more GPUs than a node has: what a lost or cordoned one has in use


@dataclass(frozen=True, slots=True)
class Free:
    """GPU-milliseconds that were free while somebody waited. Both may be so at once."""

    fragmented: int  # somebody waited for no more GPUs than were free, but there was no placement for the shape
    withheld: int  # somebody waited for whom there was a placement


class _Room:
    """Free GPUs of the nodes of a pool, or of one type in it."""

    __slots__ = ("nodes", "total")

    def __init__(self, most: int) -> None:
        self.total = 0
        self.nodes = [0] * (most + 1)  # by k: nodes on which at least k GPUs are free

    def change(self, before: int, after: int) -> None:
        """One node has so many free GPUs now."""
        self.total += after - before
        for k in range(before + 1, after + 1):
            self.nodes[k] += 1
        for k in range(after + 1, before + 1):
            self.nodes[k] -= 1


@dataclass(slots=True)
class _Spot:
    """A node."""

    left: int  # GPUs that nobody holds; below 0 while it is lost or cordoned
    rooms: tuple[_Room, ...]


@dataclass(slots=True)
class _Wish:
    """A shape that ``waiting`` jobs wait for."""

    number: int
    each: int
    count: int
    gpus: int
    rooms: tuple[tuple[PoolName, _Room], ...]
    waiting: int = 0


class Sweep:
    """Takes in all jobs, then goes through what changed in its order.

    Args:
        cluster: The nodes.
        period: What is counted.
        end: When the run ended.
    """

    def __init__(self, cluster: Cluster, period: Period, end: Instant) -> None:
        self._cluster, self._period, self._end = cluster, period, end
        self._rooms: dict[tuple[PoolName, str], _Room] = {}
        self._spots: dict[NodeName, _Spot] = {}
        self._wishes: dict[tuple[Shape, tuple[PoolName, ...]], _Wish] = {}
        # A change each: when, of what, and by how many GPUs in use or jobs that wait.
        self._when: list[int] = []
        self._what: list[_Spot | _Wish] = []
        self._by: list[int] = []
        self._most = max((one.node.gpus for spans in cluster.presences.values() for one in spans), default=0)
        for name, presences in cluster.presences.items():
            self._put(name, presences)

    def _put(self, name: NodeName, presences: list[Presence]) -> None:
        node, gpus = presences[-1].node, max(one.node.gpus for one in presences)
        kinds = ("", node.gpu_type) if node.gpu_type else ("",)
        spot = self._spots[name] = _Spot(gpus, tuple(self._room(node.pool, kind) for kind in kinds))
        for room in spot.rooms:
            room.change(0, gpus)
        since: int = self._cluster.start
        for one in presences:
            self._note(spot, since, one.start, SHUT)
            self._note(spot, one.start, one.end, gpus - one.node.gpus)
            since = one.end
        self._note(spot, since, self._end, SHUT)
        for start, until in self._cluster.cordons.get(name, ()):
            self._note(spot, start, until, SHUT)

    def _room(self, pool: PoolName, kind: str) -> _Room:
        room = self._rooms.get((pool, kind))
        if room is None:
            room = self._rooms[pool, kind] = _Room(self._most)
        return room

    def _note(self, what: _Spot | _Wish, start: int, end: int, by: int) -> None:
        if start >= end or not by or end <= self._period.start or start >= self._period.end:
            return
        self._when.append(max(start, self._period.start))
        self._what.append(what)
        self._by.append(by)
        if end < self._period.end:
            self._when.append(end)
            self._what.append(what)
            self._by.append(-by)

    def take(self, life: Life) -> None:
        """Count what one job held, and when it waited."""
        if not life.job.gpus:
            return
        end, steady = self._end, self._cluster.steady
        for stint in life.stints:
            freed = end if stint.freed is None else min(stint.freed, end)
            for lease in stint.leases:
                until = freed if steady else min(freed, self._cluster.lost_at(lease.node, stint.granted))
                self._note(self._spots[lease.node], stint.granted, until, lease.gpus)
        wish = self._wish(life)
        for since, granted in queued(life, end):
            self._note(wish, since, granted, 1)

    def _wish(self, life: Life) -> _Wish:
        shape, pools = life.job.spec.shape, life.job.spec.pools
        wish = self._wishes.get((shape, pools))
        if wish is None:
            rooms = tuple((pool, self._room(pool, shape.gpu_type)) for pool in pools)
            # What no node could hold is not looked at: there are never so many GPUs free.
            gpus = shape.gpus if shape.gpus_per_node <= self._most else SHUT**2
            wish = _Wish(len(self._wishes), shape.gpus_per_node, shape.nodes, gpus, rooms)
            self._wishes[shape, pools] = wish
        return wish

    def free(self) -> Free:
        """What was free in the period while somebody waited."""
        when, what, by = self._when, self._what, self._by
        rooms = tuple(self._rooms.values())
        only = rooms[0] if len(rooms) == 1 else None
        waiting: dict[int, _Wish] = {}
        fragmented = withheld = 0
        now: int = self._period.start
        for index in sorted(range(len(when)), key=when.__getitem__):
            at = when[index]
            if at > now:
                if waiting and (only is None or only.total):
                    scattered, kept = _look(rooms, waiting) if only is None else _look_in(only, waiting)
                    fragmented += scattered * (at - now)
                    withheld += kept * (at - now)
                now = at
            thing = what[index]
            if isinstance(thing, _Wish):
                thing.waiting += by[index]
                if thing.waiting:
                    waiting[thing.number] = thing
                else:
                    del waiting[thing.number]
            else:
                left = thing.left
                thing.left = left - by[index]
                for room in thing.rooms:
                    room.change(max(0, left), max(0, thing.left))
        if waiting:
            scattered, kept = _look(rooms, waiting)
            fragmented += scattered * (self._period.end - now)
            withheld += kept * (self._period.end - now)
        return Free(fragmented, withheld)


def _look(rooms: Iterable[_Room], waiting: dict[int, _Wish]) -> tuple[int, int]:
    """Free GPUs that lie scattered for somebody, and those that are kept from somebody."""
    most = max(room.total for room in rooms)
    scattered: dict[PoolName, int] = {}
    kept: dict[PoolName, int] = {}
    for wish in waiting.values():
        if wish.gpus > most:
            continue
        enough = [(pool, room) for pool, room in wish.rooms if room.total >= wish.gpus]
        placed = [(pool, room) for pool, room in enough if room.nodes[wish.each] >= wish.count]
        for pool, room in placed or enough:
            found = kept if placed else scattered
            found[pool] = max(found.get(pool, 0), room.total)
    return sum(scattered.values()), sum(kept.values())


def _look_in(room: _Room, waiting: dict[int, _Wish]) -> tuple[int, int]:
    """The same where there is one pool of one type."""
    total, nodes = room.total, room.nodes
    scattered = kept = 0
    for wish in waiting.values():
        if wish.gpus <= total:
            if nodes[wish.each] >= wish.count:
                kept = total
            else:
                scattered = total
            if scattered and kept:
                break
    return scattered, kept
