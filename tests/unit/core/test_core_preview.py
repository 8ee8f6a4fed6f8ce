"""Who runs next, who is preempted when: what is foretold in the situations in which people ask."""

from __future__ import annotations

from gpufair.core import events as ev
from gpufair.core.model import Allocation, CheckpointRef, Kind, Node
from gpufair.core.preview import Assumed, StepKind
from gpufair.core.units import AllocationPath, Instant, Millis, NodeName, WorkloadId
from tests.world import CAUSE, World

HALVES = [Allocation(AllocationPath(path), "50") for path in ("a", "b")]
PROMPT = Assumed(start=Millis(300), save=Millis(200), release=Millis(400), stop=Millis(400))


def waiting(expected: int | None = None) -> World:
    world = World().set_up(HALVES, [Node(NodeName("n0"), 1)])
    world.submit("v", "a", min_runtime=5_000, user="ria", kind=Kind.SESSION)
    world.advance(1_000)
    world.submit("p", "b", min_runtime=2_000, expected=expected)
    return world


def test_the_next_swap_is_foretold_step_by_step() -> None:
    """The protection ends, notice is given for somebody by name, and he starts when the GPU is free."""
    told = waiting(expected=3_000).state.preview(Instant(30_000), PROMPT)
    assert [str(step) for step in told.steps] == [
        "1970-01-01 00:00:05Z u's p (b) kept on n0",
        "1970-01-01 00:00:05Z ria's v (a) told to leave on n0 for p",
        "1970-01-01 00:00:05.400Z ria's v (a) releases on n0",
        "1970-01-01 00:00:05.400Z ria's v (a) parked",
        "1970-01-01 00:00:05.400Z u's p (b) starts on n0",
        "1970-01-01 00:00:08.400Z u's p (b) releases on n0",
        "1970-01-01 00:00:08.400Z u's p (b) ends",
    ]
    assert told.steps[1].until == 8_000
    assert "is under-served against a" in told.steps[1].why
    assert told.first_start == {WorkloadId("p"): 5_400}
    assert (told.until, told.cut) == (30_000, "")


def test_whoever_is_not_known_to_end_runs_on() -> None:
    """Nothing is made up."""
    told = waiting().state.preview(Instant(30_000), PROMPT)
    assert told.steps[-1].what is StepKind.STARTS


def test_what_somebody_knows_better_counts_before_the_workload_s_own_words() -> None:
    """The service has seen how long such runs take."""
    assume = Assumed(Millis(300), Millis(200), Millis(400), expected={WorkloadId("p"): Millis(1_000)})
    told = waiting(expected=3_000).state.preview(Instant(30_000), assume)
    assert (told.steps[-1].at, told.steps[-1].what) == (6_400, StepKind.ENDS)


def test_a_save_is_assumed_to_take_as_long_as_the_last_one() -> None:
    """Half the grace where there is none yet."""
    world = waiting()
    assume = Assumed(stop=Millis(100))
    assert world.state.preview(Instant(30_000), assume).first_start == {WorkloadId("p"): 5_000 + 1_500 + 100}
    saved = CheckpointRef("c", 1, world.now, 1, Millis(700))
    world.feed(ev.CheckpointDone(world.now, CAUSE, WorkloadId("v"), 1, saved))
    assert world.state.preview(Instant(30_000), assume).first_start == {WorkloadId("p"): 5_000 + 700 + 100}


def test_who_is_leaving_already_is_expected_to_go_on_as_assumed() -> None:
    """A preview may begin in the middle of a preemption."""
    world = waiting()
    world.advance(4_100)
    told = world.state.preview(Instant(30_000), PROMPT)
    assert [(step.at, step.what) for step in told.steps[:1]] == [(5_400, StepKind.RELEASES)]
    assert told.first_start == {WorkloadId("p"): 5_400}


def test_a_cordoned_node_is_foretold_to_empty() -> None:
    """So that an operator knows when the machine is his."""
    world = waiting()
    world.feed(ev.NodeCordoned(world.now, CAUSE, NodeName("n0")))
    told = world.state.preview(Instant(30_000), PROMPT)
    assert [(step.at, step.what, step.workload) for step in told.steps] == [
        (5_000, StepKind.TOLD_TO_LEAVE, "v"),
        (5_400, StepKind.RELEASES, "v"),
        (5_400, StepKind.PARKED, "v"),
    ]
    assert told.steps[0].reason == "drain"


def test_nothing_to_happen_is_an_empty_preview() -> None:
    """Also without any node."""
    assert World().state.preview(Instant(10_000)).steps == ()
