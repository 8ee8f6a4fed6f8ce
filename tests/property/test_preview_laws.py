"""What the preview says is what happens, if the future goes as it was assumed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.model import Phase
from gpufair.core.preview import Assumed, Preview, Step, StepKind
from gpufair.core.snapshot import snapshot
from gpufair.core.units import Instant, Millis, WorkloadId
from tests.strategies import Script, begin, crowds, scripts, step
from tests.world import POLICIES, World

KINDS = {
    act.Start: StepKind.STARTS,
    act.Reserve: StepKind.KEPT,
    act.Unreserve: StepKind.GIVEN_UP,
    act.GrantLanding: StepKind.LANDING,
    act.DropLanding: StepKind.GIVEN_UP,
    act.BeginCheckpoint: StepKind.TOLD_TO_LEAVE,
    act.Stop: StepKind.STOPPED,
    act.Requeue: StepKind.QUEUED_AGAIN,
    act.Park: StepKind.PARKED,
    act.End: StepKind.ENDS,
}
AHEAD = 40_000


def assumed(world: World) -> Assumed:
    delays = world.delays
    release = Millis(delays.release)
    return Assumed(Millis(delays.start), Millis(delays.save), release, stop=release)


def happened(world: World, holding: dict[WorkloadId, int]) -> list[tuple[object, ...]]:
    """The steps of a world, from its journal; ``holding`` are the starts that held GPUs when it began."""
    steps: list[tuple[object, ...]] = []
    for entry in world.journal:
        event = entry.event
        if isinstance(event, ev.Released | ev.Exited) and holding.get(event.workload) == event.incarnation:
            steps.append((event.at, StepKind.RELEASES, event.workload))
            del holding[event.workload]
        for action in entry.actions:
            told: tuple[object, ...] = ()
            if isinstance(action, act.Start):
                told = tuple(lease.node for lease in action.held.leases), action.held.protected_until
                holding[action.workload] = action.held.incarnation
            elif isinstance(action, act.BeginCheckpoint):
                told = action.reason, action.beneficiary, action.deadline
            steps.append((event.at, KINDS.get(type(action), StepKind.DECIDED), action.workload, *told))
    return steps


def foretold(preview: Preview) -> list[tuple[object, ...]]:
    """The same of a preview."""
    return [(one.at, one.what, one.workload, *_details(one)) for one in preview.steps]


def _details(one: Step) -> tuple[object, ...]:
    if one.what is StepKind.STARTS:
        return one.nodes, one.until
    if one.what is StepKind.TOLD_TO_LEAVE:
        return one.reason, one.beneficiary, one.until
    return ()


def knowable(world: World) -> bool:
    """Whether all that is on its way follows from the state: the notice before a stop is forgotten."""
    records = world.state.facts.records.values()
    return not any(record.phase is Phase.STOPPING and record.notice is not None for record in records)


def check(script: Script, durations: tuple[int | None, ...]) -> None:
    world = begin(script, validate=False)
    world.durations = durations
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
        last = index == len(script.commands) - 1
        if (index % 6 and not last) or not knowable(world):
            continue
        before = snapshot(world.state)
        told = world.state.preview(Instant(world.now + AHEAD - 1), assumed(world))
        assert snapshot(world.state) == before
        assert not told.cut
        twin = world.twin()
        queue = set(twin.state.queue())
        held = {one.id: one.incarnation for one in twin.state.workloads() if one.held is not None}
        twin.advance(AHEAD)
        # The world looks at itself once more at the very end, whether or not something is due.
        twin.journal = [entry for entry in twin.journal if entry.event.at <= told.until]
        assert foretold(told) == happened(twin, held)
        first: dict[str, int] = {}
        for entry, action in twin.actions():
            if isinstance(action, act.Start) and action.workload in queue:
                first.setdefault(action.workload, entry.event.at)
        assert dict(told.first_start) == first


DURATIONS = st.sampled_from(((None,), (None, 4_000, 12_000), (2_500, 7_000)))


@settings(max_examples=25)
@given(scripts(most=18, policies=POLICIES), DURATIONS)
def test_p24_the_preview_comes_true(script: Script, durations: tuple[int | None, ...]) -> None:
    """Every start, notice and release, to the millisecond; and looking ahead changes nothing."""
    if script.delays.release >= 0:
        check(script, durations)


@settings(max_examples=25)
@given(crowds(POLICIES), DURATIONS)
def test_p24_the_preview_of_a_crowd_comes_true(script: Script, durations: tuple[int | None, ...]) -> None:
    """Where nearly everybody waits and is preempted in turn."""
    check(script, durations)


@given(crowds(POLICIES), st.integers(1, 12))
def test_a_preview_is_cut_where_it_was_told_to(script: Script, most: int) -> None:
    """It says so, and what it has said until then stays true."""
    world = begin(script, validate=False)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
    until = Instant(world.now + AHEAD)
    whole, part = world.state.preview(until), world.state.preview(until, most_events=most)
    assert whole.steps[: len(part.steps)] == part.steps
    assert bool(part.cut) == (part.until < until)
    assert all(one.at <= part.until for one in part.steps)
