"""The order of the queue in one pool: the walk from the root of the tree to the next workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from heapq import heapify, heappop, heappush

from gpufair.core.model import Shape
from gpufair.core.share import Shares
from gpufair.core.tree import ROOT, Tree
from gpufair.core.units import AllocationPath, WorkloadId
from gpufair.core.waiting import Group, Queues, Ticket, Turn

Researchers = list[tuple[int, str]]  # what each has had, the least first
Rank = tuple[int, int, Ticket]  # urgency, what the researcher has had, submission and id


class Head:
    """How far a pass has come in one class of one leaf."""

    __slots__ = ("passed", "queues", "shape", "urgency")

    def __init__(self, urgency: int, shape: Shape, queues: Queues) -> None:
        self.urgency, self.shape, self.queues = urgency, shape, queues
        self.passed: dict[str, int] = {}  # how many of a researcher's have had their turn and wait on

    def rank(self, researchers: Researchers) -> Rank | None:
        """The place of the next of its class; None when nobody is left."""
        best: tuple[int, Ticket] | None = None
        for had, user in researchers:
            if best is not None and had > best[0]:
                break
            tickets, index = self.queues.get(user, ()), self.passed.get(user, 0)
            if index < len(tickets):
                first = had, tickets[index]
                if best is None or first < best:
                    best = first
        return (self.urgency, *best) if best is not None else None

    def skip(self, user: str) -> None:
        """The first of this researcher has had its turn and waits on."""
        self.passed[user] = self.passed.get(user, 0) + 1


class Walk:
    """Who is next among the allocated workloads of one turn.

    The metrics may change between two steps, as the pass grants GPUs; the next step then goes by the new ones. Within
    a leaf ranks only grow, so each leaf is a heap in which a rank that has grown is put back when it comes up.

    Args:
        tree: The budget tree.
        shares: The metrics, kept current by the pass.
        turn: Those who wait.
        hopeful: Whether the pass may still do something for a shape; once it may not, it never may again.
        without: Leaves that have no part in it.
    """

    def __init__(
        self,
        tree: Tree,
        shares: Shares,
        turn: Turn,
        hopeful: Callable[[Shape], bool],
        without: AbstractSet[AllocationPath] = frozenset(),
    ) -> None:
        self._tree, self._shares, self._hopeful = tree, shares, hopeful
        self._shapes = [(shape, leaves) for shape, leaves in turn.items() if hopeful(shape)]
        # In which somebody may be left. Only asked whether a leaf is among them: its order is none.
        self._live: set[AllocationPath] = set()
        self._live.update(*(leaves for _, leaves in self._shapes))
        self._live.difference_update(without)
        self._busy: dict[AllocationPath, int] = {}  # how many of them are at and below each tree node
        for leaf in self._live:
            for path in tree[leaf].lineage:
                self._busy[path] = self._busy.get(path, 0) + 1
        self._groups: dict[AllocationPath, list[tuple[Shape, Group]]] = {}
        self._heaps: dict[AllocationPath, list[tuple[Rank, Head]]] = {}
        self._researchers: dict[AllocationPath, tuple[int, Researchers]] = {}  # as of so many grants

    def leaf(self) -> AllocationPath | None:
        """The leaf whose turn it is; None when nobody is left."""
        if not self._live:
            return None
        path, tree = ROOT, self._tree
        while children := tree[path].children:
            busy = [child for child in children if self._busy.get(child)]
            # Whoever is alone is first, whatever its metric: that of an inner node is a sum over all of its leaves.
            path = busy[0] if len(busy) == 1 else self._best(busy)
        return path

    def _best(self, busy: list[AllocationPath]) -> AllocationPath:
        """Whose metric is the smallest; of equals the smaller path."""
        best, least = busy[0], self._shares.metric(busy[0])
        for child in busy:
            metric = self._shares.metric(child)
            if metric < least or (metric == least and child < best):
                best, least = child, metric
        return best

    def groups(self, leaf: AllocationPath) -> list[tuple[Shape, Group]]:
        """Who waits in a leaf, as far as the pass may still do something for them."""
        known = self._groups.get(leaf)
        if known is None:
            known = self._groups[leaf] = [(shape, leaves[leaf]) for shape, leaves in self._shapes if leaf in leaves]
        return known

    def first(self, leaf: AllocationPath) -> tuple[Head, WorkloadId] | None:
        """Who is first in a leaf; None, and the leaf is done, when nobody is left. The caller starts it, skips it or
        drops its class."""
        heap = self._heap(leaf)
        while heap:
            rank, head = heap[0]
            now = head.rank(self._in_turn(leaf)) if self._hopeful(head.shape) else None
            if now == rank:
                return head, rank[2].workload
            heappop(heap)
            if now is not None:
                heappush(heap, (now, head))
        self.done(leaf)
        return None

    def _in_turn(self, leaf: AllocationPath) -> Researchers:
        """Those who have somebody waiting in a leaf, in the order of what they have had."""
        known, shares = self._researchers.get(leaf), self._shares
        if known is None or known[0] != shares.grants:
            users: set[str] = set()
            for _, group in self.groups(leaf):
                for queues in group.line.values():
                    users.update(queues)
            known = self._researchers[leaf] = shares.grants, sorted([(shares.had(leaf, user), user) for user in users])
        return known[1]

    def drop(self, leaf: AllocationPath) -> None:
        """Nobody else of the class that is first in this leaf can start in this pass."""
        heappop(self._heaps[leaf])

    def narrow(self, leaf: AllocationPath, to: Callable[[Shape], bool]) -> None:
        """Go on with some shapes only in this leaf."""
        self._groups[leaf] = [(shape, group) for shape, group in self.groups(leaf) if to(shape)]
        if leaf in self._heaps:
            self._heaps[leaf] = [entry for entry in self._heaps[leaf] if to(entry[1].shape)]
            heapify(self._heaps[leaf])

    def done(self, leaf: AllocationPath) -> None:
        """Nobody else of this leaf can start in this pass."""
        if leaf in self._live:
            self._live.discard(leaf)
            for path in self._tree[leaf].lineage:
                self._busy[path] -= 1
        self._heaps.pop(leaf, None)

    def _heap(self, leaf: AllocationPath) -> list[tuple[Rank, Head]]:
        heap = self._heaps.get(leaf)
        if heap is None:
            heap = self._heaps[leaf] = []
            for shape, group in self.groups(leaf):
                for key, queues in group.line.items():
                    head = Head(key.urgency, shape, queues)
                    rank = head.rank(self._in_turn(leaf))
                    if rank is not None:
                        heap.append((rank, head))
            heapify(heap)
        return heap


def unallocated(
    turn: Turn, shares: Shares, fits: Callable[[Shape], bool], rests: Callable[[WorkloadId], bool]
) -> Iterator[WorkloadId]:
    """Unallocated work that does not rest: by their leaf's metric, leaves of equal metric by submission. The caller
    starts it, or its class is closed."""
    ranked: dict[float, list[list[Ticket]]] = {}
    for shape, leaves in turn.items():
        if fits(shape):
            for leaf, group in leaves.items():
                queues = [tickets for users in group.line.values() for tickets in users.values()]
                ranked.setdefault(shares.metric(leaf), []).extend(queues)
    for metric in sorted(ranked):
        yield from by_submission(ranked[metric], rests)


def by_submission(classes: list[list[Ticket]], rests: Callable[[WorkloadId], bool]) -> Iterator[WorkloadId]:
    """Those of some classes who do not rest. The caller starts each, or its class is closed."""
    heap: list[tuple[Ticket, int]] = []

    def push(index: int) -> None:
        first = next((ticket for ticket in classes[index] if not rests(ticket.workload)), None)
        if first is not None:
            heappush(heap, (first, index))

    for index in range(len(classes)):
        push(index)
    while heap:
        first, index = heappop(heap)
        before = len(classes[index])
        yield first.workload
        if len(classes[index]) < before:
            push(index)
