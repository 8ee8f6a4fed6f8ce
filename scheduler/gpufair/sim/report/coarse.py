"""Leaving out what nobody could see, so that a picture of years stays a file that opens at once.

A bar shorter than a step competes with the other short ones that begin in the same step on the same row: the longest
is drawn. Nothing moves, and what is left out is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpufair.core.units import GpuMillis, Millis
from gpufair.sim.report.rows import Bar


@dataclass(frozen=True, slots=True)
class Thinned:
    """What is drawn, and what was left out."""

    bars: tuple[Bar, ...]
    left_out: int
    gpu_time: GpuMillis  # of those left out


def thinned(drawn: Sequence[Bar], step: Millis) -> Thinned:
    """The bars that a picture of this resolution needs, in their order."""
    longest: dict[tuple[int, int], int] = {}
    for place, bar in enumerate(drawn):
        if bar.end - bar.start < step:
            key = bar.rows[0][0], bar.start // step
            rival = longest.get(key)
            if rival is None or _span(drawn[rival]) < _span(bar):
                longest[key] = place
    kept = set(longest.values())
    left_out = [bar for place, bar in enumerate(drawn) if _span(bar) < step and place not in kept]
    bars = tuple(bar for place, bar in enumerate(drawn) if _span(bar) >= step or place in kept)
    return Thinned(bars, len(left_out), GpuMillis(sum(bar.gpu_time for bar in left_out)))


def _span(bar: Bar) -> int:
    return bar.end - bar.start
