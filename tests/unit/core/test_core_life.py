"""The stories of single workloads, as lists of actions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.errors import UnknownWorkload
from gpufair.core.model import Allocation, CheckpointRef, Kind, Node, Outcome, Phase, PreemptReason
from gpufair.core.units import AllocationPath, Instant, Millis, NodeName, WorkloadId
from tests.world import CAUSE, PROMPT, Delays, World

A, B = Allocation(AllocationPath("a")), Allocation(AllocationPath("b"))
V, P = WorkloadId("v"), WorkloadId("p")


def cluster(nodes: int = 1, gpus: int = 1, delays: Delays = PROMPT) -> World:
    return World(delays=delays).set_up([A, B], [Node(NodeName(f"n{index}"), gpus) for index in range(nodes)])


def kinds(actions: list[act.Action]) -> list[tuple[str, str]]:
    return [(type(action).__name__, action.workload) for action in actions]


def preempted(kind: Kind = Kind.SESSION, *, busy: bool = False, delays: Delays = PROMPT) -> World:
    """v of a holds the only GPU, and has just been told to leave for p of b."""
    world = cluster(delays=delays)
    world.submit("v", "a", kind=kind, min_runtime=5_000)
    world.advance(1_000)
    if busy:
        world.feed(ev.ActivityReported(world.now, CAUSE, V, 1, busy=True))
    world.submit("p", "b", min_runtime=1_000)
    world.advance(4_000)
    assert world.phase("v") is Phase.CHECKPOINTING
    return world


def test_a_preemption_runs_through_all_its_steps() -> None:
    """Notice, checkpoint, release, and only then the start of the beneficiary."""
    world = preempted()
    at_notice = world.journal[-1]
    assert kinds(list(at_notice.actions)) == [("Reserve", "p"), ("BeginCheckpoint", "v")]
    notice = at_notice.actions[1]
    assert isinstance(notice, act.BeginCheckpoint)
    assert (notice.deadline, notice.reason, notice.beneficiary) == (5_000 + 3_000, PreemptReason.RANK, "p")
    assert world.phase("p") is Phase.QUEUED
    world.advance(399)
    assert world.where("v") == ("n0",)
    world.advance(1)
    assert kinds(list(world.journal[-1].actions)) == [("Park", "v"), ("Start", "p")]
    assert world.state.workload(V).beneficiary == "p"
    assert world.state.workload(V).checkpoint is not None


def test_the_freed_gpus_are_for_the_beneficiary_only() -> None:
    """A newcomer of equal right must not land on them in between."""
    world = cluster(gpus=2)
    world.submit("v1", "a", min_runtime=5_000, grace=1_000)
    world.submit("v2", "a", min_runtime=5_000, grace=3_000)
    world.delays = Delays(release=-1)
    world.advance(2_000)
    world.submit("p", "b", gpus=2, min_runtime=1_000)
    world.advance(3_000)
    world.feed(ev.Released(world.now, CAUSE, WorkloadId("v1"), 1))
    world.submit("thief", "b", min_runtime=1_000, priority=9)
    assert world.phase("thief") is Phase.QUEUED
    assert world.state.nodes()[0].free == 0
    world.advance(1_000)
    assert world.state.conservation().held == 1_000
    assert kinds(world.feed(ev.Released(world.now, CAUSE, WorkloadId("v2"), 1)))[-1] == ("Start", "p")


def test_an_idle_session_rests_and_comes_back_when_touched() -> None:
    """It must not push others aside while its owner is away."""
    world = preempted()
    world.advance(1_000)
    assert world.phase("v") is Phase.PARKED
    world.advance(120_000)
    assert world.phase("v") is Phase.PARKED
    assert kinds(world.feed(ev.ResumeRequested(world.now, CAUSE, V)))[0] == ("Requeue", "v")
    world.exit("p")
    start = world.journal[-1].actions[-1]
    assert isinstance(start, act.Start)
    assert start.checkpoint == "v-1"
    assert world.phase("v") is Phase.RESTORING
    world.advance(400)
    assert world.phase("v") is Phase.RUNNING


def test_a_busy_session_is_queued_again_at_once() -> None:
    """Its owner waits for a cell."""
    world = preempted(busy=True)
    world.advance(400)
    assert ("Requeue", "v") in kinds(list(world.journal[-1].actions))


def test_a_session_whose_cell_was_interrupted_is_queued_again() -> None:
    """It became busy after the notice: the supervisor knows better."""
    world = preempted(delays=Delays(release=-1))
    assert kinds(world.feed(ev.Released(world.now, CAUSE, V, 1, busy=True)))[0] == ("Requeue", "v")


def test_touching_a_session_that_is_leaving_queues_it_again() -> None:
    """The click came while it was being saved."""
    world = preempted()
    assert world.feed(ev.ResumeRequested(world.now, CAUSE, V)) == []
    world.advance(400)
    assert world.phase("v") is Phase.QUEUED


def test_a_session_can_begin_anew_instead_of_being_restored() -> None:
    """And the old checkpoint must not come back by itself after the next preemption."""
    world = preempted()
    world.advance(1_000)
    world.feed(ev.ResumeRequested(world.now, CAUSE, V, from_checkpoint=False))
    world.exit("p")
    assert world.phase("v") is Phase.STARTING
    world.advance(400)
    world.feed(ev.Released(world.now, CAUSE, V, 2, busy=True))
    assert world.phase("v") is Phase.STARTING
    world.feed(ev.CheckpointDone(world.now, CAUSE, V, 3, CheckpointRef("new", 9, world.now, 1, Millis(1))))
    world.feed(ev.Released(world.now, CAUSE, V, 3, busy=True))
    assert world.phase("v") is Phase.RESTORING


def test_a_batch_workload_is_queued_with_its_first_submission_time() -> None:
    """It does not go to the back for having been preempted."""
    world = preempted(Kind.BATCH)
    world.submit("later", "a")
    world.advance(400)
    assert world.state.queue() == ("v", "later")
    assert world.state.workload(V).submitted_at == 0


def test_what_overstays_its_grace_is_stopped_and_still_holds() -> None:
    """GPUs are free when they are really free, not when they should be."""
    world = preempted(delays=Delays(release=-700))
    world.advance(3_000)
    assert kinds(list(world.journal[-1].actions)) == [("Stop", "v")]
    assert world.phase("v") is Phase.STOPPING
    assert world.where("v") == ("n0",)
    world.advance(700)
    assert world.phase("v") is Phase.PARKED
    assert world.where("p") == ("n0",)


def test_a_victim_that_never_goes_does_not_block_its_beneficiary() -> None:
    """After its second grace the beneficiary may look elsewhere."""
    world = cluster(nodes=2, delays=Delays(release=-1_000_000))
    world.submit("v", "a", min_runtime=5_000)
    world.advance(1)
    world.submit("w", "a", min_runtime=20_000)
    world.submit("p", "b", min_runtime=1_000)
    world.advance(5_000)
    assert world.phase("v") is Phase.CHECKPOINTING
    world.advance(2_500)
    assert world.phase("v") is Phase.STOPPING
    assert ("Unreserve", "p") in [(type(one).__name__, one.workload) for _, one in world.actions()]
    world.advance(20_000)
    assert world.phase("w") is not Phase.RUNNING


def test_a_failed_checkpoint_frees_nothing_and_keeps_the_last_good_one() -> None:
    """The grace is there to try again."""
    world = preempted(delays=Delays(save=9_000, release=-1))
    good = CheckpointRef("good", 1, world.now, 10, Millis(5))
    world.feed(ev.CheckpointDone(world.now, CAUSE, V, 1, good))
    assert world.feed(ev.CheckpointFailed(world.now, CAUSE, V, 1, "disk full")) == []
    assert world.state.workload(V).checkpoint == good
    assert "disk full" in world.state.workload(V).reason
    assert world.where("v") == ("n0",)


def test_an_older_checkpoint_never_replaces_a_newer_one() -> None:
    """Messages can overtake each other."""
    world = cluster()
    world.submit("v", "a", kind=Kind.SESSION)
    for sequence in (1, 3, 2):
        world.feed(
            ev.CheckpointDone(world.now, CAUSE, V, 1, CheckpointRef(f"c{sequence}", sequence, world.now, 1, Millis(1)))
        )
    checkpoint = world.state.workload(V).checkpoint
    assert checkpoint is not None
    assert checkpoint.id == "c3"


def test_a_workload_that_cannot_start_is_given_up_after_three_more_tries() -> None:
    """A missing image must not occupy a GPU for ever."""
    world = cluster(delays=Delays(start=10_000))
    world.submit("v", "a")
    for attempt in range(1, 4):
        actions = world.feed(ev.StartFailed(world.now, CAUSE, V, attempt, "no image"))
        assert kinds(actions) == [("Requeue", "v"), ("Start", "v")]
    assert kinds(world.feed(ev.StartFailed(world.now, CAUSE, V, 4, "no image"))) == [("End", "v")]
    ended = world.state.workload(V)
    assert ended.outcome is Outcome.FAILED
    assert "4 times in a row: no image" in ended.reason


def test_a_start_that_works_clears_the_count() -> None:
    """In a row means in a row."""
    world = cluster()
    world.submit("v", "a")
    world.feed(ev.StartFailed(world.now, CAUSE, V, 1, "x"))
    world.feed(ev.Started(world.now, CAUSE, V, 2))
    world.feed(ev.Released(world.now, CAUSE, V, 2))
    for attempt in (3, 4, 5):
        assert kinds(world.feed(ev.StartFailed(world.now, CAUSE, V, attempt, "x")))[0] == ("Requeue", "v")


def test_devices_and_losses_are_what_the_node_says() -> None:
    """Which device it was matters to people, not to a decision."""
    world = cluster(delays=Delays(start=10_000))
    world.submit("v", "a")
    devices, lost = ((NodeName("n0"), "GPU-1"),), (("model", "holds a socket"),)
    assert world.feed(ev.Started(world.now, CAUSE, V, 1, devices, lost)) == []
    workload = world.state.workload(V)
    assert (workload.phase, workload.devices, workload.lost) == (Phase.RUNNING, devices, lost)


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING, Phase.CHECKPOINTING, Phase.STOPPING])
def test_cancelling_what_holds_gpus_stops_it_and_ends_it_at_its_release(phase: Phase) -> None:
    """In every phase that holds GPUs, once."""
    if phase in {Phase.CHECKPOINTING, Phase.STOPPING}:
        world = preempted(delays=Delays(release=-9_000))
        world.advance(3_000 if phase is Phase.STOPPING else 0)
    else:
        world = cluster(delays=Delays(start=0 if phase is Phase.RUNNING else 10_000, release=-9_000))
        world.submit("v", "a")
        world.advance(1)
    assert world.phase("v") is phase
    expected = [] if phase is Phase.STOPPING else [("Stop", "v")]
    assert kinds(world.feed(ev.Cancelled(world.now, CAUSE, V))) == expected
    assert world.where("v") == ("n0",)
    assert kinds(world.feed(ev.Released(world.now, CAUSE, V, 1)))[0] == ("End", "v")
    assert world.state.workload(V).outcome is Outcome.CANCELLED


def test_cancelling_what_waits_or_rests_ends_it_at_once() -> None:
    """There is nothing to wait for."""
    world = preempted()
    assert ("End", "p") in kinds(world.feed(ev.Cancelled(world.now, CAUSE, P)))
    world.advance(1_000)
    assert world.phase("v") is Phase.PARKED
    assert kinds(world.feed(ev.Cancelled(world.now, CAUSE, V))) == [("End", "v")]
    world.state.validate()


def test_parking_at_the_owners_wish_takes_a_checkpoint_first() -> None:
    """Even inside its protection: it is the owner's."""
    world = cluster()
    world.submit("v", "a", kind=Kind.SESSION)
    world.advance(1_000)
    (notice,) = world.feed(ev.ParkRequested(world.now, CAUSE, V, PreemptReason.SHUTDOWN))
    assert isinstance(notice, act.BeginCheckpoint)
    assert (notice.reason, notice.beneficiary) == (PreemptReason.SHUTDOWN, None)
    world.advance(400)
    assert world.phase("v") is Phase.PARKED
    assert world.state.workload(V).preemptions == 0
    assert world.state.protected_preemptions == 0


