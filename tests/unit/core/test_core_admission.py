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
    NodeNotLost,
    UnknownAllocation,
    UnknownNode,
    UnknownWorkload,
    WrongPhase,
)
from gpufair.core.model import Allocation, Capacity, Kind, Node, Outcome, Policy, Shape, WorkloadSpec
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
    (ev.NodeRemoved(NOW, CAUSE, NodeName("n9")), UnknownNode, "n9"),
    (ev.NodeRemoved(NOW, CAUSE, NodeName("n2")), NodeNotLost, "it is there; drain it, switch it off"),
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


SHARED = Node(NodeName("n1"), 1, "t", cpus=2, memory=1 << 30, capacity=Capacity(4, 16, 64 << 30))


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (Shape(3), "3 GPUs more on these nodes are held by others in the cluster, or not healthy"),
        (Shape(1, cpus_per_node=8), "others in the cluster hold 14 CPUs of these nodes"),
        (Shape(0, memory_per_node=32 << 30), "others in the cluster hold 63 GiB of these nodes"),
    ],
)
def test_what_others_hold_is_waited_for(shape: Shape, said: str) -> None:
    """They will go some day; whoever waits hears of them, and starts when they have gone."""
    world = World().set_up(TREE, [SHARED, Node(NodeName("n2"), 2, cpus=2, memory=1 << 30)])
    spec = replace(SPEC, shape=shape, min_runtime=Millis(1_000 if shape.gpus else 0))
    assert world.feed(ev.Submitted(world.now, CAUSE, WorkloadId("w"), spec)) == []
    sentence = world.state.explain(WorkloadId("w")).sentence
    assert said in sentence
    assert "belong to its own allocation" not in sentence
    world.feed(ev.NodeJoined(world.now, CAUSE, replace(SHARED, gpus=4, cpus=16, memory=64 << 30)))
    assert world.where("w") == ("n1",)


def test_what_would_not_fit_without_others_either_is_refused() -> None:
    """And the refusal says what there would be."""
    world = World().set_up(TREE, [SHARED])
    for shape, most in ((Shape(5), "4 GPUs"), (Shape(1, cpus_per_node=17), "16 CPUs"), (Shape(1, 2), "1 GPU")):
        with pytest.raises(NeverFits, match=f"the largest that fits is .*{most}"):
            world.feed(ev.Submitted(world.now, CAUSE, WorkloadId("w"), replace(SPEC, shape=shape)))


def test_a_node_that_others_closed_before_it_came_takes_nothing_meanwhile() -> None:
    """What waits for such a node waits on, and starts when it is opened."""
    world = World().set_up(TREE, [Node(NodeName("n1"), 1)])
    world.feed(ev.NodeJoined(world.now, CAUSE, Node(NodeName("n2"), 4, capacity=Capacity(8)), closed=True))
    assert world.submit("w", "a", gpus=4) == []
    world.feed(ev.NodeUncordoned(world.now, CAUSE, NodeName("n2")))
    assert world.where("w") == ("n2",)


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
