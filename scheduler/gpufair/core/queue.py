"""The queue as people see it: everybody who waits, in the order in which a pass would try them now."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from heapq import merge

from gpufair.core import cpu_work
from gpufair.core.facts import Facts
from gpufair.core.model import Phase
from gpufair.core.record import Record
from gpufair.core.share import Shares
from gpufair.core.tree import ROOT, Tree
from gpufair.core.units import AllocationPath, PoolName, WorkloadId
from gpufair.core.waiting import Side, Ticket, class_of, in_order, queue_of

SharesOf = Callable[[PoolName], Shares]


def queue(facts: Facts) -> tuple[WorkloadId, ...]:
    """All of them."""
    result = list(cpu_work.in_order(facts))
    result += [record.id for record in reserved(facts)]
    for part in _parts(facts):
        result += (ticket.workload for ticket in part.tickets() if ticket.workload not in facts.reserved)
    return tuple(result)


def position(facts: Facts, record: Record, shares: SharesOf | None = None) -> int:
    """The place of a queued workload, counted from 1, without listing all who are before it."""
    return Places(facts, shares).of(record)


class Places:
    """The places of those who wait, until something happens. What all of them need is worked out once."""

    def __init__(self, facts: Facts, shares: SharesOf | None = None) -> None:
        self._facts, self._shares = facts, shares
        # By whether it is allocated, first pool and leaf; with how many come before that part.
        self._parts: dict[tuple[bool, PoolName, AllocationPath], tuple[_Part, int]] | None = None

    def of(self, record: Record) -> int:
        """That of a queued workload, counted from 1."""
        facts, spec = self._facts, record.spec
        if not record.gpus:
            return next(place for place, one in enumerate(cpu_work.in_order(facts), 1) if one == record.id)
        before, ahead = facts.waiting.plain.length, reserved(facts)
        if record.reservation is not None:
            return before + 1 + [one.id for one in ahead].index(record.id)
        if self._parts is None:
            self._parts = self._listed()
        part, others = self._parts[spec.allocated, spec.pools[0], spec.allocation]
        return before + len(ahead) + others + part.before(record) + 1

    def _listed(self) -> dict[tuple[bool, PoolName, AllocationPath], tuple[_Part, int]]:
        found, before = {}, 0
        for part in _parts(self._facts, self._shares):
            for leaf in part.leaves:
                found[part.side is self._facts.waiting.allocated, part.pool, leaf] = part, before
            before += part.length()
        return found


def leaves_in_order(facts: Facts, shares: SharesOf | None = None) -> Iterator[tuple[AllocationPath, PoolName]]:
    """Each leaf with allocated work that names a pool first, in the order in which a pass would try them now."""
    for part in _parts(facts, shares, (facts.waiting.allocated,)):
        for leaf in part.leaves:
            yield leaf, part.pool


def reserved(facts: Facts) -> list[Record]:
    """Those who wait and for whom GPUs are kept, in the order in which they were."""
    return [record for record in kept(facts) if record.phase is Phase.QUEUED] if facts.reserved else []


def kept(facts: Facts) -> list[Record]:
    """The same, and those who are moving to GPUs that are kept for them."""
    if not facts.reserved:
        return []
    return sorted(facts.reserved.values(), key=lambda one: one.reservation.order if one.reservation is not None else 0)


_Rank = tuple[int, int]  # urgency, and what the researcher has had


class _Part:
    """The work of one side that names a pool first, in leaves between which only the tickets decide.

    Where these are several all of it has one rank: only unallocated work is told apart by tickets alone.
    """

    def __init__(self, facts: Facts, side: Side, pool: PoolName, shares: Shares, leaves: list[AllocationPath]) -> None:
        self._facts, self.side, self.pool, self._shares, self.leaves = facts, side, pool, shares, leaves
        self._ranked: dict[_Rank, tuple[int, list[list[Ticket]]]] | None = None

    def tickets(self) -> Iterator[Ticket]:
        """All of it in order."""
        return merge(*(self._in_leaf(leaf) for leaf in self.leaves))

    def length(self) -> int:
        """How many it is, those with a reservation aside."""
        return sum(self.side.lengths[self.pool, leaf] for leaf in self.leaves) - len(self._kept())

    def before(self, record: Record) -> int:
        """How many of it come before one of its own, those with a reservation aside."""
        if self._ranked is None:
            self._ranked = self._rank()
        rank, ticket = self._place(record)
        earlier, tickets = self._ranked[rank]
        kept = sum(1 for one in self._kept() if self._place(one) < (rank, ticket))
        return earlier + sum(bisect_left(each, ticket) for each in tickets) - kept

    def _rank(self) -> dict[_Rank, tuple[int, list[list[Ticket]]]]:
        """For each rank how many have a better one, and those who have it."""
        found: dict[_Rank, list[list[Ticket]]] = {}
        for leaf in self.leaves:
            for key, queues in self.side.lines[leaf].items():
                if key.pools[0] == self.pool:
                    for user, tickets in queues.items():
                        found.setdefault((key.urgency, self._had(leaf, user)), []).append(tickets)
        ranked, before = {}, 0
        for rank in sorted(found):
            ranked[rank] = before, found[rank]
            before += sum(map(len, found[rank]))
        return ranked

    def _place(self, record: Record) -> tuple[_Rank, Ticket]:
        spec = record.spec
        urgency = class_of(spec, record.min_runtime).urgency
        rank = urgency, self._had(spec.allocation, queue_of(spec))
        return rank, Ticket(record.submitted_at, record.id)

    def _kept(self) -> list[Record]:
        return [
            one
            for one in reserved(self._facts)
            if self._facts.waiting.side(one.spec) is self.side
            and one.spec.pools[0] == self.pool
            and one.spec.allocation in self.leaves
        ]

    def _had(self, leaf: AllocationPath, user: str) -> int:
        return self._shares.had(leaf, user) if self.side is self._facts.waiting.allocated else 0

    def _in_leaf(self, leaf: AllocationPath) -> Iterator[Ticket]:
        line = {key: queues for key, queues in self.side.lines[leaf].items() if key.pools[0] == self.pool}
        return in_order(line, partial(self._had, leaf))


def _parts(facts: Facts, shares_of: SharesOf | None = None, sides: tuple[Side, ...] = ()) -> Iterator[_Part]:
    for side in sides or (facts.waiting.allocated, facts.waiting.unallocated):
        for pool in sorted({pool for (pool, _), length in side.lengths.items() if length}):
            leaves = [leaf for leaf in sorted(side.lines) if side.lengths[pool, leaf]]
            shares = (shares_of or facts.shares)(pool)
            ranked = _by_tree(facts.ranking, shares, leaves)
            for together in ranked if side is facts.waiting.allocated else _by_metric(shares, leaves):
                yield _Part(facts, side, pool, shares, together)


def _by_tree(tree: Tree, shares: Shares, leaves: list[AllocationPath]) -> Iterator[list[AllocationPath]]:
    busy = {path for leaf in leaves for path in tree[leaf].lineage}

    def below(path: AllocationPath) -> Iterator[list[AllocationPath]]:
        if path in leaves:
            yield [path]
        for child in sorted(busy.intersection(tree[path].children), key=lambda one: (shares.metric(one), one)):
            yield from below(child)

    return below(ROOT)


def _by_metric(shares: Shares, leaves: list[AllocationPath]) -> Iterator[list[AllocationPath]]:
    ranked: dict[float, list[AllocationPath]] = {}
    for leaf in leaves:
        ranked.setdefault(shares.metric(leaf), []).append(leaf)
    return (ranked[metric] for metric in sorted(ranked))
