"""The debug right: short and small work starts at once in the place of small unprotected work, within bounds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.debug import bound
from gpufair.core.errors import InvalidSpec
from gpufair.core.model import Allocation, Node, Phase, Policy, PreemptReason
from gpufair.core.snapshot import recover, restore, snapshot
from gpufair.core.state import State
from gpufair.core.units import MINUTE, AllocationPath, Millis, NodeName, WorkloadId
from tests.world import CAUSE, SMALL, Delays, World

DEBUG = replace(SMALL, debug_min_runtime=Millis(1_000), debug_gpus=2, debug_share=0.25, debug_most=0.5)


def world_of(*gpus: int, policy: Policy = DEBUG, shares: tuple[str, str, str] = ("1", "1", "1")) -> World:
    """b is far better served than a and c: by rank nobody moves c's work for it."""
    allocations = [Allocation(AllocationPath(p), share) for p, share in zip(("a", "b", "c"), shares, strict=True)]
    world = World(policy=policy, delays=Delays(0, 0, -1)).set_up(
        allocations, [Node(NodeName(f"n{index}"), count) for index, count in enumerate(gpus)]
    )
    world.submit("past", "b", gpus=gpus[0], min_runtime=20_000)
    world.advance(25_000)
    world.exit("past")
    return world


def fill(world: World, leaf: str, *gpus: int, min_runtime: int = 2_000) -> None:
    for index, count in enumerate(gpus):
        world.submit(f"{leaf}{index}", leaf, gpus=count, min_runtime=min_runtime)
    world.advance(min_runtime)


def notices(world: World) -> dict[str, str]:
    return {a.workload: a.reason.value for _, a in world.actions() if isinstance(a, act.BeginCheckpoint)}


def test_a_debug_workload_moves_unprotected_work_of_any_rank() -> None:
    """The wait of a debug run is the release of its victim."""
    world = world_of(4)
    fill(world, "c", 1, 1, 2)
    world.submit("p", "b", min_runtime=1_000)
    (victim,) = notices(world).items()
    assert victim[1] == PreemptReason.DEBUG
    assert world.state.workload(world.state.queue()[0]).id == "p"


def test_the_same_workload_with_more_protection_waits() -> None:
    """The right is for what gives the GPUs back soon."""
    world = world_of(4)
    fill(world, "c", 1, 1, 2)
    world.submit("p", "b", min_runtime=1_001)
    assert notices(world) == {}


def test_a_protected_workload_is_safe_from_it() -> None:
    """P1 has no exception for debug runs."""
    world = world_of(4)
    fill(world, "c", 4)
    world.submit("q", "c", gpus=4, min_runtime=20_000)
    world.exit("c0")
    world.submit("p", "b", min_runtime=1_000)
    assert notices(world) == {}


@pytest.mark.parametrize(("victim", "moved"), [(1, True), (2, True), (3, False), (4, False)])
def test_a_victim_is_at_most_one_gpu_larger(victim: int, moved: bool) -> None:
    """A large run is not stopped for a quick look."""
    world = world_of(4)
    fill(world, "c", victim, *([] if victim == 4 else [4 - victim]), min_runtime=2_000)
    if victim in {1, 3}:  # the rest of the node is protected
        rest = f"c{1 if victim < 4 else 0}"
        world.exit(rest)
        world.submit("guard", "c", gpus=4 - victim, min_runtime=20_000)
    world.submit("p", "b", min_runtime=1_000)
    assert bool(notices(world)) is moved


def test_the_pool_bounds_the_gpus_under_the_right() -> None:
    """min(C/2, max(2, C/4)) of 8 GPUs is 2."""
    world = world_of(8)
    fill(world, "c", *[1] * 8)
    for index, leaf in enumerate(("b", "b", "b")):
        world.submit(f"p{index}", leaf, min_runtime=1_000)
    assert len(notices(world)) == 2
    assert set(world.state.facts.debugging) == {"p0", "p1"}


def two_under_the_right() -> World:
    """p0 and p1 run under it, protected for another half second; two of c's wait, the others run unprotected."""
    world = world_of(8)
    fill(world, "c", *[1] * 8)
    world.delays = Delays(0, 0, 0)
    for index in range(2):
        world.submit(f"p{index}", "b", min_runtime=1_000)
    world.advance(500)
    assert world.phase("p0") is world.phase("p1") is Phase.RUNNING
    return world


