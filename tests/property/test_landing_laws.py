"""Landings: the bound on waiting, start-by times that hold whatever comes later, and no GPUs idle for nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.backoff import rests
from gpufair.core.model import Phase, Policy
from gpufair.core.placement import holds
from gpufair.core.units import Instant, WorkloadId
from tests.strategies import MACHINES, OTHER, USERS, Command, Script, crowds, scripts, step
from tests.world import DEFAULT, LANDINGS, MOVING, Delays, World

LONG = LANDINGS.max_min_runtime + 4 * max(LANDINGS.grace_session, LANDINGS.grace_batch)
POLICIES = (LANDINGS, replace(LANDINGS, landing_share=1.0), replace(LANDINGS, commitment=False), MOVING)


@dataclass(frozen=True)
class Promise:
    """A landing as it was granted at first, and what became of it."""

    workload: WorkloadId
    granted: int
    start_by: int
    end: int | None  # when it was over
    how: str  # started, withdrawn (by its owner), dropped, open


def promises(world: World) -> list[Promise]:
    """Every landing that was ever granted, from the journal alone."""
    found: list[Promise] = []
    standing: dict[WorkloadId, tuple[int, int]] = {}

    def over(workload: WorkloadId, at: int | None, how: str) -> None:
        if workload in standing:
            found.append(Promise(workload, *standing.pop(workload), at, how))

    for entry in world.journal:
        now = entry.event.at
        if isinstance(entry.event, ev.Amended):
            over(entry.event.workload, now, "withdrawn")
        for action in entry.actions:
            match action:
                case act.GrantLanding():
                    standing.setdefault(action.workload, (now, action.start_by))
                case act.Start():
                    over(action.workload, now, "started")
                case act.DropLanding():
                    over(action.workload, now, "dropped")
                case act.End() | act.Park():
                    over(action.workload, now, "withdrawn")
                case _:
                    pass
    for workload in tuple(standing):
        over(workload, None, "open")
    return found


def run_with(script: Script, policy: Policy, *, validate: bool = True) -> World:
    world = World(policy, script.delays, validate=validate).set_up(script.allocations(), script.nodes())
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
    world.advance(LONG)
    return world


WIDE = tuple((f"{a}/{b}/{c}", str(1 + index)) for a in "ab" for b in "xy" for index, c in enumerate("pqr"))
FARMS = (
    ((4, "", DEFAULT),) * 5,
    ((8, "t", DEFAULT), (8, "t", DEFAULT), (4, "s", DEFAULT), (2, "s", DEFAULT), (0, "", DEFAULT)),
    ((4, "", DEFAULT), (4, "", DEFAULT), (2, "", DEFAULT), (4, "", OTHER), (2, "", OTHER)),
)


def wide(seed: int, machines: bool, length: int = 60) -> Script:
    """A world with three levels, many leaves and nodes, and nearly everybody waiting."""
    draw = random.Random(seed)
    habit = ("submit",) * 10 + ("exit", "exit", "cancel", "busy", "idle") + (USERS + MACHINES if machines else ())
    return Script(
        tree=WIDE,
        cluster=draw.choice(FARMS),
        delays=draw.choice((Delays(), Delays(0, 0, 0), Delays(900, 900, 950))),
        commands=tuple(
            Command(
                draw.choice((0, 0, 1, 200, 1_000, 2_500, 7_000)),
                draw.choice(habit),
                draw.randrange(64),
                draw.randrange(64),
                draw.randrange(64),
            )
            for _ in range(length)
        ),
    )


def check_promises(world: World, policy: Policy) -> None:
    longest = policy.max_min_runtime + 2 * max(policy.grace_session, policy.grace_batch)
    for promise in promises(world):
        if promise.how == "withdrawn" or (promise.how == "open" and promise.start_by >= world.now):
            continue
        assert promise.how == "started", promise
        assert promise.end is not None
        assert promise.end <= promise.start_by, promise  # P25
        assert promise.end - promise.granted <= longest, promise  # P14


@given(st.one_of(scripts(USERS, late=False), crowds()), st.sampled_from(POLICIES))
def test_p14_from_its_landing_on_a_workload_waits_for_a_bounded_time(script: Script, policy: Policy) -> None:
    """The longest protection and two graces, whatever arrives later; and never beyond the time it was told (P25)."""
    check_promises(run_with(script, policy), policy)


@given(st.integers(0, 10**9))
def test_p25_start_by_times_hold_in_crowded_worlds(seed: int) -> None:
    """Many leaves that all want the same few nodes."""
    check_promises(run_with(wide(seed, machines=False), LANDINGS, validate=False), LANDINGS)


@given(st.integers(0, 10**9))
def test_p25_only_broken_machines_and_budgets_break_a_start_by_time(seed: int) -> None:
    """And it is written down: each landing ends with a start, with its owner's withdrawal, or with a recorded reason."""
    world = run_with(wide(seed, machines=True), LANDINGS, validate=False)
    for promise in promises(world):
        if promise.how == "started":
            assert promise.end is not None
            assert promise.end <= promise.start_by
        assert promise.how != "open" or promise.start_by >= world.now
    for entry, action in world.actions():
        if isinstance(action, act.DropLanding):
            assert isinstance(
                    entry.event, ev.NodeLost | ev.NodeCordoned | ev.NodeDrained | ev.BudgetsApplied | ev.NodeJoined
                )
            assert action.why


@given(st.one_of(scripts(), crowds()))
def test_p13_with_landings_gpus_idle_only_where_they_are_spoken_for(script: Script) -> None:
    """After every event nobody waits for whom there is room, counting what horizons leave to him."""
    world = World(LANDINGS, script.delays).set_up(script.allocations(), script.nodes())
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
        facts = world.state.facts
        for record in facts.records.values():
            if record.phase is not Phase.QUEUED or rests(record, world.now):
                continue
            span = record.min_runtime if record.spec.allocated else 1
            until = Instant(world.now + span)
            for pool in record.spec.pools:
                room = holds(facts.by_pool.get(pool, ()), record.spec.shape, until=until)
                assert not room, f"{record.id} could start"


def test_the_crowded_worlds_have_landings() -> None:
    """The laws would else say little."""
    found = [promise for seed in range(4) for promise in promises(run_with(wide(seed, machines=False), LANDINGS, validate=False))]
    assert len(found) > 15
    assert sum(1 for promise in found if promise.how == "started") > 10
