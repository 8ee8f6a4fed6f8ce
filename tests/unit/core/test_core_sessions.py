"""Sessions that run: idle ones give their GPUs back, and a protection may be extended by whoever comes first."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.errors import ExtensionRefused, GpufairError, MinRuntimeTooLong, WrongPhase
from gpufair.core.model import Allocation, Kind, Node, Phase, PreemptReason
from gpufair.core.snapshot import recover, restore, snapshot
from gpufair.core.units import AllocationPath, Millis, NodeName, WorkloadId
from tests.world import CAUSE, Delays, World

S = WorkloadId("s")


def session(gpus: int = 1, *, min_runtime: int = 5_000, idle_release: int | None = None) -> World:
    world = World(delays=Delays(0, 0, 0)).set_up(
        [Allocation(AllocationPath("a")), Allocation(AllocationPath("b"))], [Node(NodeName("n"), gpus)]
    )
    world.submit("s", "a", min_runtime=min_runtime, kind=Kind.SESSION, idle_release=idle_release)
    world.advance(0)
    assert world.phase("s") is Phase.RUNNING
    return world


def report(world: World, busy: bool) -> None:
    world.feed(ev.ActivityReported(world.now, CAUSE, S, 1, busy))


def test_an_idle_session_is_parked_even_during_protection() -> None:
    """And its GPUs are no longer charged."""
    world = session(min_runtime=20_000, idle_release=4_000)
    world.advance(3_999)
    assert world.phase("s") is Phase.RUNNING
    world.advance(1)
    assert world.phase("s") is Phase.PARKED
    (notice,) = [a for _, a in world.actions() if isinstance(a, act.BeginCheckpoint)]
    assert notice.reason is PreemptReason.IDLE
    charged = world.state.workload(S).charged
    world.advance(10_000)
    assert world.state.workload(S).charged == charged == 4_000
    assert world.state.facts.idle_releases == 1
    assert world.state.protected_preemptions == 0
    assert world.state.workload(S).preemptions == 0


def test_a_running_cell_stops_the_clock_and_its_end_starts_it_anew() -> None:
    """Work is never cut for being long."""
    world = session(idle_release=4_000)
    world.advance(3_000)
    report(world, busy=True)
    world.advance(30_000)
    assert world.phase("s") is Phase.RUNNING
    report(world, busy=False)
    world.advance(3_999)
    assert world.phase("s") is Phase.RUNNING
    world.advance(1)
    assert world.phase("s") is Phase.PARKED


def test_a_cell_between_two_reports_counts() -> None:
    """Idle, and idle again: something ran in between."""
    world = session(idle_release=4_000)
    for _ in range(5):
        world.advance(3_000)
        report(world, busy=False)
    assert world.phase("s") is Phase.RUNNING
    world.advance(4_000)
    assert world.phase("s") is Phase.PARKED


def test_without_the_option_it_stays() -> None:
    """Only profiles that say so."""
    world = session()
    world.advance(60_000)
    assert world.phase("s") is Phase.RUNNING


def test_the_idle_clock_survives_a_restart() -> None:
    """It is due at the same moment."""
    world = session(idle_release=4_000)
    world.advance(1_000)
    again = restore(json.loads(json.dumps(snapshot(world.state))), validate=True)
    assert again.next_wakeup() == world.state.next_wakeup() == 4_000
    assert again.copy().next_wakeup() == 4_000


def extend(world: World, span: int) -> None:
    world.feed(ev.ExtensionRequested(world.now, CAUSE, S, Millis(span)))


def protected_until(world: World) -> int:
    held = world.state.workload(S).held
    assert held is not None
    return held.protected_until


def test_with_nobody_waiting_an_extension_is_granted() -> None:
    """From now on, and the commitment follows."""
    world = session()
    world.advance(4_000)
    extend(world, 8_000)
    assert protected_until(world) == 12_000
    (k,) = [one.commitment for one in world.state.budgets() if one.path == "a"]
    assert k == 8_000
    plain = snapshot(world.state)
    assert snapshot(recover([(e.event, e.actions) for e in world.journal], policy=world.policy)) == plain


def test_it_never_shortens() -> None:
    """Asking for less than one has keeps what one has."""
    world = session(min_runtime=20_000)
    extend(world, 1_000)
    assert protected_until(world) == 20_000


def test_an_expired_protection_can_be_renewed_and_holds() -> None:
    """b comes later, and finds it protected."""
    world = session()
    world.advance(7_000)
    extend(world, 5_000)
    world.submit("p", "b", min_runtime=100)
    world.advance(4_999)
    assert world.phase("p") is Phase.QUEUED
    world.advance(1)
    assert world.phase("p") in {Phase.STARTING, Phase.RUNNING}


def test_whoever_comes_first_and_could_use_the_gpus_is_named() -> None:
    """And nothing has changed."""
    world = session(min_runtime=10_000)
    world.advance(2_000)
    world.submit("p", "b", min_runtime=2_000, user="ben")
    before = snapshot(world.state)
    with pytest.raises(ExtensionRefused, match="ben's batch run p of b, which waits and could use them, comes first"):
        extend(world, 15_000)
    assert snapshot(world.state) == before


def test_who_could_not_use_its_gpus_does_not_stop_it() -> None:
    """A shape that this node never holds, or one that cannot get enough now."""
    world = session(min_runtime=10_000)
    world.feed(ev.NodeJoined(world.now, CAUSE, Node(NodeName("m"), 2)))
    world.submit("guard", "b", gpus=2, min_runtime=20_000)
    world.submit("wide", "b", gpus=2, min_runtime=2_000)
    extend(world, 15_000)
    assert protected_until(world) == 15_000


def test_who_comes_later_does_not_stop_it() -> None:
    """a has had less than b, and its session comes before b's."""
    world = session(2, min_runtime=2_000)
    world.submit("v", "b", min_runtime=20_000)
    world.advance(1_500)
    world.submit("p", "b", min_runtime=2_000)
    extend(world, 5_000)
    assert protected_until(world) == 6_500


