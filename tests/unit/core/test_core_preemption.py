"""Who is chosen to leave: the order of victims in the policy, one example each."""

from __future__ import annotations

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.model import Allocation, CheckpointRef, Kind, Node, Phase
from gpufair.core.preemption import loss
from gpufair.core.units import AllocationPath, Millis, NodeName, WorkloadId
from tests.world import CAUSE, Delays, World, holding

LEAVES = [Allocation(AllocationPath(path)) for path in ("a", "b", "c")]


def cluster(*gpus: int) -> World:
    return World(delays=Delays(0, 0, -1)).set_up(
        LEAVES, [Node(NodeName(f"n{index}"), count) for index, count in enumerate(gpus)]
    )


def victims(world: World) -> set[str]:
    return {action.workload for _, action in world.actions() if isinstance(action, act.BeginCheckpoint)}


def test_unallocated_work_goes_first_even_if_others_are_unprotected() -> None:
    """It has no rights at all, not even against a newcomer of its own leaf."""
    world = cluster(1, 1)
    world.submit("old", "a", min_runtime=1_000)
    world.submit("free", "b", min_runtime=0)
    world.advance(5_000)
    world.submit("p", "b", min_runtime=1_000)
    assert victims(world) == {"free"}


def test_own_lower_priority_goes_before_other_leaves() -> None:
    """People set their own house in order first."""
    world = cluster(1, 1)
    world.submit("theirs", "a", min_runtime=1_000)
    world.submit("ours", "b", min_runtime=1_000)
    world.advance(5_000)
    world.submit("p", "b", min_runtime=1_000, priority=1)
    assert victims(world) == {"ours"}


def test_a_freed_gpu_goes_to_the_least_served_sibling_whoever_asked_first() -> None:
    """At every level of the tree, and then by priority and submission in the leaf."""
    tree = [Allocation(AllocationPath(path)) for path in ("x/rich", "x/poor", "y")]
    world = World(delays=Delays(0, 0, -1)).set_up(tree, [Node(NodeName("n"), 1)])
    for leaf, span in (("x/rich", 6_000), ("x/poor", 1_000), ("y", 3_000)):
        world.submit(f"past-{leaf}", leaf, min_runtime=9_000)
        world.advance(span)
        world.exit(f"past-{leaf}")
    world.submit("holder", "y", min_runtime=9_000)
    for name, leaf, priority in (
        ("rich", "x/rich", 9),
        ("poor", "x/poor", 0),
        ("first", "y", 0),
        ("second", "y", 0),
        ("urgent", "y", 1),
    ):
        world.submit(name, leaf, min_runtime=1_000, priority=priority)
    world.exit("holder")
    # y: 3 s of a half; x: 7 s of a half. Then y has promised 1 s more, which still leaves it the better one.
    order = []
    for _ in range(5):
        (running,) = holding(world)
        order.append(running)
        world.exit(running)
    assert order == ["urgent", "first", "second", "poor", "rich"]


def test_equal_priority_in_the_own_leaf_evicts_nobody() -> None:
    """First come, first served."""
    world = cluster(1)
    world.submit("ours", "b", min_runtime=1_000)
    world.advance(5_000)
    world.submit("p", "b", min_runtime=1_000)
    assert victims(world) == set()


def test_the_most_over_served_leaf_gives_first() -> None:
    """c has had twice what b has had."""
    world = cluster(1, 1, 1)
    world.submit("b1", "b", min_runtime=1_000)
    world.submit("c1", "c", min_runtime=1_000)
    world.submit("c2", "c", min_runtime=1_000)
    world.advance(5_000)
    world.submit("p", "a", min_runtime=1_000)
    assert len(victims(world)) == 1
    assert victims(world) <= {"c1", "c2"}


