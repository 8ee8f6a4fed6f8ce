"""How an allocation stands among its siblings, level by level: the walk that orders the queue, for people to read."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from gpufair.core import words
from gpufair.core.facts import Facts
from gpufair.core.metrics import shares_of
from gpufair.core.share import Standing
from gpufair.core.units import AllocationPath, PoolName


@dataclass(frozen=True, slots=True)
class Level:
    """One step of the walk from the root: all children of a node, the most under-served first.

    ``place`` is that of the one on the way to the allocation, from 1.
    """

    parent: AllocationPath
    path: AllocationPath
    place: int
    siblings: tuple[Standing, ...]

    @property
    def mine(self) -> Standing:
        """How the one on the way stands."""
        return self.siblings[self.place - 1]


@dataclass(frozen=True, slots=True)
class AllocationExplanation:
    """The standing of an allocation in one pool, from the root down to it."""

    pool: PoolName
    path: AllocationPath
    levels: tuple[Level, ...]
    sentence: str


def explain_allocation(facts: Facts, path: AllocationPath) -> tuple[AllocationExplanation, ...]:
    """In each pool, in the order of their names. The root has no siblings: it has no levels."""
    return tuple(_in_pool(facts, path, pool) for pool in facts.pools())


def _in_pool(facts: Facts, path: AllocationPath, pool: PoolName) -> AllocationExplanation:
    # Where leaves are compared directly, what is above them has no rank but its figures.
    tree = facts.ranking if path in facts.ranking else facts.tree
    shares, levels = shares_of(facts, pool, tree=tree), []
    lineage = tree[path].lineage
    for parent, child in pairwise(lineage):
        ranked = sorted(tree[parent].children, key=lambda one: (shares.metric(one), one))
        standings = tuple(shares.standing(one) for one in ranked)
        levels.append(Level(parent, child, ranked.index(child) + 1, standings))
    return AllocationExplanation(pool, path, tuple(levels), _sentence(pool, levels))


def _sentence(pool: PoolName, levels: list[Level]) -> str:
    if not levels:
        return f"The root of the budgets owns all of {pool}."
    steps = "; ".join(
        f"{level.path} is {words.ordinal(level.place)} of {len(level.siblings)} in {level.parent or 'all'} "
        f"({words.metric(level.mine.metric)})"
        for level in levels
    )
    last = levels[-1].mine
    return (
        f"In {pool} {steps}. {last.path} has had {words.gpu_time(last.occupancy)} in the window and was promised "
        f"{words.gpu_time(last.commitment)} more, of a budget of {words.gpu_time(last.budget)}."
    )
