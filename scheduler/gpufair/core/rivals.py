"""Who outranks whom in one pool: those who wait, against the leaves whose work may be told to leave.

Two leaves are compared at the children of their lowest common ancestor, so the comparisons of all leaves below one
child are the same one: it is made once, and for the leaves with exposed work only.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from gpufair.core.share import Shares
from gpufair.core.tree import ROOT, Tree
from gpufair.core.units import AllocationPath

Leaves = tuple[AllocationPath, ...]


class Rivals:
    """The comparisons of one pool, good until something is granted or leaves.

    Args:
        tree: In which leaves are compared.
        shares: The metrics.
        exposed: The leaves with work that may be told to leave.
        hysteresis: By which part a metric must be better.
    """

    def __init__(self, tree: Tree, shares: Shares, exposed: Iterable[AllocationPath], hysteresis: float) -> None:
        self._tree, self._shares, self._factor = tree, shares, 1 - hysteresis
        self._exposed: dict[AllocationPath, list[AllocationPath]] = {}  # leaves at and below each tree node
        for leaf in exposed:
            for path in tree[leaf].lineage:
                self._exposed.setdefault(path, []).append(leaf)
        self._bars: dict[AllocationPath, list[tuple[float, AllocationPath]]] = {}
        self._beaten: dict[tuple[AllocationPath, int], Leaves] = {}
        self._outranked: dict[tuple[AllocationPath, int], Leaves] = {}

    def outranked(self, leaf: AllocationPath, promise: int) -> Leaves:
        """The leaves with exposed work that a start which promises so much would leave this leaf better than."""
        known = self._outranked.get((leaf, promise))
        if known is None:
            # A promise only makes it worse.
            none = promise and not self.outranked(leaf, 0)
            known = self._outranked[leaf, promise] = () if none else self._on_the_way_to(leaf, promise)
        return known

    def _on_the_way_to(self, leaf: AllocationPath, promise: int) -> Leaves:
        line, found = self._tree[leaf].lineage, Leaves()
        for depth in range(1, len(line)):
            if line[depth - 1] not in self._exposed:
                break  # nor has anything below it
            found += self._beaten_by(line[depth - 1], line[depth], promise)
        return found

    def _beaten_by(self, parent: AllocationPath, side: AllocationPath, promise: int) -> Leaves:
        """Those below the siblings of one child whose metric is clearly higher."""
        known = self._beaten.get((side, promise))
        if known is None:
            # A promise only makes the metric worse.
            if promise and not self._beaten_by(parent, side, 0):
                known = ()
            else:
                metric = self._shares.metric_with(side, promise) if promise else self._shares.metric(side)
                found: list[AllocationPath] = []
                for bar, child in self._bars_of(parent):
                    if metric > bar or metric == inf:
                        break  # and so it is of all that follow
                    if child != side:
                        found += self._exposed[child]
                known = tuple(found)
            self._beaten[side, promise] = known
        return known

    def ahead(self) -> set[AllocationPath]:
        """The leaves that are ahead of some leaf with exposed work, as far as no promise makes them worse."""
        found: set[AllocationPath] = set()
        below = [ROOT]
        while below:
            path = below.pop()
            bars = self._bars_of(path)
            for child in self._tree[path].children if bars else ():
                bar = next((bar for bar, other in bars if other != child), -inf)
                if self._shares.metric(child) <= bar:
                    found |= self._tree.leaves_below(child)
                elif child in self._exposed:
                    below.append(child)
        return found

    def reached(self, waiting: Iterable[AllocationPath]) -> set[AllocationPath]:
        """The leaves with exposed work that some of these are better than, as long as they promise nothing: all that
        ``outranked`` names of any of them."""
        found = set[AllocationPath]()
        sides = {path for leaf in waiting for path in self._tree[leaf].lineage}
        for parent in self._exposed:
            first, best, second = ROOT, inf, inf
            for child in self._tree[parent].children:
                if child in sides:
                    metric = self._shares.metric(child)
                    if metric < best:
                        first, best, second = child, metric, best
                    elif metric < second:
                        second = metric
            for bar, child in self._bars_of(parent):
                least = second if child == first else best
                if least <= bar and least < inf:
                    found.update(self._exposed[child])
        return found

    def _bars_of(self, parent: AllocationPath) -> list[tuple[float, AllocationPath]]:
        """The children with exposed work, each with the metric at which a sibling outranks it, the highest first."""
        known = self._bars.get(parent)
        if known is None:
            known = self._bars[parent] = []
            if parent in self._exposed:
                exposed = [child for child in self._tree[parent].children if child in self._exposed]
                known += sorted([(self._factor * self._shares.metric(child), child) for child in exposed], reverse=True)
        return known
