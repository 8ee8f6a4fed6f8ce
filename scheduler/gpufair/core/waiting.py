"""Who waits: per leaf, in a leaf per class of workloads that a pass treats alike, and in a class per researcher.

When one workload of a class cannot start, none behind it in the same class can, so a pass looks at one head per class
and not at ten thousand workloads.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from typing import NamedTuple

from gpufair.core.model import WorkloadSpec
from gpufair.core.units import AllocationPath, Instant, PoolName, WorkloadId


class WaitClass(NamedTuple):
    """What decides whether a workload of a leaf can start. The first field is the order of classes in a leaf."""

    urgency: int  # the negated priority
    gpus_per_node: int
    nodes: int
    gpu_type: str
    pools: tuple[PoolName, ...]
    min_runtime: int


class Ticket(NamedTuple):
    """A place in the queue: the earlier submission first, then the smaller id."""

    submitted_at: Instant
    workload: WorkloadId


# Those of one class, by researcher. Unallocated work is not ordered by researcher: all of it is under "".
Queues = dict[str, list[Ticket]]
Line = dict[WaitClass, Queues]


def class_of(spec: WorkloadSpec) -> WaitClass:
    """The class of a workload within its leaf."""
    shape = spec.shape
    # Priority counts inside a leaf and for allocated work only.
    urgency = -spec.priority if spec.allocated else 0
    return WaitClass(urgency, shape.gpus_per_node, shape.nodes, shape.gpu_type, spec.pools, spec.min_runtime)


def queue_of(spec: WorkloadSpec) -> str:
    """Whose place in the leaf counts for a workload."""
    return spec.user if spec.allocated else ""


@dataclass(slots=True)
class Waiting:
    """The queued workloads. ``plain`` are those of 0 GPUs, which wait only for a node to be there."""

    allocated: dict[AllocationPath, Line] = field(default_factory=dict)
    unallocated: dict[AllocationPath, Line] = field(default_factory=dict)
    plain: list[Ticket] = field(default_factory=list)
    length: int = 0

    def add(self, spec: WorkloadSpec, ticket: Ticket) -> None:
        """Queue a workload."""
        self.length += 1
        if not spec.shape.gpus:
            insort(self.plain, ticket)
            return
        line = self._side(spec).setdefault(spec.allocation, {})
        insort(line.setdefault(class_of(spec), {}).setdefault(queue_of(spec), []), ticket)

    def remove(self, spec: WorkloadSpec, ticket: Ticket) -> None:
        """Take a workload out."""
        self.length -= 1
        if not spec.shape.gpus:
            _drop(self.plain, ticket)
            return
        side = self._side(spec)
        line = side[spec.allocation]
        key, user = class_of(spec), queue_of(spec)
        _drop(line[key][user], ticket)
        if not line[key][user]:
            del line[key][user]
        if not line[key]:
            del line[key]
        if not line:
            del side[spec.allocation]

    def copy(self) -> Waiting:
        """An independent copy."""
        return Waiting(_copied(self.allocated), _copied(self.unallocated), list(self.plain), self.length)

    def _side(self, spec: WorkloadSpec) -> dict[AllocationPath, Line]:
        return self.allocated if spec.allocated else self.unallocated


def in_order(line: Line, had: Callable[[str], int]) -> Iterator[Ticket]:
    """All of one leaf: by priority, then by what their researcher has had, then submission, then id."""
    ranked: dict[tuple[int, int], list[list[Ticket]]] = {}
    for key, queues in line.items():
        for user, tickets in queues.items():
            ranked.setdefault((key.urgency, had(user)), []).append(tickets)
    for rank in sorted(ranked):
        yield from merge(*ranked[rank])


def _copied(side: dict[AllocationPath, Line]) -> dict[AllocationPath, Line]:
    return {
        leaf: {key: {user: list(tickets) for user, tickets in queues.items()} for key, queues in line.items()}
        for leaf, line in side.items()
    }


def _drop(tickets: list[Ticket], ticket: Ticket) -> None:
    index = bisect_left(tickets, ticket)
    assert tickets[index] == ticket
    del tickets[index]