def test_among_equals_the_one_that_loses_least_goes() -> None:
    """A fresh checkpoint makes a cheap victim, a workload that cannot resume a dear one."""
    world = cluster(1, 1, 1)
    world.submit("fixed", "b", min_runtime=1_000, resumable=False)
    world.submit("long", "b", min_runtime=1_000)
    world.submit("saved", "b", min_runtime=1_000)
    world.advance(9_000)
    fresh = CheckpointRef("c", 1, world.now, 1, Millis(10))
    world.feed(ev.CheckpointDone(world.now, CAUSE, WorkloadId("saved"), 1, fresh))
    world.submit("p", "a", min_runtime=1_000)
    assert victims(world) == {"saved"}


def test_one_node_is_cleared_and_not_a_little_of_each() -> None:
    """Scattered GPUs are of no use to a whole-node workload."""
    world = cluster(2, 2)
    for name in ("v1", "v2", "v3", "v4"):
        world.submit(name, "b", min_runtime=1_000)
    world.advance(9_000)
    world.submit("p", "a", gpus=2, min_runtime=1_000)
    left = {world.where(victim) for victim in victims(world)}
    assert len(victims(world)) == 2
    assert len(left) == 1


def test_a_cheap_victim_is_spared_when_a_dear_one_is_needed_anyway() -> None:
    """Three GPUs come from two and one, not from two and one and one."""
    world = cluster(4)
    world.submit("large", "b", gpus=2, min_runtime=1_000)
    world.advance(3_000)
    world.submit("small1", "b", min_runtime=1_000)
    world.submit("small2", "b", min_runtime=1_000)
    world.advance(9_000)
    world.submit("p", "a", gpus=3, min_runtime=500)
    assert "large" in victims(world)
    assert len(victims(world)) == 2


def test_free_gpus_on_a_node_spare_a_victim() -> None:
    """What is free already is counted first."""
    world = cluster(2, 2)
    world.submit("v1", "b", min_runtime=1_000)
    world.submit("v2", "b", min_runtime=1_000)
    world.submit("v3", "b", min_runtime=1_000)
    world.advance(9_000)
    world.submit("p", "a", gpus=2, min_runtime=1_000)
    assert victims(world) == {"v3"}


def test_a_gang_is_evicted_once_for_all_its_nodes() -> None:
    """The second node comes with the first."""
    world = cluster(2, 2, 2)
    world.submit("gang", "b", gpus=2, nodes=2, min_runtime=1_000)
    world.submit("single", "b", gpus=2, min_runtime=1_000)
    world.advance(9_000)
    world.submit("p", "a", gpus=2, nodes=2, min_runtime=1_000)
    assert victims(world) == {"gang"}


def test_nobody_is_evicted_when_the_whole_shape_cannot_be_freed() -> None:
    """An eviction without a beneficiary is mere harm."""
    world = cluster(2, 2)
    world.submit("old", "b", gpus=2, min_runtime=1_000)
    world.submit("new", "b", gpus=2, min_runtime=20_000)
    world.advance(5_000)
    world.submit("p", "a", gpus=2, nodes=2, min_runtime=1_000)
    assert victims(world) == set()


def test_gpus_that_are_being_released_anyway_spare_a_victim() -> None:
    """A second beneficiary waits for the surplus instead of evicting somebody else."""
    world = cluster(2, 2)
    world.submit("wide", "b", gpus=2, min_runtime=1_000)
    world.submit("other", "b", gpus=2, min_runtime=1_000)
    world.advance(9_000)
    world.submit("p1", "a", min_runtime=500)
    assert len(victims(world)) == 1
    world.submit("p2", "a", min_runtime=500)
    assert len(victims(world)) == 1


def test_its_own_commitment_counts_against_the_newcomer() -> None:
    """Who asks for much protection must be much further behind."""
    world = cluster(1)
    world.submit("v", "b", min_runtime=1_000)
    world.advance(5_000)
    world.submit("p", "a", min_runtime=20_000)
    assert victims(world) == set()
    world.advance(14_999)
    assert victims(world) == set()
    world.advance(10_000)
    assert victims(world) == {"v"}


