"""When the next pass is due, and that nothing is due when nothing can change."""

from __future__ import annotations

from dataclasses import replace

from gpufair.core import events as ev
from gpufair.core.model import Allocation, Node, Phase, Policy
from gpufair.core.units import SECOND, AllocationPath, Millis, NodeName, PoolName, WorkloadId
from tests.world import CAUSE, PROMPT, SMALL, Delays, World

OTHER = PoolName("other")


def cluster(delays: Delays = PROMPT) -> World:
    paths = ("a", "b")
    return World(delays=delays).set_up([Allocation(AllocationPath(path)) for path in paths], [Node(NodeName("n"), 1)])


def test_nothing_is_due_while_nobody_waits() -> None:
    """An idle service sleeps."""
    world = cluster()
    assert world.state.next_wakeup() is None
    world.submit("v", "a", min_runtime=5_000)
    assert world.state.next_wakeup() is None


def test_the_end_of_a_protection_is_due_once_somebody_waits() -> None:
    """And the grid after it, as the window slides."""
    world = cluster()
    world.submit("v", "a", min_runtime=5_500)
    world.submit("p", "a")
    assert world.state.next_wakeup() == 5_500
    world.advance(5_500)
    assert world.state.next_wakeup() == 10_000
    world.feed(ev.Cancelled(world.now, CAUSE, WorkloadId("p")))
    assert world.state.next_wakeup() is None


def test_unallocated_work_needs_no_grid() -> None:
    """Only an event gives it a GPU."""
    world = cluster()
    world.submit("v", "a", min_runtime=1_000)
    world.submit("p", "b", min_runtime=0)
    world.advance(2_000)
    assert world.state.next_wakeup() is None


def test_a_deadline_is_due() -> None:
    """Whatever else is."""
    world = cluster(Delays(release=-400))
    world.submit("v", "a", min_runtime=5_000)
    world.submit("p", "b", min_runtime=1_000)
    world.advance(5_000)
    assert world.state.next_wakeup() == 6_000
    world.advance(1_000)
    # Stopped now; should it not go, its beneficiary may look elsewhere after another grace.
    assert world.state.next_wakeup() == 7_000


def test_the_grid_is_finer_while_a_checkpoint_is_in_flight() -> None:
    """Only in the pool in which it is, and only while somebody could be outranked meanwhile."""
    nodes = [Node(NodeName("n0"), 1), Node(NodeName("n1"), 1), Node(NodeName("m"), 1, pool=OTHER)]
    world = World(delays=Delays(0, 700, 900)).set_up([Allocation(AllocationPath(path)) for path in ("a", "b")], nodes)
    world.submit("v", "a", min_runtime=1_000)
    world.submit("w", "a", min_runtime=1_000)
    world.submit("x", "a", min_runtime=1_000, pools=(OTHER,))
    world.submit("p", "b", min_runtime=9_900)
    world.submit("y", "a", min_runtime=9_900, pools=(OTHER,))
    world.advance(1_200)
    assert world.state.next_wakeup() == 5_000
    world.submit("q", "b", min_runtime=500)
    assert world.phase("v") is Phase.CHECKPOINTING
    assert world.state.next_wakeup() == 1_500
    world.advance(900)
    assert world.phase("q") is Phase.RUNNING
    # The end of q's protection; the grid alone would be at 5,000 again.
    assert world.state.next_wakeup() == 2_600


def test_a_coarser_grid_for_checkpoints_changes_nothing() -> None:
    """The finer of the two counts."""
    assert Policy().grid_checkpoint == 10 * SECOND
    policy = replace(SMALL, grid_checkpoint=Millis(60_000))
    world = World(policy, Delays(0, 700, 900)).set_up(
        [Allocation(AllocationPath(path)) for path in ("a", "b")], [Node(NodeName("n"), 2)]
    )
    world.submit("v", "a", min_runtime=1_000)
    world.submit("w", "a", min_runtime=1_000)
    world.submit("p", "b", gpus=2, min_runtime=9_900)
    world.advance(1_200)
    world.submit("q", "b", min_runtime=500)
    assert world.phase("v") is Phase.CHECKPOINTING
    # The deadline of v comes first, then the grid.
    assert world.state.next_wakeup() == 2_200
    assert world.state.next_wakeup() == world.now + SMALL.grace_batch


def test_a_drain_is_due_at_the_end_of_the_protection() -> None:
    """Though nobody waits."""
    world = cluster()
    world.submit("v", "a", min_runtime=5_000)
    world.feed(ev.NodeCordoned(world.now, CAUSE, NodeName("n")))
    assert world.state.next_wakeup() == 5_000
