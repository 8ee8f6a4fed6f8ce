"""What an allocation was owed in one pool: the lesser of its entitlement and its demand, integrated over time.

Rates are whole millionths of a GPU: an entitlement (a fraction of the capacity) is rounded down to one, demand is a
whole number of GPUs. So the integral is an integer, and it is the same whoever adds it up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from gpufair.core.fading import Fading
from gpufair.core.hours import Hours, overlap
from gpufair.core.lines import ENDLESS, Line, Sliding
from gpufair.core.units import Instant, Millis

MICRO: Final = 1_000_000  # parts of a GPU in which entitlements and what is owed are counted


class Owed(Sliding):
    """Demand and ceiling of one leaf as functions of time, and the integral of the lesser.

    Break points are kept for a window, because demand can be taken out again: a workload that was cancelled before it
    ever started was never owed anything.
    """

    __slots__ = ("_at", "_ceiling", "_demand", "_head", "_total", "fading", "hours")

    def __init__(
        self,
        marks: Iterable[tuple[int, int, int, int]] = (),
        hours: Hours | None = None,
        fading: Fading | None = None,
    ) -> None:
        super().__init__()
        self.fading = fading  # as in ledger.Account
        self.hours = hours  # until the last break point; None keeps no history
        self._at: list[int] = []
        self._total: list[int] = []  # owed until then, in millionths of a GPU x ms
        self._demand: list[int] = []  # GPUs from then on
        self._ceiling: list[int] = []  # millionths of a GPU from then on
        for at, total, demand, ceiling in marks:
            self._at.append(at)
            self._total.append(total)
            self._demand.append(demand)
            self._ceiling.append(ceiling)
        self._head = 0  # a hint, as in ledger.Account

    @property
    def marks(self) -> tuple[tuple[int, int, int, int], ...]:
        """The break points that are kept, oldest first: instant, owed until then, demand and ceiling from then on."""
        return tuple(zip(self._at, self._total, self._demand, self._ceiling, strict=True))

    @property
    def demand(self) -> int:
        """GPUs wanted at present."""
        return self._demand[-1] if self._demand else 0

    @property
    def ceiling(self) -> int:
        """Millionths of a GPU to which it is entitled at present."""
        return self._ceiling[-1] if self._ceiling else 0

    def total(self, now: Instant) -> int:
        """Everything ever owed until ``now``, which is not before the last change."""
        if not self._at:
            return 0
        return self._total[-1] + self._rate() * (now - self._at[-1])

    def _rate(self) -> int:
        return min(self._demand[-1] * MICRO, self._ceiling[-1])

    def in_step(self, number: int, now: Instant) -> int:
        """Owed in one step of the history, in millionths of a GPU x ms."""
        if self.hours is None or not self._at:
            return 0
        return self.hours.at(number) + self._rate() * overlap(number, self.hours.kept.step, self._at[-1], now)

    def want(self, now: Instant, gpus: int, window: Millis) -> None:
        """From ``now`` on there is demand for ``gpus`` more (fewer, if negative)."""
        demand = self.demand + gpus
        if demand < 0:
            raise AssertionError("nobody can want fewer than 0 GPUs")
        self._mark(now, demand, self.ceiling, window)

    def limit(self, now: Instant, ceiling: int, window: Millis) -> None:
        """From ``now`` on it is entitled to so many millionths of a GPU."""
        if ceiling != self.ceiling:
            self._mark(now, self.demand, ceiling, window)

    def within(self, now: Instant, window: Millis) -> int:
        """Owed in [now - window, now], in millionths of a GPU x ms; with a half-life, what counts of all that was."""
        if not self._at:
            return 0
        if self.fading is not None:
            return self.fading.whole(now, self._rate())
        # Written out, and the search left out where it would find the same: it is asked of every leaf at every event.
        start, at, head = now - window, self._at, self._head
        if head >= len(at) or (head and at[head] > start) or (head + 1 < len(at) and at[head + 1] <= start):
            self._seek(start)
            head = self._head
        demand, ceiling = self._demand[-1] * MICRO, self._ceiling[-1]
        owed = self._total[-1] + (min(ceiling, demand)) * (now - at[-1]) - self._total[head]
        if start > at[head]:
            owed -= min(self._demand[head] * MICRO, self._ceiling[head]) * (start - at[head])
        return owed

    def line(self, now: Instant, window: Millis) -> Line:
        """``within`` around ``now``, which is not before the last change, if nothing fades."""
        at = self._at
        if not at:
            return Line(0, 0, 0, now + 1)
        self._seek(now - window)
        head, slope = self._head, self._rate()
        offset, begins = self._total[-1] - slope * at[-1] - self._total[head], at[head] + window
        if now < begins:
            return Line(offset, slope, at[-1], begins)
        first = min(self._demand[head] * MICRO, self._ceiling[head])
        until = at[head + 1] + window if head + 1 < len(at) else ENDLESS
        return Line(offset + first * begins, slope - first, begins, until)

    def take_out(self, start: int, end: int, gpus: int, known: int = 0) -> None:
        """There was no demand for ``gpus`` of what was counted in [start, end) after all.

        Args:
            start: When they began to count: a break point, or one that has been forgotten.
            end: When they ceased to.
            gpus: How many.
            known: With a half-life, what was owed before this stays so: the window reaches no further.
        """
        self.changes += 1
        at, demand, ceiling, total = self._at, self._demand, self._ceiling, self._total
        first, last = bisect_left(at, start), len(at) - 1
        assert first == 0 or at[first] == start, f"nothing began to count at {start}"
        less = 0
        for index in range(first, last + 1):
            total[index] -= less
            if at[index] >= end:
                if not less:
                    break
                continue
            before = min(demand[index] * MICRO, ceiling[index])
            demand[index] -= gpus
            fewer = before - min(demand[index] * MICRO, ceiling[index])
            if fewer and index < last:
                less += fewer * (at[index + 1] - at[index])
                if self.hours is not None:
                    self.hours.add(at[index], at[index + 1], -fewer)
                if self.fading is not None:
                    self.fading.take_out(max(at[index], known), at[index + 1], fewer)

    def _mark(self, now: Instant, demand: int, ceiling: int, window: Millis) -> None:
        self.changes += 1
        total = self.total(now)
        if self.hours is not None and self._at:
            self.hours.add(self._at[-1], now, self._rate())
        if self.fading is not None:
            self.fading.go_on(now, self._rate() if self._at else 0)
        if self._at and self._at[-1] == now:
            self._demand[-1], self._ceiling[-1] = demand, ceiling
        else:
            self._at.append(now)
            self._total.append(total)
            self._demand.append(demand)
            self._ceiling.append(ceiling)
        # As in ledger.Account: what is kept depends on what happened, never on who asked when.
        self._seek(now - window)
        head = self._head
        if head > len(self._at) // 2:
            for column in (self._at, self._total, self._demand, self._ceiling):
                del column[:head]
            self._head = 0

    def _seek(self, start: int) -> None:
        at = self._at
        head = min(self._head, len(at) - 1)
        while head and at[head] > start:  # the window was widened
            head -= 1
        while head + 1 < len(at) and at[head + 1] <= start:
            head += 1
        self._head = head

    def refine(self, factor: int) -> None:
        """Count in a unit that is ``factor`` times as fine."""
        self.changes += 1
        self._total = [amount * factor for amount in self._total]
        self._demand = [amount * factor for amount in self._demand]
        self._ceiling = [amount * factor for amount in self._ceiling]
        if self.hours is not None:
            self.hours.refine(factor)
        if self.fading is not None:
            self.fading.amount *= factor

    def fade(self, half_life: Millis | None, since: int, now: Instant) -> None:
        """As in ledger.Account."""
        columns = zip(self._at, self._demand, self._ceiling, strict=True)
        marks = ((at, min(demand * MICRO, ceiling)) for at, demand, ceiling in columns)
        self.fading = Fading.begun(half_life, since, now, marks) if half_life is not None else None

    def copy(self) -> Owed:
        """An independent copy."""
        twin = Owed(hours=self.hours.copy() if self.hours is not None else None)
        twin.fading = self.fading.copy() if self.fading is not None else None
        twin._at, twin._total = self._at.copy(), self._total.copy()
        twin._demand, twin._ceiling = self._demand.copy(), self._ceiling.copy()
        return twin
