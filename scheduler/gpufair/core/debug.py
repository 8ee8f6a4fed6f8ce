"""The debug right: a short and small workload may take the place of unprotected small work of any rank.

It is bounded thrice: by the size of the victim (at most one GPU larger than the workload), by the GPUs of a pool that
run under it, and by those of a leaf. Who started under it counts until it has left, whatever it would be allowed by then.
Once its protection is over it makes way for the next one, whatever its size: then a newcomer may come in its place where
the bounds leave no room.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

from gpufair.core.facts import STAYING, Facts
from gpufair.core.model import Policy
from gpufair.core.record import Record
from gpufair.core.units import AllocationPath, PoolName, WorkloadId


def is_debug(policy: Policy, min_runtime: int, gpus: int) -> bool:
    """Whether a workload that asks for so much may claim the right."""
    return 0 < min_runtime <= policy.debug_min_runtime and 0 < gpus <= policy.debug_gpus


def largest_victim(gpus: int) -> int:
    """The GPUs of the largest workload that may be moved for one of ``gpus`` under the right."""
    return gpus + 1


@cache
def bound(capacity: int, share: float, most: float, least: int) -> int:
    """GPUs of a pool of ``capacity`` that may run under the right: min(most · C, max(least, share · C))."""
    # The decimal numbers that the operator wrote, so that 1 % of 700 GPUs is 7 on every machine.
    return int(min(Fraction(str(most)) * capacity, max(Fraction(least), Fraction(str(share)) * capacity)))


class DebugBudget:
    """What may still be started under the right in one pool at this moment."""

    def __init__(self, facts: Facts, pool: PoolName) -> None:
        policy = facts.policy
        self._per_leaf = policy.debug_gpus
        self._left = bound(facts.capacity(pool), policy.debug_share, policy.debug_most, policy.debug_gpus)
        self._used: dict[AllocationPath, int] = {}
        self._under: dict[WorkloadId, Record] = {}
        self.expired: dict[WorkloadId, Record] = {}  # of those under it, whoever may be told to leave
        replaced = {
            victim
            for record in facts.debugging.values()
            if record.reservation is not None
            for victim in record.reservation.pending
        }
        for record in facts.debugging.values():
            # Whoever leaves for somebody who comes under the right has handed his part over.
            if _pool_of(record) == pool and record.id not in replaced:
                self._under[record.id] = record
                self._left -= record.gpus
                leaf = record.spec.allocation
                self._used[leaf] = self._used.get(leaf, 0) + record.gpus
                if record.phase in STAYING and facts.exposed(record):
                    self.expired[record.id] = record

    @property
    def most(self) -> int:
        """The largest workload that may be started under the right now."""
        handed_over = max((record.gpus for record in self.expired.values()), default=0)
        return min(self._left + handed_over, self._per_leaf)

    def may_leave(self, leaf: AllocationPath, gpus: int, victim: Record) -> bool:
        """Whether somebody unprotected may be moved for so many GPUs of a leaf: he is small enough or came by the same
        right, and with the newcomer in his place no more runs under it than may."""
        small = victim.gpus <= largest_victim(gpus) or victim.id in self._under
        return small and self.allows(leaf, gpus, victim)

    def allows(self, leaf: AllocationPath, gpus: int, instead_of: Record | None = None) -> bool:
        """Whether a leaf may start so many GPUs more under the right, once ``instead_of`` has left for them."""
        handed_over = instead_of.gpus if instead_of is not None and instead_of.id in self._under else 0
        to_colleague = handed_over if instead_of is not None and instead_of.spec.allocation == leaf else 0
        return gpus <= self._left + handed_over and gpus <= self._per_leaf - self._used.get(leaf, 0) + to_colleague


def _pool_of(record: Record) -> PoolName | None:
    if record.held is not None:
        return record.held.pool
    return record.reservation.pool if record.reservation is not None else None
