"""What all contenders without a contract do alike: the life of a workload. Each story is a table of events and answers."""

from __future__ import annotations

import pytest

from gpufair.core import events as ev
from gpufair.core.errors import (
    BudgetError,
    InvalidSpec,
    MinRuntimeTooLong,
    NeverFits,
    NodeNotLost,
    UnknownAllocation,
    UnknownNode,
    UnknownWorkload,
    WrongPhase,
)
from gpufair.core.model import Allocation, CheckpointRef, Kind, Node, Outcome, Phase, PreemptReason
from gpufair.core.units import AllocationPath, Instant, Millis, NodeName, WorkloadId
from gpufair.sim.policies.registry import CONTENDERS, UnknownPolicy, contender
from tests.contest import CAUSE, Contest, contest, told
from tests.world import Delays

W = WorkloadId("w")
N0 = NodeName("n0")


@pytest.fixture(params=[name for name in CONTENDERS if name not in {"fair-share", "plain"}])
def world(request: pytest.FixtureRequest) -> Contest:
    """Each contender that is not the core, with two nodes of four GPUs."""
    return contest(request.param, (4, 4))


def at(world: Contest) -> Instant:
    return Instant(world.now)


def test_an_unknown_policy_is_named_with_those_that_there_are() -> None:
    with pytest.raises(UnknownPolicy, match="no policy 'lottery'; choose one of: fair-share, plain, "):
        contender("lottery")


def test_a_workload_starts_runs_and_ends(world: Contest) -> None:
    assert told(world.submit("w", gpus=2)) == [("Start", "w")]
    world.advance(1_000)
    assert world.phase("w") is Phase.RUNNING
    assert told(world.exit("w")) == [("End", "w")]


def test_nothing_is_protected(world: Contest) -> None:
    world.submit("w")
    held = world.players[W].held
    assert held is not None
    assert held.protected_until == held.granted_at
    assert world.feed(ev.ExtensionRequested(at(world), CAUSE, W, Millis(5_000))) == []
    assert world.decider.protected_preemptions == 0


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        ({"leaf": "c"}, UnknownAllocation),
        ({"gpus": 5}, NeverFits),
        ({"gpus": 4, "nodes": 3}, NeverFits),
        ({"gpus": -1}, InvalidSpec),
        ({"min_runtime": 20_001}, MinRuntimeTooLong),
        ({"gpu_type": "t"}, NeverFits),
    ],
)
def test_what_the_core_refuses_is_refused(world: Contest, wish: dict, error: type[Exception]) -> None:
    """All contenders play the same submissions."""
    core = contest("fair-share", (4, 4))
    with pytest.raises(error) as theirs:
        core.submit("w", **wish)
    with pytest.raises(error) as ours:
        world.submit("w", **wish)
    assert str(ours.value) == str(theirs.value)
    assert world.submit("w", "a")  # the id was not used up


def test_requests_that_make_no_sense_are_refused(world: Contest) -> None:
    world.submit("w")
    world.exit("w")
    world.submit("x")
    with pytest.raises(UnknownWorkload):
        world.feed(ev.Cancelled(at(world), CAUSE, WorkloadId("nobody")))
    with pytest.raises(WrongPhase):
        world.feed(ev.Cancelled(at(world), CAUSE, W))
    with pytest.raises(WrongPhase, match="only sessions"):
        world.feed(ev.ParkRequested(at(world), CAUSE, WorkloadId("x")))
    with pytest.raises(InvalidSpec, match="taken"):
        world.submit("x")
    with pytest.raises(UnknownNode):
        world.feed(ev.NodeLost(at(world), CAUSE, NodeName("n9")))
    with pytest.raises(NodeNotLost):
        world.feed(ev.NodeRemoved(at(world), CAUSE, N0))
    with pytest.raises(BudgetError, match="keep it as a leaf"):
        world.feed(ev.BudgetsApplied(at(world), CAUSE, (Allocation(AllocationPath("b")),)))
    with pytest.raises(InvalidSpec, match="came back with"):
        world.feed(ev.NodeJoined(at(world), CAUSE, Node(N0, 0)))


def test_reports_about_an_earlier_start_mean_nothing(world: Contest) -> None:
    world.submit("w")
    world.feed(ev.NodeLost(at(world), CAUSE, N0))
    assert world.players[W].incarnation == 2
    for late in (
        ev.Exited(at(world), CAUSE, W, 1, Outcome.COMPLETED),
        ev.Released(at(world), CAUSE, W, 1),
        ev.StartFailed(at(world), CAUSE, W, 1, "late"),
        ev.Started(at(world), CAUSE, W, 1),
        ev.CheckpointDone(at(world), CAUSE, W, 1, CheckpointRef("old", 1, at(world), 1, Millis(1))),
    ):
        assert world.decider.handle(late) == []
    assert world.where("w") == ("n1",)


