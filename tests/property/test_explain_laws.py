"""What people are told about who could preempt them, and what would start them now."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.chances import Chances
from gpufair.core.change import Change
from gpufair.core.facts import STAYING
from gpufair.core.model import Phase, PreemptReason
from gpufair.core.record import Record
from gpufair.core.rights import may_leave
from gpufair.core.snapshot import snapshot
from gpufair.core.units import WorkloadId
from tests.strategies import Script, begin, crowds, scripts, step
from tests.world import CAUSE, POLICIES, World


def askers(world: World, victim: Record) -> list[WorkloadId]:
    """Everybody in the queue, in order, who has a right over one who is unprotected: by trying each."""
    facts, held = world.state.facts, victim.held
    assert held is not None
    found = []
    for workload in world.state.queue():
        other = facts.records[workload]
        asks = other.spec.allocated and other.gpus and held.pool in other.spec.pools and other.reservation is None
        if asks and victim.id in may_leave(facts, Chances(facts, held.pool), other):
            found.append(workload)
    return found


def check(world: World) -> None:
    facts, waiting = world.state.facts, world.state.queue()
    # Nobody lists the queue to find one place in it.
    assert [world.state.position(one) for one in waiting] == list(range(1, len(waiting) + 1))
    for workload in sorted(facts.holding):
        record = facts.holding[workload]
        told = world.state.explain(workload)
        if record.phase not in STAYING or not record.gpus:
            assert told.threat is None
            continue
        assert ("Nobody who waits now could preempt it." in told.sentence) == (told.threat is None)
        if told.threat is not None:
            assert record.held is not None
            until = max(world.now, record.held.protected_until)
            assert told.threat.earliest == until or told.threat.right is PreemptReason.LANDING
        if told.threat is not None and told.threat.right is PreemptReason.LANDING:
            landing = facts.record(told.threat.by).landing
            assert landing is not None
            assert told.threat.earliest == max(world.now, landing.at)
            assert not facts.exposed(record) or not askers(world, record)
        elif facts.exposed(record):
            first = askers(world, record)[:1]
            assert [told.threat.by] * bool(told.threat) == first if told.threat is not None else not first


@settings(max_examples=30)
@given(scripts(most=18, policies=POLICIES))
def test_p24_who_could_preempt_is_named_and_nobody_else_comes_before(script: Script) -> None:
    """"Nobody could preempt it" is a promise, too."""
    run(script)


@settings(max_examples=30)
@given(crowds(POLICIES))
def test_p24_who_could_preempt_is_named_in_a_crowd(script: Script) -> None:
    """Where many could."""
    run(script)


def run(script: Script) -> None:
    world = begin(script, validate=False)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
        if index % 3 == 0:
            before = snapshot(world.state)
            check(world)
            assert snapshot(world.state) == before


def try_change(world: World, workload: WorkloadId, change: Change) -> None:
    """Amend it to the changed wish."""
    trial = world.twin()
    trial.validate = False
    old = trial.state.workload(workload)
    spec = replace(old.spec, shape=change.shape, min_runtime=change.min_runtime)
    assert (spec.shape, spec.min_runtime) != (old.spec.shape, trial.state.facts.record(workload).min_runtime)
    event = ev.Amended(
        trial.now, CAUSE, workload, spec.allocation, spec.shape, spec.min_runtime, spec.pools, spec.priority
    )
    starts, actions = old.starts, trial.feed(event)
    started = workload in [one.workload for one in actions if isinstance(one, act.Start)]
    notices = [one for one in actions if isinstance(one, act.BeginCheckpoint) and one.beneficiary == workload]
    assert started == (change.right is None)
    assert started != bool(notices)
    assert change.at == max((one.deadline for one in notices), default=world.now)
    if not started:
        assert change.right in {one.reason for one in notices}
    assert trial.phase(workload) is not Phase.ENDED
    if 0 <= trial.delays.release <= min(trial.policy.grace_batch, trial.policy.grace_session):
        trial.advance(change.at - trial.now)
        assert trial.state.workload(workload).starts > starts


def changes(script: Script) -> None:
    world = begin(script, validate=False)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
        if index % 4 == 3 or index == len(script.commands) - 1:
            for workload in world.state.queue():
                change = world.state.explain(workload).smallest_change
                if change is not None:
                    try_change(world, workload, change)


@settings(max_examples=30)
@given(scripts(most=18, policies=POLICIES))
def test_p24_the_smallest_change_starts_the_workload(script: Script) -> None:
    """A hint that does not help is worse than none: it is carried out here, on the real state."""
    changes(script)


@settings(max_examples=30)
@given(crowds(POLICIES))
def test_p24_the_smallest_change_starts_the_workload_in_a_crowd(script: Script) -> None:
    """Where others have to leave for it, they are told to at once, and it starts when it was said."""
    changes(script)
