"""When people ask: how a demand is spread over time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from gpufair.core.units import Instant
from gpufair.sim.errors import ScenarioError


class Profile:
    """An intensity that is constant between edges.

    Args:
        edges: Rising, one more than there are weights.
        weights: How much is asked for per time, between each edge and the next; at least one above 0.
    """

    def __init__(self, edges: Sequence[int], weights: Sequence[float]) -> None:
        spans = [later - earlier for earlier, later in pairwise(edges)]
        amounts = [weight * span for weight, span in zip(weights, spans, strict=True)]
        if min(amounts, default=0) < 0 or not sum(amounts) > 0:
            raise ScenarioError("a profile needs rising edges and a weight above 0")
        self._edges, self._amounts = edges, amounts
        self._sums = [0.0, *accumulate(amounts)]

    @classmethod
    def even(cls, begin: Instant, until: Instant) -> Profile:
        """The same all the time."""
        return cls((begin, until), (1.0,))

    def at(self, part: float) -> Instant:
        """When ``part`` of all has been asked for, 0 <= part < 1."""
        wanted = part * self._sums[-1]
        number = min(bisect_right(self._sums, wanted), len(self._amounts)) - 1
        while not self._amounts[number]:
            number -= 1
        inside = min(1.0, (wanted - self._sums[number]) / self._amounts[number])
        begin, end = self._edges[number], self._edges[number + 1]
        return Instant(min(int(begin + inside * (end - begin)), end - 1))
