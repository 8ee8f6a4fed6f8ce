"""The same facts, read several times: what explanations and forecasts work out is worked out once."""

from __future__ import annotations

from gpufair.core.chances import Chances
from gpufair.core.estimate import Forecasts
from gpufair.core.facts import Facts
from gpufair.core.share import Shares
from gpufair.core.units import Instant, PoolName


class Reading:
    """Metrics, chances and forecasts of some facts. It is good as long as they do not change."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._shares: dict[PoolName, Shares] = {}
        self._chances: dict[PoolName, Chances] = {}
        self.forecasts = Forecasts(facts, self.shares)

    def until(self, span: int) -> Instant:
        """When a protection would end that begins now: after now, even if there is none."""
        return Instant(self.facts.now + max(span, 1))

    def shares(self, pool: PoolName) -> Shares:
        """The metrics of a pool; nothing may be granted on them."""
        known = self._shares.get(pool)
        if known is None:
            known = self._shares[pool] = self.facts.shares(pool)
        return known

    def chances(self, pool: PoolName) -> Chances:
        """Who could do what in a pool; nothing may be granted on it."""
        known = self._chances.get(pool)
        if known is None:
            known = self._chances[pool] = Chances(self.facts, pool, self.shares(pool))
        return known
