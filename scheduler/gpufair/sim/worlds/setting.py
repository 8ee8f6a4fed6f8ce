"""What all constructed worlds can be asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Final

from gpufair.core.units import DAY, HOUR, Instant, Millis
from gpufair.sim.assumptions import Assumptions, usual
from gpufair.sim.cluster import Cluster
from gpufair.sim.errors import ScenarioError

LEAST_DAYS: Final = 0.01
MOST_DAYS: Final = 3_660.0
MOST_DEMAND: Final = 1_000.0


@dataclass(frozen=True)
class Setting:
    """Where and how long a world is played.

    Args:
        cluster: Its nodes.
        days: How long it is.
        seed: Of all that is drawn.
        demand: GPU time asked for per GPU time there is; None: what the world is made for.
        unallocated_share: Part of it that runs unallocated; None: what the world is made for.
        window: Of the policy: as much of the beginning is no part of the figures, if the run is twice as long.
        max_min_runtime: Of the policy: nobody declares more.
        assumptions: All else.
        outstanding: Closed loop, so many unfinished jobs of one user at most. None: open loop.

    Raises:
        ScenarioError: One of them makes no sense.
    """

    cluster: Cluster
    days: float = 30.0
    seed: int = 0
    demand: float | None = None
    unallocated_share: float | None = None
    window: Millis = Millis(7 * DAY)
    max_min_runtime: Millis = Millis(8 * HOUR)
    assumptions: Assumptions = field(default_factory=usual)
    outstanding: int | None = None

    def __post_init__(self) -> None:
        if not (isfinite(self.days) and LEAST_DAYS <= self.days <= MOST_DAYS):
            raise ScenarioError(f"{self.days:g} days are no time to play; use {LEAST_DAYS:g} to {MOST_DAYS:,g}")
        if self.demand is not None and not 0 < self.demand <= MOST_DEMAND:
            limits = f"one above 0, like 2.5, and at most {MOST_DEMAND:,g}"
            raise ScenarioError(f"a demand of {self.demand:g} times the cluster is none; use {limits}")
        if self.unallocated_share is not None and not 0 <= self.unallocated_share <= 1:
            raise ScenarioError(f"an unallocated share of {self.unallocated_share:g} is no part; use one from 0 to 1")
        if self.max_min_runtime <= 0 or self.window <= 0:
            raise ScenarioError("max_min_runtime and window have to be longer than 0")
        if self.outstanding is not None and self.outstanding < 1:
            raise ScenarioError(f"with {self.outstanding} outstanding jobs nobody ever submits; use 1 or more, or none")

    @property
    def until(self) -> Instant:
        """When it ends; it begins at 0."""
        return Instant(round(self.days * DAY))
