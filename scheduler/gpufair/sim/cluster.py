"""The cluster of a simulation, written as ``128x8`` or ``96x8:a100,32x4:l40``: nodes × GPUs per node, and a type."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from gpufair.core.errors import GpufairError
from gpufair.core.model import Node, Shape
from gpufair.core.units import NodeName

MAX_NODES: Final = 100_000
MAX_GPUS_PER_NODE: Final = 1_024
RACK: Final = 16
_GROUP: Final = re.compile(r"([0-9]{1,9})\s*[x×]\s*([0-9]{1,9})(?:\s*:\s*([A-Za-z0-9][A-Za-z0-9 ._-]{0,62}))?")


class ClusterError(GpufairError):
    """The text names no cluster."""

    def __init__(self, text: str, because: str) -> None:
        super().__init__(text, because)
        self.text, self.because = text, because

    def __str__(self) -> str:
        return (
            f"{self.text[:80]!r} is no cluster: {self.because}; write NODESxGPUS, like 128x8, or several with a type "
            "each, like 96x8:a100,32x4:l40"
        )


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that are alike."""

    nodes: int
    gpus: int  # of each node
    gpu_type: str = ""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes in groups, in racks of ``rack`` nodes one after the other (label ``rack``; 0: no racks), in one pool."""

    groups: tuple[Group, ...]
    rack: int = RACK

    @classmethod
    def parse(cls, text: str, rack: int = RACK) -> Self:
        """The cluster that ``text`` names.

        Raises:
            ClusterError: It names none.

        Examples:
            >>> Cluster.parse("128x8").gpus
            1024
        """
        groups = []
        for part in text.split(","):
            match = _GROUP.fullmatch(part.strip())
            if match is None:
                raise ClusterError(text, f"{part.strip()!r} is not NODESxGPUS" if part.strip() else "a part is empty")
            group = Group(int(match[1]), int(match[2]), (match[3] or "").strip())
            if not group.nodes or not group.gpus:
                raise ClusterError(text, f"{part.strip()!r} has no GPUs")
            if group.gpus > MAX_GPUS_PER_NODE:
                raise ClusterError(text, f"{group.gpus:,} GPUs in one node are more than {MAX_GPUS_PER_NODE:,}")
            groups.append(group)
        if sum(group.nodes for group in groups) > MAX_NODES:
            raise ClusterError(text, f"it has more than {MAX_NODES:,} nodes")
        if rack < 0:
            raise ClusterError(text, f"racks of {rack} nodes are none; use 0 for no racks")
        return cls(tuple(groups), rack)

    def __str__(self) -> str:
        return ",".join(f"{one.nodes}x{one.gpus}" + (f":{one.gpu_type}" if one.gpu_type else "") for one in self.groups)

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return sum(group.nodes * group.gpus for group in self.groups)

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """The types that it has, in the order of the groups."""
        return tuple(dict.fromkeys(group.gpu_type for group in self.groups))

    def nodes(self) -> tuple[Node, ...]:
        """All nodes, named so that their names sort in the order of the groups."""
        width = len(str(sum(group.nodes for group in self.groups) - 1))
        made: list[Node] = []
        labels: dict[str, str] = {}
        for group in self.groups:
            for _ in range(group.nodes):
                if self.rack and len(made) % self.rack == 0:
                    labels = {"rack": f"r{len(made) // self.rack:0{width}d}"}
                made.append(Node(NodeName(f"n{len(made):0{width}d}"), group.gpus, group.gpu_type, labels=labels))
        return tuple(made)

    def shape(self, gpus: int, nodes: int | None = None, gpu_type: str = "") -> Shape | None:
        """How ``gpus`` GPUs lie on this cluster: on one node if they fit, else on as few whole nodes as possible.

        Where they don't divide by the nodes the last one is filled up: 17 GPUs on nodes of 8 are 3 × 6.

        Args:
            gpus: At least 1.
            nodes: On how many they were; kept if that is possible here.
            gpu_type: "" = any.

        Returns:
            None if there are never so many.
        """
        sizes = sorted({group.gpus for group in self.groups if gpu_type in ("", group.gpu_type)}, reverse=True)
        for size in sizes:
            there = self._nodes_of(size, gpu_type)
            for count in (nodes, -(-gpus // size)):
                if count and count <= there and count <= gpus and -(-gpus // count) <= size:
                    return Shape(-(-gpus // count), count, gpu_type)
        return None

    def largest(self, gpu_type: str = "") -> Shape | None:
        """The shape with most GPUs; None if there are none of that type."""
        sizes = sorted({group.gpus for group in self.groups if gpu_type in ("", group.gpu_type)})
        shapes = [Shape(size, self._nodes_of(size, gpu_type), gpu_type) for size in sizes]
        return max(shapes, key=lambda shape: shape.gpus, default=None)

    def _nodes_of(self, size: int, gpu_type: str) -> int:
        return sum(one.nodes for one in self.groups if one.gpus >= size and gpu_type in ("", one.gpu_type))
