"""Figures of tree nodes that are linear in time between break points, and their sums over the tree, kept current.

What a leaf was charged or owed in the sliding window is a straight line until a break point enters or leaves the
window. So the sums that every pass needs of every level are kept as lines too, and only the leaves of which the line
has changed are looked at anew. All of it is integers: the sums are those that adding everything up would give.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath, Instant, Millis

ENDLESS: Final = (1 << 62) - 1  # later than any instant, and the largest integer that compiled code need not box


class Line:
    """``offset + slope * now``, in [since, until)."""

    __slots__ = ("offset", "since", "slope", "until")

    def __init__(self, offset: int, slope: int, since: int, until: int) -> None:
        self.offset, self.slope, self.since, self.until = offset, slope, since, until


class Sliding:
    """A figure of one leaf in the sliding window."""

    __slots__ = ("changes",)

    def __init__(self) -> None:
        self.changes = 0  # how often it was changed otherwise than by time, for whoever remembers it; no part of the state

    def line(self, now: Instant, window: Millis) -> Line:
        """It as a line around ``now``."""
        raise NotImplementedError


class PerNode:
    """A figure of each tree node: its own part and that of everything below it."""

    __slots__ = ()

    def __getitem__(self, path: AllocationPath) -> int:
        raise NotImplementedError


class Given(PerNode):
    """One that is known already."""

    __slots__ = ("_figures",)

    def __init__(self, figures: Mapping[AllocationPath, int]) -> None:
        self._figures = figures

    def __getitem__(self, path: AllocationPath) -> int:
        return self._figures[path]


class Values(PerNode):
    """The sums at an instant.

    Args:
        offsets: Of each node.
        slopes: Of each node.
        now: The instant.
    """

    __slots__ = ("_now", "_offsets", "_slopes")

    def __init__(self, offsets: dict[AllocationPath, int], slopes: dict[AllocationPath, int], now: int) -> None:
        self._offsets, self._slopes, self._now = offsets, slopes, now

    def __getitem__(self, path: AllocationPath) -> int:
        offset = self._offsets.get(path)
        return offset + self._slopes[path] * self._now if offset is not None else 0

    def add(self, path: AllocationPath, more: int) -> None:
        """From now on it is so much more of one node."""
        self._offsets[path] = self._offsets.get(path, 0) + more
        self._slopes.setdefault(path, 0)


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


class Known:
    """Whether all paths that have a figure are in a tree, looked up again only when there are more of them.

    Figures are opened and never dropped; so it is a matter of their number.
    """

    __slots__ = ("_count", "_figures", "_tree")

    def __init__(self) -> None:
        self._figures: Mapping[AllocationPath, object] | None = None
        self._tree: Tree | None = None
        self._count = 0

    def within(self, figures: Mapping[AllocationPath, object], tree: Tree) -> bool:
        """Whether they are."""
        if self._figures is figures and self._tree is tree and self._count == len(figures):
            return True
        if not figures.keys() <= tree.paths:
            return False
        self._figures, self._tree, self._count = figures, tree, len(figures)
        return True


class _Seen:
    """What was last seen of one figure."""

    __slots__ = ("changes", "figure", "line", "summed")

    def __init__(self, figure: Sliding, line: Line) -> None:
        self.figure, self.changes, self.line = figure, figure.changes, line
        self.summed = False  # whether the line is part of the sums


class WindowLines:
    """The lines of figures in the sliding window.

    Args:
        tree: Over which they are summed up.
        window: W.
    """

    __slots__ = ("_lines", "_seen", "known", "window")

    def __init__(self, tree: Tree, window: Millis) -> None:
        self.window = window
        self._lines = Lines(tree)
        self._seen: dict[AllocationPath, _Seen] = {}
        self.known = Known()

    def fits(self, tree: Tree, window: Millis) -> bool:
        """Whether it is of this tree and this window."""
        return self._lines.tree is tree and self.window == window

    def at(self, figures: Mapping[AllocationPath, Sliding], now: Instant) -> PerNode:
        """The sums of all of them at ``now``, worked out when somebody asks: a leaf's by itself, and all of them with the
        first of an inner node. What changes at this very instant does not change them."""
        return _Asked(self, figures, now)

    def of(self, path: AllocationPath, figure: Sliding, now: Instant) -> Line:
        """The line of one path around ``now``."""
        return self._see(path, figure, now).line

    def _see(self, path: AllocationPath, figure: Sliding, now: int) -> _Seen:
        seen = self._seen.get(path)
        if seen is not None and seen.figure is figure and seen.changes == figure.changes:
            line = seen.line
            if line.since <= now < line.until:
                return seen
        seen = self._seen[path] = _Seen(figure, figure.line(Instant(now), self.window))
        return seen

    def refreshed(self, figures: Mapping[AllocationPath, Sliding], now: Instant) -> Values:
        """The same, of all nodes at once."""
        for path, figure in figures.items():
            seen = self._see(path, figure, now)
            if not seen.summed:
                seen.summed = True
                self._lines.put(path, seen.line.offset, seen.line.slope)
        return self._lines.at(now)

    @property
    def tree(self) -> Tree:
        """Over which they are summed up."""
        return self._lines.tree


class _Asked(PerNode):
    """What ``WindowLines.at`` gives."""

    __slots__ = ("_all", "_alone", "_at", "_figures", "_lines")

    def __init__(self, lines: WindowLines, figures: Mapping[AllocationPath, Sliding], now: Instant) -> None:
        self._lines, self._figures, self._at = lines, figures, now
        self._alone: bool | None = None  # whether nothing that was dropped counts where it hung
        self._all: Values | None = None

    def __getitem__(self, path: AllocationPath) -> int:
        every = self._all
        if every is None:
            if self._stands_alone(path):
                figure = self._figures.get(path)
                if figure is None:
                    return 0
                line = self._lines.of(path, figure, self._at)
                return line.offset + line.slope * self._at
            every = self._all = self._lines.refreshed(self._figures, self._at)
        return every[path]

    def _stands_alone(self, path: AllocationPath) -> bool:
        tree = self._lines.tree
        if self._alone is None:
            self._alone = self._lines.known.within(self._figures, tree)
        return self._alone and tree.is_leaf(path)
