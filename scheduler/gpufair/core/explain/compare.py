"""Two siblings of the tree and how they stand to each other, for one workload that waits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpufair.core import words
from gpufair.core.facts import Facts
from gpufair.core.record import Record
from gpufair.core.share import Shares, Standing
from gpufair.core.units import AllocationPath


@dataclass(frozen=True, slots=True)
class Comparison:
    """The siblings on either side where the leaf of the one who waits and another leaf diverge."""

    mine: Standing
    theirs: Standing
    wins: bool

    @property
    def level(self) -> tuple[AllocationPath, AllocationPath]:
        """Mine, theirs."""
        return self.mine.path, self.theirs.path

    def __str__(self) -> str:
        return (
            f"{self.mine.path} ({words.metric(self.mine.metric)} with this start) "
            f"{'is under-served' if self.wins else 'is not under-served'} against "
            f"{self.theirs.path} ({words.metric(self.theirs.metric)})"
        )


def compare(facts: Facts, shares: Shares, record: Record, theirs: AllocationPath) -> Comparison | None:
    """How one who waits stands to a leaf; None for its own."""
    sides = facts.ranking.diverge(record.spec.allocation, theirs)
    if sides is None:
        return None
    wins = shares.outranks(record.spec.allocation, theirs, record.commitment, facts.policy.hysteresis)
    return Comparison(shares.standing(sides[0], record.commitment), shares.standing(sides[1]), wins)


def most_over_served(
    facts: Facts, shares: Shares, record: Record, leaves: Iterable[AllocationPath]
) -> Comparison | None:
    """The comparison that it is the likeliest to win; None if only its own leaf holds GPUs."""
    best: tuple[float, AllocationPath] | None = None
    seen: set[AllocationPath] = set()
    for leaf in sorted(leaves):
        sides = facts.ranking.diverge(record.spec.allocation, leaf)
        if sides is None or sides[1] in seen:
            continue
        seen.add(sides[1])
        # What it would need to be ahead by; the sides differ with the level, so the metrics alone do not tell.
        gap = shares.metric_with(sides[0], record.commitment) - (1 - facts.policy.hysteresis) * shares.metric(sides[1])
        if best is None or gap < best[0]:
            best = (gap, leaf)
    return compare(facts, shares, record, best[1]) if best is not None else None
