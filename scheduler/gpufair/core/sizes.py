"""How many nodes have how much room: what most questions of a pass come down to."""

from __future__ import annotations

from gpufair.core.model import Shape
from gpufair.core.units import Instant, NodeName


class Sizes:
    """How many nodes have how much room, by GPU type."""

    __slots__ = ("_counts", "_least")

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}  # by type, at its room: how many nodes have so much
        self._least: dict[str, list[int]] | None = None  # how many have at least so much, until one more is told

    def copy(self) -> Sizes:
        """An independent copy."""
        twin = Sizes()
        for kind, counts in self._counts.items():
            twin._counts[kind] = counts.copy()
        return twin

    def add(self, kind: str, room: int, count: int) -> None:
        """There are so many more nodes with so much room; those with none need not be told."""
        if room <= 0:
            return
        self._least = None
        counts = self._counts.get(kind)
        if counts is None:
            counts = self._counts[kind] = []
        if room >= len(counts):
            counts.extend([0] * (room + 1 - len(counts)))
        counts[room] += count

    def suffice(self, shape: Shape) -> bool:
        """Whether so many nodes have room for their part of a shape."""
        each, missing, only = shape.gpus_per_node, shape.nodes, shape.gpu_type
        for kind, least in self._at_least().items():
            if (not only or kind == only) and each < len(least):
                missing -= least[each]
        return missing <= 0

    def _at_least(self) -> dict[str, list[int]]:
        if self._least is None:
            self._least = {}
            for kind, counts in self._counts.items():
                nodes, least = 0, counts.copy()
                for room in range(len(counts) - 1, -1, -1):
                    nodes += counts[room]
                    least[room] = nodes
                self._least[kind] = least
        return self._least


class Everyone:
    """What there would be on each node of a pool if everybody left who may be told to, as it changes."""

    __slots__ = ("changed", "changes", "gpus", "listed")

    def __init__(self) -> None:
        self.gpus: dict[NodeName, int] = {}
        self.changes = 0
        self.listed: Sizes | None = None  # where a pool has listed its nodes with this, and those that changed since
        self.changed: dict[NodeName, None] = {}

    def add(self, node: NodeName, more: int) -> None:
        """So much more of a node."""
        gpus = self.gpus.get(node, 0) + more
        if gpus:
            self.gpus[node] = gpus
        else:
            del self.gpus[node]
        self.changes += 1
        self.changed[node] = None


class Counted:
    """What was counted of a pool, by how many of its horizons one outstays, until something of it changes.

    Attributes:
        sizes: How many nodes have how much room.
        tightest: The nodes that have any: those without horizons first, then by room, then by name.
        ends: When somebody's protection ends who outstays so many.
    """

    __slots__ = ("ends", "sizes", "tightest")

    def __init__(self) -> None:
        self.sizes: dict[int, Sizes] = {}
        self.tightest: dict[int, list[tuple[bool, int, NodeName]]] = {}
        self.ends: dict[int, Instant] = {}
