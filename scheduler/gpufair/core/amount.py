"""CPUs and memory beside GPUs: what a node has left of them, and what would be left if somebody went.

Most shapes ask for GPUs alone, so GPUs are counted in plain numbers everywhere. Only for a shape that takes CPUs or
memory all three are looked at together, as an ``Amount``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, Self

from gpufair.core.model import Node, Shape
from gpufair.core.record import UNCOUNTED, NodeRecord, Record
from gpufair.core.sizes import Counted, Everyone
from gpufair.core.units import NodeName, WorkloadId

Rest = tuple[int, int]  # CPUs, memory


class Quantity(Protocol):
    """What can be added up and compared: a number of GPUs, or more than one figure at once."""

    def __add__(self, other: Self, /) -> Self: ...
    def __sub__(self, other: Self, /) -> Self: ...
    def __ge__(self, other: Self, /) -> bool: ...


@dataclass(frozen=True, slots=True, eq=False)
class Amount:
    """GPUs, CPUs and bytes of memory of one node. It is ``>=`` another if it has as much of each."""

    gpus: int
    cpus: int
    memory: int

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.gpus + other.gpus, self.cpus + other.cpus, self.memory + other.memory)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.gpus - other.gpus, self.cpus - other.cpus, self.memory - other.memory)

    def __ge__(self, other: Amount) -> bool:
        return self.gpus >= other.gpus and self.cpus >= other.cpus and self.memory >= other.memory

    def beyond(self, other: Amount) -> Amount:
        """What of this the other does not cover."""
        return Amount(
            max(0, self.gpus - max(0, other.gpus)),
            max(0, self.cpus - max(0, other.cpus)),
            max(0, self.memory - max(0, other.memory)),
        )


def asked(shape: Shape) -> Amount:
    """What a shape takes of each of its nodes."""
    return Amount(shape.gpus_per_node, shape.cpus_per_node, shape.memory_per_node)


def free(node: NodeRecord) -> Amount:
    """What nobody holds on a node, though only guests may have some of the GPUs."""
    return Amount(node.free, node.cpus_left, node.memory_left)


def left(node: NodeRecord) -> Amount:
    """What a pass may grant on a node now."""
    return Amount(node.room, node.cpus_left, node.memory_left)


def whole(node: Node) -> Amount:
    """All that a node has."""
    return Amount(
        node.gpus,
        node.cpus if node.cpus is not None else UNCOUNTED,
        node.memory if node.memory is not None else UNCOUNTED,
    )


def held(node: NodeRecord, records: Mapping[WorkloadId, Record]) -> Rest:
    """The CPUs and memory that workloads hold on a node, those who are leaving included."""
    shapes = [records[holder].spec.shape for holder in node.holders]
    return sum(shape.cpus_per_node for shape in shapes), sum(shape.memory_per_node for shape in shapes)


def kept(node: NodeRecord, owner: Record, records: Mapping[WorkloadId, Record]) -> Rest:
    """The CPUs and memory of a reserved lease that are free already: all but what its victims still hold."""
    if owner.reservation is None:
        return 0, 0
    shape, counts = owner.spec.shape, node.node
    victims = [records[one].spec.shape for one in owner.reservation.pending if one in node.holders]
    cpus = sum(victim.cpus_per_node for victim in victims) if counts.cpus is not None else 0
    memory = sum(victim.memory_per_node for victim in victims) if counts.memory is not None else 0
    return max(0, shape.cpus_per_node - cpus), max(0, shape.memory_per_node - memory)


def rest(node: NodeRecord, records: Mapping[WorkloadId, Record]) -> Rest:
    """The CPUs and memory that a pass may grant on a node now; negative if more is kept than there is."""
    if node.node.cpus is None and node.node.memory is None:
        return UNCOUNTED, UNCOUNTED
    cpus, memory = held(node, records)
    for owner in node.claims:
        more = kept(node, records[owner], records)
        cpus, memory = cpus + more[0], memory + more[1]
    has = whole(node.node)
    return (
        has.cpus - cpus if node.node.cpus is not None else UNCOUNTED,
        has.memory - memory if node.node.memory is not None else UNCOUNTED,
    )


class Freed:
    """What there would be beside what is free: GPUs by node, and the CPUs and memory of the same nodes.

    Args:
        gpus: GPUs by node.
        groups: Those who would leave it, looked at when the rest, or one of them, is first asked for. They must not
            have changed by then.
        rest: The rest, where it is known already.
    """

    __slots__ = ("_as_of", "_everyone", "_groups", "_parts", "_rest", "_seen", "counted", "counted_for", "gpus", "taken")

    def __init__(
        self,
        gpus: dict[NodeName, int],
        groups: Iterable[Mapping[WorkloadId, Record]] = (),
        rest: dict[NodeName, Rest] | None = None,
    ) -> None:
        self.gpus = gpus
        self.taken = 0  # how often somebody took a part of it
        # What a pool's nodes and this come to, good for as long as the pool goes by the same (``gpufair.core.rooms``).
        self.counted: Counted | None = None
        self.counted_for: Counted | None = None
        self._groups = groups
        self._seen: tuple[Mapping[WorkloadId, Record], ...] | None = None
        self._rest = rest
        self._parts: tuple[Freed, Freed] | None = None
        self._everyone: Everyone | None = None
        self._as_of = 0

    @classmethod
    def of_all(cls, everyone: Everyone, groups: Iterable[Mapping[WorkloadId, Record]]) -> Freed:
        """What there would be if everybody left who may be told to."""
        freed = cls(everyone.gpus.copy(), groups)
        freed._everyone, freed._as_of = everyone, everyone.changes
        return freed

    @property
    def everyone(self) -> Everyone | None:
        """What this is a copy of, as long as that is so."""
        whole = self._everyone
        return whole if whole is not None and whole.changes == self._as_of and not self.taken else None

    @property
    def parts(self) -> tuple[Freed, Freed] | None:
        """What everybody would free, and what comes to that, if this is the sum of both as long as that is so."""
        parts = self._parts
        return parts if parts is not None and parts[0].everyone is not None and not self.taken else None

    def __bool__(self) -> bool:
        return bool(self.gpus) or bool(self.rest)

    @property
    def rest(self) -> dict[NodeName, Rest]:
        """CPUs and memory by node; nodes without any of either can be missing."""
        if self._rest is None:
            self._rest = {}
            for group in self.groups():
                for record in group.values():
                    add_rest(self._rest, record)
        return self._rest

    def groups(self) -> tuple[Mapping[WorkloadId, Record], ...]:
        """Those who would leave it."""
        if self._seen is None:
            self._seen = tuple(self._groups)
        return self._seen

    def includes(self, workload: WorkloadId) -> bool:
        """Whether it is so because this workload would leave."""
        return any(workload in group for group in self.groups())

    def of(self, name: NodeName) -> Amount:
        """All three of one node."""
        return Amount(self.gpus.get(name, 0), *self.rest.get(name, (0, 0)))

    def and_also(self, other: Freed, rest: bool) -> Freed:
        """The sum of both, of CPUs and memory only if the ``rest`` matters."""
        gpus = dict(self.gpus)
        for name, count in other.gpus.items():
            gpus[name] = gpus.get(name, 0) + count
        both = dict(self.rest) if rest else {}
        for name, (cpus, memory) in other.rest.items() if rest else ():
            mine = both.get(name, (0, 0))
            both[name] = mine[0] + cpus, mine[1] + memory
        found = Freed(gpus, _of_both(self, other), both)
        found._parts = self, other
        return found

    def take(self, name: NodeName, part: Amount) -> None:
        """Somebody counts on this part of it."""
        self.taken += 1
        if part.gpus:
            self.gpus[name] -= part.gpus
        if part.cpus or part.memory:
            cpus, memory = self.rest.get(name, (0, 0))
            self.rest[name] = cpus - part.cpus, memory - part.memory


def _of_both(one: Freed, other: Freed) -> Iterator[Mapping[WorkloadId, Record]]:
    yield from one.groups()
    yield from other.groups()


def add_rest(sums: dict[NodeName, Rest], record: Record) -> None:
    """Count the CPUs and memory that a workload holds."""
    shape = record.spec.shape
    if not shape.counted or record.held is None:
        return
    for lease in record.held.leases:
        cpus, memory = sums.get(lease.node, (0, 0))
        sums[lease.node] = cpus + shape.cpus_per_node, memory + shape.memory_per_node
