"""How many nodes have how much room: what most questions of a pass come down to."""

from __future__ import annotations

from gpufair.core.model import Shape


class Sizes:
    """How many nodes have how much room, by GPU type."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}  # by type, at its room: how many nodes have so much

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
        counts = self._counts.get(kind)
        if counts is None:
            counts = self._counts[kind] = []
        if room >= len(counts):
            counts.extend([0] * (room + 1 - len(counts)))
        counts[room] += count

    def suffice(self, shape: Shape) -> bool:
        """Whether so many nodes have room for their part of a shape."""
        each, missing, only = shape.gpus_per_node, shape.nodes, shape.gpu_type
        for kind, counts in self._counts.items():
            if not only or kind == only:
                for room in range(each, len(counts)):
                    missing -= counts[room]
        return missing <= 0


class Counted:
    """What was counted of a pool, by how many of its horizons one outstays, until something of it changes."""

    __slots__ = ("sizes",)

    def __init__(self) -> None:
        self.sizes: dict[int, Sizes] = {}
