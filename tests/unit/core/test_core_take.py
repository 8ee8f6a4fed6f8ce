"""The take limit: how much of a pool one leaf may hold while another one is hungry."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.errors import InvalidSpec
from gpufair.core.model import Allocation, Hungry, Node, Phase, Policy, PreemptReason
from gpufair.core.state import State
from gpufair.core.units import AllocationPath, NodeName
from tests.world import CAUSE, SMALL, Delays, World

TAKE = replace(SMALL, take_limit=1.5, take_least=2)


def four(policy: Policy = TAKE, *gpus: int) -> World:
    """Halves of eight GPUs: a and b; 1.5 x 1/2 x 8 are 6. b has had much more than a."""
    world = World(policy=policy, delays=Delays(0, 0, -1)).set_up(
        [Allocation(AllocationPath("a")), Allocation(AllocationPath("b"))],
        [Node(NodeName(f"n{index}"), count) for index, count in enumerate(gpus or (8,))],
    )
    world.advance(60_000)  # a whole window of capacity has been there
    world.submit("past", "b", gpus=(gpus or (8,))[0], min_runtime=8_000)
    world.advance(8_000)
    world.exit("past")
    return world


def notices(world: World) -> dict[str, str]:
    return {a.workload: a.reason.value for _, a in world.actions() if isinstance(a, act.BeginCheckpoint)}


def burst(world: World, count: int, *, min_runtime: int = 1_000) -> None:
    """a, which has had nothing, comes with many at once."""
    for index in range(count):
        world.submit(f"a{index}", "a", min_runtime=min_runtime)


def running(world: World, leaf: str) -> int:
    return sum(1 for one in world.state.workloads() if one.held is not None and one.spec.allocation == leaf)


def test_alone_a_leaf_may_have_everything() -> None:
    """GPUs that nobody else asks for are nobody else's."""
    world = four()
    burst(world, 8, min_runtime=5_000)
    assert running(world, "a") == 8


def test_while_another_one_is_hungry_it_stops_at_its_limit() -> None:
    """Though it ranks first: b gets the other two, and a takes them back only when b wants them no more."""
    world = four()
    world.submit("guard", "b", gpus=8, min_runtime=1)
    burst(world, 8, min_runtime=5_000)
    for index in range(3):
        world.submit(f"b{index}", "b", min_runtime=5_000)
    world.exit("guard")
    assert (running(world, "a"), running(world, "b")) == (6, 2)


def test_beyond_it_only_what_nobody_else_can_use() -> None:
    """A hole that is too small for those who wait is no reason to leave GPUs idle."""
    world = four()
    world.submit("guard", "b", gpus=8, min_runtime=1)
    burst(world, 8, min_runtime=5_000)
    world.submit("wide", "b", gpus=4, min_runtime=5_000)
    world.exit("guard")
    assert (running(world, "a"), world.phase("wide")) == (8, Phase.QUEUED)


def test_beyond_it_nobody_elses_work_is_moved_except_unallocated() -> None:
    """The rank of a burst does not count beyond its limit."""
    world = four(TAKE, 6, 2)
    world.submit("b0", "b", gpus=2, min_runtime=100)
    burst(world, 6, min_runtime=3_000)
    world.advance(1_000)
    world.submit("hungry", "b", gpus=6, min_runtime=100)
    world.submit("a6", "a", min_runtime=100)
    assert world.phase("b0") is Phase.RUNNING
    assert notices(world) == {}
    world = four(TAKE, 6, 2)
    world.submit("b0", "b", gpus=2, min_runtime=0)
    burst(world, 6, min_runtime=3_000)
    world.submit("hungry", "b", gpus=6, min_runtime=100)
    world.submit("a6", "a", min_runtime=100)
    assert notices(world) == {"b0": PreemptReason.UNALLOCATED}


def over(world: World) -> None:
    """a holds all eight, unprotected, and b, which has had more than a, is hungry still."""
    burst(world, 8)
    world.advance(2_000)


