"""One allocation that is unlike all the others: away for weeks, or in want of large gangs only."""

from __future__ import annotations

from typing import Final

from gpufair.core.model import Allocation
from gpufair.core.units import DAY, AllocationPath, Instant
from gpufair.sim.scenario import Scenario
from gpufair.sim.worlds.builder import Builder
from gpufair.sim.worlds.profile import Profile
from gpufair.sim.worlds.setting import Setting
from gpufair.sim.worlds.steady import DEMAND, LAB

AWAY: Final = AllocationPath("vision/generation")
GANGS: Final = AllocationPath("gangs")


def seasonal(setting: Setting) -> Scenario:
    """A steady cluster on which one team is away for two weeks of three, and back with all its work in the third.

    Runs below six weeks have two such seasons that are shorter. While it is back it asks for 2.5 times its entitlement,
    as the others do all the time.
    """
    world = Builder(setting, LAB)
    season = min(21 * DAY, max(3, world.until // 2))
    edges, weights = [0], []
    for begin in range(0, world.until, season):
        for edge, here in ((begin + season * 2 // 3, 0.0), (begin + season, 1.0)):
            if min(edge, world.until) > edges[-1]:
                edges.append(min(edge, world.until))
                weights.append(here)
    back = sum(weight * (edges[number + 1] - edges[number]) for number, weight in enumerate(weights)) / world.until
    for leaf in world.tree.leaves:
        demand = world.demand(DEMAND)
        if leaf == AWAY:
            world.stream(leaf, demand * back, profile=Profile(edges, weights), unallocated=world.free(), stock=False)
        else:
            world.stream(leaf, demand, unallocated=world.free())
    return world.scenario("seasonal", (f"{AWAY} is away for two thirds of each {season / DAY:.3g} days",))


def gang_against_small(setting: Setting, small: int = 8) -> Scenario:
    """One allocation, entitled to a quarter, wants gangs of half the cluster only; the others want single GPUs.

    Args:
        setting: Where and how long.
        small: How many others there are.
    """
    others = tuple(AllocationPath(f"small-{number}") for number in range(small))
    tree = (Allocation(GANGS, str(small)), *(Allocation(path, "3") for path in others))
    world = Builder(setting, tree)
    nodes = setting.cluster.groups[0]
    gang = max(1, setting.cluster.gpus // 2 // nodes.gpus) * nodes.gpus
    demand = world.demand(DEMAND)
    world.stream(GANGS, demand, sizes=((float(gang), 1.0),), sessions=0, debug=0, unallocated=world.free())
    for leaf in others:
        world.stream(leaf, demand, sizes=((1.0, 0.8), (2.0, 0.2)), unallocated=world.free())
    return world.scenario("gang-against-small", (f"{GANGS} submits gangs of {gang} GPUs only, the others 1 or 2 GPUs",))


def unallocated_regime(setting: Setting) -> Scenario:
    """15 allocations that ask for 2.5 times the cluster, 66 % of it unallocated, their own part in ups and downs.

    Funded demand has office hours, weekends, and phases of days in which a project asks for a third or for nearly twice
    its usual; on average it is below what the cluster has. Unallocated work waits all the time.
    """
    shares = [40, 24, 16, 30, 20, 12, 26, 14, 8, 22, 10, 6, 18, 9, 5]
    paths = [AllocationPath(f"group-{number // 3 + 1}/team-{number + 1:02d}") for number in range(len(shares))]
    above: dict[str, int] = {}
    for path, share in zip(paths, shares, strict=True):
        group = path.partition("/")[0]
        above[group] = above.get(group, 0) + share
    tree = [Allocation(AllocationPath(group), str(share)) for group, share in above.items()]
    tree += [Allocation(path, str(share)) for path, share in zip(paths, shares, strict=True)]
    world = Builder(setting, tree)
    demand, free = world.demand(DEMAND), world.free(0.66)
    for leaf in world.tree.leaves:
        world.stream(leaf, demand * (1 - free), profile=_ups_and_downs(world), stock=False)
        world.stream(leaf, demand * free, unallocated=1.0, sessions=0, debug=0)
    return world.scenario("unallocated-regime", ("funded demand comes in office hours and in phases of days",))


def _ups_and_downs(world: Builder) -> Profile:
    edges, weights = [0], []
    phase, until = 1.0, 0
    for begin in range(0, world.until, DAY // 4):
        if begin >= until:
            phase = world.draw.choice((0.35, 1.0, 1.0, 1.7))
            until = begin + round(world.draw.uniform(4, 10) * DAY)
        office = 1.6 if begin % DAY in (DAY // 4, DAY // 2) else 0.4
        weekend = 0.5 if begin // DAY % 7 >= 5 else 1.0
        edges.append(min(begin + DAY // 4, world.until))
        weights.append(phase * office * weekend)
    return Profile([Instant(edge) for edge in edges], weights)
