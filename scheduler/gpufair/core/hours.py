"""An amount of GPU time by aligned hours (or another step): what happened when, for as long as it is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from gpufair.core.units import DAY, HOUR, Instant, Millis


@dataclass(frozen=True, slots=True)
class Kept:
    """How history is kept: in steps of ``step``, aligned to the epoch, for at least ``span``."""

    step: Millis
    span: Millis

    @property
    def steps(self) -> int:
        """How many steps are kept, the present one aside."""
        return -(-self.span // self.step)


BY_THE_HOUR: Final = Kept(HOUR, Millis(35 * DAY))


class Hours:
    """Amounts by step. They are added as time passes, and the oldest are forgotten then and never when asked for."""

    __slots__ = ("_amounts", "_first", "kept")

    def __init__(self, kept: Kept, first: int = 0, amounts: Iterable[int] = ()) -> None:
        self.kept = kept
        self._first = first  # the step of the first amount
        self._amounts = list(amounts)

    @property
    def first(self) -> int:
        """The number of the first step that is kept, counted from the epoch."""
        return self._first

    @property
    def amounts(self) -> tuple[int, ...]:
        """What is kept, the oldest step first."""
        return tuple(self._amounts)

    def add(self, start: int, end: int, rate: int) -> None:
        """Count ``rate`` for every millisecond of [start, end); take it out again, if negative.

        What is added begins no earlier than what is kept, or is forgotten at once.
        """
        if not rate or end <= start:
            return
        step, amounts = self.kept.step, self._amounts
        last = (end - 1) // step
        if amounts and last + 1 == self._first + len(amounts) and start >= last * step:
            amounts[-1] += rate * (end - start)  # by far the most often
            return
        if not amounts:
            self._first = max(start // step, last - self.kept.steps)
        more = last + 1 - self._first - len(amounts)
        if more > 0:
            if more > self.kept.steps:  # nothing for longer than anything is kept
                amounts.clear()
                self._first, more = last - self.kept.steps, self.kept.steps + 1
            amounts.extend([0] * more)
            excess = len(amounts) - self.kept.steps - 1
            if excess > 0:
                del amounts[:excess]
                self._first += excess
        start = max(start, self._first * step)
        index = start // step
        if index == last:
            if end > start:
                amounts[index - self._first] += rate * (end - start)
            return
        for number, length in parts(start, end, step):
            amounts[number - self._first] += rate * length

    def spread(self, start: int, end: int, amount: int) -> None:
        """Count an amount that came evenly in [start, end), in whole parts that add up to it."""
        if end <= start:
            return
        if amount and not self._amounts:  # its first part may be rounded to nothing, and is kept all the same
            self._first, self._amounts = start // self.kept.step, [0]
        counted = 0
        for _, length in parts(start, end, self.kept.step):
            until = start + length
            share = amount * length // (end - start) if until < end else amount - counted
            counted += share
            self.add(start, start + 1, share)
            start = until

    def at(self, number: int) -> int:
        """The amount of one step."""
        index = number - self._first
        return self._amounts[index] if 0 <= index < len(self._amounts) else 0

    def refine(self, factor: int) -> None:
        """Count in a unit that is ``factor`` times as fine."""
        self._amounts = [amount * factor for amount in self._amounts]

    def copy(self) -> Hours:
        """An independent copy."""
        return Hours(self.kept, self._first, self._amounts)


def parts(start: int, end: int, step: int) -> Iterator[tuple[int, int]]:
    """The steps that [start, end) touches, each with the milliseconds of it that lie in them."""
    while start < end:
        number = start // step
        until = min(end, (number + 1) * step)
        yield number, until - start
        start = until


def overlap(number: int, step: int, start: int, end: Instant) -> int:
    """The milliseconds of one step that lie in [start, end)."""
    return max(0, min(end, (number + 1) * step) - max(start, number * step))
