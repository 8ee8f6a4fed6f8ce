"""All policies that can be compared, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpufair.core.errors import GpufairError
from gpufair.core.state import State
from gpufair.sim.policies.backfill import Backfill
from gpufair.sim.policies.contender import Contender
from gpufair.sim.policies.fifo import Fifo
from gpufair.sim.policies.half_life import HalfLife
from gpufair.sim.policies.plain import plain
from gpufair.sim.policies.priority import Priority

CONTENDERS: Final[Mapping[str, Contender]] = MappingProxyType(
    {
        one.name: one
        for one in (
            Contender("fair-share", "ours: fair share with protection, landings, debug right and take limit", State),
            Contender("plain", "the classic rule: fair share by rank alone", plain),
            Contender("half-life", "a fair tree by decayed usage, ranked every 5 min, with backfilling", HalfLife),
            Contender("fifo", "order of submission; the first blocks the rest", Fifo),
            Contender("fifo-backfill", "order of submission; others start if they do not delay the first", Backfill),
            Contender("priority", "urgent to low, preemption, and opting out of it up to a limit per team", Priority),
        )
    }
)


class UnknownPolicy(GpufairError):
    """No contender has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"there is no policy {self.name!r}; choose one of: {', '.join(CONTENDERS)}"


def contender(name: str) -> Contender:
    """A policy by its name.

    Raises:
        UnknownPolicy: There is none.
    """
    try:
        return CONTENDERS[name]
    except KeyError:
        raise UnknownPolicy(name) from None
