"""Unallocated work that is preempted again and again rests longer each time; and who should be warned at submission."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from gpufair.core import actions as act
from gpufair.core.backoff import pause
from gpufair.core.model import Allocation, Kind, Node, Phase, Policy, Shape, WorkloadSpec
from gpufair.core.snapshot import restore, snapshot
from gpufair.core.units import HOUR, MINUTE, AllocationPath, Millis, NodeName, WorkloadId
from tests.world import SMALL, Delays, World

BACKOFF = replace(SMALL, backoff=Millis(1_000), backoff_most=Millis(3_000))


def world_of(policy: Policy = BACKOFF) -> World:
    return World(policy=policy, delays=Delays(0, 0, 0)).set_up(
        [Allocation(AllocationPath("a"))], [Node(NodeName("n"), 1)]
    )


def interrupt(world: World, name: str) -> None:
    """Somebody allocated comes, and goes at once."""
    world.submit(name, "a", min_runtime=1_000)
    world.advance(0)
    world.exit(name)


def test_it_rests_twice_as_long_each_time() -> None:
    """1 s, 2 s, then the limit."""
    world = world_of()
    world.submit("free", "a", min_runtime=0)
    for number, rest in enumerate((1_000, 2_000, 3_000, 3_000)):
        world.advance(10)
        assert world.phase("free") is Phase.RUNNING
        interrupt(world, f"p{number}")
        assert world.phase("free") is Phase.QUEUED
        world.advance(rest - 1)
        assert world.phase("free") is Phase.QUEUED
        world.advance(1)
        assert world.phase("free") in {Phase.RESTORING, Phase.RUNNING}


def test_others_start_meanwhile() -> None:
    """Whoever has not been preempted does not wait for it."""
    world = world_of()
    world.submit("free", "a", min_runtime=0)
    interrupt(world, "p")
    world.submit("other", "a", min_runtime=0)
    assert world.phase("other") in {Phase.STARTING, Phase.RUNNING}


def test_allocated_work_never_rests() -> None:
    """It has paid for its start with a whole protection."""
    world = World(policy=BACKOFF, delays=Delays(0, 0, 0)).set_up(
        [Allocation(AllocationPath("a")), Allocation(AllocationPath("b"))], [Node(NodeName("n"), 1)]
    )
    world.submit("v", "a", min_runtime=1_000)
    world.advance(9_000)
    world.submit("p", "b", min_runtime=100)
    assert world.phase("p") in {Phase.STARTING, Phase.RUNNING, Phase.QUEUED}
    world.advance(1)
    world.exit("p")
    assert world.phase("v") in {Phase.RESTORING, Phase.RUNNING}


def test_it_says_until_when() -> None:
    """And how often it was preempted."""
    world = world_of()
    world.submit("free", "a", min_runtime=0)
    interrupt(world, "p")
    assert "but not started before 1970-01-01 00:00:01Z, as it was preempted once" in world.state.explain(
        WorkloadId("free")
    ).sentence


def test_a_rest_survives_a_restart() -> None:
    """It ends at the same moment."""
    world = world_of()
    world.submit("free", "a", min_runtime=0)
    interrupt(world, "p")
    again = restore(json.loads(json.dumps(snapshot(world.state))), validate=True)
    assert again.next_wakeup() == world.state.next_wakeup() == 1_000
    assert again.copy().next_wakeup() == 1_000


def test_it_can_be_switched_off() -> None:
    """0 starts it as soon as there is room."""
    world = world_of(SMALL)
    world.submit("free", "a", min_runtime=0)
    interrupt(world, "p")
    assert world.phase("free") in {Phase.RESTORING, Phase.RUNNING}


def test_the_default_policy_rests_for_a_minute_and_at_most_an_hour() -> None:
    """1, 2, 4, 8, 16, 32, 60 minutes."""
    spans = [pause(Policy(), times) // MINUTE for times in (1, 2, 3, 4, 5, 6, 7, 1_000_000)]
    assert spans == [1, 2, 4, 8, 16, 32, 60, 60]


def spec(min_runtime: int, expected: int | None, *, resumable: bool = False) -> WorkloadSpec:
    return WorkloadSpec(
        AllocationPath("a"),
        "u",
        Kind.BATCH,
        Shape(1),
        Millis(min_runtime),
        resumable=resumable,
        expected=None if expected is None else Millis(expected),
    )


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (spec(HOUR, 4 * HOUR), "Declare a min_runtime of 4 h, let it save"),
        (spec(HOUR, 20 * HOUR), "min_runtime of 8 h, the longest there is, of the 20 h that it needs"),
        (spec(2 * HOUR, 4 * HOUR), None),
        (spec(8 * HOUR, 40 * HOUR), None),
        (spec(HOUR, 4 * HOUR, resumable=True), None),
        (spec(HOUR, None), None),
        (spec(0, 4 * HOUR), None),
    ],
)
def test_who_would_lose_everything_is_warned(wish: WorkloadSpec, said: str | None) -> None:
    """With the choice: more protection, checkpoints, or none and free of charge."""
    warnings = world_of(Policy()).state.advice(wish)
    if said is None:
        assert warnings == ()
    else:
        assert len(warnings) == 1
        assert said in warnings[0]


def test_the_actions_show_no_start_in_a_rest() -> None:
    """Looked at from the journal."""
    world = world_of()
    world.submit("free", "a", min_runtime=0)
    for number in range(6):
        world.advance(500)
        interrupt(world, f"p{number}")
    starts = [e.event.at for e, a in world.actions() if isinstance(a, act.Start) and a.workload == "free"]
    assert all(later - earlier >= 1_000 for earlier, later in pairwise(starts))
