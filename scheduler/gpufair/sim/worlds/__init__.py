"""Constructed worlds, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gpufair.sim.errors import ScenarioError
from gpufair.sim.scenario import Scenario
from gpufair.sim.worlds.setting import Setting
from gpufair.sim.worlds.steady import steady


@dataclass(frozen=True, slots=True)
class World:
    """A constructed world."""

    name: str
    about: str
    make: Callable[[Setting], Scenario]


WORLDS: Final[Mapping[str, World]] = MappingProxyType(
    {
        world.name: world
        for world in (World("steady", "every allocation asks for 2.5 times its entitlement, all the time", steady),)
    }
)


def world(name: str) -> World:
    """The world of this name, with or without ``world:`` before it.

    Raises:
        ScenarioError: There is none.
    """
    try:
        return WORLDS[name.removeprefix("world:")]
    except KeyError as err:
        raise ScenarioError(f"there is no world {name!r}; there are {', '.join(WORLDS)}") from err


__all__ = ["WORLDS", "Setting", "World", "world"]
