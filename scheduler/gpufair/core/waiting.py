"""Who waits: per leaf, in a leaf per class of workloads that a pass treats alike, and in a class per researcher.

When one workload of a class cannot start, none behind it in the same class can, so a pass looks at one head per class
and not at ten thousand workloads. The classes are listed a second time by pool and shape: a pass that knows for which
shapes there could be GPUs looks at those alone.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from typing import NamedTuple

from gpufair.core.model import Shape, WorkloadSpec
from gpufair.core.units import AllocationPath, Instant, PoolName, WorkloadId


class WaitClass(NamedTuple):
    """What decides whether a workload of a leaf can start. The first field is the order of classes in a leaf."""

    urgency: int  # the negated priority
    gpus_per_node: int
    nodes: int
    gpu_type: str
    pools: tuple[PoolName, ...]
    min_runtime: int
    demands: tuple[object, ...]  # what the shape asks for beside GPUs


class Ticket(NamedTuple):
    """A place in the queue: the earlier submission first, then the smaller id."""

    submitted_at: Instant
    workload: WorkloadId


def ticket(submitted_at: Instant, workload: WorkloadId) -> Ticket:
    """One, in a third of the time that the class itself takes to make it."""
    return tuple.__new__(Ticket, (submitted_at, workload))


# Those of one class, by researcher. Unallocated work is not ordered by researcher: all of it is under "".
Queues = dict[str, list[Ticket]]
Line = dict[WaitClass, Queues]


def class_of(spec: WorkloadSpec, min_runtime: int) -> WaitClass:
    """The class within its leaf of a workload whose next start asks for ``min_runtime``."""
    shape = spec.shape
    # Priority counts inside a leaf only.
    urgency = -spec.priority if _is_personal(spec) else 0
    demands: tuple[object, ...] = ()
    if shape.demanding:
        demands = (shape.cpus_per_node, shape.memory_per_node, shape.within, shape.exclude, shape.where)
    fields = (urgency, shape.gpus_per_node, shape.nodes, shape.gpu_type, spec.pools, min_runtime, demands)
    return tuple.__new__(WaitClass, fields)  # as in ``ticket``


def queue_of(spec: WorkloadSpec) -> str:
    """Whose place in the leaf counts for a workload."""
    return spec.user if _is_personal(spec) else ""


def _is_personal(spec: WorkloadSpec) -> bool:
    """Whether its priority and its researcher count in its leaf: not for unallocated work on GPUs."""
    return spec.allocated or not spec.shape.gpus


class Group:
    """The classes of one leaf that ask for one shape, and what the best of them has to show."""

    __slots__ = ("_claim", "line")

    def __init__(self) -> None:
        self.line: Line = {}
        self._claim: tuple[int, int] | None = None

    @property
    def claim(self) -> tuple[int, int]:
        """The least min_runtime and the highest priority among them, not necessarily of one workload."""
        if self._claim is None:
            self._claim = min(key.min_runtime for key in self.line), max(-key.urgency for key in self.line)
        return self._claim

    def open(self, key: WaitClass, queues: Queues) -> None:
        """There is such a class now."""
        self.line[key] = queues
        self._claim = None

    def close(self, key: WaitClass) -> None:
        """There is no such class any more."""
        del self.line[key]
        self._claim = None


class Spans:
    """The min_runtimes of some classes."""

    __slots__ = ("_classes", "_ends")

    def __init__(self) -> None:
        self._classes: dict[int, int] = {}  # how many there are of each
        self._ends: tuple[int, int] | None = None

    def add(self, span: int, count: int) -> None:
        """There are so many more (fewer, if negative) with this one."""
        left = self._classes.get(span, 0) + count
        if left:
            self._classes[span] = left
        else:
            del self._classes[span]
        self._ends = None

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the most; 0 if there is none."""
        if self._ends is None:
            known = self._classes.keys()
            self._ends = (min(known), max(known)) if known else (0, 0)
        return self._ends


Turn = dict[Shape, dict[AllocationPath, Group]]


