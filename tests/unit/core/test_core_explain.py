"""What people are told, in the situations in which they ask."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpufair.core import events as ev
from gpufair.core import words
from gpufair.core.brief import brief
from gpufair.core.errors import UnknownAllocation
from gpufair.core.estimate import estimate
from gpufair.core.explain import Threat
from gpufair.core.explain.resting import first
from gpufair.core.model import Allocation, Kind, Node, PreemptReason, Shape
from gpufair.core.units import AllocationPath, GpuMillis, Instant, Millis, NodeName, WorkloadId
from tests.world import CAUSE, PROMPT, SMALL, Delays, World

HALVES = [Allocation(AllocationPath(path), "50") for path in ("a", "b")]
V, P = WorkloadId("v"), WorkloadId("p")


def cluster(*gpus: int, delays: Delays = PROMPT) -> World:
    return World(delays=delays).set_up(HALVES, [Node(NodeName(f"n{i}"), count) for i, count in enumerate(gpus)])


def waiting() -> World:
    world = cluster(1)
    world.submit("v", "a", min_runtime=5_000, user="ria", kind=Kind.SESSION)
    world.advance(1_000)
    world.submit("p", "b", min_runtime=2_000)
    return world


def test_who_waits_learns_who_holds_what_until_when_and_what_decided() -> None:
    """The first question of everybody."""
    told = waiting().state.explain(P)
    assert told.position == 1
    assert "ria's session v (a) holds 1 on n0 protected until 1970-01-01 00:00:05Z" in told.sentence
    assert "b (m 4 with this start) is under-served against a (m 10)" in told.sentence
    assert told.level == ("b", "a")
    assert told.mine is not None
    assert told.theirs is not None
    assert (told.mine.occupancy, told.mine.commitment) == (0, 2_000)
    assert (told.theirs.occupancy, told.theirs.commitment) == (1_000, 4_000)
    assert told.mine.budget == 30_000
    (holder,) = told.holders
    assert (holder.workload, holder.user, holder.gpus, holder.preemptible_now) == ("v", "ria", 1, False)


def said_in_a_line(world: World, workload: WorkloadId) -> str:
    facts = world.state.facts
    record = facts.record(workload)
    return brief(facts, record, estimate(facts, record, 0))


def test_a_line_says_how_much_is_free_and_until_when_it_is_held() -> None:
    """What a status bar and a list have room for."""
    assert said_in_a_line(waiting(), P) == (
        "waiting for 1 GPU: 0 of 1 GPU is free, the first protection ends at 1970-01-01 00:00:05Z"
    )


def test_a_line_says_why_there_is_no_estimate() -> None:
    """In one's own allocation nobody is preempted: one must not look for a time that cannot be known."""
    world = cluster(1)
    world.submit("v", "a", min_runtime=5_000, kind=Kind.SESSION)
    world.submit("p", "a", min_runtime=2_000)
    assert said_in_a_line(world, P).endswith(
        "; no estimate: it starts when enough of those who hold the GPUs end by themselves"
    )


@pytest.mark.parametrize(("closed", "said"), [(1, "of 2 nodes 1 could"), (2, "of 2 nodes none could")])
def test_who_waits_for_closed_nodes_is_told_so(closed: int, said: str) -> None:
    """Nobody holds anything there: who looks for holders looks in vain."""
    world = cluster(1, 1)
    for name in ("n0", "n1")[:closed]:
        world.feed(ev.NodeCordoned(world.now, CAUSE, NodeName(name)))
    world.submit("p", "a", gpus=1, nodes=2, min_runtime=2_000)
    told = world.state.explain(P)
    verb = "is" if closed == 1 else "are"
    assert f"It waits for 2 nodes × 1 GPU: {said} take a part of it now; {closed} {verb} cordoned or lost." in told.sentence
    assert told.estimate_basis == "no estimate: it starts when enough of the nodes that are closed now (cordoned or lost) take work again"
    assert "closed now" in said_in_a_line(world, P)


def test_the_name_of_a_node_stays_as_it_is() -> None:
    """A sentence may begin with one: N1 is another machine than n1."""
    assert first("n1 was lost", {"n1"}) == "n1 was lost."
    assert first("n1, which was lost", {"n1"}) == "n1, which was lost."
    assert first("its node was lost", {"n1"}) == "Its node was lost."


def test_the_estimate_is_the_end_of_the_protection_plus_the_grace_and_comes_true() -> None:
    """It is named an estimate, and does not bind."""
    world = waiting()
    told = world.state.explain(P)
    assert told.estimate == 5_000 + 3_000
    assert told.estimate_basis.startswith("an estimate: ")
    assert not told.binding
    world.advance(told.estimate - world.now)
    assert world.where("p") == ("n0",)


