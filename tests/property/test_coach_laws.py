"""What the coach says is true of exactly that submission."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.coach import Choice, Outlook
from gpufair.core.errors import GpufairError
from gpufair.core.model import Kind, Shape, WorkloadSpec
from gpufair.core.snapshot import snapshot
from gpufair.core.trial import at_rest
from gpufair.core.units import Millis, WorkloadId
from tests.strategies import RESEARCHERS, Command, Script, begin, crowds, scripts, step
from tests.world import CAUSE, POLICIES, World

MIN_RUNTIMES = tuple(Millis(span) for span in (0, 500, 2_000, 5_000, 20_000, 30_000))


def wish(world: World, command: Command) -> WorkloadSpec:
    """What somebody thinks of asking for."""
    leaves = world.state.tree.leaves
    shape = Shape((1, 2, 4, 3)[command.two % 4], 2 if command.three % 5 == 4 else 1)
    kind = (Kind.BATCH, Kind.SESSION)[command.two % 2]
    user = RESEARCHERS[command.three % 3]
    return WorkloadSpec(leaves[command.one % len(leaves)], user, kind, shape, Millis(5_000), priority=command.two % 3)


def check(world: World, spec: WorkloadSpec, choice: Choice, rest: bool) -> None:
    """Submit it as it was said. Where others are about to act, the coach may be silent, but never wrong."""
    trial = world.twin()
    trial.validate = False
    asked, name = replace(spec, shape=choice.shape, min_runtime=choice.min_runtime), WorkloadId("zz")
    try:
        actions = trial.feed(ev.Submitted(trial.now, CAUSE, name, asked))
    except GpufairError:
        assert choice.outlook is Outlook.REFUSED
        return
    assert choice.outlook is not Outlook.REFUSED
    if choice.outlook is Outlook.START_BY:
        (landing,) = [one for one in actions if isinstance(one, act.GrantLanding) and one.workload == name][:1]
        assert choice.at == landing.start_by
        if 0 <= trial.delays.release <= min(trial.policy.grace_batch, trial.policy.grace_session):
            trial.advance(choice.at - trial.now)
            assert trial.state.workload(name).starts
        return
    started = any(isinstance(one, act.Start) and one.workload == name for one in actions)
    assert started or choice.outlook is not Outlook.NOW
    assert not started or choice.outlook is Outlook.NOW or not rest
    notices = [one for one in actions if isinstance(one, act.BeginCheckpoint) and one.beneficiary == name]
    assert not notices or choice.outlook is Outlook.MAKES_ROOM or not rest
    if choice.outlook is Outlook.MAKES_ROOM:
        assert notices
        assert choice.at is not None
        assert choice.right in {one.reason for one in notices}
        assert choice.at == max(one.deadline for one in notices)
        trial.advance(choice.at - trial.now)
        if 0 <= trial.delays.release <= min(trial.policy.grace_batch, trial.policy.grace_session):
            assert trial.state.workload(name).starts
    assert choice.committed == asked.shape.gpus * asked.min_runtime


def run(script: Script) -> None:
    world = begin(script, validate=False)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
        if index % 5 and index != len(script.commands) - 1:
            continue
        spec = wish(world, command)
        before = snapshot(world.state)
        rest = at_rest(world.state.facts)
        told = world.state.coach(spec, MIN_RUNTIMES)
        world.state.validate()
        assert snapshot(world.state) == before
        assert told.asked.shape == spec.shape
        for choice in (told.asked, *told.choices):
            check(world, spec, choice, rest)


@settings(max_examples=15)
@given(scripts(most=15, policies=POLICIES))
def test_p24_the_coach_is_right_about_what_starts_now(script: Script) -> None:
    """Submitting exactly that starts it; and asking changes nothing."""
    run(script)


@settings(max_examples=15)
@given(crowds(POLICIES))
def test_p24_the_coach_is_right_in_a_crowd(script: Script) -> None:
    """Where others have to leave for it, they are told to at once, by the right that was named."""
    run(script)
