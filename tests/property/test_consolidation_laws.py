"""Moves to join free GPUs: nobody loses by one, nothing goes back and forth, and all else stays as it is."""

from __future__ import annotations

import json
import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.commit import PREEMPTIONS
from gpufair.core.facts import Facts
from gpufair.core.model import Allocation, Kind, Node, Phase, PreemptReason
from gpufair.core.placement import place
from gpufair.core.snapshot import recover, restore, snapshot
from gpufair.core.state import State
from gpufair.core.units import AllocationPath, Millis, NodeName, WorkloadId
from tests.property.test_contract_laws import before_each_action
from tests.property.test_landing_laws import LONG, check_promises
from tests.strategies import MACHINES, USERS, Command, Script, run, scripts, step
from tests.world import DEFAULT, MOVING, Delays, Entry, World

# Fewer other ways to make room, so that more is moved.
CALM = replace(MOVING, debug_min_runtime=Millis(0), take_limit=None)

SEEDS = st.integers(0, 10**9)


def scattered(seed: int, machines: bool = False, validate: bool = False) -> World:
    """Nodes filled with small work of which some ends here and there, and then somebody who needs most of a node."""
    draw = random.Random(seed)
    delays = draw.choice((Delays(), Delays(0, 0, 0), Delays(900, 900, 950)))
    world = World(draw.choice((MOVING, CALM)), delays, validate=validate).set_up(
        [Allocation(AllocationPath(path)) for path in ("a", "b/x", "b/y")],
        [Node(NodeName(f"n{index}"), gpus) for index, gpus in enumerate((4, *draw.choices((2, 3, 4), k=3)))],
    )
    script = Script((("a", "1"), ("b/x", "1"), ("b/y", "1")), ((4, "", DEFAULT),) * 4, delays, (), world.policy)
    count = 0
    for _ in range(draw.choice((2, 4))):
        for _ in range(20):
            if sum(node.free for node in world.state.nodes()) <= 0:
                break
            count += 1
            world.submit(
                f"s{count:03d}",
                draw.choice(("a", "a", "b/x", "b/y")),
                draw.choice((1, 1, 1, 2)),
                draw.choice((1_000, 2_000, 10_000, 20_000)),
                kind=draw.choice((Kind.SESSION, Kind.SESSION, Kind.BATCH)),
                resumable=(resumable := draw.random() < 0.9),
                movable=resumable and draw.random() < 0.5,
            )
        world.advance(draw.choice((1_000, 2_500)))
        running = [one for one in world.state.workloads() if one.phase is Phase.RUNNING]
        for one in draw.sample(running, min(len(running), 4)):
            if world.phase(one.id) is Phase.RUNNING:
                world.exit(one.id)
        count += 1
        largest = max((node.node.gpus for node in world.state.facts.nodes.values()), default=4)  # others may be gone for good
        world.submit(f"p{count:03d}", "a", min(draw.choice((2, 3, 4, 2)), largest), draw.choice((5_000, 20_000)))
        for _ in range(draw.randrange(6)):
            what = draw.choice(USERS[4:] + (MACHINES[:-1] if machines else ()))  # but for budgets
            numbers = [draw.randrange(64) for _ in range(3)]
            step(world, script, Command(draw.choice((0, 1, 200, 1_000)), what, *numbers), count)
    world.advance(LONG)
    return world


def moves(world: World) -> list[tuple[Entry, Facts, act.BeginCheckpoint]]:
    """Each move with what was so before it."""
    return [
        (entry, facts.copy(), action)
        for entry, facts, action in before_each_action(world)
        if isinstance(action, act.BeginCheckpoint) and action.reason is PreemptReason.CONSOLIDATION
    ]


@given(SEEDS)
def test_p05_a_move_is_no_eviction(seed: int) -> None:
    """On obedient nodes whoever is moved starts in the place that is kept for it when it has left the old one, before
    anybody else gets that room, with what was left of its protection; and nobody is evicted for it."""
    world = scattered(seed, validate=True)
    kept: dict[WorkloadId, tuple[act.Reserve, int]] = {}
    for entry, facts, action in before_each_action(world):
        match action:
            case act.Reserve() if facts.records[action.workload].held is not None:
                record = facts.records[action.workload]
                assert record.notice is PreemptReason.CONSOLIDATION
                assert not action.victims
                assert record.slice is not None
                kept[action.workload] = action, record.slice
                here = facts.nodes[action.leases[0].node]
                assert here.node.pool == action.pool == (record.held and record.held.pool)
                assert here.free >= action.leases[0].gpus
            case act.Start() if action.workload in kept:
                reserve, left = kept.pop(action.workload)
                assert isinstance(entry.event, ev.Released)
                assert entry.event.workload == action.workload
                assert (action.held.leases, action.held.granted) == (reserve.leases, left)
            case act.Park() | act.End() if action.workload in kept:
                # By its owner, or it had come to its end.
                record = facts.records[action.workload]
                assert record.parking is not None or record.exit is not None or record.cancelled
                del kept[action.workload]
            case act.Unreserve():
                assert action.workload not in kept
            case act.BeginCheckpoint() if action.reason in PREEMPTIONS:
                assert action.beneficiary not in kept
            case _:
                pass
    assert world.state.protected_preemptions == 0


