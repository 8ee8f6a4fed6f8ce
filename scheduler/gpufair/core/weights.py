"""Cost factors of GPU types. What is charged, promised, owed and budgeted is counted in weighted GPU time.

Weights are decimals of at most three digits, so they are whole in some *unit*: a part of a GPU, the same for all types.
With every weight 1 the unit is a whole GPU and every count is what it would be without weights. Ledgers count in the
unit; what people read is divided by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Final

from gpufair.core import demand
from gpufair.core.errors import InvalidSpec
from gpufair.core.units import GpuMillis

if TYPE_CHECKING:
    from gpufair.core.facts import Facts

FINEST: Final = 1_000


class Weights:
    """The weight of each GPU type in whole units. Types that are not named weigh 1, and so do GPUs of any type."""

    __slots__ = ("_by_type", "unit")

    def __init__(self, weights: Mapping[str, float], unit: int = 1) -> None:
        exact = {kind: Fraction(str(weight)) for kind, weight in weights.items()}
        self.unit = lcm(unit, *(weight.denominator for weight in exact.values()))  # how many units a GPU of weight 1 is
        self._by_type = {kind: int(weight * self.unit) for kind, weight in exact.items()}

    def of(self, gpu_type: str) -> int:
        """The units of one GPU of a type."""
        return self._by_type.get(gpu_type, self.unit)


def check_weights(weights: Mapping[str, float]) -> None:
    """Refuse weights that cannot be counted.

    Raises:
        InvalidSpec: Which one and why.
    """
    for kind, weight in weights.items():
        if not 0 < weight <= FINEST or FINEST % Fraction(str(weight)).denominator:
            raise InvalidSpec(
                f"gpu_weights: {weight:g} of type {kind!r} cannot be counted; use a number above 0 with at most three "
                "decimals, like 0.5"
            )


def reweigh(facts: Facts) -> None:
    """The policy has other weights: from now on they count. What was counted before stays as it was weighed then."""
    old = facts.weights
    facts.weights = Weights(facts.policy.gpu_weights, old.unit)
    factor = facts.weights.unit // old.unit
    if factor > 1:
        _refine(facts, factor)
    for record in facts.records.values():
        record.weight = facts.weights.of(record.spec.shape.gpu_type)
    for wish, place in facts.demand.places.items():
        before, weight = place.turns[-1], facts.weights.of(wish.shape.gpu_type)
        if weight != before.weight:
            more = wish.shape.gpus * (weight - before.weight)
            if before.pool is not None:
                for leaf, count in place.leaves.items():
                    demand.want(facts, before.pool, leaf, count * more)
            place.turn(before._replace(since=facts.now, weight=weight))
    facts.recharge()
    demand.recount(facts)


def _refine(facts: Facts, factor: int) -> None:
    """Count everything in a finer unit; nothing else changes."""
    for ledger in facts.ledgers.values():
        ledger.refine(factor)
    for record in facts.records.values():
        record.settled = GpuMillis(record.settled * factor)
        record.rate *= factor
    for place in facts.demand.places.values():
        place.turns = [turn._replace(weight=turn.weight * factor) for turn in place.turns]

