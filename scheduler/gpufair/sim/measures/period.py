"""The period that figures are about, and amounts that are counted in it hour by hour."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from gpufair.core.errors import GpufairError
from gpufair.core.units import HOUR, Instant, Millis
from gpufair.sim.story import Story


class NothingToMeasure(GpufairError):
    """The period that figures were asked for holds nothing of the run."""

    def __init__(self, start: Instant, end: Instant, story: Story) -> None:
        super().__init__(start, end, story.scenario.name)
        self.start, self.end, self.scenario = start, end, story.scenario.name
        self.begun, self.ended = story.scenario.start, last_instant(story)

    def __str__(self) -> str:
        def hours(instant: Instant) -> str:
            return f"{(instant - self.begun) / HOUR:g} h"

        return (
            f"there is nothing to measure from {hours(self.start)} to {hours(self.end)} of {self.scenario!r}, which was "
            f"played from 0 h to {hours(self.ended)}; choose a shorter warm-up, a longer run or a period inside it"
        )


@dataclass(frozen=True, slots=True)
class Period:
    """From ``start`` until, but not including, ``end``."""

    start: Instant
    end: Instant

    @property
    def length(self) -> Millis:
        """How long it is."""
        return Millis(self.end - self.start)

    def __contains__(self, instant: object) -> bool:
        return isinstance(instant, int) and self.start <= instant < self.end

    def overlap(self, start: int, end: int) -> int:
        """Milliseconds of [start, end) that lie in it."""
        return max(0, min(end, self.end) - max(start, self.start))


def last_instant(story: Story) -> Instant:
    """Until when a run was played."""
    return min(story.scenario.until, story.ended_at)


def period_of(story: Story, wanted: tuple[Instant, Instant] | None) -> Period:
    """What to measure: what was asked for, or all after the warm-up, as far as it was played.

    Raises:
        NothingToMeasure: Nothing of it was.
    """
    scenario = story.scenario
    start, end = wanted or (Instant(scenario.start + scenario.warm_up), scenario.until)
    period = Period(max(start, scenario.start), min(end, last_instant(story)))
    if period.length <= 0:
        raise NothingToMeasure(start, end, story)
    return period


class Hourly:
    """An amount by hours aligned to the epoch, of which the first and the last may be partly in the period."""

    __slots__ = ("_first", "_levels", "_parts", "_period")

    def __init__(self, period: Period) -> None:
        self._period = period
        self._first = period.start // HOUR
        hours = -(-period.end // HOUR) - self._first
        self._parts = [0] * hours  # what was counted of an hour in part
        self._levels = [0] * (hours + 1)  # by how much the rate of whole hours changes from here on

    def add(self, start: int, end: int, rate: int) -> None:
        """Count ``rate`` for every millisecond of [start, end) that lies in the period."""
        start, end = max(start, self._period.start), min(end, self._period.end)
        if end <= start:
            return
        first, last = start // HOUR, (end - 1) // HOUR
        if first == last:
            self._parts[first - self._first] += rate * (end - start)
            return
        self._parts[first - self._first] += rate * ((first + 1) * HOUR - start)
        self._parts[last - self._first] += rate * (end - last * HOUR)
        self._levels[first + 1 - self._first] += rate
        self._levels[last - self._first] -= rate

    def amounts(self) -> list[int]:
        """What was counted in each hour, the first one first."""
        return [part + level * HOUR for part, level in zip(self._parts, accumulate(self._levels), strict=False)]
