"""Where GPU time went on its way from what was bought to what computed: availability, occupancy, impact, utilization.

Each level is a part of the one below it and names the causes of its loss. Times are of GPUs as they are, not weighted;
only impact, which compares with budgets, is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpufair.core.delivery import Delivery, Steps, deliveries, steps
from gpufair.core.facts import Facts
from gpufair.core.hours import Hours
from gpufair.core.units import AllocationPath, GpuMillis, Instant, PoolName


@dataclass(frozen=True, slots=True)
class Level:
    """One level: ``kept`` of ``of`` remains, and where the rest went. ``ratio`` None: unknown, or there was nothing."""

    of: GpuMillis
    kept: GpuMillis
    losses: tuple[tuple[str, GpuMillis], ...]

    @property
    def ratio(self) -> float | None:
        """The part that remains."""
        return self.kept / self.of if self.of else None


@dataclass(frozen=True, slots=True)
class Usage:
    """How busy the held GPUs were, as far as nodes measured it. What was not measured is unknown, never 0."""

    held: GpuMillis
    measured: GpuMillis
    busy: GpuMillis

    @property
    def ratio(self) -> float | None:
        """Busy / measured; None: unknown."""
        return self.busy / self.measured if self.measured else None

    @property
    def coverage(self) -> float | None:
        """The part of the held GPU time that was measured; None where nothing was held."""
        return self.measured / self.held if self.held else None


@dataclass(frozen=True, slots=True)
class Pyramid:
    """The four levels of one pool over a period of whole steps."""

    pool: PoolName
    start: Instant
    end: Instant
    availability: Level  # of what is installed: on nodes that are neither lost nor, while free, cordoned
    occupancy: Level  # of what is available: held by workloads
    impact: Level  # of what was owed: delivered, capped per allocation
    utilization: Usage
    charged: GpuMillis  # of what is held
    unallocated: GpuMillis  # of what is held
    switching: GpuMillis  # of what is held: starting, restoring, saving and stopping
    delivery: Delivery


def pyramid(facts: Facts, start: Instant, end: Instant) -> tuple[Pyramid, ...]:
    """The levels of every pool, by name."""
    period = steps(facts, start, end)
    return tuple(_of_pool(facts, delivery, period) for delivery in deliveries(facts, start, end))


def _of_pool(facts: Facts, delivery: Delivery, period: Steps) -> Pyramid:
    ledger = facts.ledger(delivery.pool)
    use = {name: GpuMillis(_sum(hours, period)) for name, hours in ledger.hours.items()}
    installed, unavailable, lost = use["capacity"], use["unavailable"], use["lost"]
    available = GpuMillis(installed - unavailable)
    held = GpuMillis(use["charged"] + use["unallocated"])
    whole = delivery.whole
    return Pyramid(
        pool=delivery.pool,
        start=delivery.start,
        end=delivery.end,
        availability=Level(installed, available, (("lost", lost), ("cordoned", GpuMillis(unavailable - lost)))),
        occupancy=Level(available, held, (("idle", use["idle"]), ("held", use["held"]))),
        impact=Level(whole.owed, whole.capped, (("not delivered", GpuMillis(whole.owed - whole.capped)),)),
        utilization=Usage(held, _all(ledger.measured, period), _all(ledger.busy, period)),
        charged=use["charged"],
        unallocated=use["unallocated"],
        switching=use[ledger.SWITCHING],
        delivery=delivery,
    )


def _sum(hours: Hours, period: Steps) -> int:
    return sum(hours.at(number) for number in period.numbers)


def _all(by_leaf: Mapping[AllocationPath, Hours], period: Steps) -> GpuMillis:
    return GpuMillis(sum(_sum(hours, period) for hours in by_leaf.values()))
