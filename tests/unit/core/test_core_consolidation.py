"""Sessions that move within their pool to join free GPUs for one who waits."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.errors import InvalidSpec
from gpufair.core.model import Allocation, Kind, Node, Phase, Policy, PreemptReason
from gpufair.core.snapshot import recover, restore, snapshot
from gpufair.core.state import State
from gpufair.core.units import AllocationPath, Instant, Millis, NodeName, WorkloadId
from tests.world import CAUSE, SMALL, Delays, World

MOVING = replace(SMALL, consolidation=True, consolidation_rest=Millis(1_000))
V, P = WorkloadId("v"), WorkloadId("p")


def cluster(policy: Policy = MOVING, gpus: tuple[int, ...] = (2, 2)) -> World:
    """Two allocations and these nodes."""
    return World(policy, delays=Delays(0, 0, 400)).set_up(
        [Allocation(AllocationPath("a")), Allocation(AllocationPath("b"))],
        [Node(NodeName(f"n{i}"), count) for i, count in enumerate(gpus)],
    )


def scattered(
    policy: Policy = MOVING, *, min_runtime: int = 1_000, kind: Kind = Kind.SESSION, **more: object
) -> World:
    """A world in which one GPU is free on each of two nodes, with a session of leaf a beside it."""
    world = cluster(policy)
    world.submit("v", "a", min_runtime=min_runtime, kind=kind, **more)  # type: ignore[arg-type]
    world.submit("x", "b", min_runtime=20_000)
    world.submit("w", "a", min_runtime=20_000)
    world.exit("x")
    assert (world.where("v"), world.where("w")) == (("n0",), ("n1",))
    return world


def told(world: World) -> list[tuple[int, str, PreemptReason]]:
    found = [(entry.event.at, one) for entry, one in world.actions() if isinstance(one, act.BeginCheckpoint)]
    return [(at, one.workload, one.reason) for at, one in found]


# b has had all of its time and so cannot preempt: its metric is worse. (what v is, policy) -> whether it is moved
WHO: list[tuple[dict[str, object], dict[str, object], bool]] = [
    ({}, {}, True),
    ({}, {"consolidation": False}, False),
    ({"min_runtime": 15_000}, {}, False),
    ({"min_runtime": 15_000, "movable": True}, {}, True),
    ({"resumable": False}, {}, False),
    ({"kind": Kind.BATCH}, {}, False),
    ({"kind": Kind.BATCH}, {"consolidate_batch": True}, True),
    ({}, {"consolidation_rest": Millis(6_000)}, False),
]


@pytest.mark.parametrize(("what", "options", "moves"), WHO)
def test_who_is_moved(what: dict[str, object], options: dict[str, object], moves: bool) -> None:
    """Sessions that can be resumed and are unprotected, or whose owner allows it; after the rest, not before."""
    world = scattered(replace(MOVING, **options), **what)  # type: ignore[arg-type]
    world.advance(5_000)
    world.submit("p", "a", gpus=2, min_runtime=10_000)
    assert told(world) == ([(5_000, "v", PreemptReason.CONSOLIDATION)] if moves else [])
    world.advance(500)
    assert world.where("p") == (("n0",) if moves else ())
    assert world.where("v") == (("n1",) if moves else ("n0",))
    assert world.state.consolidation_moves == moves
    assert world.state.protected_preemptions == world.state.workload(V).preemptions == 0


def test_the_new_place_is_kept_from_the_notice_on() -> None:
    """Nobody else gets it, though he comes first, and an idle session goes on there at once."""
    world = scattered()
    world.advance(5_000)
    world.submit("p", "a", gpus=2, min_runtime=10_000)
    world.submit("better", "b", gpus=1, min_runtime=1_000)
    assert world.phase("better") is Phase.QUEUED
    assert [node.reserved for node in world.state.nodes()] == [(("p", 2),), (("v", 1),)]
    assert world.state.queue() == ("p", "better")
    assert "It goes on on n1, where GPUs are kept for it" in world.state.explain(V).sentence
    world.advance(400)
    assert (world.where("p"), world.where("v"), world.phase("v")) == (("n0",), ("n1",), Phase.RUNNING)
    (requeue,) = [one for _, one in world.actions() if isinstance(one, act.Requeue)]
    assert requeue.why == "moved to make room for u's batch run p: queued again with its first submission time"
    assert world.state.explain(V).sentence.endswith("so that u's batch run p (2 GPUs) fits on n0.")


def test_it_keeps_what_was_left_of_its_protection_and_is_not_moved_in_it_again() -> None:
    """Never more, never less; then it may be moved again."""
    world = scattered(min_runtime=15_000, movable=True)
    world.advance(5_000)
    world.submit("p", "a", gpus=2, min_runtime=1_000)
    world.advance(400)
    held = world.state.workload(V).held
    assert held is not None
    assert (held.granted_at, held.protected_until) == (5_400, 15_400)
    assert world.state.facts.records[V].settles_until == 15_000
    world.exit("p")
    world.exit("w")
    world.submit("y", "a", min_runtime=20_000, demands={"exclude": ("n1",)})
    world.submit("q", "a", gpus=2, min_runtime=10_000)
    world.advance(9_000)
    assert world.phase("q") is Phase.QUEUED
    assert len(told(world)) == 1
    world.advance(2_000)
    assert [(who, reason) for _, who, reason in told(world)][1:] == [("v", PreemptReason.CONSOLIDATION)]
    assert (world.where("q"), world.where("v")) == (("n1",), ("n0",))


def test_an_extended_protection_is_not_cut_by_a_move() -> None:
    """A start asks for no more than the spec does: who has more left than that stays until he has not."""
    world = scattered(min_runtime=2_000, movable=True)
    world.advance(1_500)
    world.feed(ev.ExtensionRequested(world.now, CAUSE, V, Millis(8_000)))
    world.submit("p", "a", gpus=2, min_runtime=10_000)
    world.advance(5_000)
    assert told(world) == []
    world.advance(5_500)
    assert [(who, reason) for _, who, reason in told(world)] == [("v", PreemptReason.CONSOLIDATION)]


@pytest.mark.parametrize("safe", [False, True])
def test_nobody_moves_if_that_costs_more_than_the_wait(safe: bool) -> None:
    """What is lost since the last checkpoint or safe point is weighed against the GPUs that would wait."""
    world = cluster()
    world.submit("v", "a", min_runtime=20_000, kind=Kind.SESSION, movable=True)
    world.submit("x", "b", min_runtime=20_000)
    world.submit("w", "a", min_runtime=5_000)
    world.exit("x")
    world.advance(4_500)
    if safe:
        world.feed(ev.SafePointReached(world.now, CAUSE, V, 1))
    # w may be told to leave at 5 s and has 1 s: two GPUs would wait for 1.5 s.
    world.submit("p", "b", gpus=2, min_runtime=1_000)
    assert told(world) == ([(4_500, "v", PreemptReason.CONSOLIDATION)] if safe else [])
    world.advance(1_000)
    assert told(world)[-1] == ((4_500, "v", PreemptReason.CONSOLIDATION) if safe else (5_000, "w", PreemptReason.RANK))


def test_nobody_moves_for_one_who_could_start_or_preempt() -> None:
    """By its own right it takes what is there."""
    world = scattered(min_runtime=1_000)
    world.advance(5_000)
    world.submit("p", "a", gpus=2, min_runtime=1_000, priority=1)
    assert told(world) == [(5_000, "v", PreemptReason.PRIORITY)]


@pytest.mark.parametrize("excluded", [(), ("n2",)])
def test_there_must_be_room_for_all_who_move(excluded: tuple[str, ...]) -> None:
    """Each has a place of its own, on nodes that it accepts."""
    world = cluster(gpus=(3, 3, 1))
    world.submit("z", "b", min_runtime=20_000)
    for name in ("s", "t"):
        world.submit(name, "a", min_runtime=1_000, kind=Kind.SESSION, demands={"exclude": excluded})
    world.submit("x", "b", min_runtime=20_000)
    world.submit("w", "a", gpus=2, min_runtime=20_000)
    for name in ("x", "z"):
        world.exit(name)
    assert [world.where(name) for name in ("s", "t", "w")] == [("n0",), ("n0",), ("n1",)]
    world.advance(5_000)
    world.submit("p", "a", gpus=3, min_runtime=10_000)
    moved = [] if excluded else ["s", "t"]
    assert [who for _, who, _ in told(world)] == moved
    world.advance(500)
    assert sorted(world.where(name)[0] for name in ("s", "t")) == (["n1", "n2"] if moved else ["n0", "n0"])
    assert world.where("p") == (("n0",) if moved else ())


@pytest.mark.parametrize("how", ["cancel", "lose", "cordon", "park", "cancel-v", "late"])
def test_whatever_happens_on_the_way_nothing_is_left_behind(how: str) -> None:
    """The beneficiary is cancelled, the new place is lost or closed, the one who moves is parked or cancelled."""
    world = scattered()
    if how == "late":
        world.delays = Delays(0, 0, 8_000)
    world.advance(5_000)
    world.submit("p", "a", gpus=2, min_runtime=10_000)
    world.advance(100)
    now, n1 = world.now, NodeName("n1")
    events: dict[str, ev.Event] = {
        "cancel": ev.Cancelled(now, CAUSE, P),
        "lose": ev.NodeLost(now, CAUSE, n1),
        "cordon": ev.NodeCordoned(now, CAUSE, n1),
        "park": ev.ParkRequested(now, CAUSE, V),
        "cancel-v": ev.Cancelled(now, CAUSE, V),
        "late": ev.TimePassed(now, CAUSE),
    }
    world.feed(events[how])
    world.advance(20_000)
    world.state.validate()
    phases = {"park": Phase.PARKED, "cancel-v": Phase.ENDED, "lose": Phase.QUEUED, "cordon": Phase.QUEUED}
    assert world.phase("v") is phases.get(how, Phase.RUNNING)
    assert world.phase("p") is (Phase.ENDED if how == "cancel" else Phase.RUNNING)


def test_a_slice_does_not_lengthen_what_was_left() -> None:
    """Its owner touches it while it moves: that is no way to a whole new protection."""
    world = scattered(min_runtime=2_000)
    world.advance(5_000)
    world.submit("p", "a", gpus=2, min_runtime=10_000)
    world.feed(ev.ResumeRequested(world.now, CAUSE, V, True, None))
    world.advance(400)
    held = world.state.workload(V).held
    assert held is not None
    assert held.granted == 1


def test_a_move_survives_restarts() -> None:
    """From a snapshot on the way, from the journal, and on a copy; older snapshots know of none."""
    world = scattered()
    world.advance(5_000)
    world.submit("p", "a", gpus=2, min_runtime=10_000)
    plain = json.loads(json.dumps(snapshot(world.state)))
    assert plain["consolidation_moves"] == 1
    assert snapshot(restore(plain, validate=True)) == plain == snapshot(world.state.copy())
    journal = [(entry.event, entry.actions) for entry in world.journal]
    assert snapshot(recover(journal, policy=MOVING)) == plain
    again = World(MOVING)
    again.state = restore(plain, validate=True)
    again.feed(ev.Released(Instant(5_400), CAUSE, V, 1))
    assert (again.where("p"), again.where("v")) == (("n0",), ("n1",))
    del plain["consolidation_moves"]
    assert restore(plain).consolidation_moves == 0


def test_the_rest_is_a_span() -> None:
    """A negative one is refused."""
    with pytest.raises(InvalidSpec, match="consolidation_rest cannot be negative"):
        State(replace(MOVING, consolidation_rest=Millis(-1)))
