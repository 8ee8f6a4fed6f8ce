"""How much each allocation held, was entitled to, and how it stood, over time: averages of equal bins.

Sums are whole GPU-milliseconds; figures for the page are hundredths of a GPU, and thousandths of the metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite

from gpufair.core.tree import ROOT, ancestors
from gpufair.core.units import AllocationPath, Instant, Millis, PoolName
from gpufair.sim.report.closed import Era
from gpufair.sim.report.rows import Bar
from gpufair.sim.story import Sample

MOST_METRIC = 30_000  # thousandths: what is over-served thirty times is far enough off the scale
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Bins:
    """Equal bins of a span. The last one may reach beyond its end."""

    start: Instant
    width: Millis
    count: int

    @classmethod
    def of(cls, start: Instant, end: Instant, most: int) -> Bins:
        """At most so many bins, of whole seconds."""
        span = max(end - start, 1)
        width = -(-span // (most * 1000)) * 1000
        return cls(start, Millis(width), -(-span // width))

    def place(self, at: int) -> int:
        """In which bin an instant lies."""
        return (at - self.start) // self.width


class Binned:
    """A quantity that holds from one instant to another, summed over bins. Exact, in time that grows with the number
    of spans and bins, not with their product."""

    def __init__(self, bins: Bins) -> None:
        self._bins = bins
        self._parts = [0] * (bins.count + 1)  # in bins that a span covers in part
        self._edges = [0] * (bins.count + 1)  # differences of what covers whole bins

    def add(self, start: int, end: int, amount: int) -> None:
        """``amount`` from ``start`` until ``end``, both inside the span of the bins."""
        bins = self._bins
        first, last = bins.place(start), bins.place(end)
        if first == last:
            self._parts[first] += amount * (end - start)
            return
        self._parts[first] += amount * (bins.start + (first + 1) * bins.width - start)
        self._parts[last] += amount * (end - bins.start - last * bins.width)
        self._edges[first + 1] += amount
        self._edges[last] -= amount

    def sums(self) -> list[int]:
        """Amount × ms of each bin."""
        whole = accumulate(self._edges)
        return [part + amount * self._bins.width for part, amount in zip(self._parts, whole, strict=True)][:-1]


@dataclass(frozen=True, slots=True)
class Usage:
    """GPU-ms of each node of the tree in each bin."""

    charged: Mapping[AllocationPath, Sequence[int]]
    unallocated: Mapping[AllocationPath, Sequence[int]]


def usage(drawn: Iterable[Bar], paths: Sequence[AllocationPath], bins: Bins) -> Usage:
    """What each allocation held, in protected or once protected work, and in unallocated work. Parents hold what their
    children hold."""
    return_of: dict[bool, dict[AllocationPath, Binned]] = {True: {}, False: {}}
    for bar in drawn:
        spec = bar.job.spec
        own = return_of[spec.allocated].setdefault(spec.allocation, Binned(bins))
        own.add(bar.start, bar.end, sum(count for _, count in bar.rows))
    charged, unallocated = (_upward(return_of[allocated], paths, bins) for allocated in (True, False))
    return Usage(charged, unallocated)


def _upward(
    own: Mapping[AllocationPath, Binned], paths: Sequence[AllocationPath], bins: Bins
) -> dict[AllocationPath, list[int]]:
    totals = {path: [0] * bins.count for path in paths}
    for leaf in sorted(own):
        sums = own[leaf].sums()
        for path in (*ancestors(leaf), leaf):
            if path in totals:
                totals[path] = [had + more for had, more in zip(totals[path], sums, strict=True)]
    return totals


def entitled(eras: Iterable[Era], paths: Sequence[AllocationPath], bins: Bins) -> dict[AllocationPath, list[int]]:
    """GPU-ms that each allocation was entitled to in each bin."""
    found = {path: Binned(bins) for path in paths}
    for era in eras:
        for path in paths:
            share = era.tree[path].entitlement if path in era.tree else 0
            # In millionths of a GPU, so that whole numbers do.
            found[path].add(era.start, era.end, int(share * era.gpus * 1_000_000))
    return {path: [amount // 1_000_000 for amount in binned.sums()] for path, binned in found.items()}


def hundredths(sums: Iterable[int], bins: Bins) -> list[int]:
    """GPU-ms of bins as hundredths of a GPU, on average."""
    return [round(100 * amount / bins.width) for amount in sums]


def metrics(
    samples: Iterable[Sample], paths: Sequence[AllocationPath], bins: Bins
) -> dict[PoolName, dict[AllocationPath, list[int]]]:
    """The sort metric in thousandths, by pool: the last sample of each bin, ``UNKNOWN`` where there is none."""
    found: dict[PoolName, dict[AllocationPath, list[int]]] = {}
    known = frozenset(paths) - {ROOT}
    for sample in sorted(samples, key=lambda one: one.at):
        place = bins.place(sample.at)
        if not 0 <= place <= bins.count:
            continue
        pool = found.setdefault(sample.pool, {})
        for path, value in sample.metric:
            if path in known:
                row = pool.setdefault(path, [UNKNOWN] * bins.count)
                row[min(place, bins.count - 1)] = _thousandths(value)
    return found


def _thousandths(value: float) -> int:
    return min(round(1000 * value), MOST_METRIC) if isfinite(value) else MOST_METRIC


def root_of(path: AllocationPath) -> AllocationPath:
    """The team of an allocation: its node of the top level."""
    return AllocationPath(path.partition("/")[0])
