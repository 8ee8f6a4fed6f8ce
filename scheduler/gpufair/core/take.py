"""The take limit: how much of a pool a leaf may hold at once while another leaf is hungry.

A leaf is hungry if it has allocated work queued for which no GPUs are kept, and m < 1 (or, by option, if it holds less
than its entitlement). While another one is, a leaf starts nothing that would take it beyond max(8, kappa * a * C) GPUs,
except on GPUs that nobody else can use; and its unprotected work beyond the limit may be moved for the hungry one. Its
work within the limit may not, whatever it has had: the limit ends a burst, and the ranks do the rest. A leaf that
holds nothing may start one workload of any size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import cache

from gpufair.core.facts import Facts
from gpufair.core.lines import ENDLESS
from gpufair.core.metrics import Metrics
from gpufair.core.model import Hungry
from gpufair.core.queue import reserved
from gpufair.core.record import Record
from gpufair.core.running import Running
from gpufair.core.units import AllocationPath, PoolName
from gpufair.core.waiting import Turn


@cache
def _exact(kappa: float) -> tuple[int, int]:
    """Kappa as people write it."""
    return Fraction(str(kappa)).as_integer_ratio()


class TakeLimit:
    """The limits of one pool at this moment, kept current by the pass as it grants.

    Args:
        facts: What is so.
        pool: The pool.
        running: Who runs there.
        metrics: Its metrics; asked for only if somebody is beyond his limit.
    """

    def __init__(self, facts: Facts, pool: PoolName, running: Running, metrics: Metrics) -> None:
        self._facts, self._pool, self._running, self._metrics = facts, pool, running, metrics
        self.kappa = facts.policy.take_limit
        self._kept: dict[AllocationPath, int] | None = None
        self._leaving: dict[AllocationPath, int] | None = None
        self._over: dict[AllocationPath, int] | None = None
        self._limits = facts.limits(pool)
        self._margins: dict[AllocationPath, int] = {}  # what a leaf that holds some may still take
        self._known: dict[AllocationPath, bool] = {}  # who hungers, as far as anybody has asked
        self._hungry_last: tuple[AllocationPath, ...] = ()
        self._served: Counter[AllocationPath] | None = None  # how many of a leaf have GPUs kept for them

    def granted(self, leaf: AllocationPath) -> None:
        """A leaf has got GPUs, or some are kept for it."""
        self._kept = self._leaving = self._over = self._served = None
        self._margins.clear()
        if self._known.get(leaf):
            del self._known[leaf]  # nobody begins to hunger by being fed

    def granted_elsewhere(self) -> None:
        """Somebody has got GPUs in another pool, and does not wait here any more."""
        self._known.clear()
        self._served = None

    def limit(self, leaf: AllocationPath) -> int:
        """GPUs that a leaf may hold while another one is hungry."""
        known = self._limits.get(leaf)
        if known is None:
            assert self.kappa is not None
            part, parts = self._facts.tree.ratio(leaf)
            times, divided = _exact(self.kappa)
            gpus = times * part * self._facts.capacity(self._pool) // (divided * parts)
            known = self._limits[leaf] = max(self._facts.policy.take_least, gpus)
        return known

    def is_beyond(self, leaf: AllocationPath, gpus: int) -> bool:
        """Whether a start of so many GPUs would take a leaf beyond its limit."""
        margin = self._margins.get(leaf)
        if margin is None:
            held = self._held(leaf) if self.kappa is not None else 0
            margin = self._margins[leaf] = self.limit(leaf) - held if held else ENDLESS
        return gpus > margin

    def holds_back(self, leaf: AllocationPath, gpus: int) -> bool:
        """Whether it may not now, because somebody else is hungry."""
        return self.is_beyond(leaf, gpus) and self._others_hunger(leaf)

    def beyond(self, turn: Turn) -> Turn:
        """Those of a turn whose start would take their leaf beyond its limit."""
        found: Turn = {}
        if self.kappa is None:
            return found
        for shape, leaves in turn.items():
            for leaf, group in leaves.items():
                if self.is_beyond(leaf, shape.gpus):
                    found.setdefault(shape, {})[leaf] = group
        return found

    @property
    def over(self) -> dict[AllocationPath, int]:
        """How many GPUs the leaves with unprotected work keep beyond their limits."""
        if self._over is None:
            self._over = {}
            for leaf in self._running.exposed if self.kappa is not None else ():
                gpus = self._staying(leaf)
                if gpus > self._facts.policy.take_least and gpus > (limit := self.limit(leaf)):
                    self._over[leaf] = gpus - limit
        return self._over

    def excess(self, mine: AllocationPath, gpus: int) -> dict[AllocationPath, int]:
        """The same of the other leaves, if the leaf ``mine`` is hungry and within its limit with so many GPUs more."""
        over = self.over
        if not over or not self._hungers(mine) or self.is_beyond(mine, gpus):
            return {}
        return {leaf: gpus for leaf, gpus in over.items() if leaf != mine}

    @property
    def hungry(self) -> set[AllocationPath]:
        """The leaves that are."""
        return {leaf for leaf in self._facts.waiting.allocated.lines if self._hungers(leaf)}

    def _others_hunger(self, leaf: AllocationPath) -> bool:
        lines = self._facts.waiting.allocated.lines
        # Whoever was found to hunger the last time mostly still does: two are enough to know it of everybody.
        if any(other != leaf and other in lines and self._hungers(other) for other in self._hungry_last):
            return True
        for other in lines:
            if other != leaf and self._hungers(other):
                self._hungry_last = (*self._hungry_last[-1:], other)
                return True
        return False

    def _hungers(self, leaf: AllocationPath) -> bool:
        known = self._known.get(leaf)
        if known is None:
            known = self._known[leaf] = self._waits(leaf) and self._is_short(leaf)
        return known

    def _is_short(self, leaf: AllocationPath) -> bool:
        if self._facts.policy.hungry is Hungry.METRIC:
            return self._metrics.shares.metric(leaf) < 1
        numerator, denominator = self._facts.tree.ratio(leaf)
        return self._held(leaf) * denominator < numerator * self._facts.capacity(self._pool)

    def _waits(self, leaf: AllocationPath) -> bool:
        """Whether it has queued work that accepts this pool and for which no GPUs are kept."""
        line = self._facts.waiting.allocated.lines.get(leaf, {})
        if self._served is None:
            self._served = Counter(one.spec.allocation for one in reserved(self._facts) if self._accepts(one))
        kept = self._served[leaf]
        if not kept:
            return any(self._pool in key.pools for key in line)
        here = (queues for key, queues in line.items() if self._pool in key.pools)
        return sum(len(tickets) for queues in here for tickets in queues.values()) > kept

    def _accepts(self, record: Record) -> bool:
        return record.spec.allocated and self._pool in record.spec.pools

    def _held(self, leaf: AllocationPath) -> int:
        """GPUs that a leaf holds, is about to give back, or is about to get."""
        if self._leaving is None:
            self._leaving = _by_leaf(
                one
                for one in self._facts.leaving.values()
                # Who moves within the pool is counted where he goes.
                if one.held is not None and one.held.pool == self._pool and one.reservation is None
            )
        return self._staying(leaf) + self._leaving.get(leaf, 0)

    def _staying(self, leaf: AllocationPath) -> int:
        """GPUs that a leaf holds or is about to get, and will not give back by itself."""
        if self._kept is None:
            self._kept = _by_leaf(
                one
                for one in self._facts.reserved.values()
                if one.reservation is not None and one.reservation.pool == self._pool
            )
        return self._running.gpus.get(leaf, 0) + self._kept.get(leaf, 0)


def _by_leaf(records: Iterator[Record]) -> dict[AllocationPath, int]:
    sums: dict[AllocationPath, int] = {}
    for record in records:
        if record.spec.allocated:
            sums[record.spec.allocation] = sums.get(record.spec.allocation, 0) + record.gpus
    return sums