@dataclass(slots=True)
class Side:
    """Queued work that is allocated, or that is not, or that needs no GPUs."""

    lines: dict[AllocationPath, Line] = field(default_factory=dict)
    # Whoever names the pool as its n-th choice, by (n, pool); then by shape and leaf.
    turns: dict[tuple[int, PoolName], Turn] = field(default_factory=dict)
    lengths: Counter[tuple[PoolName, AllocationPath]] = field(default_factory=Counter)  # by first choice
    spans: dict[tuple[PoolName, Shape], Spans] = field(default_factory=dict)  # of their classes
    tops: dict[AllocationPath, int] = field(default_factory=dict)  # the highest priority of each leaf

    def add(self, spec: WorkloadSpec, ticket: Ticket, min_runtime: int) -> None:
        """Queue a workload whose next start asks for ``min_runtime``."""
        key = class_of(spec, min_runtime)
        line = self.lines.setdefault(spec.allocation, {})
        queues = line.get(key)
        if queues is None:
            queues = line[key] = {}
            self.tops[spec.allocation] = max(self.tops.get(spec.allocation, -key.urgency), -key.urgency)
            for turn in enumerate(key.pools):
                leaves = self.turns.setdefault(turn, {}).setdefault(spec.shape, {})
                leaves.setdefault(spec.allocation, Group()).open(key, queues)
                self.spans.setdefault((turn[1], spec.shape), Spans()).add(min_runtime, +1)
        insort(queues.setdefault(queue_of(spec), []), ticket)
        self.lengths[key.pools[0], spec.allocation] += 1

    def remove(self, spec: WorkloadSpec, ticket: Ticket, min_runtime: int) -> None:
        """Take a workload out."""
        leaf, key, user = spec.allocation, class_of(spec, min_runtime), queue_of(spec)
        self.lengths[key.pools[0], leaf] -= 1
        queues = self.lines[leaf][key]
        _drop(queues[user], ticket)
        if queues[user]:
            return
        del queues[user]
        if queues:
            return
        del self.lines[leaf][key]
        if not self.lines[leaf]:
            del self.lines[leaf], self.tops[leaf]
        elif -key.urgency == self.tops[leaf]:
            self.tops[leaf] = max(-other.urgency for other in self.lines[leaf])
        for turn in enumerate(key.pools):
            self._close(turn, spec, key)

    def _close(self, turn: tuple[int, PoolName], spec: WorkloadSpec, key: WaitClass) -> None:
        shapes = self.turns[turn]
        group = shapes[spec.shape][spec.allocation]
        group.close(key)
        self.spans[turn[1], spec.shape].add(key.min_runtime, -1)
        if not group.line:
            del shapes[spec.shape][spec.allocation]
        if not shapes[spec.shape]:
            del shapes[spec.shape]
        if not shapes:
            del self.turns[turn]

    @property
    def length(self) -> int:
        """How many wait here."""
        return sum(self.lengths.values())

    def pools(self) -> set[PoolName]:
        """Every pool that somebody names."""
        return {pool for _, pool in self.turns}


class _Entry:
    """One who waits, as it was added."""

    __slots__ = ("min_runtime", "spec", "ticket")

    def __init__(self, spec: WorkloadSpec, ticket: Ticket, min_runtime: int) -> None:
        self.spec, self.ticket, self.min_runtime = spec, ticket, min_runtime


class Waiting:
    """The queued workloads. ``plain`` are those of 0 GPUs, which wait for a node with enough beside GPUs.

    Allocated work that joins an empty queue is noted by itself, and listed when somebody looks at the lists: where there
    is room for everybody it starts before anybody has.
    """

    __slots__ = ("_allocated", "_unlisted", "length", "plain", "unallocated")

    def __init__(self) -> None:
        self._allocated, self.unallocated, self.plain = Side(), Side(), Side()
        self._unlisted: _Entry | None = None
        self.length = 0

    @property
    def allocated(self) -> Side:
        """Allocated work that needs GPUs."""
        if self._unlisted is not None:
            self._list()
        return self._allocated

    def _list(self) -> None:
        one, self._unlisted = self._unlisted, None
        if one is not None:
            self._allocated.add(one.spec, one.ticket, one.min_runtime)

    @property
    def unlisted(self) -> WorkloadId | None:
        """The only one who waits, if it joined an empty queue and nobody has looked at the lists since."""
        return self._unlisted.ticket.workload if self._unlisted is not None else None

    def add(self, spec: WorkloadSpec, ticket: Ticket, min_runtime: int) -> None:
        """Queue a workload whose next start asks for ``min_runtime``."""
        self.length += 1
        if self.length == 1 and spec.allocated and spec.shape.gpus:
            self._unlisted = _Entry(spec, ticket, min_runtime)
        else:
            self._list()  # whoever joins it may be of another side, and leave first
            self.side(spec).add(spec, ticket, min_runtime)

    def remove(self, spec: WorkloadSpec, ticket: Ticket, min_runtime: int) -> None:
        """Take a workload out."""
        self.length -= 1
        if self._unlisted is not None:
            self._unlisted = None  # there was nobody else
        else:
            self.side(spec).remove(spec, ticket, min_runtime)

    def side(self, spec: WorkloadSpec) -> Side:
        """Where workloads like this one wait."""
        if not spec.shape.gpus:
            return self.plain
        return self.allocated if spec.allocated else self.unallocated


def in_order(line: Line, had: Callable[[str], int]) -> Iterator[Ticket]:
    """All of one leaf: by priority, then by what their researcher has had, then submission, then id."""
    ranked: dict[tuple[int, int], list[list[Ticket]]] = {}
    for key, queues in line.items():
        for user, tickets in queues.items():
            ranked.setdefault((key.urgency, had(user)), []).append(tickets)
    for rank in sorted(ranked):
        yield from merge(*ranked[rank])


def _drop(tickets: list[Ticket], ticket: Ticket) -> None:
    index = bisect_left(tickets, ticket)
    assert tickets[index] == ticket
    del tickets[index]
