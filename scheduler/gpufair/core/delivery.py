"""What was delivered of what was owed, over a period: for each allocation, and for a pool in one figure.

A period is made of whole steps of the history (hours): its beginning is rounded down to one, its end up, and nothing
after the present counts. Steps that have been forgotten count for nothing, so a figure says from when on it is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from gpufair.core.facts import Facts
from gpufair.core.ledger import PoolLedger
from gpufair.core.owed import MICRO
from gpufair.core.share import Sums
from gpufair.core.units import AllocationPath, GpuMillis, Instant, PoolName

LEAST_GPUS = 8  # the worst allocation is looked for among those entitled to so many: one job decides of a smaller one


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a period, and the instants between which they lie."""

    numbers: range
    start: Instant
    end: Instant


def steps(facts: Facts, start: Instant, end: Instant) -> Steps:
    """The steps that a period touches, of those that are kept."""
    step = facts.policy.history_step
    end = Instant(min(end, facts.now))
    first = max(start // step, facts.now // step - facts.kept.steps)
    numbers = range(first, max(first, -(-end // step)))
    return Steps(numbers, Instant(first * step), Instant(max(first * step, min(facts.now, numbers.stop * step))))


@dataclass(frozen=True, slots=True)
class Delivered:
    """What one node of the tree was owed and charged in one pool, in weighted GPU time."""

    path: AllocationPath
    depth: int
    leaf: bool
    entitlement: Fraction
    owed: GpuMillis
    charged: GpuMillis
    capped: GpuMillis  # charged, but no more than what was owed: of a leaf over the period, above the sum of the leaves
    capped_hourly: GpuMillis  # the same, step by step
    researchers: tuple[tuple[str, GpuMillis], ...]  # of a leaf: what each was charged

    @property
    def ratio(self) -> float | None:
        """Charged / owed; None where nothing was owed."""
        return self.charged / self.owed if self.owed else None


@dataclass(frozen=True, slots=True)
class Delivery:
    """Delivered / owed of one pool over a period."""

    pool: PoolName
    start: Instant
    end: Instant
    allocations: tuple[Delivered, ...]  # the root first, parents before children
    worst: Delivered | None  # the leaf with the smallest ratio of those entitled to at least ``LEAST_GPUS``

    @property
    def whole(self) -> Delivered:
        """The root."""
        return self.allocations[0]

    @property
    def uncapped(self) -> float | None:
        """Sum of charged / sum of owed."""
        return self.whole.ratio

    @property
    def capped(self) -> float | None:
        """The headline: sum of min(charged, owed) / sum of owed."""
        return self.whole.capped / self.whole.owed if self.whole.owed else None

    @property
    def capped_hourly(self) -> float | None:
        """Capped step by step: a diagnostic, because a window's balance cannot follow it under saturation."""
        return self.whole.capped_hourly / self.whole.owed if self.whole.owed else None


def deliveries(facts: Facts, start: Instant, end: Instant) -> tuple[Delivery, ...]:
    """Delivered / owed of every pool."""
    period = steps(facts, start, end)
    return tuple(_delivery(facts, pool, period) for pool in facts.pools())


def _delivery(facts: Facts, pool: PoolName, period: Steps) -> Delivery:
    ledger, tree, now, unit = facts.ledger(pool), facts.tree, facts.now, facts.weights.unit
    charged: dict[AllocationPath, list[int]] = {
        path: [account.in_step(number, now) for number in period.numbers] for path, account in ledger.accounts.items()
    }
    owed: dict[AllocationPath, list[int]] = {
        path: [account.in_step(number, now) for number in period.numbers] for path, account in ledger.owed.items()
    }
    capped, hourly = {}, {}
    for path in sorted(charged.keys() | owed.keys()):
        had, due = charged.get(path, []), owed.get(path, [])
        capped[path] = min(sum(had) * MICRO, sum(due))
        hourly[path] = sum(min(one * MICRO, other) for one, other in zip(had, due, strict=False))
    total_owed = Sums(tree, lambda: {path: sum(amounts) for path, amounts in owed.items()})
    total_charged = Sums(tree, lambda: {path: sum(amounts) for path, amounts in charged.items()})
    total_capped, total_hourly = Sums(tree, lambda: capped), Sums(tree, lambda: hourly)
    allocations = tuple(
        Delivered(
            path=node.path,
            depth=node.depth,
            leaf=tree.is_leaf(node.path),
            entitlement=node.entitlement,
            owed=GpuMillis(total_owed[node.path] // (MICRO * unit)),
            charged=GpuMillis(total_charged[node.path] // unit),
            capped=GpuMillis(total_capped[node.path] // (MICRO * unit)),
            capped_hourly=GpuMillis(total_hourly[node.path] // (MICRO * unit)),
            researchers=tuple(_researchers(facts, ledger, node.path, period)),
        )
        for node in tree.nodes()
    )
    large = [
        one for one in allocations if one.leaf and one.owed and one.entitlement * facts.capacity(pool) >= LEAST_GPUS
    ]
    worst = min(large, key=lambda one: (Fraction(one.charged, one.owed), one.path), default=None)
    return Delivery(pool, period.start, period.end, allocations, worst)


def _researchers(
    facts: Facts, ledger: PoolLedger, path: AllocationPath, period: Steps
) -> Iterator[tuple[str, GpuMillis]]:
    for user, account in sorted(ledger.researchers.get(path, {}).items()):
        charged = sum(account.in_step(number, facts.now) for number in period.numbers)
        if charged:
            yield user, GpuMillis(charged // facts.weights.unit)
