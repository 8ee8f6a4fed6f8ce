"""All policies that can be compared, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpufair.core.errors import GpufairError
from gpufair.core.state import State
from gpufair.sim.policies.contender import Contender
from gpufair.sim.policies.fifo import Fifo
from gpufair.sim.policies.plain import plain

CONTENDERS: Final[Mapping[str, Contender]] = MappingProxyType(
    {
        one.name: one
        for one in (
            Contender("fair-share", "ours: fair share with protection, landings, debug right and take limit", State),
            Contender("plain", "the classic rule: fair share by rank alone", plain),
            Contender("fifo", "strict order of submission; the head blocks the rest", Fifo),
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
