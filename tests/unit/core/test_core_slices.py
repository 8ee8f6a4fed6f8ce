"""A session that comes back for a short while: its next start asks for less protection than its spec."""

from __future__ import annotations

import json

import pytest

from gpufair.core import events as ev
from gpufair.core.errors import InvalidSpec
from gpufair.core.model import Allocation, Kind, Node, Phase
from gpufair.core.snapshot import recover, restore, snapshot
from gpufair.core.units import AllocationPath, Millis, NodeName, WorkloadId
from tests.world import CAUSE, Delays, World

S = WorkloadId("s")


def parked() -> World:
    """A session of b that asks for 10 s rests; a runs on the one GPU, unprotected for long."""
    world = World(delays=Delays(0, 0, 0)).set_up(
        [Allocation(AllocationPath("a")), Allocation(AllocationPath("b"))], [Node(NodeName("n"), 1)]
    )
    world.submit("s", "b", min_runtime=10_000, kind=Kind.SESSION)
    world.feed(ev.ParkRequested(world.now, CAUSE, S))
    world.advance(1)
    assert world.phase("s") is Phase.PARKED
    world.submit("v", "a", min_runtime=1_000)
    world.advance(5_000)
    return world


def resume(world: World, span: int | None) -> None:
    world.feed(ev.ResumeRequested(world.now, CAUSE, S, slice=None if span is None else Millis(span)))
    world.advance(0)


def granted(world: World) -> int:
    held = world.state.workload(S).held
    assert held is not None
    return held.granted


def test_a_slice_starts_where_the_whole_would_wait() -> None:
    """Its own commitment counts against it, so less of it is had sooner."""
    world = parked()
    resume(world, None)
    assert world.phase("s") is Phase.QUEUED
    world = parked()
    resume(world, 2_000)
    assert world.phase("s") in {Phase.RESTORING, Phase.RUNNING}
    assert granted(world) == 2_000


def test_a_queued_session_may_ask_for_less_but_not_for_more() -> None:
    """Whoever clicks while it waits gets it sooner; asking again for all does not lose that."""
    world = parked()
    resume(world, None)
    resume(world, 2_000)
    assert granted(world) == 2_000
    world = parked()
    world.submit("w", "a", min_runtime=1)
    resume(world, 2_000)
    resume(world, None)
    assert granted(world) == 2_000


def test_a_slice_is_for_one_start() -> None:
    """The start after it asks for the whole again."""
    world = parked()
    resume(world, 2_000)
    world.feed(ev.ParkRequested(world.now, CAUSE, S))
    world.advance(1)
    world.exit("v")
    resume(world, None)
    assert granted(world) == 10_000


def test_a_slice_asks_for_no_more_than_the_spec() -> None:
    """It is a part of what was accepted at submission."""
    world = parked()
    world.exit("v")
    resume(world, 60_000)
    assert granted(world) == 10_000


def test_a_slice_of_nothing_is_refused() -> None:
    """0 would make a charged session an unallocated one."""
    with pytest.raises(InvalidSpec, match="longer than 0"):
        resume(parked(), 0)


def test_the_commitment_counts_what_was_granted() -> None:
    """K is of the slice, not of the spec."""
    world = parked()
    world.exit("v")
    resume(world, 2_000)
    (k,) = [one.commitment for one in world.state.budgets() if one.path == "b"]
    assert k == 2_000
    assert world.state.next_wakeup() is None


def test_a_slice_survives_a_restart() -> None:
    """From the snapshot as from the journal."""
    world = parked()
    world.submit("guard", "a", min_runtime=20_000)
    world.exit("v")
    resume(world, 2_000)
    assert world.phase("s") is Phase.QUEUED
    plain = snapshot(world.state)
    again = restore(json.loads(json.dumps(plain)), validate=True)
    assert snapshot(again) == plain
    assert snapshot(recover([(e.event, e.actions) for e in world.journal], policy=world.policy)) == plain
