"""Who waits, so that the first who could do something with what is free is found without asking everybody.

Workloads that want the same shape in the same pools fit alike. They stand in a line per *class* of equals in rank, in the
order of submission.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from gpufair.core.model import Shape
from gpufair.core.units import Millis, PoolName
from gpufair.core.waiting import Ticket
from gpufair.sim.policies.item import Item

ENDLESS: Final = Millis(1 << 62)
_CHUNK: Final = 256

Class = tuple[str, ...]
Rank = tuple[object, ...]


class Want(NamedTuple):
    """What somebody waits for."""

    pools: tuple[PoolName, ...]
    shape: Shape

    @classmethod
    def of(cls, item: Item) -> Want:
        """What a workload waits for."""
        return cls(item.spec.pools, item.spec.shape)


class Line:
    """Tickets in order, each with how long its owner needs its GPUs, cut into chunks whose least need is known."""

    __slots__ = ("_chunks", "_least", "looked_at")

    def __init__(self) -> None:
        self.looked_at = 0  # for its scheduler: when it last saw that nothing can be done for it
        self._chunks: list[list[tuple[Ticket, Millis]]] = []
        self._least: list[Millis] = []

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def __iter__(self) -> Iterator[Ticket]:
        return (ticket for chunk in self._chunks for ticket, _ in chunk)

    def add(self, ticket: Ticket, needs: Millis) -> None:
        """One more."""
        if not self._chunks:
            self._chunks.append([(ticket, needs)])
            self._least.append(needs)
            return
        place = self._chunk_of(ticket)
        chunk = self._chunks[place]
        insort(chunk, (ticket, needs))
        self._least[place] = min(self._least[place], needs)
        if len(chunk) > 2 * _CHUNK:
            self._chunks[place : place + 1] = chunk[:_CHUNK], chunk[_CHUNK:]
            self._least[place : place + 1] = _least(chunk[:_CHUNK]), _least(chunk[_CHUNK:])

    def remove(self, ticket: Ticket) -> None:
        """One less. It is there."""
        place = self._chunk_of(ticket)
        chunk = self._chunks[place]
        _, needs = chunk.pop(bisect_left(chunk, (ticket,)))  # tickets differ before their needs do
        if not chunk:
            del self._chunks[place], self._least[place]
        elif needs == self._least[place]:
            self._least[place] = _least(chunk)

    def first(self, most: Millis = ENDLESS) -> Ticket | None:
        """The first who needs its GPUs for at most so long."""
        for chunk, least in zip(self._chunks, self._least, strict=True):
            if least <= most:
                return next(ticket for ticket, needs in chunk if needs <= most)
        return None

    def _chunk_of(self, ticket: Ticket) -> int:
        return max(0, bisect_right(self._chunks, ticket, key=_begin) - 1)


def _begin(chunk: list[tuple[Ticket, Millis]]) -> Ticket:
    return chunk[0][0]


def _least(chunk: list[tuple[Ticket, Millis]]) -> Millis:
    return min(needs for _, needs in chunk)


class Queue:
    """All lines.

    Args:
        rank: Classes with a smaller rank come first. Asked again only after ``rerank``.
    """

    def __init__(self, rank: Callable[[Class], Rank]) -> None:
        self._rank = rank
        self._ranks: dict[Class, Rank] = {}
        self._order: list[Class] = []  # those in which somebody waits, by rank
        self._lines: dict[Class, dict[Want, Line]] = {}
        self.wants: dict[Want, dict[Class, Line]] = {}  # the same lines by what they want

    def __bool__(self) -> bool:
        return bool(self._order)

    def __iter__(self) -> Iterator[Class]:
        return iter(tuple(self._order))

    def add(self, item: Item, into: Class) -> Want:
        """It waits in this class."""
        want = Want.of(item)
        lines = self._lines.get(into)
        if lines is None:
            lines = self._lines[into] = {}
            self._ranks[into] = self._rank(into)
            insort(self._order, into, key=self._ranks.__getitem__)
        line = lines.get(want)
        if line is None:
            line = lines[want] = Line()
            self.wants.setdefault(want, {})[into] = line
        line.add(Ticket(item.submitted_at, item.id), item.needs)
        return want

    def remove(self, item: Item, out_of: Class) -> Want:
        """It waits no longer."""
        want, lines = Want.of(item), self._lines[out_of]
        line = lines[want]
        line.remove(Ticket(item.submitted_at, item.id))
        if not line:
            del lines[want], self.wants[want][out_of]
            if not self.wants[want]:
                del self.wants[want]
            if not lines:
                del self._lines[out_of]
                del self._order[bisect_left(self._order, self._ranks[out_of], key=self._ranks.__getitem__)]
                del self._ranks[out_of]
        return want

    def rerank(self) -> None:
        """Ranks are other ones now."""
        self._ranks = {one: self._rank(one) for one in self._order}
        self._order.sort(key=self._ranks.__getitem__)

    def lines(self, of: Class) -> Mapping[Want, Line]:
        """Those of a class."""
        return self._lines.get(of, {})

    def head(self, pool: PoolName) -> Ticket | None:
        """The very first who accepts a pool."""
        for one in self._order:
            tickets = (line.first() for want, line in self._lines[one].items() if pool in want.pools)
            found = min((ticket for ticket in tickets if ticket is not None), default=None)
            if found is not None:
                return found
        return None

    def first(self, limits: Mapping[Want, Millis]) -> Ticket | None:
        """The first of those who want one of these and need it for at most so long."""
        best: tuple[Rank, Ticket] | None = None
        for want, most in limits.items():
            found = self._first(want, most)
            if found is not None and (best is None or found < best):
                best = found
        return best[1] if best is not None else None

    def _first(self, want: Want, most: Millis) -> tuple[Rank, Ticket] | None:
        lines = self.wants.get(want, {})
        # Whatever is shorter to look through: those who want this, or the classes in their order.
        ranked: Iterable[Class] = self._order
        if len(lines) < 8:
            ranked = sorted(lines, key=self._ranks.__getitem__)
        for one in ranked:
            line = lines.get(one)
            ticket = line.first(most) if line is not None else None
            if ticket is not None:
                return self._ranks[one], ticket
        return None
