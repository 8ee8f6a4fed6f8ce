"""The order of the queue in one pool: the walk from the root of the tree to the next workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from heapq import merge

from gpufair.core.facts import Facts
from gpufair.core.share import Shares
from gpufair.core.tree import ROOT, Tree
from gpufair.core.units import AllocationPath, PoolName, WorkloadId
from gpufair.core.waiting import Line, Queues, Ticket, WaitClass, in_order


@dataclass(slots=True, eq=False)
class Head:
    """How far a pass has come in one class of one leaf."""

    key: WaitClass
    queues: Queues
    passed: dict[str, int] = field(default_factory=dict)  # how many of a researcher's have had their turn and wait on

    def first(self, had: Callable[[str], int]) -> tuple[int, Ticket] | None:
        """The next of its class, with what the researcher has had; None when nobody is left."""
        passed = self.passed
        return min(
            (
                (had(user), tickets[passed.get(user, 0)])
                for user, tickets in self.queues.items()
                if passed.get(user, 0) < len(tickets)
            ),
            default=None,
        )

    def skip(self, user: str) -> None:
        """The first of this researcher has had its turn and waits on."""
        self.passed[user] = self.passed.get(user, 0) + 1


class Walk:
    """Who is next among the allocated workloads that name ``pool`` as their ``choice``-th pool.

    The metrics may change between two steps, as the pass grants GPUs; the next step then goes by the new ones.
    """

    def __init__(self, facts: Facts, pool: PoolName, choice: int, shares: Shares) -> None:
        self._tree, self._shares = facts.tree, shares
        self._heads: dict[AllocationPath, list[Head]] = {}
        self._open: dict[AllocationPath, int] = {}
        for leaf in sorted(facts.waiting.allocated):
            heads = _heads(facts.waiting.allocated[leaf], pool, choice)
            if heads:
                self._heads[leaf] = heads
                self._count(leaf, len(heads))

    def next(self) -> tuple[AllocationPath, Head, WorkloadId] | None:
        """Who is first in the best leaf; None when all are done. The caller starts it, skips it or closes its class."""
        while self._open.get(ROOT):
            path = ROOT
            while not self._heads.get(path):
                path = min(
                    (child for child in self._tree[path].children if self._open.get(child)),
                    key=lambda child: (self._shares.metric(child), child),
                )
            found = self._first(path)
            if found is not None:
                return path, *found
        return None

    def _first(self, leaf: AllocationPath) -> tuple[Head, WorkloadId] | None:
        had = partial(self._shares.had, leaf)
        best: tuple[tuple[int, int, Ticket], Head] | None = None
        for head in tuple(self._heads[leaf]):
            first = head.first(had)
            if first is None:
                self.close(leaf, head)
                continue
            rank = (head.key.urgency, *first)
            if best is None or rank < best[0]:
                best = rank, head
        return (best[1], best[0][2].workload) if best is not None else None

    def close(self, leaf: AllocationPath, head: Head) -> None:
        """Nobody else of this class can start in this pass, or nobody is left."""
        self._heads[leaf].remove(head)
        self._count(leaf, -1)

    def _count(self, leaf: AllocationPath, more: int) -> None:
        for path in self._tree[leaf].lineage:
            self._open[path] = self._open.get(path, 0) + more


def _heads(line: Line, pool: PoolName, choice: int) -> list[Head]:
    return [Head(key, line[key]) for key in sorted(line) if len(key.pools) > choice and key.pools[choice] == pool]


def unallocated(facts: Facts, pool: PoolName, choice: int, shares: Shares) -> Iterator[WorkloadId]:
    """Unallocated work: by their leaf's metric, leaves of equal metric by submission. The caller starts it, or its
    class is closed."""
    side = facts.waiting.unallocated
    ranked: dict[float, list[list[Ticket]]] = {}
    for leaf in sorted(side):
        for head in _heads(side[leaf], pool, choice):
            ranked.setdefault(shares.metric(leaf), []).extend(head.queues.values())
    for metric in sorted(ranked):
        open_classes = ranked[metric]
        while open_classes:
            tickets = min(open_classes)
            before = len(tickets)
            yield tickets[0].workload
            if not tickets or len(tickets) == before:
                open_classes.remove(tickets)


def queue(facts: Facts) -> tuple[WorkloadId, ...]:
    """Everybody who waits, in the order in which a pass would try them now."""
    result = [ticket.workload for ticket in facts.waiting.plain]
    reserved = sorted(facts.reserved.values(), key=lambda record: record.reservation.order if record.reservation else 0)
    result += [record.id for record in reserved]
    for side, sort in ((facts.waiting.allocated, _by_tree), (facts.waiting.unallocated, _by_metric)):
        first_choices = sorted({key.pools[0] for line in side.values() for key in line})
        for pool in first_choices:
            lines = {
                leaf: {key: queues for key, queues in line.items() if key.pools[0] == pool}
                for leaf, line in side.items()
            }
            lines = {leaf: line for leaf, line in lines.items() if line}
            result += [
                ticket.workload
                for ticket in sort(facts.tree, facts.shares(pool), lines)
                if ticket.workload not in facts.reserved
            ]
    return tuple(result)


def _by_tree(tree: Tree, shares: Shares, lines: dict[AllocationPath, Line]) -> Iterator[Ticket]:
    busy = {path for leaf in lines for path in tree[leaf].lineage}

    def below(path: AllocationPath) -> Iterator[Ticket]:
        if path in lines:
            yield from in_order(lines[path], partial(shares.had, path))
        for child in sorted(busy.intersection(tree[path].children), key=lambda one: (shares.metric(one), one)):
            yield from below(child)

    return below(ROOT)


def _by_metric(tree: Tree, shares: Shares, lines: dict[AllocationPath, Line]) -> Iterator[Ticket]:
    ranked: dict[float, list[Iterator[Ticket]]] = {}
    for leaf in sorted(lines):
        ranked.setdefault(shares.metric(leaf), []).append(in_order(lines[leaf], _alike))
    for metric in sorted(ranked):
        yield from merge(*ranked[metric])


def _alike(user: str) -> int:
    return 0
