"""When the next pass is due, and that nothing is due when nothing can change."""

from __future__ import annotations

from gpufair.core import events as ev
from gpufair.core.model import Allocation, Node
from gpufair.core.units import AllocationPath, NodeName, WorkloadId
from tests.world import CAUSE, PROMPT, Delays, World


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


def test_a_drain_is_due_at_the_end_of_the_protection() -> None:
    """Though nobody waits."""
    world = cluster()
    world.submit("v", "a", min_runtime=5_000)
    world.feed(ev.NodeCordoned(world.now, CAUSE, NodeName("n")))
    assert world.state.next_wakeup() == 5_000
