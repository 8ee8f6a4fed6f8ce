"""The fair-share metric of one pool at one moment, and the walk down the tree that makes it an order.

m = (O + K) / (beta * a * Cap(W) + (1 - beta) * owed(W)): charged occupancy in the window and commitment, over what the
allocation was entitled to. Below 1 it is under-served. beta (banking) says how much of the time that it did not ask for
is kept as credit. What is divided are integers, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import inf
from operator import truediv

from gpufair.core.lines import Given, PerNode
from gpufair.core.owed import MICRO
from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath, GpuMillis, Millis


@dataclass(frozen=True, slots=True)
class Standing:
    """An allocation's metric and its parts, as compared."""

    path: AllocationPath
    occupancy: GpuMillis
    commitment: GpuMillis
    entitlement: float
    budget: GpuMillis
    metric: float
    owed: GpuMillis = GpuMillis(0)
    due: GpuMillis = GpuMillis(0)  # what O + K is measured against


def _nothing(leaf: AllocationPath, user: str) -> int:
    return 0


def _no_amounts() -> dict[AllocationPath, int]:
    return {}


def per_node(figures: PerNode | Mapping[AllocationPath, int]) -> PerNode:
    """The same, whichever it is."""
    return figures if isinstance(figures, PerNode) else Given(figures)


class Sums(PerNode):
    """A figure of each tree node, its own part and that of everything below it, worked out when somebody asks: a leaf's
    by itself, and all of them with the first of an inner node.

    Args:
        tree: The nodes.
        amounts: The parts. That of an allocation that is no longer in the tree counts where it hung.
        one: A leaf's own part, if that is all there is to it.
    """

    def __init__(
        self,
        tree: Tree,
        amounts: Callable[[], Mapping[AllocationPath, int]],
        one: Callable[[AllocationPath], int] | None = None,
    ) -> None:
        self._tree, self._amounts, self._one = tree, amounts, one
        self._known: dict[AllocationPath, int] = {}

    def __getitem__(self, path: AllocationPath) -> int:
        known = self._known.get(path)
        return self._work_out(path) if known is None else known

    def _work_out(self, path: AllocationPath) -> int:
        tree = self._tree
        if self._one is not None and tree.is_leaf(path):
            alone = self._known[path] = self._one(path)
            return alone
        totals = dict.fromkeys(tree.paths, 0)
        for each, amount in self._amounts().items():
            totals[each if each in totals else tree.nearest(each)] += amount
        for child, parent in tree.upward:
            totals[parent] += totals[child]
        self._known.update(totals)
        return totals[path]


@cache
def _exact(banking: float) -> tuple[int, int]:
    """Beta as people write it: 0.1 is a tenth."""
    return Fraction(str(banking)).as_integer_ratio()


