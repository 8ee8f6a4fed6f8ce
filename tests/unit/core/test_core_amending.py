"""What waits may ask for something else: it keeps its place, and nothing that runs is touched."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.codec import decode_event, encode
from gpufair.core.errors import GpufairError, MinRuntimeTooLong, NeverFits, UnknownAllocation, WrongPhase
from gpufair.core.model import Allocation, Kind, Node, Outcome, Phase, Shape
from gpufair.core.owed import MICRO
from gpufair.core.snapshot import recover, replay, restore, snapshot
from gpufair.core.units import AllocationPath, Millis, NodeName, WorkloadId
from tests.world import CAUSE, DEFAULT, LANDINGS, Delays, World

P, A, B = WorkloadId("p"), AllocationPath("a"), AllocationPath("b")
HALVES = [Allocation(A), Allocation(B)]


def cluster(*gpus: int, **options: Any) -> World:
    return World(**options).set_up(HALVES, [Node(NodeName(f"n{at}"), count) for at, count in enumerate(gpus)])


def amend(world: World, name: str = "p", **changes: Any) -> list[act.Action]:
    spec = replace(world.state.workload(WorkloadId(name)).spec, **changes)
    return world.feed(
        ev.Amended(
            world.now,
            CAUSE,
            WorkloadId(name),
            spec.allocation,
            spec.shape,
            spec.min_runtime,
            spec.pools,
            spec.priority,
        )
    )


def owed(world: World, leaf: str) -> int:
    """In GPU-ms."""
    account = world.state.facts.ledgers[DEFAULT].owed.get(AllocationPath(leaf))
    return account.within(world.now, world.policy.window) // MICRO if account is not None else 0


def test_fewer_gpus_start_it_under_its_own_id_with_what_it_asks_for_now() -> None:
    """What the explanation says would help is done, and the start is that of the amended wish."""
    world = cluster(2)
    world.submit("v", "a", gpus=1)
    world.submit("p", "a", gpus=2, kind=Kind.SESSION)
    change = world.state.explain(P).smallest_change
    assert change is not None
    (start,) = amend(world, shape=change.shape, min_runtime=change.min_runtime)
    assert isinstance(start, act.Start)
    assert (start.workload, [lease.gpus for lease in start.held.leases]) == ("p", [1])
    assert world.state.workload(P).spec.shape == Shape(1)


def test_its_place_is_that_of_its_first_submission() -> None:
    """Whoever came later stays behind it, whatever it asks for now."""
    world = cluster(2)
    world.submit("v", "a", gpus=2, min_runtime=5_000)
    world.submit("p", "a", gpus=2, min_runtime=5_000)
    world.advance(10)
    world.submit("q", "a", gpus=1, min_runtime=2_000)
    amend(world, shape=Shape(1), min_runtime=Millis(4_000))
    assert world.state.queue() == (P, WorkloadId("q"))
    assert world.state.workload(P).submitted_at == 0


def test_another_allocation_pays_and_its_place_is_in_that_line() -> None:
    """Its old leaf has asked for nothing then."""
    world = cluster(2)
    world.submit("v", "a", gpus=2, min_runtime=5_000)
    world.submit("p", "a", gpus=1, min_runtime=5_000)
    world.advance(1_000)
    before = owed(world, "a")
    amend(world, allocation=B)
    assert world.state.workload(P).spec.allocation == "b"
    world.feed(ev.Exited(world.now, CAUSE, WorkloadId("v"), 1, outcome=Outcome.COMPLETED))
    assert world.phase("p") is Phase.STARTING
    assert (owed(world, "a"), owed(world, "b")) == (before, 0), "v alone used up all that a is entitled to"


def test_what_stays_owed_is_no_more_than_for_what_it_starts_with() -> None:
    """Asking for much and then for little must not bring more than asking for little from the beginning."""
    much, little = cluster(4), cluster(4)
    for world, gpus in ((much, 2), (little, 1)):
        world.submit("v", "b", gpus=4, min_runtime=5_000)
        world.submit("p", "a", gpus=gpus, min_runtime=5_000)
        world.advance(2_000)
    amend(much, shape=Shape(1))
    much.advance(1_000)
    little.advance(1_000)
    assert owed(much, "a") == 2 * 2_000 + 1_000, "as long as it waits it is the demand that it was"
    for world in (much, little):
        world.feed(ev.Exited(world.now, CAUSE, WorkloadId("v"), 1, outcome=Outcome.COMPLETED))
        assert world.phase("p") is Phase.STARTING
        assert owed(world, "a") == 3_000
    gone = cluster(4)
    gone.submit("v", "b", gpus=4, min_runtime=5_000)
    gone.submit("p", "a", gpus=2, min_runtime=5_000)
    gone.advance(1_000)
    amend(gone, shape=Shape(1))
    gone.feed(ev.Cancelled(gone.now, CAUSE, P))
    assert owed(gone, "a") == 0


def test_a_landing_was_for_what_it_asked_before() -> None:
    """It is given up, and the nodes are free of it at once."""
    world = cluster(2, 2, policy=LANDINGS)
    world.submit("v", "b", gpus=2)
    world.submit("w", "b", gpus=2)
    world.submit("p", "a", gpus=2, nodes=2, min_runtime=20_000)
    world.advance(1)
    assert world.state.facts.record(P).landing is not None
    before = json.dumps(snapshot(world.state))
    world.state.explain(P)
    assert json.dumps(snapshot(world.state)) == before, "looking for a change gives nothing up"
    amend(world, shape=Shape(1, 1))
    assert world.state.facts.record(P).landing is None
    assert not any(node.landings for node in world.state.facts.nodes.values())


def test_what_rests_asks_for_it_when_it_is_touched() -> None:
    """A parked session comes back with what it asks for by then."""
    world = cluster(2, delays=Delays(0, 0, 0))
    world.submit("p", "a", gpus=2, kind=Kind.SESSION)
    world.advance(0)
    world.feed(ev.ParkRequested(world.now, CAUSE, P))
    world.advance(0)
    assert world.phase("p") is Phase.PARKED
    assert amend(world, shape=Shape(1)) == []
    (_, start) = world.feed(ev.ResumeRequested(world.now, CAUSE, P))
    assert isinstance(start, act.Start)
    assert start.held.leases[0].gpus == 1


def test_a_slice_is_kept_as_long_as_the_whole_is() -> None:
    """It was a part of what was asked for; a new whole has none."""
    world = cluster(1)
    world.submit("v", "a")
    world.submit("p", "a", min_runtime=5_000, kind=Kind.SESSION)
    world.feed(ev.ResumeRequested(world.now, CAUSE, P, slice=Millis(500)))
    amend(world, priority=1)
    assert world.state.facts.record(P).min_runtime == 500
    amend(world, min_runtime=Millis(2_000))
    assert world.state.facts.record(P).min_runtime == 2_000


def test_what_runs_is_about_to_or_is_over_is_not_amended() -> None:
    """Others left for what it asked; the GPUs it holds are those it was granted."""
    world = cluster(1, delays=Delays(0, 500, 500))
    world.submit("p", "a", min_runtime=1_000)
    with pytest.raises(WrongPhase, match="only what waits or rests"):
        amend(world, shape=Shape(0))
    world.advance(2_000)
    world.submit("q", "b", min_runtime=1_000)
    with pytest.raises(WrongPhase, match="others leave for it already"):
        amend(world, "q", min_runtime=Millis(2_000))
    world.feed(ev.Cancelled(world.now, CAUSE, WorkloadId("q")))
    with pytest.raises(WrongPhase, match="submit it anew"):
        amend(world, "q", min_runtime=Millis(2_000))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"allocation": AllocationPath("nowhere")}, UnknownAllocation),
        ({"min_runtime": Millis(1_000_000)}, MinRuntimeTooLong),
        ({"shape": Shape(64)}, NeverFits),
    ],
)
def test_a_wish_that_would_be_refused_is_refused_here_too(changes: dict[str, Any], error: type[GpufairError]) -> None:
    """And what it asked for before stays."""
    world = cluster(1)
    world.submit("v", "a")
    world.submit("p", "a")
    before = snapshot(world.state)
    with pytest.raises(error):
        amend(world, **changes)
    assert snapshot(world.state) == before


def test_it_is_replayed_and_restored_to_the_byte() -> None:
    """From the journal, from a snapshot, and decided anew; an older snapshot without the field is read."""
    world = cluster(2)
    world.submit("v", "a", gpus=2, min_runtime=5_000)
    world.submit("p", "b", gpus=2, min_runtime=5_000)
    world.advance(500)
    amend(world, shape=Shape(1), allocation=A)
    world.advance(500)
    journal = [
        (decode_event(json.loads(json.dumps(encode(entry.event)))), entry.actions) for entry in world.journal
    ]
    now = json.dumps(snapshot(world.state))
    assert json.dumps(snapshot(recover(journal, policy=world.policy))) == now
    assert json.dumps(snapshot(restore(json.loads(now)))) == now
    assert replay(journal, policy=world.policy).same
    old = json.loads(now)
    for record in old["workloads"]:
        del record["earlier"]
    restore(old).validate()