def test_it_counts_until_the_workload_has_left() -> None:
    """Whatever rank it has by then."""
    world = two_under_the_right()
    world.submit("p2", "b", min_runtime=1_000)
    assert world.phase("p2") is Phase.QUEUED
    world.delays = Delays(0, 0, -1)
    world.exit("p0")
    # The GPU goes to one of c's, who come first; what p0 used of the bound is p2's.
    assert set(world.state.facts.debugging) == {"p1", "p2"}


def moved_for(world: World, workload: str) -> set[str]:
    """Whom it takes the place of."""
    reservation = world.state.facts.records[WorkloadId(workload)].reservation
    return set(reservation.victims) if reservation is not None else set()


def test_a_newcomer_takes_the_place_of_one_whose_protection_is_over() -> None:
    """Where the bound leaves no room; exactly then, and of nobody else, though c's are just as unprotected."""
    world = two_under_the_right()
    for waiting in world.state.queue():
        world.feed(ev.Cancelled(world.now, CAUSE, waiting))
    world.submit("p2", "b", min_runtime=1_000)
    world.advance(499)
    assert not moved_for(world, "p2")
    world.delays = Delays(0, 0, -1)
    world.advance(1)
    (first,) = moved_for(world, "p2")
    assert first in {"p0", "p1"}
    assert notices(world)[WorkloadId(first)] == PreemptReason.DEBUG
    # Until he has left, his part is the newcomer's: others come in only in the place of the other one.
    for name in ("p3", "p4"):
        world.submit(name, "b", min_runtime=1_000)
    assert moved_for(world, "p3") == {"p0", "p1"} - {first}
    assert not moved_for(world, "p4")


def test_who_has_handed_his_place_over_counts_again_when_it_is_not_taken() -> None:
    """As long as he holds his GPUs."""
    world = two_under_the_right()
    for waiting in world.state.queue():
        world.feed(ev.Cancelled(world.now, CAUSE, waiting))
    world.advance(500)
    world.delays = Delays(0, 0, -1)
    world.submit("p2", "b", min_runtime=1_000)
    (first,) = moved_for(world, "p2")
    world.feed(ev.Cancelled(world.now, CAUSE, WorkloadId("p2")))
    for name in ("p3", "p4", "p5"):
        world.submit(name, "b", min_runtime=1_000)
    # p3 waits for what comes free anyway.
    assert [moved_for(world, name) for name in ("p3", "p4", "p5")] == [set(), {"p0", "p1"} - {first}, set()]


def test_in_its_own_bound_a_leaf_takes_the_places_of_its_own() -> None:
    """What others hold of the pool's bound is no part of it."""
    world = world_of(16, policy=replace(DEBUG, take_limit=None))  # 4 GPUs in the pool, 2 in a leaf
    fill(world, "c", *[1] * 16)
    world.delays = Delays(0, 0, 0)
    for index, leaf in enumerate(("b", "b", "c", "c")):
        world.submit(f"p{index}", leaf, min_runtime=1_000)
    world.advance(500)
    for waiting in world.state.queue():
        world.feed(ev.Cancelled(world.now, CAUSE, waiting))
    assert set(world.state.facts.debugging) == {"p0", "p1", "p2", "p3"}
    world.advance(1_500)
    world.delays = Delays(0, 0, -1)
    world.submit("p4", "b", min_runtime=1_000)
    assert moved_for(world, "p4") <= {"p0", "p1"}
    assert moved_for(world, "p4")


def test_a_place_that_is_too_small_is_none() -> None:
    """Each who leaves has to hand over all that the newcomer lacks."""
    world = two_under_the_right()
    for waiting in world.state.queue():
        world.feed(ev.Cancelled(world.now, CAUSE, waiting))
    world.advance(500)
    world.delays = Delays(0, 0, -1)
    world.submit("p2", "b", gpus=2, min_runtime=1_000)
    assert not moved_for(world, "p2")