@given(SEEDS, st.booleans())
def test_only_those_move_who_may_and_never_soon_again(seed: int, machines: bool) -> None:
    """Restorable, unprotected or as the owner allows; not within the rest, nor twice in one protection; one at a time."""
    world = scattered(seed, machines)
    moved_in: dict[WorkloadId, int] = {}
    for entry, facts, action in moves(world):
        record, now = facts.records[action.workload], entry.event.at
        held = record.held
        assert held is not None
        assert record.spec.resumable
        assert record.spec.allocated
        assert record.spec.movable or now >= held.protected_until
        assert now >= held.granted_at + MOVING.consolidation_rest
        assert now >= moved_in.get(record.id, 0)
        moved_in[record.id] = held.protected_until
        moving = [one for one in facts.leaving.values() if one.notice is PreemptReason.CONSOLIDATION]
        assert {one.beneficiary for one in moving if one.held and one.held.pool == held.pool} <= {action.beneficiary}
    assert world.state.consolidation_moves == len(moves(world))


@given(SEEDS)
def test_nobody_moves_for_one_who_could_start(seed: int) -> None:
    """Its shape fits nowhere as things are; with them gone it does, and without any one of them it would not."""
    for entry, facts, action in before_each_action(scattered(seed, machines=True)):
        if not isinstance(action, act.Reserve) or not action.victims:
            continue
        reasons = {one.workload: one.reason for one in entry.actions if isinstance(one, act.BeginCheckpoint)}
        if PreemptReason.CONSOLIDATION not in {reasons[one] for one in action.victims}:
            continue
        record = facts.records[action.workload]
        shape = record.spec.shape
        assert record.spec.allocated
        assert all(place(facts.by_pool.get(pool, ()), shape) is None for pool in record.spec.pools)
        (lease,) = action.leases
        node = facts.nodes[lease.node]
        freed = [node.holders[one] for one in action.victims]
        assert node.free + sum(freed) >= lease.gpus
        if not node.bounds:
            assert all(node.free + sum(freed) - one < lease.gpus for one in freed)


@given(SEEDS)
def test_p25_moves_break_no_start_by_time(seed: int) -> None:
    """Nor the bound on waiting (P14)."""
    check_promises(scattered(seed), MOVING)


@given(SEEDS)
def test_p22_moves_are_restored_copied_and_recovered_alike(seed: int) -> None:
    """From the journal, and from a snapshot in the middle of a move."""
    world = scattered(seed, machines=True)
    state = State(world.policy, validate=True)
    for entry in world.journal:
        assert tuple(state.handle(entry.event)) == entry.actions
        if any(one.notice is PreemptReason.CONSOLIDATION for one in state.facts.leaving.values()):
            state = restore(json.loads(json.dumps(snapshot(state))), validate=True).copy()
            state.validate()
    assert snapshot(state) == snapshot(world.state)


@given(scripts(policies=(MOVING,)))
def test_p07_moves_keep_the_books(script: Script) -> None:
    """Whatever machines do meanwhile: every invariant after each event, and the journal brings the same state back."""
    world = run(script)
    assert world.state.conservation().error == 0
    journal = [(entry.event, entry.actions) for entry in world.journal]
    assert snapshot(recover(journal, policy=MOVING)) == snapshot(world.state)


def test_the_worlds_of_these_laws_have_moves() -> None:
    """They would say nothing otherwise."""
    worlds = [scattered(seed) for seed in range(20)]
    assert sum(world.state.consolidation_moves for world in worlds) >= 12
    kinds = {world.state.facts.records[a.workload].spec.kind for world in worlds for _, _, a in moves(world)}
    assert kinds == {Kind.SESSION, Kind.BATCH}