def test_in_its_own_leaf_an_earlier_submission_comes_first() -> None:
    """An extension is a submission of now."""
    world = session(min_runtime=10_000)
    world.submit("p", "a", min_runtime=2_000)
    with pytest.raises(ExtensionRefused):
        extend(world, 15_000)
    world.feed(ev.Cancelled(world.now, CAUSE, WorkloadId("p")))
    world.submit("q", "a", min_runtime=2_000, priority=-1)
    extend(world, 15_000)
    assert protected_until(world) == 15_000


@pytest.mark.parametrize(("span", "error"), [(20_001, MinRuntimeTooLong), (0, GpufairError), (-1, GpufairError)])
def test_spans_that_no_submission_could_ask_for_are_refused(span: int, error: type[Exception]) -> None:
    """The cap holds for it, too."""
    with pytest.raises(error):
        extend(session(), span)


def test_only_what_runs_and_is_allocated_is_extended() -> None:
    """A queued one asks anew; unallocated work has no protection."""
    world = session(2)
    world.submit("free", "a", min_runtime=0)
    with pytest.raises(WrongPhase, match="unallocated"):
        world.feed(ev.ExtensionRequested(world.now, CAUSE, WorkloadId("free"), Millis(5)))
    world.feed(ev.ParkRequested(world.now, CAUSE, S))
    with pytest.raises(WrongPhase):
        extend(world, 5_000)


def test_what_is_queued_above_a_lowered_cap_keeps_what_it_was_accepted_with() -> None:
    """A new submission does not get as much, nor does an extension."""
    world = session(min_runtime=10_000)
    world.submit("p", "b", min_runtime=15_000)
    world.feed(ev.PolicyChanged(world.now, CAUSE, replace(world.policy, max_min_runtime=Millis(5_000))))
    assert protected_until(world) == 10_000
    with pytest.raises(MinRuntimeTooLong):
        world.submit("q", "b", min_runtime=5_001)
    with pytest.raises(MinRuntimeTooLong):
        extend(world, 5_001)
    world.exit("s")
    started = world.state.workload(WorkloadId("p")).held
    assert started is not None
    assert started.granted == 15_000