def test_what_a_leaf_keeps_beyond_it_may_be_taken_after_protection() -> None:
    """By the hungry, in the order of the queue, until the leaf is at its limit."""
    world = four()
    over(world)
    for index in range(4):
        world.submit(f"b{index}", "b", min_runtime=1_000)
    assert sorted(notices(world).values()) == [PreemptReason.TAKE_LIMIT] * 2


def test_protection_is_not_shortened_for_it() -> None:
    """P1 holds for a burst, too."""
    world = four()
    burst(world, 8, min_runtime=5_000)
    world.advance(1_000)
    world.submit("b0", "b", min_runtime=1_000)
    assert notices(world) == {}
    world.advance(4_000)
    assert len(notices(world)) == 1


def test_a_workload_that_reaches_into_the_limit_stays() -> None:
    """Only what lies beyond it as a whole is taken."""
    world = four()
    world.submit("a0", "a", gpus=5, min_runtime=1_000)
    world.submit("a1", "a", gpus=3, min_runtime=1_000)
    world.advance(2_000)
    world.submit("b0", "b", min_runtime=1_000)
    assert notices(world) == {}


def test_a_leaf_with_nothing_running_may_start_one_workload() -> None:
    """However large: else a gang of a small allocation would never run."""
    world = four()
    world.submit("guard", "b", gpus=8, min_runtime=1)
    world.submit("gang", "a", gpus=8, min_runtime=1_000)
    world.submit("b0", "b", min_runtime=1_000)
    world.exit("guard")
    assert world.phase("gang") is Phase.STARTING


def test_who_is_over_served_is_not_hungry() -> None:
    """b has had more than a week's part of the pool: it waits for its rank."""
    world = four(replace(TAKE, window=type(SMALL.window)(10_000)))
    world.advance(2_000)
    over(world)
    world.submit("b0", "b", min_runtime=1_000)
    assert notices(world) == {}


def test_by_option_who_holds_less_than_its_part_is() -> None:
    """Then history does not count: only the present."""
    world = four(replace(TAKE, window=type(SMALL.window)(10_000), hungry=Hungry.ENTITLEMENT))
    world.advance(2_000)
    over(world)
    world.submit("b0", "b", min_runtime=1_000)
    assert list(notices(world).values()) == [PreemptReason.TAKE_LIMIT]


def test_the_floor_keeps_small_allocations_whole() -> None:
    """max(take_least, ...): eight GPUs are a node."""
    world = four(replace(TAKE, take_least=8))
    over(world)
    world.submit("b0", "b", min_runtime=1_000)
    assert notices(world) == {}


def test_priority_inside_the_leaf_goes_on_at_the_limit() -> None:
    """A swap at home takes nothing from anybody."""
    world = four()
    world.submit("guard", "b", gpus=2, min_runtime=20_000)
    burst(world, 6)
    world.advance(2_000)
    world.submit("b0", "b", gpus=8, min_runtime=1_000)
    world.submit("urgent", "a", min_runtime=1_000, priority=1)
    assert list(notices(world).values()) == [PreemptReason.PRIORITY]


def test_it_says_so() -> None:
    """The limit, and who waits."""
    world = four()
    over(world)
    world.submit("b0", "b", min_runtime=1_000)
    (notice,) = [a for _, a in world.actions() if isinstance(a, act.BeginCheckpoint)]
    assert "a holds more than the 6 GPUs of its take limit while b" in notice.why


@pytest.mark.parametrize("kappa", [0.5, -1.0, float("nan")])
def test_a_limit_below_the_entitlement_is_refused(kappa: float) -> None:
    """It would take from a leaf what is its own."""
    with pytest.raises(InvalidSpec, match="take_limit"):
        State(replace(SMALL, take_limit=kappa))
    world = four()
    with pytest.raises(InvalidSpec, match="take_limit"):
        world.feed(ev.PolicyChanged(world.now, CAUSE, replace(TAKE, take_limit=kappa)))