def test_a_lost_node_takes_its_gangs_with_it_and_they_start_again(world: Contest) -> None:
    world.submit("w", gpus=3, nodes=2)
    assert told(world.feed(ev.NodeLost(at(world), CAUSE, N0))) == [("Stop", "w")]
    world.advance(1_000)
    assert world.phase("w") is Phase.QUEUED
    assert told(world.feed(ev.NodeJoined(at(world), CAUSE, Node(N0, 4)))) == [("Start", "w")]
    assert world.where("w") == ("n0", "n1")


def test_nothing_starts_on_a_closed_node_and_what_runs_goes_on(world: Contest) -> None:
    world.submit("w", gpus=4)
    assert world.where("w") == ("n0",)
    assert world.feed(ev.NodeCordoned(at(world), CAUSE, N0)) == []
    world.feed(ev.NodeDrained(at(world), CAUSE, NodeName("n1"), at(world)))
    assert world.submit("x") == []
    assert told(world.exit("w")) == [("End", "w")]
    assert told(world.feed(ev.NodeUncordoned(at(world), CAUSE, N0))) == [("Start", "x")]


def test_who_fails_to_start_is_tried_three_more_times(world: Contest) -> None:
    world.submit("w")
    for incarnation in (1, 2, 3):
        answer = world.feed(ev.StartFailed(at(world), CAUSE, W, incarnation, "no such image"))
        assert told(answer) == [("Requeue", "w"), ("Start", "w")]
    assert told(world.feed(ev.StartFailed(at(world), CAUSE, W, 4, "no such image"))) == [("End", "w")]


def test_a_cancelled_workload_is_stopped_and_ends(world: Contest) -> None:
    world.submit("w")
    assert told(world.feed(ev.Cancelled(at(world), CAUSE, W))) == [("Stop", "w")]
    world.advance(1_000)
    assert world.phase("w") is Phase.ENDED


def test_who_waits_can_be_cancelled_or_parked(world: Contest) -> None:
    world.submit("one", gpus=4, nodes=2)
    world.submit("w")
    world.submit("s", kind=Kind.SESSION)
    assert told(world.feed(ev.Cancelled(at(world), CAUSE, W))) == [("End", "w")]
    assert told(world.feed(ev.ParkRequested(at(world), CAUSE, WorkloadId("s")))) == [("Park", "s")]
    assert told(world.exit("one")) == [("End", "one")]
    again = world.feed(ev.ResumeRequested(at(world), CAUSE, WorkloadId("s")))
    assert told(again) == [("Requeue", "s"), ("Start", "s")]


def test_an_idle_session_gives_its_gpus_back_and_resumes_where_it_was(world: Contest) -> None:
    world.submit("w", kind=Kind.SESSION, idle_release=4_000)
    world.advance(1_000)
    world.feed(ev.ActivityReported(at(world), CAUSE, W, 1, busy=True))
    world.advance(10_000)
    assert world.phase("w") is Phase.RUNNING
    world.feed(ev.ActivityReported(at(world), CAUSE, W, 1, busy=False))
    world.advance(3_999)
    assert world.phase("w") is Phase.RUNNING
    world.advance(1)
    event, actions = world.log[-1]
    assert event == ev.TimePassed(at(world), CAUSE)
    assert [getattr(action, "reason", None) for action in actions] == [PreemptReason.IDLE]
    world.advance(1_000)
    assert world.phase("w") is Phase.PARKED
    world.feed(ev.ResumeRequested(at(world), CAUSE, W, slice=Millis(500)))
    assert world.phase("w") is Phase.RESTORING


def test_a_session_that_is_touched_while_it_is_saved_comes_back(world: Contest) -> None:
    world.submit("w", kind=Kind.SESSION)
    world.advance(1_000)
    world.feed(ev.ParkRequested(at(world), CAUSE, W))
    assert world.phase("w") is Phase.CHECKPOINTING
    world.feed(ev.ResumeRequested(at(world), CAUSE, W))
    world.advance(1_000)
    assert world.players[W].requeues == 1
    assert world.phase("w") is Phase.RUNNING


def test_who_overstays_its_grace_is_stopped_and_still_holds() -> None:
    world = contest("fifo", (4,), delays=Delays(release=-700))
    world.submit("w", kind=Kind.SESSION)
    world.advance(1_000)
    world.feed(ev.ParkRequested(at(world), CAUSE, W))
    world.advance(3_000)
    assert told(world.log[-1][1]) == [("Stop", "w")]
    assert world.where("w") == ("n0",)
    world.advance(700)
    assert world.phase("w") is Phase.PARKED


def test_ended_workloads_are_forgotten(world: Contest) -> None:
    world.submit("w")
    world.exit("w")
    world.decider.forget(at(world))
    with pytest.raises(WrongPhase):
        world.decider.handle(ev.Cancelled(at(world), CAUSE, W))
    world.decider.forget(Instant(world.now + 1))
    with pytest.raises(UnknownWorkload):
        world.decider.handle(ev.Cancelled(at(world), CAUSE, W))


def test_work_without_gpus_waits_for_nobody(world: Contest) -> None:
    world.submit("one", gpus=4, nodes=2)
    world.submit("w", gpus=2)
    assert told(world.submit("cpu", gpus=0, min_runtime=0)) == [("Start", "cpu")]
