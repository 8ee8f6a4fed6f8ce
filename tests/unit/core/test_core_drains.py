"""Nodes that are emptied by a deadline, by force or as owners allow, and nodes that are lost and come back."""

from __future__ import annotations

import json

import pytest

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.errors import InvalidSpec, UnknownNode
from gpufair.core.model import Allocation, Drain, Kind, Node, Phase, PreemptReason
from gpufair.core.record import NodeView
from gpufair.core.snapshot import recover, restore, snapshot
from gpufair.core.units import AllocationPath, Instant, NodeName, WorkloadId
from tests.world import CAUSE, SMALL, Delays, World

N0 = NodeName("n0")
V = WorkloadId("v")


def cluster(*gpus: int) -> World:
    return World(delays=Delays(0, 0, 400)).set_up(
        [Allocation(AllocationPath("a")), Allocation(AllocationPath("b"))],
        [Node(NodeName(f"n{i}"), count) for i, count in enumerate(gpus)],
    )


def drain(world: World, after: int | None, force: bool = False) -> list[act.Action]:
    when = None if after is None else Instant(world.now + after)
    return world.feed(ev.NodeDrained(world.now, CAUSE, N0, when, force))


def seen(world: World) -> NodeView:
    return world.state.nodes()[0]


def notices(world: World) -> list[tuple[int, str, PreemptReason]]:
    found = [(entry.event.at, one) for entry, one in world.actions() if isinstance(one, act.BeginCheckpoint)]
    return [(at, one.workload, one.reason) for at, one in found]


# (deadline after 1 s of a protection of 10 s, forced, movable, room elsewhere) -> (when told, by which right)
STORIES: list[tuple[tuple[int | None, bool, bool, bool], tuple[int, PreemptReason]]] = [
    ((None, False, False, True), (10_000, PreemptReason.DRAIN)),
    ((3_000, False, False, True), (10_000, PreemptReason.DRAIN)),
    ((3_000, True, False, True), (4_000, PreemptReason.FORCED)),
    ((3_000, True, True, False), (4_000, PreemptReason.MOVED)),
    ((3_000, False, True, False), (4_000, PreemptReason.MOVED)),
    ((3_000, False, True, True), (1_000, PreemptReason.MOVED)),
    ((None, False, True, True), (1_000, PreemptReason.MOVED)),
    ((None, False, True, False), (10_000, PreemptReason.DRAIN)),
    ((15_000, True, False, True), (10_000, PreemptReason.DRAIN)),
    ((-500, True, False, True), (1_000, PreemptReason.FORCED)),
]


@pytest.mark.parametrize(("story", "expected"), STORIES)
def test_a_deadline_cuts_a_protection_only_by_force_or_as_the_owner_allows(
    story: tuple[int | None, bool, bool, bool], expected: tuple[int, PreemptReason]
) -> None:
    """And the node says beforehand when it will be empty."""
    after, force, movable, elsewhere = story
    world = cluster(1, 1 if elsewhere else 0)
    world.submit("v", "a", min_runtime=10_000, movable=movable, demands={"exclude": () if elsewhere else ("n1",)})
    if world.where("v") != ("n0",):
        raise AssertionError
    world.advance(1_000)
    drain(world, after, force)
    when, reason = expected
    if not notices(world):
        assert seen(world).protected == (("v", 10_000),)
        assert seen(world).empty_by == when + SMALL.grace_batch
        told = world.state.explain(V).sentence
        assert f"n0 is to be emptied: it leaves {'as soon as' if movable else 'at'}" in told
    for _ in range(12):
        world.advance(1_000)
        world.feed(ev.NodeUncordoned(world.now, CAUSE, NodeName("n1")))  # a pass that nobody had asked for
    assert notices(world) == [(when, "v", reason)]
    assert (seen(world).holders, seen(world).protected) == ((), ())
    assert world.state.protected_preemptions == 0
    assert world.state.forced_moves == (reason is PreemptReason.FORCED)
    assert world.state.allowed_moves == (reason is PreemptReason.MOVED)
    assert world.state.workload(V).preemptions == 0
    assert world.where("v") == (("n1",) if elsewhere else ())


def test_an_idle_session_that_was_moved_goes_on_elsewhere() -> None:
    """It was not preempted: nobody should have to touch it to get back what he was promised."""
    world = cluster(1, 1)
    world.submit("v", "a", min_runtime=10_000, kind=Kind.SESSION, movable=True)
    world.advance(1_000)
    drain(world, None)
    world.advance(1_000)
    assert world.where("v") == ("n1",)
    assert world.phase("v") is Phase.RUNNING
    (requeue,) = [one for _, one in world.actions() if isinstance(one, act.Requeue)]
    assert requeue.why.startswith(
        "moved off its node (n0 is to be emptied, its owner allows it to be moved, and n1 had"
    )


