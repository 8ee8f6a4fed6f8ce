"""A saturated cluster of a research organisation, from the first minutes to the end."""

from __future__ import annotations

from typing import Final

from gpufair.core.model import Allocation
from gpufair.core.units import AllocationPath
from gpufair.sim.scenario import Scenario
from gpufair.sim.worlds.builder import Builder
from gpufair.sim.worlds.setting import Setting

# Entitlements from 1.8 % to 24 %, on two and three levels.
LAB: Final = tuple(
    Allocation(AllocationPath(path), share)
    for path, share in (
        ("language", "50"),
        ("language/pretrain", "48"),
        ("language/posttrain", "30"),
        ("language/evaluation", "14"),
        ("language/speech", "8"),
        ("vision", "30"),
        ("vision/generation", "55"),
        ("vision/perception", "30"),
        ("vision/robotics", "15"),
        ("vision/robotics/arms", "60"),
        ("vision/robotics/cars", "40"),
        ("science", "20"),
        ("science/proteins", "45"),
        ("science/weather", "35"),
        ("science/materials", "20"),
    )
)
DEMAND: Final = 2.5


def steady(setting: Setting) -> Scenario:
    """Every allocation asks for 2.5 times what it is entitled to, all the time, with jobs of all kinds and sizes.

    A run is judged by it: whatever is not delivered here, the policy has not delivered. ``unallocated_share`` (0) of the
    demand runs unallocated.
    """
    world = Builder(setting, LAB)
    for leaf in world.tree.leaves:
        world.stream(leaf, world.demand(DEMAND), unallocated=world.free())
    return world.scenario("steady", ("all allocations ask for the same multiple of their entitlement, all the time",))
