"""Figures of tree nodes that are linear in time between break points, and their sums over the tree, kept current.

What a leaf was charged or owed in the sliding window is a straight line until a break point enters or leaves the
window. So the sums that every pass needs of every level are kept as lines too, and only the leaves of which the line
has changed are looked at anew. All of it is integers: the sums are those that adding everything up would give.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath, Instant, Millis

ENDLESS: Final = 1 << 62  # later than any instant


class Line(NamedTuple):
    """``offset + slope * now``, in [since, until)."""

    offset: int
    slope: int
    since: int
    until: int


class Sliding(Protocol):
    """A figure of one leaf in the sliding window."""

    @property
    def changes(self) -> int:
        """How often it was changed otherwise than by time."""

    def line(self, now: Instant, window: Millis) -> Line:
        """It as a line around ``now``."""


class Values(dict[AllocationPath, int]):
    """The sums at an instant: of each tree node its own part and all below it.

    Args:
        offsets: Of each node.
        slopes: Of each node.
        now: The instant.
    """

    def __init__(self, offsets: dict[AllocationPath, int], slopes: dict[AllocationPath, int], now: int) -> None:
        super().__init__()
        self._offsets, self._slopes, self._now = offsets, slopes, now

    def __missing__(self, path: AllocationPath) -> int:
        value = self[path] = self._offsets.get(path, 0) + self._slopes.get(path, 0) * self._now
        return value


class Lines:
    """The lines of some paths, and the sums of them over a tree.

    Args:
        tree: The nodes. The line of a path that is no longer in it counts where that hung.
    """

    __slots__ = ("_offsets", "_own", "_slopes", "tree")

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._own: dict[AllocationPath, tuple[int, int]] = {}
        self._offsets: dict[AllocationPath, int] = {}
        self._slopes: dict[AllocationPath, int] = {}

    def put(self, path: AllocationPath, offset: int, slope: int) -> None:
        """This is the line of a path from now on."""
        before = self._own.get(path, (0, 0))
        if before == (offset, slope):
            return
        self._own[path] = offset, slope
        higher, steeper = offset - before[0], slope - before[1]
        for above in self.tree[self.tree.nearest(path)].lineage:
            self._offsets[above] = self._offsets.get(above, 0) + higher
            self._slopes[above] = self._slopes.get(above, 0) + steeper

    def at(self, now: int) -> Values:
        """The sums at ``now``, as long as no line is put that says otherwise of this instant."""
        return Values(self._offsets, self._slopes, now)

    def frozen(self, now: int) -> Values:
        """The sums at ``now``, whatever is put later."""
        return Values(self._offsets.copy(), self._slopes.copy(), now)


class WindowLines:
    """The lines of figures in the sliding window.

    Args:
        tree: Over which they are summed up.
        window: W.
    """

    __slots__ = ("_lines", "_seen", "window")

    def __init__(self, tree: Tree, window: Millis) -> None:
        self.window = window
        self._lines = Lines(tree)
        self._seen: dict[AllocationPath, tuple[Sliding, int, Line]] = {}

    def fits(self, tree: Tree, window: Millis) -> bool:
        """Whether it is of this tree and this window."""
        return self._lines.tree is tree and self.window == window

    def at(self, figures: Mapping[AllocationPath, Sliding], now: Instant) -> Values:
        """The sums of all of them at ``now``, worked out when somebody asks: a leaf's by itself, and all of them with the
        first of an inner node. What changes at this very instant does not change them."""
        return _Asked(self, figures, now)

    def refreshed(self, figures: Mapping[AllocationPath, Sliding], now: Instant) -> Values:
        """The same, of all nodes at once."""
        seen = self._seen
        for path, figure in figures.items():
            known = seen.get(path)
            if known is None or known[0] is not figure or known[1] != figure.changes or not known[2][2] <= now < known[2][3]:
                line = figure.line(now, self.window)
                seen[path] = figure, figure.changes, line
                self._lines.put(path, line.offset, line.slope)
        return self._lines.at(now)

    @property
    def tree(self) -> Tree:
        """Over which they are summed up."""
        return self._lines.tree


class _Asked(Values):
    """What ``WindowLines.at`` gives."""

    def __init__(self, lines: WindowLines, figures: Mapping[AllocationPath, Sliding], now: Instant) -> None:
        super().__init__({}, {}, now)
        self._lines, self._figures, self._at = lines, figures, now
        self._alone = figures.keys() <= lines.tree.paths  # nothing that was dropped counts where it hung
        self._all: Values | None = None

    def __missing__(self, path: AllocationPath) -> int:
        if self._all is None and self._alone and self._lines.tree.is_leaf(path):
            figure = self._figures.get(path)
            if figure is None:
                value = 0
            else:
                line = figure.line(self._at, self._lines.window)
                value = line.offset + line.slope * self._at
        else:
            if self._all is None:
                self._all = self._lines.refreshed(self._figures, self._at)
            value = self._all[path]
        self[path] = value
        return value
