"""Nodes of a pool by the GPUs that are free on them, so that the tightest fit is found without looking at every node.

Nodes with horizons are kept apart: their room depends on how long one wants to stay.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from gpufair.core import placement
from gpufair.core.amount import Amount, Freed
from gpufair.core.horizon import FOREVER, room_for, room_with
from gpufair.core.model import Lease, Shape
from gpufair.core.placement import admits
from gpufair.core.record import NodeRecord
from gpufair.core.sizes import Counted, Everyone, Sizes
from gpufair.core.units import Instant, NodeName

_ANY: Final = ""


class Rooms:
    """The nodes of a pool, those with room by GPU type and room. ``Facts.touch`` keeps it."""

    __slots__ = (
        "_bounded",
        "_by_type",
        "_counted",
        "_counts",
        "_emptied",
        "_ends",
        "_free",
        "_horizons",
        "_listed",
        "_nodes",
        "_open",
        "_stale",
        "_would",
        "changes",
        "free",
    )

    def __init__(self) -> None:
        self._counted = Counted()  # of what is free alone; another one after each change
        self._ends: dict[NodeName, list[int]] = {}  # when the horizons of each node are
        self._horizons: list[int] | None = None  # all instants at which some node has one
        self.changes = 0  # how often something may have changed: an answer holds for as long as this does
        self.free = 0  # GPUs that nobody holds and that are kept for nobody
        self._free: dict[NodeName, int] = {}  # of these on each node
        self._nodes: dict[NodeName, NodeRecord] = {}
        self._by_type: dict[str, dict[int, list[NodeName]]] = {}
        self._listed: dict[NodeName, tuple[str, int]] = {}
        self._counts = Sizes()  # of those
        self._bounded: set[NodeName] = set()  # nodes with horizons
        self._open: dict[NodeName, NodeRecord] = {}  # those of them on which something is free
        # Nodes without horizons by what there would be without everybody of whom this was last asked; those that have
        # changed since are listed anew when it is asked again.
        self._emptied = Sizes()
        self._would: dict[NodeName, tuple[str, int]] = {}
        self._stale: dict[NodeName, None] = {}

    @property
    def bounded(self) -> bool:
        """Whether the room of some node depends on how long one wants to stay."""
        return bool(self._bounded)

    def put(self, node: NodeRecord) -> None:
        """A node is in this pool; its type, room or horizons may have changed."""
        name = node.node.name
        self._change()
        self._stale[name] = None
        self._nodes[name] = node
        self.free += node.free - self._free.get(name, 0)
        self._free[name] = node.free
        if node.bounds:
            self._bounded.add(name)
            self._bound(name, [bound.at for bound in node.bounds])
            self._unlist(name)
            if node.free > 0:
                self._open[name] = node
            else:
                self._open.pop(name, None)
            return
        if name in self._bounded:
            self._bounded.discard(name)
            self._bound(name, [])
            self._open.pop(name, None)
        now = (node.node.gpu_type, node.room)
        if self._listed.get(name) == now:
            return
        self._unlist(name)
        if node.room > 0:
            self._listed[name] = now
            self._counts.add(node.node.gpu_type, node.room, +1)
            for kind in {_ANY, node.node.gpu_type}:
                insort(self._by_type.setdefault(kind, {}).setdefault(node.room, []), name)

    def _change(self) -> None:
        self.changes += 1
        self._counted = Counted()

    def _bound(self, name: NodeName, ends: list[int]) -> None:
        if self._ends.get(name, []) != ends:
            self._ends[name] = ends
            self._horizons = None

    def drop(self, name: NodeName) -> None:
        """A node is in this pool no longer."""
        self._change()
        self._stale[name] = None
        del self._nodes[name]
        self.free -= self._free.pop(name)
        self._bounded.discard(name)
        self._bound(name, [])
        self._open.pop(name, None)
        self._unlist(name)

    def fits(
        self,
        shape: Shape,
        freed: Freed | None = None,
        until: Instant = FOREVER,
    ) -> bool:
        """Whether there would be room for the whole shape with what is ``freed`` beside what is free.

        Args:
            shape: What is asked for.
            freed: What there would be beside it.
            until: When the protection of whoever starts would end.
        """
        # What is free without any horizon is there for whoever asks: where that will do, the rest need not be counted.
        if not self._counts.suffice(shape) and not self._sizes(freed, until).suffice(shape):
            return False
        # The GPUs would do; whether they are where the shape wants them, only the nodes themselves tell.
        return not shape.demanding or placement.holds(self._nodes.values(), shape, freed, until)

    def _sizes(self, freed: Freed | None, until: Instant) -> Sizes:
        """What ``_count`` finds, counted once for all shapes, and for all who outstay the same horizons, until a node
        changes or somebody takes a part."""
        counted, outstays = self._counted_of(freed), self._outstays(until) if self._bounded else 0
        known = counted.sizes.get(outstays)
        if known is None:
            known = counted.sizes[outstays] = self._count(freed, until)
            counted.ends[outstays] = until
        return known

    def _counted_of(self, freed: Freed | None) -> Counted:
        counted = self._counted
        if freed is None:
            return counted
        mine = freed.counted
        if mine is None or freed.counted_for is not counted:
            mine = freed.counted = Counted()
            freed.counted_for = counted
        return mine

    def take(self, freed: Freed, name: NodeName, part: Amount) -> None:
        """Somebody counts on a part of what is ``freed``. What was counted of it is kept, but for this node."""
        counted, node = self._counted_of(freed), self._nodes[name]
        before = {outstays: _room(node, freed, until) for outstays, until in counted.ends.items()}
        freed.take(name, part)
        for outstays, until in counted.ends.items():
            kind, was, room = node.node.gpu_type, before[outstays], _room(node, freed, until)
            sizes, tightest = counted.sizes.get(outstays), counted.tightest.get(outstays)
            if node.open and sizes is not None:
                sizes.add(kind, was, -1)
                sizes.add(kind, room, +1)
            if node.open and tightest is not None:
                if was > 0:
                    del tightest[bisect_left(tightest, (bool(node.bounds), was, name))]
                if room > 0:
                    insort(tightest, (bool(node.bounds), room, name))

    def _outstays(self, until: Instant) -> int:
        """How many horizons of the pool somebody outstays: it is all that counts of the end of a protection."""
        if self._horizons is None:
            self._horizons = sorted({at for ends in self._ends.values() for at in ends})
        horizons, low, high = self._horizons, 0, len(self._horizons)
        while low < high:  # written out: it is asked with nearly every question
            middle = (low + high) >> 1
            if horizons[middle] < until:
                low = middle + 1
            else:
                high = middle
        return low

    def _count(self, freed: Freed | None, until: Instant) -> Sizes:
        if freed is None:
            if not self._open:
                return self._counts
            sizes = self._counts.copy()
            for node in self._open.values():
                sizes.add(node.node.gpu_type, room_for(node, until), +1)
            return sizes
        if freed.everyone is not None:
            return self._count_all(freed, freed.everyone, until)
        # Most nodes are as they are without the smaller part.
        parts = freed.parts
        without, changed = parts if parts is not None else (None, freed)
        sizes = self._sizes(without, until).copy()
        for name in changed.gpus:
            one = self._nodes.get(name)
            if one is not None and one.open:
                sizes.add(one.node.gpu_type, _room(one, without, until), -1)
                sizes.add(one.node.gpu_type, _room(one, freed, until), +1)
        return sizes

    def _count_all(self, freed: Freed, everyone: Everyone, until: Instant) -> Sizes:
        """The same, if ``freed`` is what everybody would free. Most nodes are as they were when this was last asked."""
        if everyone.listed is not self._emptied:
            everyone.listed = self._emptied = Sizes()
            self._would.clear()
            self._stale.update(dict.fromkeys(self._nodes))
        self._stale.update(everyone.changed)
        everyone.changed.clear()
        for name in self._stale:
            self._list_emptied(name, everyone.gpus.get(name, 0))
        self._stale.clear()
        sizes = self._emptied.copy()
        for name in self._bounded:
            node = self._nodes[name]
            if node.cordoned or node.lost:
                continue
            sizes.add(node.node.gpu_type, _room(node, freed, until), +1)
        return sizes

    def _list_emptied(self, name: NodeName, gpus: int) -> None:
        before = self._would.pop(name, None)
        if before is not None:
            self._emptied.add(before[0], before[1], -1)
        node = self._nodes.get(name)
        if node is not None and not node.bounds and node.open:
            kind, room = node.node.gpu_type, node.room + gpus
            self._emptied.add(kind, room, +1)
            self._would[name] = kind, room

    def place(self, shape: Shape, blocks: tuple[str, ...] = (), until: Instant = FOREVER) -> tuple[Lease, ...] | None:
        """What ``placement.place`` finds on these nodes for a shape with GPUs."""
        if not self.fits(shape, until=until):
            return None
        if shape.demanding:
            return placement.place(self._nodes.values(), shape, blocks, until=until)
        if shape.nodes == 1 and not self._bounded:
            name = next(self._tightest(shape), None)
            return (Lease(name, shape.gpus_per_node),) if name is not None else None
        if shape.nodes > 1 and blocks:
            found = [(self._nodes[name].room, self._nodes[name]) for name in self._tightest(shape)]
            found += ((room, self._nodes[name]) for room, name in self._tightest_bounded(shape, until))
            return placement.choose(found, shape, blocks)
        bounded = (name for _, name in self._tightest_bounded(shape, until))
        names = tuple(islice(chain(self._tightest(shape), bounded), shape.nodes))
        if len(names) < shape.nodes:
            return None
        return tuple(Lease(name, shape.gpus_per_node) for name in sorted(names))

    def place_with(
        self, shape: Shape, freed: Freed, blocks: tuple[str, ...] = (), until: Instant = FOREVER
    ) -> tuple[Lease, ...] | None:
        """The same with what is ``freed`` beside what is free. Only nodes on which there is some of either are looked at."""
        if shape.nodes > 1 or shape.demanding or not shape.gpus:
            return placement.place(self._with_room(freed), shape, blocks, freed, until)
        tightest, wanted = self._tightest_with(freed, until), shape.gpus_per_node
        for bounded in (False, True):
            for index in range(bisect_left(tightest, (bounded, wanted, NodeName(""))), len(tightest)):
                among, _, name = tightest[index]
                if among != bounded:
                    break
                if admits(self._nodes[name], shape):
                    return (Lease(name, wanted),)
        return None

    def _with_room(self, freed: Freed) -> list[NodeRecord]:
        names = {**self._listed, **self._open, **freed.gpus}
        return [node for name in names if (node := self._nodes.get(name)) is not None]

    def _tightest_with(self, freed: Freed, until: Instant) -> list[tuple[bool, int, NodeName]]:
        """All nodes with room for somebody, in the order in which they are chosen."""
        counted, outstays = self._counted_of(freed), self._outstays(until) if self._bounded else 0
        known = counted.tightest.get(outstays)
        if known is None:
            found = [(_room(node, freed, until), node) for node in self._with_room(freed) if node.open]
            known = sorted([(bool(node.bounds), room, node.node.name) for room, node in found if room > 0])
            counted.tightest[outstays], counted.ends[outstays] = known, until
        return known

    def _tightest(self, shape: Shape) -> Iterator[NodeName]:
        rooms = self._by_type.get(shape.gpu_type, {})
        for room in sorted(rooms):
            if room >= shape.gpus_per_node:
                yield from rooms[room]

    def _tightest_bounded(self, shape: Shape, until: Instant) -> Iterator[tuple[int, NodeName]]:
        yield from sorted(
            (room, name)
            for name, node in self._open.items()
            if admits(node, shape) and (room := room_for(node, until)) >= shape.gpus_per_node
        )

    def _unlist(self, name: NodeName) -> None:
        listed = self._listed.pop(name, None)
        if listed is None:
            return
        gpu_type, room = listed
        self._counts.add(gpu_type, room, -1)
        for kind in {_ANY, gpu_type}:
            names = self._by_type[kind][room]
            del names[bisect_left(names, name)]
            if not names:
                del self._by_type[kind][room]


def _room(node: NodeRecord, freed: Freed | None, until: Instant) -> int:
    """What somebody could have of a node, whose protection would end then, with what is freed beside what is free."""
    room = room_for(node, until)
    return max(room, room_with(node, freed, until)) if freed is not None and node.node.name in freed.gpus else room
