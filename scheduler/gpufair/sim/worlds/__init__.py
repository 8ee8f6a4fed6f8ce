"""Constructed worlds, by name. Each is a function of a ``Setting``; some take more, in their own modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gpufair.sim.errors import ScenarioError
from gpufair.sim.scenario import Scenario
from gpufair.sim.worlds.bursts import all_day_flood, debug_burst
from gpufair.sim.worlds.contrasts import gang_against_small, seasonal, unallocated_regime
from gpufair.sim.worlds.drain import drain
from gpufair.sim.worlds.setting import Setting
from gpufair.sim.worlds.squatter import squatter
from gpufair.sim.worlds.steady import steady


@dataclass(frozen=True, slots=True)
class World:
    """A constructed world."""

    name: str
    about: str
    make: Callable[[Setting], Scenario]


_ALL: Final = (
    World("steady", "every allocation asks for 2.5 times its entitlement, all the time", steady),
    World("debug-burst", "steady, and once a day many debug runs of one researcher at once", debug_burst),
    World("squatter", "twins with the same work, one of whom also holds GPUs without using them", squatter),
    World("seasonal", "steady, but one team is away for two weeks of three", seasonal),
    World("gang-against-small", "one team wants gangs of half the cluster, eight want single GPUs", gang_against_small),
    World("all-day-flood", "steady, and one researcher submits short runs all day", all_day_flood),
    World("drain", "steady, and nodes are drained, closed, lost and back", drain),
    World("unallocated-regime", "15 teams; 66 % of a demand of 2.5 runs unallocated", unallocated_regime),
)
WORLDS: Final[Mapping[str, World]] = MappingProxyType({world.name: world for world in _ALL})


def world(name: str) -> World:
    """The world of this name, with or without ``world:`` before it; ``_`` is as good as ``-``.

    Raises:
        ScenarioError: There is none.
    """
    try:
        return WORLDS[name.removeprefix("world:").replace("_", "-")]
    except KeyError as err:
        raise ScenarioError(f"there is no world {name!r}; there are {', '.join(WORLDS)}") from err


__all__ = ["WORLDS", "Setting", "World", "world"]