def test_parking_what_is_not_up_yet_keeps_the_last_checkpoint() -> None:
    """There is nothing new to save."""
    world = cluster(delays=Delays(start=10_000))
    world.submit("v", "a", kind=Kind.SESSION)
    assert kinds(world.feed(ev.ParkRequested(world.now, CAUSE, V))) == [("Stop", "v")]
    world.advance(400)
    assert world.phase("v") is Phase.PARKED


def test_parking_what_waits_takes_it_out_of_the_queue() -> None:
    """And parking it twice is the same as once."""
    world = cluster()
    world.submit("v", "a")
    world.submit("s", "a", kind=Kind.SESSION)
    session = WorkloadId("s")
    assert kinds(world.feed(ev.ParkRequested(world.now, CAUSE, session))) == [("Park", "s")]
    assert world.state.queue() == ()
    assert world.feed(ev.ParkRequested(world.now, CAUSE, session)) == []
    assert kinds(world.feed(ev.ResumeRequested(world.now, CAUSE, session))) == [("Requeue", "s")]
    assert world.feed(ev.ResumeRequested(world.now, CAUSE, session)) == []
    assert world.state.queue() == ("s",)


def test_a_session_that_its_node_let_go_is_parked_or_queued_as_it_was() -> None:
    """`kubectl drain` is a preemption like any other."""
    for busy, phase in ((False, Phase.PARKED), (True, Phase.STARTING)):
        world = cluster()
        world.submit("v", "a", kind=Kind.SESSION)
        world.advance(500)
        world.feed(ev.ActivityReported(world.now, CAUSE, V, 1, busy))
        world.feed(ev.Released(world.now, CAUSE, V, 1))
        assert world.phase("v") is phase


