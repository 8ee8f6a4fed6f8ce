"""Nodes of a pool by the GPUs that are free on them, so that the tightest fit is found without looking at every node.

Nodes with horizons are kept apart: their room depends on how long one wants to stay.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from gpufair.core import placement
from gpufair.core.amount import Freed
from gpufair.core.horizon import FOREVER, room_for, room_with
from gpufair.core.model import Lease, Shape
from gpufair.core.placement import admits
from gpufair.core.record import NodeRecord
from gpufair.core.units import Instant, NodeName

_ANY: Final = ""


class Rooms:
    """The nodes of a pool, those with room by GPU type and room. ``Facts.touch`` keeps it."""

    __slots__ = ("_bounded", "_by_type", "_listed", "_nodes", "_open", "changes")

    def __init__(self) -> None:
        self.changes = 0  # how often something may have changed: an answer holds for as long as this does
        self._nodes: dict[NodeName, NodeRecord] = {}
        self._by_type: dict[str, dict[int, list[NodeName]]] = {}
        self._listed: dict[NodeName, tuple[str, int]] = {}
        self._bounded: set[NodeName] = set()  # nodes with horizons
        self._open: dict[NodeName, NodeRecord] = {}  # those of them on which something is free

    @property
    def bounded(self) -> bool:
        """Whether the room of some node depends on how long one wants to stay."""
        return bool(self._bounded)

    def put(self, node: NodeRecord) -> None:
        """A node is in this pool; its type, room or horizons may have changed."""
        name = node.node.name
        self.changes += 1
        self._nodes[name] = node
        if node.bounds:
            self._bounded.add(name)
            self._unlist(name)
            if node.free > 0:
                self._open[name] = node
            else:
                self._open.pop(name, None)
            return
        if name in self._bounded:
            self._bounded.discard(name)
            self._open.pop(name, None)
        now = (node.node.gpu_type, node.room)
        if self._listed.get(name) == now:
            return
        self._unlist(name)
        if node.room > 0:
            self._listed[name] = now
            for kind in {_ANY, node.node.gpu_type}:
                insort(self._by_type.setdefault(kind, {}).setdefault(node.room, []), name)

    def drop(self, name: NodeName) -> None:
        """A node is in this pool no longer."""
        self.changes += 1
        del self._nodes[name]
        self._bounded.discard(name)
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
        wanted, missing, kind = shape.gpus_per_node, shape.nodes, shape.gpu_type
        for room, names in self._by_type.get(kind, {}).items():
            if room >= wanted:
                missing -= len(names)
        for node in self._open.values() if missing > 0 else ():
            if node.free >= wanted and admits(node, shape) and room_for(node, until) >= wanted:
                missing -= 1
        for name, gpus in freed.gpus.items() if freed is not None and missing > 0 else ():
            one = self._nodes.get(name)
            # Written out, for it is asked thousands of times a second: whether the node is open and of the type.
            if one is None or one.free + gpus < wanted or one.cordoned or one.lost:
                continue
            if kind and one.node.gpu_type != kind:
                continue
            if not one.bounds:
                missing -= one.room < wanted
            elif room_for(one, until) < wanted:
                missing -= room_with(one, freed, until) >= wanted
        if missing > 0 or not shape.demanding:
            return missing <= 0
        # The GPUs would do; whether they are where the shape wants them, only the nodes themselves tell.
        return placement.holds(self._nodes.values(), shape, freed, until)

    def place(
        self, shape: Shape, blocks: tuple[str, ...] = (), until: Instant = FOREVER
    ) -> tuple[Lease, ...] | None:
        """What ``placement.place`` finds on these nodes for a shape with GPUs."""
        if shape.demanding:
            fits = self.fits(shape, until=until)
            return placement.place(self._nodes.values(), shape, blocks, until=until) if fits else None
        if shape.nodes > 1 and blocks:
            found = [(self._nodes[name].room, self._nodes[name]) for name in self._tightest(shape)]
            found += ((room, self._nodes[name]) for room, name in self._tightest_bounded(shape, until))
            return placement.choose(found, shape, blocks)
        bounded = (name for _, name in self._tightest_bounded(shape, until))
        names = tuple(islice(chain(self._tightest(shape), bounded), shape.nodes))
        if len(names) < shape.nodes:
            return None
        return tuple(Lease(name, shape.gpus_per_node) for name in sorted(names))

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
        for kind in {_ANY, gpu_type}:
            names = self._by_type[kind][room]
            del names[bisect_left(names, name)]
            if not names:
                del self._by_type[kind][room]