def test_the_estimate_sees_the_ranks_cross() -> None:
    """Not under-served yet: it says when that will be, on the grid."""
    world = cluster(1, delays=Delays(0, 0, 0))
    world.submit("v", "a", min_runtime=1_000)
    world.advance(2_000)
    world.submit("p", "b", min_runtime=9_000)
    told = world.state.explain(P)
    assert "is not under-served" in told.sentence
    # 9 s <= 0.98 × what a has had: after 9.19 s, so at the pass of 10 s; then a batch workload's grace.
    assert told.estimate == 10_000 + 1_000
    world.advance(8_000)
    assert world.where("p") == ("n0",)


def test_who_runs_learns_until_when_and_who_comes_next() -> None:
    """So that nobody is surprised."""
    told = waiting().state.explain(V)
    assert "protected until 1970-01-01 00:00:05Z" in told.sentence
    assert "p could preempt it from then on: b" in told.sentence
    assert told.level == ("a", "b")


def test_who_was_preempted_learns_for_whom_and_why() -> None:
    """And that touching it brings it back."""
    world = waiting()
    world.advance(4_000)
    leaving = world.state.explain(V).sentence
    assert "told to leave for u's batch run p" in leaving
    assert "must have left by 1970-01-01 00:00:08Z" in leaving
    assert "GPUs on n0 are kept for it" in world.state.explain(P).sentence
    world.advance(1_000)
    parked = world.state.explain(V).sentence
    assert "Preempted for u's batch run p while idle: parked" in parked
    because = "b (m 0.8 with u's batch run p) is under-served against a (m 2)"
    assert f"Its GPUs went to u's batch run p: {because}, and the protection of ria's session v has ended." in parked
    lost = world.state.explain(V).preempted
    assert lost is not None
    assert (lost.by, lost.right) == (P, PreemptReason.RANK)
    world.feed(ev.ResumeRequested(world.now, CAUSE, V))
    again = world.state.explain(V)
    assert again.preempted == lost
    assert again.sentence.startswith(f"Its owner wants it back. It was preempted because {because}, and")
    assert again.estimate is not None


def test_who_cannot_be_resumed_learns_what_he_would_lose() -> None:
    """Whoever sees it in time asks for more protection."""
    world = cluster(1)
    world.submit("v", "a", min_runtime=3_600, resumable=False)
    world.advance(1_000)
    assert "could preempt it. It cannot be saved: when it must leave" in world.state.explain(V).sentence
    world.submit("p", "b", min_runtime=2_000)
    told = world.state.explain(V)
    assert told.threat == Threat(P, PreemptReason.RANK, Instant(3_600), GpuMillis(3_600))
    assert told.sentence == (
        "It runs on n0 since 1970-01-01 00:00:00Z, protected until 1970-01-01 00:00:03.600Z. u's batch run p could "
        "preempt it from then on: b (m 4 with this start) is under-served against a (m 7.2). It cannot be "
        "resumed, so it would lose 0.001 GPU h of work. It was started because a (m 0) was next; 1 GPU was free on n0."
    )


def test_higher_priority_in_one_s_own_leaf_is_named_as_the_right() -> None:
    """It is no question of shares."""
    world = cluster(1)
    world.submit("v", "a", min_runtime=1_000)
    world.advance(2_000)
    world.submit("low", "a", min_runtime=500)
    told = world.state.explain(V)
    assert "Nobody who waits now could preempt it." in told.sentence
    assert told.threat is None
    world.submit("p", "a", min_runtime=20_000, priority=1, gpus=1)
    assert world.state.explain(V).phase == "checkpointing"


def test_an_allocation_is_explained_level_by_level() -> None:
    """The walk that orders the queue, with the parts of each metric."""
    world = World().set_up([Allocation(AllocationPath(p)) for p in ("a/x", "a/y", "b")], [Node(NodeName("n0"), 2)])
    world.submit("v", "a/x", min_runtime=5_000)
    world.advance(1_000)
    (told,) = world.state.explain_allocation(AllocationPath("a/y"))
    assert [(level.parent, level.path, level.place) for level in told.levels] == [("", "a", 2), ("a", "a/y", 1)]
    assert [one.path for one in told.levels[0].siblings] == ["b", "a"]
    assert told.levels[0].mine.occupancy == 1_000
    assert told.levels[0].mine.commitment == 4_000
    assert told.sentence == (
        "In default a is 2nd of 2 in all (m 5); a/y is 1st of 2 in a (m 0). a/y has had 0 GPU h in the window and "
        "was promised 0 GPU h more, of a budget of 0.00833 GPU h."
    )
    assert world.state.explain_allocation(AllocationPath(""))[0].sentence == "The root of the budgets owns all of default."
    with pytest.raises(UnknownAllocation):
        world.state.explain_allocation(AllocationPath("nowhere"))