def test_a_policy_edit_never_shortens_a_granted_protection() -> None:
    """What was promised stands."""
    world = cluster()
    world.submit("v", "a", min_runtime=15_000)
    policy = type(world.policy)(max_min_runtime=Millis(1_000), window=world.policy.window, grid=world.policy.grid)
    world.feed(ev.PolicyChanged(world.now, CAUSE, policy))
    world.submit("p", "b", min_runtime=1_000)
    world.advance(14_999)
    assert world.phase("v") is Phase.RUNNING
    world.advance(1)
    assert world.phase("v") is Phase.CHECKPOINTING


def test_time_that_steps_back_counts_as_no_time() -> None:
    """Clocks are set; ledgers are not."""
    world = cluster()
    world.submit("v", "a")
    world.advance(5_000)
    world.feed(ev.TimePassed(Instant(1_000), CAUSE))
    assert world.now == 5_000
    assert world.state.conservation().error == 0


def test_ended_workloads_can_be_forgotten() -> None:
    """Those that ended before; the others stay."""
    world = cluster()
    for name in ("one", "two"):
        world.submit(name, "a")
        world.advance(1_000)
        world.exit(name)
    world.state.forget(Instant(2_000))
    assert [workload.id for workload in world.state.workloads()] == ["two"]


def test_what_a_decision_will_name_is_not_forgotten() -> None:
    """Whom somebody makes room for may be cancelled before the room is there; the sentence names him all the same."""
    world = preempted()
    world.feed(ev.Cancelled(world.now, CAUSE, P))
    before = Instant(world.now + 1)
    assert world.state.forgettable(before) == []
    world.state.forget(before)
    world.advance(400)
    parked = world.journal[-1].actions[0]
    assert isinstance(parked, act.Park)
    assert world.state.facts.label(P) in parked.why
    world.feed(ev.Cancelled(world.now, CAUSE, V))
    assert world.state.forgettable(before) == [P]


def test_a_forgotten_workload_can_be_recalled_to_be_asked_about() -> None:
    """As it was, also after its charge is counted in a finer unit."""
    world = cluster()
    world.submit("one", "a")
    world.advance(1_000)
    world.exit("one")
    was = world.state.workload(WorkloadId("one"))
    (record,), unit = world.state.drop([WorkloadId("one"), WorkloadId("none")]), world.state.facts.weights.unit
    with pytest.raises(UnknownWorkload):
        world.state.workload(WorkloadId("one"))
    world.feed(ev.PolicyChanged(world.now, CAUSE, replace(world.policy, gpu_weights={"h200": 0.5})))
    assert world.state.facts.weights.unit > unit
    world.state.recall(record, unit)
    assert world.state.workload(WorkloadId("one")) == was
    world.submit("two", "a")
    assert world.state.drop([WorkloadId("two")]) == []
    world.state.validate()