class Denominators:
    """What O + K of an allocation is measured against, as an exact fraction.

    Args:
        tree: The budget tree.
        banking: Beta. With 1 the capacity cancels out of every rank: the classic rule.
        newcomer: With less than 1, entitlement of this span is added, so that a newcomer is not measured against 0.
        capacity: GPUs of the pool at present.
        elapsed: Cap(W), the capacity integrated over the window.
        window: W.
        owed: Of every tree node in the window, in millionths of a GPU x ms.
        demand: GPUs that every tree node wants at present.
    """

    def __init__(
        self,
        tree: Tree,
        banking: float,
        newcomer: Millis,
        capacity: int,
        elapsed: int,
        window: Millis,
        owed: PerNode | Mapping[AllocationPath, int],
        demand: PerNode | Mapping[AllocationPath, int],
    ) -> None:
        self._tree, self._owed, self._demand = tree, per_node(owed), per_node(demand)
        self._kept, self._parts = _exact(banking)
        # A pool without GPUs still ranks what waits for it.
        self._full = elapsed or max(capacity, 1) * window
        self._capped = elapsed * MICRO
        self._credit = self._kept * self._capped + max(capacity, 1) * newcomer * self._parts * MICRO
        self._scale = self._parts * MICRO

    def of(self, path: AllocationPath) -> tuple[int, int]:
        """(factor, denominator): m is (O + K) x factor / denominator. The denominator is 0 where nothing is due."""
        numerator, denominator = self._tree.ratio(path)
        if self._kept == self._parts:
            return denominator, numerator * self._full
        due = self._owed[path] * denominator
        if not due and not self._demand[path]:
            due = numerator * self._capped  # it has not asked for anything yet
        weighed = numerator * self._credit + (self._parts - self._kept) * due
        return denominator * self._scale, weighed

    def owed(self, path: AllocationPath) -> GpuMillis:
        """What an allocation was owed in the window, in whole GPU-ms, for people to read."""
        return GpuMillis(self._owed[path] // MICRO)

    def due(self, path: AllocationPath) -> GpuMillis:
        """The denominator of m in whole GPU-ms, for people to read."""
        factor, denominator = self.of(path)
        return GpuMillis(denominator // factor)


def _whole_window(tree: Tree, full: int, window: Millis) -> Denominators:
    nothing = Sums(tree, _no_amounts)
    return Denominators(tree, 1.0, Millis(0), 1, full, window, nothing, nothing)


def measured(had: int, factor: int, denominator: int, entitled: bool) -> float:
    """m of an allocation that is ``entitled`` to something, from what it had and what that is measured against."""
    if not denominator:  # no share, or with beta 0 and nothing for newcomers
        return inf if had or not entitled else 0.0
    # Not `/`: compiled, that makes floats of integers first, and beyond 2^53 it would round twice.
    metric: float = truediv(had * factor, denominator)
    return metric


class _Base:
    """O + K of an allocation before anything is granted, and what it is measured against."""

    __slots__ = ("denominator", "factor", "had")

    def __init__(self, had: int, factor: int, denominator: int) -> None:
        self.had, self.factor, self.denominator = had, factor, denominator


class Shares:
    """Metrics of all allocations in one pool, kept current while a pass grants GPUs.

    Args:
        tree: The budget tree.
        occupancy: O of every tree node.
        commitment: K of every tree node.
        capacity: GPUs of the pool; the ranks do not depend on it, the figures do.
        window: W.
        count_commitment: Whether K is part of the metric.
        researchers: O + K of a researcher in a leaf, K if it is counted.
        denominators: What O + K is measured against; the entitlement to the whole window, if not given.
        unit: How many units a GPU has in which all of these are counted; figures for people are in GPUs.
    """

    def __init__(
        self,
        tree: Tree,
        occupancy: PerNode | Mapping[AllocationPath, int],
        commitment: PerNode | Mapping[AllocationPath, int],
        capacity: int,
        window: Millis,
        count_commitment: bool,
        researchers: Callable[[AllocationPath, str], int] = _nothing,
        denominators: Denominators | None = None,
        unit: int = 1,
    ) -> None:
        self.tree, self.unit = tree, unit
        self._occupancy = per_node(occupancy)
        self._commitment = per_node(commitment)
        self._granted: dict[AllocationPath, int] = {}
        # A pool without GPUs still ranks what waits for it.
        self._full = max(capacity, 1) * window
        self._denominators = denominators or _whole_window(tree, self._full, window)
        self._count = count_commitment
        self._bases: dict[AllocationPath, _Base] = {}
        self._metrics: dict[AllocationPath, float] = {}
        self._researchers = researchers
        self._had: dict[tuple[AllocationPath, str], int] = {}
        self.grants = 0  # how often somebody was promised something since

    def grant(self, leaf: AllocationPath, commitment: int, user: str) -> None:
        """Count GPU time that has just been promised to ``leaf``, and in it to ``user``."""
        self.grants += 1
        if self._count:
            self._had[leaf, user] = self.had(leaf, user) + commitment
        for path in self.tree[leaf].lineage:
            self._granted[path] = self._granted.get(path, 0) + commitment
            self._metrics.pop(path, None)

    def committed(self, path: AllocationPath) -> int:
        """K, with what has been granted since."""
        return self._commitment[path] + self._granted.get(path, 0)

    def metric(self, path: AllocationPath) -> float:
        """m of an allocation. Equal inputs give equal floats on every machine: it is one correctly rounded division."""
        known = self._metrics.get(path)
        if known is None:
            known = self._metrics[path] = self.metric_with(path, 0)
        return known

    def metric_with(self, path: AllocationPath, more: int) -> float:
        """m of an allocation if ``more`` GPU time were promised to it."""
        base = self._bases.get(path)
        if base is None:
            base = self._base(path)
        had = base.had
        if self._count:
            had += self._granted.get(path, 0) + more
        return measured(had, base.factor, base.denominator, self.tree.ratio(path)[0] > 0)

    def _base(self, path: AllocationPath) -> _Base:
        """O + K as it was at the beginning, and what it is measured against."""
        factor = denominator = 0
        had = self._occupancy[path]
        if self._count:
            had += self._commitment[path]
        if self.tree.ratio(path)[0]:
            factor, denominator = self._denominators.of(path)
        base = self._bases[path] = _Base(had, factor, denominator)
        return base

    def had(self, leaf: AllocationPath, user: str) -> int:
        """O + K of a researcher in a leaf: the one with less comes first there, if their priorities are equal."""
        known = self._had.get((leaf, user))
        if known is None:
            known = self._had[leaf, user] = self._researchers(leaf, user)
        return known

    def standing(self, path: AllocationPath, more: int = 0) -> Standing:
        """The metric with its parts, for people to read."""
        entitlement = self.tree[path].entitlement
        return Standing(
            path=path,
            occupancy=GpuMillis(self._occupancy[path] // self.unit),
            commitment=GpuMillis((self.committed(path) + more) // self.unit),
            entitlement=float(entitlement),
            budget=GpuMillis(int(entitlement * self._full / self.unit)),
            metric=self.metric_with(path, more),
            owed=GpuMillis(self._denominators.owed(path) // self.unit),
            due=GpuMillis(self._denominators.due(path) // self.unit),
        )

    def outranks(self, mine: AllocationPath, theirs: AllocationPath, own: int, hysteresis: float) -> bool:
        """The rank rule between two leaves: with its own commitment, m_mine <= (1 - h) * m_theirs where they diverge.

        Args:
            mine: Leaf of the workload that waits.
            theirs: Leaf of the workload that runs.
            own: GPU time that the waiting workload would be promised.
            hysteresis: h.
        """
        sides = self.tree.diverge(mine, theirs)
        if sides is None:
            return False
        theirs_m = self.metric(sides[1])
        mine_m = self.metric_with(sides[0], own)
        # Two allocations without any share are equals: neither moves the other.
        return mine_m < inf and mine_m <= (1 - hysteresis) * theirs_m