def test_fewer_gpus_that_would_start_are_named_and_true() -> None:
    """The smallest change that helps."""
    world = cluster(2)
    world.submit("v", "a", gpus=1)
    world.submit("p", "a", gpus=2)
    change = world.state.explain(P).smallest_change
    assert change is not None
    assert change.shape == Shape(1)
    assert change.sentence == "1 GPU instead of 2 GPUs would start now"


def test_another_shape_with_as_many_gpus_comes_before_fewer() -> None:
    """Four on one node do what two on each of two do."""
    world = cluster(4, 2)
    world.submit("v", "a", gpus=1, gpu_type="")
    world.submit("p", "a", gpus=2, nodes=2)
    change = world.state.explain(P).smallest_change
    assert change is not None
    assert change.shape == Shape(4, 1)


def test_shorter_protection_that_outranks_is_named_and_true() -> None:
    """Long protection counts as had; a shorter one starts at once what the long one keeps waiting."""
    world = cluster(1)
    world.submit("v", "a", min_runtime=2_000)
    world.advance(4_000)
    world.submit("p", "b", min_runtime=20_000)
    change = world.state.explain(P).smallest_change
    assert change is not None
    assert (change.shape, change.min_runtime, change.right) == (Shape(1), 2_500, PreemptReason.RANK)
    assert change.sentence == (
        "2.5 s of protection instead of 20 s of protection would start by 1970-01-01 00:00:05Z: "
        "u's batch run v must leave for it at once (rank)"
    )


def test_a_debug_run_is_named_where_only_the_debug_right_helps() -> None:
    """Fifteen minutes may take the place of small unprotected work of any rank."""
    world = World(policy=replace(SMALL, debug_min_runtime=Millis(900))).set_up(HALVES, [Node(NodeName("n0"), 8)])
    world.submit("u", "b", gpus=6, min_runtime=20_000)
    world.submit("v", "a", gpus=2, min_runtime=1_000)
    world.advance(2_000)
    world.submit("p", "b", gpus=1, min_runtime=5_000)
    change = world.state.explain(P).smallest_change
    assert change is not None
    assert (change.shape, change.min_runtime, change.right) == (Shape(1), 900, PreemptReason.DEBUG)
    assert change.sentence == (
        "0.9 s of protection instead of 5 s of protection would start by 1970-01-01 00:00:03Z: "
        "u's batch run v must leave for it at once (debug)"
    )


def test_another_gpu_type_is_offered_first() -> None:
    """Most code runs on any."""
    world = World().set_up(HALVES, [Node(NodeName("n0"), 1, "t"), Node(NodeName("n1"), 1, "s")])
    world.submit("v", "a", gpu_type="t")
    world.submit("p", "b", gpu_type="t")
    change = world.state.explain(P).smallest_change
    assert change is not None
    assert change.shape == Shape(1)


def test_another_gpu_type_is_not_offered_where_it_is_taken_too() -> None:
    """A hint is tried before it is given."""
    world = World().set_up(HALVES, [Node(NodeName("n0"), 1, "t"), Node(NodeName("n1"), 1, "s")])
    world.submit("v", "a", gpu_type="t")
    world.submit("w", "a", gpu_type="s")
    world.submit("p", "b", gpu_type="t")
    assert world.state.explain(P).smallest_change is None


def test_nothing_is_promised_where_nothing_helps() -> None:
    """No idle GPU, no hint."""
    assert waiting().state.explain(P).smallest_change is None


def test_a_closed_cluster_is_named_as_the_reason() -> None:
    """It is not a question of ranks then."""
    world = cluster(1)
    world.feed(ev.NodeCordoned(world.now, CAUSE, NodeName("n0")))
    world.submit("p", "b")
    told = world.state.explain(P)
    assert "1 is cordoned or lost" in told.sentence
    assert told.estimate is None


def test_unallocated_work_is_told_that_it_waits_for_idle_gpus() -> None:
    """And that everybody else goes first."""
    world = cluster(1)
    world.submit("v", "a")
    world.submit("p", "b", min_runtime=0)
    told = world.state.explain(P)
    assert "starts only on GPUs that nobody else can use" in told.sentence
    assert told.estimate is None
    assert "unallocated work waits" in told.estimate_basis


def test_an_ended_workload_says_how() -> None:
    """In one sentence."""
    world = waiting()
    world.feed(ev.Cancelled(world.now, CAUSE, P))
    assert world.state.explain(P).sentence == "Cancelled before it held any GPUs."


def test_small_metrics_are_written_out() -> None:
    """A budget is that of a week; the first minutes of a session are far behind the point."""
    assert [words.metric(value) for value in (0.000_016_53, 0.0, 0.001_23, 1.5)] == ["m 0.00001653", "m 0", "m 0.00123", "m 1.5"]
