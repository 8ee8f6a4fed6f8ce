"""A trace at another demand: jobs left out, or repeated by further users, never made longer or shorter.

Demand is GPU time asked for per GPU time there is. It is brought to the figure asked for in each slice of the run, not
only on average, so that a quiet week does not decide about a comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from gpufair.core.units import DAY, HOUR, Instant, Millis
from gpufair.sim.shape.drafts import Draft
from gpufair.sim.shape.sample import sample

SLICE: Final = Millis(7 * DAY)
# A slice in which almost nothing was asked for is not repeated without end; the others make up for it.
MOST_TIMES_AVERAGE: Final = 3
# Whoever repeats somebody's jobs does so at other hours of the day, all of them together: bursts stay bursts.
SHIFT: Final = Millis(12 * HOUR)


@dataclass(frozen=True, slots=True)
class Placed:
    """A draft at a time; ``copy`` 0 is the recorded one, the others are repeated by further users."""

    draft: Draft
    copy: int
    submit: Instant


def scale(drafts: Sequence[Draft], target: int, span: Millis, seed: int, every: Millis = SLICE) -> list[Placed]:
    """As many of the drafts, or repetitions of them, as ask for ``target`` GPU-ms in ``span``.

    Args:
        drafts: Those of the run, each submitted within it.
        target: GPU time asked for in all.
        span: How long the run is.
        seed: Of what is drawn.
        every: How long a slice is, about.
    """
    count = max(1, round(span / every))
    edges = [Millis(span * number // count) for number in range(count + 1)]
    slices: list[list[Draft]] = [[] for _ in range(count)]
    for draft in drafts:
        slices[min(count - 1, draft.submit * count // span)].append(draft)
    there: list[int] = [sum(draft.held for draft in inside) for inside in slices]
    shifts = _Shifts(seed)
    placed: list[Placed] = []
    missing = 0
    for number, wanted in enumerate(_level(there, target)):
        shifts.begin, shifts.end = edges[number], edges[number + 1]
        found = _fill(slices[number], wanted + missing, shifts, Random(f"scale:{seed}:{number}"))
        missing += wanted - sum(one.draft.held for one in found)
        placed += found
    return placed


def _level(there: list[int], target: int) -> list[int]:
    """How much to ask for in each slice: the same in all, but nowhere too many times what there is."""
    most = [MOST_TIMES_AVERAGE * target * each // max(1, sum(there)) for each in there]
    level = [0] * len(there)
    left = target
    # Each round fills at least one slice to its limit, or is the last.
    while left > 0:
        open_ = [number for number, has in enumerate(level) if has < most[number]]
        if not open_:
            break
        each = max(1, left // len(open_))
        for number in open_:
            more = min(each, most[number] - level[number], left)
            level[number] += more
            left -= more
    return level


class _Shifts:
    """By how much each user's repetitions are moved, within the slice from ``begin`` to ``end``."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._known: dict[tuple[str, str, int], int] = {}
        self.begin = self.end = Millis(0)

    def move(self, draft: Draft, copy: int) -> Placed:
        """The draft as it is repeated."""
        key = (draft.project, draft.row.user, copy)
        shift = self._known.get(key)
        if shift is None:
            shift = self._known[key] = Random(f"shift:{self._seed}:{key}").randint(-SHIFT, SHIFT)
        at = self.begin + (draft.submit + shift - self.begin) % (self.end - self.begin)
        return Placed(draft, copy, Instant(at))


def _fill(inside: list[Draft], target: int, shifts: _Shifts, draw: Random) -> list[Placed]:
    there = sum(draft.held for draft in inside)
    if not there or target <= 0:
        return []
    # Even over projects and sizes: no project loses its few large jobs to chance.
    order = sorted(inside, key=lambda draft: (draft.project, draft.held, draft.submit, draft.row.line))
    whole, rest = divmod(target, there)
    placed = [Placed(draft, 0, draft.submit) for draft in order] if whole else []
    for copy in range(1, whole):
        placed += [shifts.move(draft, copy) for draft in order]
    chosen = [order[at] for at in sample([draft.held for draft in order], rest, draw)]
    placed += [shifts.move(draft, whole) if whole else Placed(draft, 0, draft.submit) for draft in chosen]
    return placed
