"""What is refused, with a sentence that helps, and that a refusal changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpufair.core import events as ev
from gpufair.core.errors import (
    BudgetError,
    GpufairError,
    InvalidSpec,
    MinRuntimeTooLong,
    NeverFits,
    UnknownAllocation,
    UnknownNode,
    UnknownWorkload,
    WrongPhase,
)
from gpufair.core.model import Allocation, Kind, Node, Outcome, Policy, Shape, WorkloadSpec
from gpufair.core.snapshot import snapshot
from gpufair.core.state import State
from gpufair.core.units import HOUR, AllocationPath, Instant, Millis, NodeName, PoolName, WorkloadId
from tests.world import CAUSE, World

NOW = Instant(0)
SPEC = WorkloadSpec(AllocationPath("a"), "u", Kind.BATCH, Shape(1), Millis(1_000))
TREE = (Allocation(AllocationPath("a")), Allocation(AllocationPath("b/x")), Allocation(AllocationPath("z"), "0"))


@pytest.fixture
def world() -> World:
    world = World().set_up(TREE, [Node(NodeName("n1"), 4, "t"), Node(NodeName("n2"), 2, "s")])
    world.submit("v", "a")
    world.submit("s", "a", kind=Kind.SESSION)
    world.submit("gone", "b/x")
    world.exit("gone")
    return world


def submitted(**changes: object) -> ev.Event:
    return ev.Submitted(NOW, CAUSE, WorkloadId("new"), replace(SPEC, **changes))  # type: ignore[arg-type]


REFUSED: list[tuple[ev.Event, type[GpufairError], str]] = [
    (ev.Submitted(NOW, CAUSE, WorkloadId("v"), SPEC), InvalidSpec, "is taken"),
    (ev.Submitted(NOW, CAUSE, WorkloadId(""), SPEC), InvalidSpec, "needs an id"),
    (submitted(allocation="nowhere"), UnknownAllocation, "choose one of: a, b/x, z"),
    (submitted(allocation="b"), UnknownAllocation, "not a leaf"),
    (submitted(allocation="z"), InvalidSpec, "only unallocated"),
    (submitted(min_runtime=Millis(HOUR)), MinRuntimeTooLong, "max_min_runtime is 20 s"),
    (submitted(min_runtime=Millis(-1)), InvalidSpec, "negative"),
    (submitted(grace=Millis(-1)), InvalidSpec, "negative"),
    (submitted(shape=Shape(-1)), InvalidSpec, "not a shape"),
    (submitted(shape=Shape(1, 0)), InvalidSpec, "not a shape"),
    (submitted(pools=()), InvalidSpec, "at least one pool"),
    (submitted(pools=("default", "default")), InvalidSpec, "none twice"),
    (submitted(shape=Shape(5)), NeverFits, "the largest that fits is 4 GPUs"),
    (submitted(shape=Shape(4, 2)), NeverFits, "2 nodes × 2 GPUs"),
    (submitted(shape=Shape(1, 3)), NeverFits, "3 nodes × 1 GPU was asked"),
    (submitted(shape=Shape(3, 1, "s")), NeverFits, "2 GPUs"),
    (submitted(shape=Shape(1, 1, "h")), NeverFits, "no h is here"),
    (ev.Cancelled(NOW, CAUSE, WorkloadId("nobody")), UnknownWorkload, "no workload 'nobody'"),
    (ev.Cancelled(NOW, CAUSE, WorkloadId("gone")), WrongPhase, "nothing left"),
    (ev.ParkRequested(NOW, CAUSE, WorkloadId("v")), WrongPhase, "only sessions are parked"),
    (ev.ParkRequested(NOW, CAUSE, WorkloadId("nobody")), UnknownWorkload, "nobody"),
    (ev.ResumeRequested(NOW, CAUSE, WorkloadId("gone")), WrongPhase, "submit it again"),
    (ev.Exited(NOW, CAUSE, WorkloadId("nobody"), 1, Outcome.FAILED), UnknownWorkload, "nobody"),
    (ev.NodeLost(NOW, CAUSE, NodeName("n9")), UnknownNode, "known nodes: n1, n2"),
    (ev.NodeCordoned(NOW, CAUSE, NodeName("n9")), UnknownNode, "n9"),
    (ev.NodeJoined(NOW, CAUSE, Node(NodeName("n2"), 1, "s")), InvalidSpec, "2 GPUs are held"),
    (ev.NodeJoined(NOW, CAUSE, Node(NodeName("n2"), 4, "h")), InvalidSpec, "cannot change"),
    (ev.NodeJoined(NOW, CAUSE, Node(NodeName("n3"), -1)), InvalidSpec, "0 or more"),
    (ev.BudgetsApplied(NOW, CAUSE, (Allocation(AllocationPath("b/x")),)), BudgetError, "'a' is missing"),
    (ev.BudgetsApplied(NOW, CAUSE, (Allocation(AllocationPath("a/x")),)), BudgetError, "has sub-allocations"),
    (ev.PolicyChanged(NOW, CAUSE, Policy(banking=1.5)), InvalidSpec, "banking"),
    (ev.PolicyChanged(NOW, CAUSE, Policy(hysteresis=1.0)), InvalidSpec, "hysteresis"),
    (ev.PolicyChanged(NOW, CAUSE, Policy(window=Millis(0))), InvalidSpec, "window"),
    (ev.PolicyChanged(NOW, CAUSE, Policy(grace_batch=Millis(-1))), InvalidSpec, "grace_batch"),
]


@pytest.mark.parametrize(("event", "error", "said"), REFUSED)
def test_it_is_refused_and_the_state_stands(
    world: World, event: ev.Event, error: type[GpufairError], said: str
) -> None:
    """A half-applied event would be worse than the request."""
    before = snapshot(world.state)
    with pytest.raises(error) as caught:
        world.feed(event)
    assert said in str(caught.value)
    assert snapshot(world.state) == before


def test_a_bad_policy_is_refused_from_the_start() -> None:
    """Not at the first event."""
    with pytest.raises(InvalidSpec, match="banking"):
        State(Policy(banking=-0.5))


def test_nodes_that_are_away_count_as_possible() -> None:
    """A drained cluster still takes submissions."""
    world = World().set_up(TREE, [Node(NodeName("n1"), 4), Node(NodeName("n2"), 4)])
    world.feed(ev.NodeLost(world.now, CAUSE, NodeName("n1")))
    world.feed(ev.NodeCordoned(world.now, CAUSE, NodeName("n2")))
    assert world.submit("gang", "a", gpus=4, nodes=2) == []


def test_a_pool_without_nodes_refuses_nothing() -> None:
    """Nodes may join after the first submission, and must not find an empty queue."""
    world = World().set_up(TREE, [])
    world.submit("v", "a", gpus=64, nodes=9)
    world.submit("other", "a", gpus=64, pools=(PoolName("later"),))
    assert world.state.queue() == ("v", "other")


REPORTS: list[ev.Event] = [
    ev.Started(NOW, CAUSE, WorkloadId("v"), 7),
    ev.Released(NOW, CAUSE, WorkloadId("v"), 0),
    ev.Exited(NOW, CAUSE, WorkloadId("v"), 2, Outcome.FAILED),
    ev.StartFailed(NOW, CAUSE, WorkloadId("v"), 2, "late"),
    ev.CheckpointFailed(NOW, CAUSE, WorkloadId("v"), 2, "late"),
    ev.ActivityReported(NOW, CAUSE, WorkloadId("v"), 2, busy=True),
    ev.Exited(NOW, CAUSE, WorkloadId("gone"), 1, Outcome.FAILED),
    ev.Released(NOW, CAUSE, WorkloadId("gone"), 1),
]


@pytest.mark.parametrize("event", REPORTS)
def test_a_report_about_another_start_means_nothing(world: World, event: ev.Event) -> None:
    """Messages of a node that was thought lost arrive at any time."""
    before = snapshot(world.state)
    assert world.feed(event) == []
    assert snapshot(world.state) == before