def test_moves_do_not_count_on_the_same_room_twice() -> None:
    """The second waits until the first has found its place."""
    world = cluster(2, 1)
    for name in ("v", "w"):
        world.submit(name, "a", min_runtime=9_000, movable=True)
    assert world.where("v") == ("n1",)
    world.submit("x", "a", min_runtime=9_000, movable=True)
    world.advance(1)
    world.exit("v")
    drain(world, None)
    assert [one for _, one, _ in notices(world)] == ["w"]
    world.advance(2_000)
    assert (world.where("w"), world.where("x")) == (("n1",), ("n0",))
    assert [one for _, one, _ in notices(world)] == ["w"]


def test_the_last_word_of_the_operator_counts() -> None:
    """A cordon after a drain drops its deadline, an uncordon ends it, and it outlives the loss of the node."""
    world = cluster(1)
    world.submit("v", "a", min_runtime=9_000)
    drain(world, 2_000, force=True)
    assert seen(world).drain == Drain(Instant(2_000), force=True)
    world.feed(ev.NodeCordoned(world.now, CAUSE, N0))
    assert (seen(world).drain, seen(world).cordoned) == (None, True)
    drain(world, 2_000, force=True)
    world.feed(ev.NodeLost(world.now, CAUSE, N0))
    assert seen(world).empty_by is None
    world.feed(ev.NodeJoined(world.now, CAUSE, Node(N0, 1)))
    assert seen(world).drain is not None
    assert world.phase("v") is Phase.QUEUED
    world.feed(ev.NodeUncordoned(world.now, CAUSE, N0))
    assert (seen(world).drain, seen(world).empty_by) == (None, None)
    world.advance(5_000)
    assert world.where("v") == ("n0",)
    assert not notices(world)


def test_a_forced_drain_moves_a_gang_whole() -> None:
    """Half of it on the other node would be of no use."""
    world = cluster(2, 2)
    world.submit("v", "a", 2, nodes=2, min_runtime=9_000)
    drain(world, 1_000, force=True)
    world.advance(2_000)
    assert notices(world) == [(1_000, "v", PreemptReason.FORCED)]
    assert all(not node.holders for node in world.state.nodes())


def test_a_drain_survives_restarts() -> None:
    """From a snapshot, and from the journal."""
    world = cluster(1, 1)
    world.submit("v", "a", min_runtime=9_000)
    world.submit("w", "a", min_runtime=9_000, movable=True)
    drain(world, 1_000, force=True)
    world.advance(1_000)
    plain = json.loads(json.dumps(snapshot(world.state)))
    assert plain["moves"] == {"forced": 1, "allowed": 0}
    assert snapshot(restore(plain)) == plain
    journal = [(entry.event, entry.actions) for entry in world.journal]
    assert snapshot(recover(journal, policy=SMALL)) == snapshot(world.state)
    old = {key: value for key, value in plain.items() if key != "moves"}
    old["nodes"] = [{key: value for key, value in node.items() if key != "drain"} for node in old["nodes"]]
    assert restore(old).forced_moves == 0


def test_what_makes_no_sense_is_refused() -> None:
    """A forced drain without a moment, an unknown node, a move without a checkpoint."""
    world = cluster(1)
    with pytest.raises(InvalidSpec, match="needs a deadline"):
        drain(world, None, force=True)
    with pytest.raises(UnknownNode):
        world.feed(ev.NodeDrained(world.now, CAUSE, NodeName("n9")))
    with pytest.raises(InvalidSpec, match="cannot be moved"):
        world.submit("v", "a", resumable=False, movable=True)


@pytest.mark.parametrize("gpus", [2, 1, 3])
def test_a_gang_on_a_lost_node_ends_whole_and_is_queued_once(gpus: int) -> None:
    """Whatever inventory the node comes back with: the gang takes it if it still fits."""
    world = cluster(2, 2)
    world.submit("v", "a", 2, nodes=2, min_runtime=9_000)
    world.advance(500)
    world.feed(ev.NodeLost(world.now, CAUSE, N0))
    assert world.phase("v") is Phase.STOPPING
    world.feed(ev.NodeJoined(world.now, CAUSE, Node(N0, gpus)))
    world.advance(400)
    assert len([one for _, one in world.actions() if isinstance(one, act.Requeue)]) == 1
    assert world.where("v") == (("n0", "n1") if gpus >= 2 else ())
