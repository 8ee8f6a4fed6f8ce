"""What was owed and what was charged, step by step: the course behind the figures of ``delivery``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from gpufair.core.delivery import steps
from gpufair.core.facts import Facts
from gpufair.core.owed import MICRO
from gpufair.core.tree import Tree, ancestors
from gpufair.core.units import AllocationPath, GpuMillis, Instant, Millis, PoolName


@dataclass(frozen=True, slots=True)
class Course:
    """One node of the tree in weighted GPU time, a figure for each bin. An inner node's are the sums of its children's."""

    path: AllocationPath
    leaf: bool
    entitlement: Fraction
    owed: tuple[GpuMillis, ...]
    charged: tuple[GpuMillis, ...]


@dataclass(frozen=True, slots=True)
class OverTime:
    """One pool. Bins are ``bin`` long, from ``start`` on; the last one ends with ``end``, the present at the latest."""

    pool: PoolName
    start: Instant
    end: Instant
    bin: Millis
    courses: tuple[Course, ...]  # parents before children, without the root


def over_time(
    facts: Facts, start: Instant, end: Instant, most: int, only: AllocationPath | None = None
) -> tuple[OverTime, ...]:
    """The course of each pool over a period of whole steps, in at most ``most`` bins of as many steps each.

    Args:
        facts: What is so.
        start: Rounded down to a step.
        end: Rounded up, but no later than the present.
        most: At least 1.
        only: One node of the tree; None: all.
    """
    period = steps(facts, start, end)
    size = max(1, -(-len(period.numbers) // most))
    bins = [period.numbers[at : at + size] for at in range(0, len(period.numbers), size)]
    step = Millis(size * facts.policy.history_step)
    return tuple(
        OverTime(pool, period.start, period.end, step, tuple(_courses(facts, pool, bins, only)))
        for pool in facts.pools()
    )


def _courses(facts: Facts, pool: PoolName, bins: list[range], only: AllocationPath | None) -> Iterator[Course]:
    ledger, tree, now, unit = facts.ledger(pool), facts.tree, facts.now, facts.weights.unit
    wanted = [node.path for node in tree.nodes() if node.path and (only is None or node.path == only)]
    charged = {path: [0] * len(bins) for path in wanted}
    owed = {path: [0] * len(bins) for path in wanted}
    for path, account in ledger.accounts.items():
        for total in _totals(charged, tree, path):
            for at, numbers in enumerate(bins):
                total[at] += sum(account.in_step(number, now) for number in numbers)
    for path, due in ledger.owed.items():
        for total in _totals(owed, tree, path):
            for at, numbers in enumerate(bins):
                total[at] += sum(due.in_step(number, now) for number in numbers)
    for node in tree.nodes():
        if node.path in owed:
            yield Course(
                path=node.path,
                leaf=tree.is_leaf(node.path),
                entitlement=node.entitlement,
                owed=tuple(GpuMillis(amount // (MICRO * unit)) for amount in owed[node.path]),
                charged=tuple(GpuMillis(amount // unit) for amount in charged[node.path]),
            )


def _totals(totals: dict[AllocationPath, list[int]], tree: Tree, path: AllocationPath) -> list[list[int]]:
    """Those that an allocation counts for. What is no longer in the tree counts where it hung."""
    here = tree.nearest(path)
    return [totals[one] for one in (*ancestors(here), here) if one in totals]