@pytest.mark.parametrize(("after", "moved"), [(999, set()), (1_000, {"p0"})])
def test_a_place_may_be_larger_than_what_it_is_taken_for(after: int, moved: set[str]) -> None:
    """What came by the right goes by it, and the rest of its GPUs goes to those who come first by rank."""
    world = world_of(8, policy=replace(DEBUG, debug_gpus=4, take_limit=None))
    fill(world, "c", 4, 4)
    world.delays = Delays(0, 0, 0)
    world.submit("p0", "b", gpus=4, min_runtime=1_000)
    world.advance(0)
    assert set(world.state.facts.debugging) == {"p0"}
    for waiting in world.state.queue():
        world.feed(ev.Cancelled(world.now, CAUSE, waiting))
    start = world.now
    world.advance(after - (world.now - start))
    world.delays = Delays(0, 0, -1)
    world.submit("p1", "b", gpus=1, min_runtime=1_000)
    # The other of c's, just as large, stays.
    assert moved_for(world, "p1") == moved


def test_a_leaf_has_a_bound_of_its_own() -> None:
    """One leaf's debugging does not use up everybody's."""
    world = world_of(16)
    fill(world, "c", *[1] * 16)
    for leaf in ("b", "b", "b", "a"):
        world.submit(f"p{len(world.journal)}", leaf, gpus=1, min_runtime=1_000)
    reasons = notices(world)
    assert sum(1 for reason in reasons.values() if reason == PreemptReason.DEBUG) == 2
    # a ranks before c anyway, and needs no right for it.
    assert sum(1 for reason in reasons.values() if reason == PreemptReason.RANK) == 1


def test_whoever_may_by_rank_does_not_use_the_right_up() -> None:
    """It is the last resort."""
    world = world_of(4)
    fill(world, "c", 1, 1, 2)
    world.submit("p", "a", min_runtime=1_000)
    assert list(notices(world).values()) == [PreemptReason.RANK]
    assert not world.state.facts.debugging


def test_it_is_charged_as_usual_and_explained() -> None:
    """A right to start, not a gift."""
    world = world_of(4)
    fill(world, "c", 1, 1, 2)
    world.delays = Delays(0, 0, 0)
    world.submit("p", "b", min_runtime=1_000)
    world.advance(500)
    start = next(a for _, a in reversed(world.actions()) if isinstance(a, act.Start) and a.workload == "p")
    notice = next(a for _, a in reversed(world.actions()) if isinstance(a, act.BeginCheckpoint))
    assert "is a debug workload (1 GPU for 1 s)" in notice.why
    assert start.held.granted == 1_000
    charged = world.state.workload(start.workload).charged
    world.advance(500)
    assert world.state.workload(start.workload).charged == charged + 500


def test_a_cancelled_beneficiary_gives_its_part_of_the_bound_back() -> None:
    """Its victims leave all the same."""
    world = world_of(4)
    fill(world, "c", 1, 1, 2)
    world.submit("p", "b", min_runtime=1_000)
    assert world.state.facts.debugging
    world.feed(ev.Cancelled(world.now, CAUSE, world.state.queue()[0]))
    assert not world.state.facts.debugging


def test_the_right_survives_a_restart() -> None:
    """Whoever runs under it still counts afterwards."""
    world = world_of(4)
    fill(world, "c", 1, 1, 2)
    world.submit("p", "b", min_runtime=1_000)
    plain = snapshot(world.state)
    again = restore(json.loads(json.dumps(plain)), validate=True)
    assert set(again.facts.debugging) == {"p"}
    assert set(again.copy().facts.debugging) == {"p"}
    assert snapshot(recover([(e.event, e.actions) for e in world.journal], policy=world.policy)) == plain


@pytest.mark.parametrize(
    ("capacity", "gpus"), [(0, 0), (7, 0), (8, 1), (16, 2), (64, 8), (128, 8), (800, 8), (1_000, 10), (12_000, 120)]
)
def test_the_bound_of_the_default_policy(capacity: int, gpus: int) -> None:
    """min(C/8, max(8, 1 % of C)), in whole GPUs."""
    policy = Policy()
    assert policy.debug_min_runtime == 15 * MINUTE
    assert bound(capacity, policy.debug_share, policy.debug_most, policy.debug_gpus) == gpus


@pytest.mark.parametrize("broken", [{"debug_share": 1.5}, {"debug_most": -0.1}, {"debug_gpus": -1}])
def test_bounds_that_make_no_sense_are_refused(broken: dict[str, float]) -> None:
    """With the option's name."""
    with pytest.raises(InvalidSpec, match=next(iter(broken))):
        State(replace(SMALL, **broken))  # type: ignore[arg-type]
