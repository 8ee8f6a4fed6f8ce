"""Nodes of a pool by the GPUs that are free on them, so that the tightest fit is found without looking at every node."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice
from typing import Final

from gpufair.core import placement
from gpufair.core.amount import Freed
from gpufair.core.model import Lease, Shape
from gpufair.core.record import NodeRecord
from gpufair.core.units import NodeName

_ANY: Final = ""


class Rooms:
    """The nodes of a pool, those with room by GPU type and room. ``Facts.touch`` keeps it."""

    __slots__ = ("_by_type", "_listed", "_nodes")

    def __init__(self) -> None:
        self._nodes: dict[NodeName, NodeRecord] = {}
        self._by_type: dict[str, dict[int, list[NodeName]]] = {}
        self._listed: dict[NodeName, tuple[str, int]] = {}

    def put(self, node: NodeRecord) -> None:
        """A node is in this pool; its type or room may have changed."""
        name, now = node.node.name, (node.node.gpu_type, node.room)
        self._nodes[name] = node
        if self._listed.get(name) == now:
            return
        self._unlist(name)
        if node.room > 0:
            self._listed[name] = now
            for kind in {_ANY, node.node.gpu_type}:
                insort(self._by_type.setdefault(kind, {}).setdefault(node.room, []), name)

    def drop(self, name: NodeName) -> None:
        """A node is in this pool no longer."""
        del self._nodes[name]
        self._unlist(name)

    def fits(self, shape: Shape, freed: Freed | None = None) -> bool:
        """Whether there would be room for the whole shape with what is ``freed`` beside what is free."""
        wanted, missing, kind = shape.gpus_per_node, shape.nodes, shape.gpu_type
        for room, names in self._by_type.get(kind, {}).items():
            if room >= wanted:
                missing -= len(names)
        for name, gpus in freed.gpus.items() if freed is not None and missing > 0 else ():
            node = self._nodes.get(name)
            # Written out, for it is asked thousands of times a second: whether the node is open and of the type.
            if node is not None and node.room < wanted <= node.room + gpus and not (node.cordoned or node.lost):
                missing -= not kind or node.node.gpu_type == kind
        if missing > 0 or not shape.demanding:
            return missing <= 0
        # The GPUs would do; whether they are where the shape wants them, only the nodes themselves tell.
        return placement.holds(self._nodes.values(), shape, freed)

    def place(self, shape: Shape, blocks: tuple[str, ...] = ()) -> tuple[Lease, ...] | None:
        """What ``placement.place`` finds on these nodes for a shape with GPUs."""
        if shape.demanding:
            return placement.place(self._nodes.values(), shape, blocks) if self.fits(shape) else None
        if shape.nodes > 1 and blocks:
            found = [(self._nodes[name].room, self._nodes[name]) for name in self._tightest(shape)]
            return placement.choose(found, shape, blocks)
        names = tuple(islice(self._tightest(shape), shape.nodes))
        if len(names) < shape.nodes:
            return None
        return tuple(Lease(name, shape.gpus_per_node) for name in sorted(names))

    def _tightest(self, shape: Shape) -> Iterator[NodeName]:
        rooms = self._by_type.get(shape.gpu_type, {})
        for room in sorted(rooms):
            if room >= shape.gpus_per_node:
                yield from rooms[room]

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
