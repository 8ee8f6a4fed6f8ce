"""The order of the queue in one pool: the walk from the root of the tree to the next workload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge

from gpufair.core.facts import Facts
from gpufair.core.share import Shares
from gpufair.core.tree import ROOT, Tree
from gpufair.core.units import AllocationPath, PoolName, WorkloadId
from gpufair.core.waiting import Line, Ticket, WaitClass, in_order


@dataclass(slots=True, eq=False)
class Head:
    """How far a pass has come in one class of one leaf."""

    key: WaitClass
    tickets: list[Ticket]
    index: int = 0

    @property
    def ticket(self) -> Ticket:
        """The next of its class."""
        return self.tickets[self.index]

    @property
    def exhausted(self) -> bool:
        """Whether nobody is left."""
        return self.index >= len(self.tickets)


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

    def next(self) -> tuple[AllocationPath, Head] | None:
        """The head of the best leaf; None when all are done. The caller advances it or closes it."""
        if not self._open.get(ROOT):
            return None
        path = ROOT
        while not self._heads.get(path):
            path = min(
                (child for child in self._tree[path].children if self._open.get(child)),
                key=lambda child: (self._shares.metric(child), child),
            )
        return path, min(self._heads[path], key=lambda head: (head.key.urgency, head.ticket))

    def close(self, leaf: AllocationPath, head: Head) -> None:
        """Nobody else of this class can start in this pass, or nobody is left."""
        self._heads[leaf].remove(head)
        self._count(leaf, -1)

    def _count(self, leaf: AllocationPath, more: int) -> None:
        for path in self._tree[leaf].lineage:
            self._open[path] = self._open.get(path, 0) + more


def _heads(line: Line, pool: PoolName, choice: int) -> list[Head]:
    return [Head(key, line[key]) for key in sorted(line) if len(key.pools) > choice and key.pools[choice] == pool]


def unallocated(facts: Facts, pool: PoolName, choice: int, shares: Shares) -> Iterator[tuple[AllocationPath, Head]]:
    """Heads of unallocated work: by their leaf's metric, leaves of equal metric by submission. The caller advances."""
    side = facts.waiting.unallocated
    ranked: dict[float, list[tuple[AllocationPath, Head]]] = {}
    for leaf in sorted(side):
        for head in _heads(side[leaf], pool, choice):
            ranked.setdefault(shares.metric(leaf), []).append((leaf, head))
    for metric in sorted(ranked):
        heads = ranked[metric]
        while heads:
            leaf, head = min(heads, key=lambda pair: pair[1].ticket)
            before = (head.index, len(head.tickets))
            yield leaf, head
            # A caller that neither advanced nor started anything has closed the class.
            if head.exhausted or (head.index, len(head.tickets)) == before:
                heads.remove((leaf, head))


def queue(facts: Facts) -> tuple[WorkloadId, ...]:
    """Everybody who waits, in the order in which a pass would try them now."""
    result = [ticket.workload for ticket in facts.waiting.plain]
    reserved = sorted(facts.reserved.values(), key=lambda record: record.reservation.order if record.reservation else 0)
    result += [record.id for record in reserved]
    for side, sort in ((facts.waiting.allocated, _by_tree), (facts.waiting.unallocated, _by_metric)):
        first_choices = sorted({key.pools[0] for line in side.values() for key in line})
        for pool in first_choices:
            lines = {
                leaf: {key: tickets for key, tickets in line.items() if key.pools[0] == pool}
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
            yield from in_order(lines[path])
        for child in sorted(busy.intersection(tree[path].children), key=lambda one: (shares.metric(one), one)):
            yield from below(child)

    return below(ROOT)


def _by_metric(tree: Tree, shares: Shares, lines: dict[AllocationPath, Line]) -> Iterator[Ticket]:
    ranked: dict[float, list[Iterator[Ticket]]] = {}
    for leaf in sorted(lines):
        ranked.setdefault(shares.metric(leaf), []).append(in_order(lines[leaf]))
    for metric in sorted(ranked):
        yield from merge(*ranked[metric])
