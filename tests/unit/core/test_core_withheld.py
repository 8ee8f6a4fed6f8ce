"""A workload that must not start yet: nobody sees it in the queue, and it takes no place there before its time."""

from __future__ import annotations

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.model import Allocation, Node, Outcome, Phase
from gpufair.core.snapshot import recover, restore, snapshot
from gpufair.core.units import AllocationPath, NodeName, WorkloadId
from tests.world import CAUSE, Delays, World

W = WorkloadId("w")


def withheld() -> World:
    world = World(delays=Delays(0, 0, 0)).set_up([Allocation(AllocationPath("a"))], [Node(NodeName("n"), 1)])
    assert world.submit("w", "a", withheld=True) == []
    return world


def test_it_rests_whatever_is_free_and_owes_nobody_anything() -> None:
    world = withheld()
    world.advance(20_000)
    assert world.phase("w") is Phase.PARKED
    assert world.state.queue() == ()
    assert world.state.workload(W).starts == 0


def test_its_place_is_that_of_its_release() -> None:
    """Or work that is held back would buy an early place."""
    world = withheld()
    world.submit("runs", "a", min_runtime=10_000)
    world.advance(1_000)
    world.submit("next", "a", min_runtime=5_000)
    world.advance(1_000)
    world.feed(ev.ResumeRequested(world.now, CAUSE, W))
    assert world.state.queue() == ("next", "w")
    assert world.state.workload(W).submitted_at == world.now
    assert world.state.workload(W).reason == "waiting for its turn"


def test_it_is_cancelled_with_the_reason_that_is_given() -> None:
    world = withheld()
    (end,) = world.feed(ev.Cancelled(world.now, CAUSE, W, "because of something else"))
    assert end == act.End(CAUSE, W, Outcome.CANCELLED, "because of something else")


def test_a_recovered_state_and_a_snapshot_still_withhold_it() -> None:
    world = withheld()
    restored = restore(snapshot(world.state), validate=True)
    replayed = recover([(entry.event, entry.actions) for entry in world.journal], policy=world.policy)
    for state in (restored, replayed):
        assert snapshot(state) == snapshot(world.state)
        assert state.workload(W).phase is Phase.PARKED
        state.handle(ev.ResumeRequested(world.now, CAUSE, W))
        assert state.workload(W).phase is Phase.STARTING


def test_one_that_failed_may_rest_before_it_is_started_again() -> None:
    world = withheld()
    world.feed(ev.ResumeRequested(world.now, CAUSE, W))
    world.advance(1_000)
    (park,) = world.feed(ev.Exited(world.now, CAUSE, W, 1, Outcome.FAILED, "exit code 3", withheld=True))
    assert park == act.Park(CAUSE, W, "exit code 3")
    assert (world.phase("w"), world.state.workload(W).held) == (Phase.PARKED, None)
    world.advance(10_000)
    assert world.state.workload(W).charged == 1_000, "while it rests it costs nothing"
    world.feed(ev.ResumeRequested(world.now, CAUSE, W))
    world.advance(0)
    assert (world.phase("w"), world.state.workload(W).starts) == (Phase.RUNNING, 2)