def test_without_commitment_in_the_metric_the_newcomer_goes_at_once() -> None:
    """The option by which policies are compared."""
    world = World(
        policy=type(World().policy)(window=Millis(60_000), grid=Millis(5_000), commitment=False),
        delays=Delays(0, 0, -1),
    ).set_up(LEAVES, [Node(NodeName("n"), 1)])
    world.submit("v", "b", min_runtime=1_000)
    world.advance(5_000)
    world.submit("p", "a", min_runtime=20_000)
    assert victims(world) == {"v"}


def test_a_beneficiary_starts_elsewhere_if_that_is_earlier() -> None:
    """Its victim leaves all the same; what it frees is for the next in the queue."""
    world = cluster(1, 1)
    world.submit("v", "b", min_runtime=1_000)
    world.advance(1)
    world.submit("w", "b", min_runtime=20_000)
    world.advance(9_000)
    world.submit("p", "a", min_runtime=500)
    assert victims(world) == {"v"}
    world.exit("w")
    assert world.where("p") == ("n1",)
    assert world.phase("v") is Phase.CHECKPOINTING


def test_work_since_a_safe_point_is_all_that_is_lost() -> None:
    """Whoever has just said that now is a good moment goes first."""
    world = cluster(1, 1)
    world.submit("early", "b", min_runtime=1_000)
    world.submit("late", "b", min_runtime=1_000)
    world.advance(9_000)
    world.feed(ev.SafePointReached(world.now, CAUSE, WorkloadId("late"), 1))
    world.advance(100)
    world.submit("p", "a", min_runtime=1_000)
    assert victims(world) == {"late"}


def test_a_safe_point_of_an_earlier_start_counts_no_more() -> None:
    """Nor does one that comes late."""
    world = cluster(1)
    world.submit("v", "b", min_runtime=1_000)
    assert world.feed(ev.SafePointReached(world.now, CAUSE, WorkloadId("v"), 7)) == []
    assert world.state.facts.records[WorkloadId("v")].safe_at is None


def test_what_cannot_resume_loses_all_of_its_runtime_at_a_safe_point_too() -> None:
    """There is nothing from which it could go on."""
    world = cluster(1, 1)
    world.submit("fixed", "b", min_runtime=1_000, resumable=False)
    world.submit("other", "b", min_runtime=1_000)
    world.advance(9_000)
    world.feed(ev.SafePointReached(world.now, CAUSE, WorkloadId("fixed"), 1))
    world.feed(ev.SafePointReached(world.now, CAUSE, WorkloadId("other"), 1))
    world.submit("p", "a", min_runtime=1_000)
    assert victims(world) == {"other"}


def test_an_idle_session_goes_before_a_busy_one_that_would_lose_as_much() -> None:
    """Its owner does not wait for a cell."""
    world = cluster(1, 1)
    for name in ("busy", "idle"):
        world.submit(name, "b", min_runtime=1_000, kind=Kind.SESSION)
    world.advance(9_000)
    world.feed(ev.ActivityReported(world.now, CAUSE, WorkloadId("busy"), 1, busy=True))
    world.submit("p", "a", min_runtime=1_000)
    assert victims(world) == {"idle"}


def test_a_measured_restore_counts_instead_of_a_guess() -> None:
    """Saving took 10 ms, restoring 5 s: the one that comes back slowly is the dearer one."""
    world = cluster(1)
    world.submit("v", "b", min_runtime=1_000)
    world.advance(2_000)
    world.feed(ev.CheckpointDone(world.now, CAUSE, WorkloadId("v"), 1, CheckpointRef("c", 1, world.now, 1, Millis(10))))
    record = world.state.facts.records[WorkloadId("v")]
    assert loss(world.state.facts, record) == 20
    world.delays = Delays(start=5_000, save=0, release=0)
    world.feed(ev.Released(world.now, CAUSE, WorkloadId("v"), 1))
    world.advance(5_000)
    assert record.restored_in == 5_000
    fresh = CheckpointRef("d", 2, world.now, 1, Millis(10))
    world.feed(ev.CheckpointDone(world.now, CAUSE, WorkloadId("v"), 2, fresh))
    assert loss(world.state.facts, record) == 5_010
