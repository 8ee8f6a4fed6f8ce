"""The integral of a rate in which what lies one half-life back counts half: the option beside the sliding window.

It is kept in whole 2^-32 parts and changes only at break points; factors come from decimal arithmetic, whose exponential
is correctly rounded. So it is the same on every machine and after every restart, like everything else that is charged.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Context, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gpufair.core.units import Instant, Millis

if TYPE_CHECKING:
    from gpufair.core.model import Policy

FINE: Final = 32  # bits below one GPU-ms in which an amount is kept
_BITS: Final = 96  # of a factor between 0 and 1
_ONE: Final = 1 << _BITS
_EXACT: Final = Context(prec=50)
_LN2: Final = _EXACT.ln(Decimal(2))


@lru_cache(maxsize=8_192)
def _left(span: int, half_life: int) -> int:
    """What is left of 1 after a span, in 2^-96 parts."""
    part = _EXACT.exp(_EXACT.divide(_EXACT.multiply(_LN2, Decimal(-span)), Decimal(half_life)))
    return int(_EXACT.multiply(part, Decimal(_ONE)))


@lru_cache(maxsize=64)
def _reach(half_life: int) -> int:
    """What a rate of 1 for ever amounts to, half_life / ln 2, in 2^-32 ms."""
    return int(_EXACT.divide(Decimal(half_life << FINE), _LN2))


def full_span(policy: Policy) -> Millis:
    """For how long a constant rate must be added up to give what counts of it: the window, or half-life / ln 2."""
    return policy.window if policy.half_life is None else Millis(_reach(policy.half_life) >> FINE)


class Fading:
    """What counts of a rate at ``at``, of everything since ``since``."""

    __slots__ = ("amount", "at", "half_life", "since")

    def __init__(self, half_life: Millis, since: int = 0, at: int = 0, amount: int = 0) -> None:
        self.half_life, self.since, self.at, self.amount = half_life, since, at, amount

    @classmethod
    def begun(cls, half_life: Millis, since: int, now: Instant, marks: Iterable[tuple[int, int]]) -> Fading:
        """From what is known at ``now``: break points (instant, rate from then on), the oldest first."""
        new, rate = cls(half_life, since, since), 0
        for at, after in marks:
            if at > since:
                new.go_on(at, rate)
            rate = after
        new.go_on(now, rate)
        return new

    def exactly(self, now: int, rate: int) -> int:
        """What counts at ``now`` if the rate has been this one since ``at``, in 2^-32 parts, rounded down."""
        left = _left(now - self.at, self.half_life)
        return (self.amount * left + rate * _reach(self.half_life) * (_ONE - left)) >> _BITS

    def whole(self, now: int, rate: int) -> int:
        """The same in whole units, rounded down."""
        return self.exactly(now, rate) >> FINE

    def go_on(self, now: int, rate: int) -> None:
        """A break point: the rate has been this one since the last."""
        if rate or self.amount:
            self.amount = self.exactly(now, rate)
        self.at = now

    def take_out(self, start: int, end: int, rate: int) -> None:
        """So much less was the rate in [start, end), which is over; what had never been counted is left out."""
        start = max(start, self.since)
        if start < end:
            counted = _left(self.at - end, self.half_life) - _left(self.at - start, self.half_life)
            # Roundings can differ by the last bit: nothing is ever owed less than nothing.
            self.amount = max(0, self.amount - (rate * _reach(self.half_life) * counted >> _BITS))

    def copy(self) -> Fading:
        """An independent copy."""
        return Fading(self.half_life, self.since, self.at, self.amount)
