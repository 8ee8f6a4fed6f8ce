"""What those who run are told about who could preempt them."""

from __future__ import annotations

from hypothesis import given, settings

from gpufair.core.chances import Chances
from gpufair.core.facts import STAYING
from gpufair.core.record import Record
from gpufair.core.rights import may_leave
from gpufair.core.snapshot import snapshot
from gpufair.core.units import WorkloadId
from tests.strategies import Script, begin, crowds, scripts, step
from tests.world import World


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
    facts = world.state.facts
    for workload in sorted(facts.holding):
        record = facts.holding[workload]
        told = world.state.explain(workload)
        if record.phase not in STAYING or not record.gpus:
            assert told.threat is None
            continue
        assert ("Nobody who waits now could preempt it." in told.sentence) == (told.threat is None)
        if told.threat is not None:
            assert record.held is not None
            assert told.threat.earliest == max(world.now, record.held.protected_until)
        if facts.exposed(record):
            first = askers(world, record)[:1]
            assert [told.threat.by] * bool(told.threat) == first if told.threat is not None else not first


@settings(max_examples=30)
@given(scripts(most=18))
def test_p24_who_could_preempt_is_named_and_nobody_else_comes_before(script: Script) -> None:
    """"Nobody could preempt it" is a promise, too."""
    run(script)


@settings(max_examples=30)
@given(crowds())
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
