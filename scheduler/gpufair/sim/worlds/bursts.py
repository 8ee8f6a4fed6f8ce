"""Many at once: bursts of debug runs, and a flood that one researcher keeps up all day."""

from __future__ import annotations

from typing import Final

from gpufair.core.units import DAY, HOUR, MINUTE, AllocationPath, Instant, Millis
from gpufair.sim.assumptions import millis
from gpufair.sim.scenario import Scenario
from gpufair.sim.worlds.builder import Builder
from gpufair.sim.worlds.profile import Profile
from gpufair.sim.worlds.setting import Setting
from gpufair.sim.worlds.steady import DEMAND, LAB

FLOODED: Final = AllocationPath("science/materials")


def debug_burst(setting: Setting, per_gpu: float = 0.25) -> Scenario:
    """A steady cluster on which, once a day, one researcher submits debug runs within ten minutes.

    Args:
        setting: Where and how long.
        per_gpu: How many, per GPU of the cluster; at least 20.
    """
    world = Builder(setting, LAB)
    for leaf in world.tree.leaves:
        world.stream(leaf, world.demand(DEMAND), unallocated=world.free())
    count = max(20, round(per_gpu * setting.cluster.gpus))
    for day in range(0, world.until, DAY):
        at = day + round(world.draw.uniform(9, 18) * HOUR)
        leaf = world.draw.choice(world.tree.leaves)
        if at < world.until:
            when = Profile.even(Instant(at), Instant(min(at + 10 * MINUTE, world.until)))
            world.debug_runs(leaf, count, when, user=world.crowd(leaf).somebody())
    return world.scenario(
        "debug-burst", (f"once a day {count:,} debug runs of one researcher come within ten minutes",)
    )


def all_day_flood(setting: Setting, times: float = 4.0) -> Scenario:
    """A steady cluster on which one researcher submits short single-GPU runs from 8 to 20 o'clock, every day.

    His colleagues in the same allocation ask for what it is entitled to, all the others for 2.5 times as much.

    Args:
        setting: Where and how long.
        times: How much he asks for in these hours, in multiples of what his allocation is entitled to.
    """
    world = Builder(setting, LAB)
    for leaf in world.tree.leaves:
        world.stream(leaf, 1.0 if leaf == FLOODED else world.demand(DEMAND), unallocated=world.free())
    usual = 40 * MINUTE
    for day in range(0, world.until, DAY):
        begin, end = day + 8 * HOUR, min(day + 20 * HOUR, world.until)
        goal, asked = times * world.part(FLOODED) * max(0, end - begin), 0
        while asked < goal:
            work = Millis(min(max(millis(world.habits.lognormal(usual / 1000, 1.5)), 20 * MINUTE), 4 * HOUR))
            at = begin + int(world.draw.random() * (end - begin))
            world.submit(FLOODED, Instant(at), 1, work, user="flood")
            asked += work
    return world.scenario("all-day-flood", (f"one researcher of {FLOODED} floods it from 8 to 20 o'clock",))
