"""The debug right and the take limit, judged by hand at each grant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.commit import PREEMPTIONS
from gpufair.core.facts import LEAVING, Facts
from gpufair.core.model import Phase, PreemptReason
from gpufair.core.placement import place
from gpufair.core.record import Record
from gpufair.core.units import AllocationPath, Millis, PoolName, WorkloadId
from tests.property.test_contract_laws import before_each_action, metric_by_hand
from tests.strategies import Script, crowds, run, scripts
from tests.world import CAUSE, FULL, SMALL

POLICIES = (SMALL, FULL, FULL)
SCRIPTS = st.one_of(crowds(POLICIES), scripts(policies=POLICIES))


def capacity(facts: Facts, pool: PoolName) -> int:
    return sum(node.node.gpus for node in facts.nodes.values() if node.node.pool == pool and not node.lost)


@given(SCRIPTS)
def test_p05_gpus_under_the_debug_right_stay_within_its_bounds(script: Script) -> None:
    """Those of the pool and those of the leaf; and only small short work has it. Whoever leaves for somebody who comes
    under it has handed his part over."""
    world = run(script)
    under: dict[WorkloadId, tuple[PoolName, AllocationPath, int]] = {}
    policy = world.policy
    for _, facts, action in before_each_action(world):
        if isinstance(action, act.Start) and action.workload in under:
            _, leaf, gpus = under[action.workload]
            under[action.workload] = action.held.pool, leaf, gpus  # it may have found room in another pool
        elif isinstance(action, act.Unreserve | act.Requeue | act.Park | act.End | act.Extend):
            under.pop(action.workload, None)
        if not isinstance(action, act.Reserve) or not action.debug:
            continue
        asker = facts.records[action.workload]
        assert 0 < asker.min_runtime <= policy.debug_min_runtime
        leaf = asker.spec.allocation
        under[asker.id] = action.pool, leaf, asker.gpus
        replaced = {*action.victims, *(victim for one in under for victim in pending(facts.records[one]))}
        staying = [one for workload, one in under.items() if workload not in replaced]
        here = sum(gpus for pool, _, gpus in staying if pool == action.pool)
        gpus = capacity(facts, action.pool)
        assert here <= Fraction(str(policy.debug_most)) * gpus
        assert here <= max(Fraction(policy.debug_gpus), Fraction(str(policy.debug_share)) * gpus)
        mine = sum(gpus for pool, whose, gpus in staying if pool == action.pool and whose == leaf)
        assert mine <= policy.debug_gpus
        for victim in (facts.records[victim] for victim in action.victims):
            assert not victim.spec.allocated or victim.gpus <= asker.gpus + 1 or victim.debug
    assert under.keys() == world.state.facts.debugging.keys()


def pending(record: Record) -> tuple[WorkloadId, ...]:
    """Who has yet to leave for it."""
    return record.reservation.pending if record.reservation is not None else ()


@given(scripts(policies=(FULL,)), st.integers(0, 2))
def test_p01_edits_of_policy_and_budgets_never_shorten_a_granted_protection(script: Script, which: int) -> None:
    """Not even when the cap falls below what was granted."""
    world = run(script, settle_ms=0)
    before = {one.id: one.held for one in world.state.workloads() if one.held is not None}
    edits: tuple[ev.Event, ...] = (
        ev.PolicyChanged(world.now, CAUSE, replace(script.policy, max_min_runtime=Millis(100))),
        ev.PolicyChanged(world.now, CAUSE, replace(script.policy, debug_min_runtime=Millis(0), take_limit=None)),
        ev.BudgetsApplied(world.now, CAUSE, tuple(replace(one, share="1") for one in script.allocations())),
    )
    start = len(world.journal)
    world.feed(edits[which])
    for workload in world.state.workloads():
        if workload.id in before and workload.held is not None:
            assert workload.held.protected_until == before[workload.id].protected_until
    ends = {workload: one.protected_until for workload, one in before.items()}
    world.advance(20_000)
    for entry in world.journal[start:]:
        for action in entry.actions:
            if isinstance(action, act.Start):
                ends[action.workload] = action.held.protected_until
            elif isinstance(action, act.BeginCheckpoint) and action.reason in PREEMPTIONS:
                assert entry.event.at >= ends[action.workload]


def held(facts: Facts, leaf: AllocationPath, pool: PoolName, leaving: bool = True) -> int:
    """GPUs that a leaf holds, or that are kept for it."""
    return sum(
        record.gpus
        for record in facts.records.values()
        if record.spec.allocated
        and record.spec.allocation == leaf
        and (of := record.held or record.reservation) is not None
        and of.pool == pool
        and (leaving or record.phase not in LEAVING)
    )


def limit(facts: Facts, leaf: AllocationPath, pool: PoolName) -> int:
    kappa = facts.policy.take_limit
    assert kappa is not None
    return max(
        facts.policy.take_least, int(Fraction(str(kappa)) * facts.tree[leaf].entitlement * capacity(facts, pool))
    )


def beyond(facts: Facts, record: Record, pool: PoolName) -> bool:
    """Whether its start takes its leaf beyond the limit."""
    mine = held(facts, record.spec.allocation, pool)
    return mine > 0 and mine + record.gpus > limit(facts, record.spec.allocation, pool)


def waiting(facts: Facts, pool: PoolName) -> Iterator[Record]:
    """Allocated work that accepts a pool and for which no GPUs are kept."""
    for record in facts.records.values():
        queued = record.phase is Phase.QUEUED and record.reservation is None
        if queued and record.spec.allocated and record.gpus and pool in record.spec.pools:
            yield record


def is_hungry(facts: Facts, leaf: AllocationPath, pool: PoolName, slack: Fraction = Fraction(0)) -> bool:
    if not facts.tree[leaf].entitlement or not any(record.spec.allocation == leaf for record in waiting(facts, pool)):
        return False
    full = Fraction(1)
    if facts.policy.banking == 1:  # the other metric is relative already
        had = facts.ledger(pool).capacity.occupancy(facts.now, facts.policy.window)
        full = Fraction(had or max(1, capacity(facts, pool)) * facts.policy.window)
    return metric_by_hand(facts, leaf, pool, 0) < full * (1 + slack)


FLOATS = Fraction(1, 10**9)  # the core compares floats


@given(SCRIPTS)
def test_p05_the_take_limit_moves_only_what_is_beyond_it_and_only_for_the_hungry(script: Script) -> None:
    """And a leaf keeps its limit, whatever it has had."""
    for entry, facts, action in before_each_action(run(script)):
        if not isinstance(action, act.Reserve):
            continue
        reasons = {one.workload: one.reason for one in entry.actions if isinstance(one, act.BeginCheckpoint)}
        taken = [facts.records[one] for one in action.victims if reasons[one] is PreemptReason.TAKE_LIMIT]
        asker = facts.records[action.workload]
        assert not taken or is_hungry(facts, asker.spec.allocation, action.pool, FLOATS)
        assert not taken or not beyond(facts, asker, action.pool)
        for leaf in {victim.spec.allocation for victim in taken}:
            assert leaf != asker.spec.allocation
            lost = sum(victim.gpus for victim in taken if victim.spec.allocation == leaf)
            assert held(facts, leaf, action.pool, leaving=False) - lost >= limit(facts, leaf, action.pool)


@given(SCRIPTS)
def test_p05_beyond_its_limit_a_leaf_gets_only_what_nobody_else_can_use(script: Script) -> None:
    """It starts on GPUs for which none of the others has anything that fits, and moves nobody else's allocated work."""
    for entry, facts, action in before_each_action(run(script)):
        match action:
            case act.Start():
                pool, kept = action.held.pool, facts.records[action.workload].reservation is not None
            case act.Reserve():
                pool, kept = action.pool, False
            case _:
                continue
        record = facts.records[action.workload]
        if facts.policy.take_limit is None or not record.spec.allocated or not record.gpus or kept:
            continue
        leaf = record.spec.allocation
        hungry = {one.spec.allocation for one in waiting(facts, pool) if one.spec.allocation != leaf}
        if not beyond(facts, record, pool) or not any(is_hungry(facts, other, pool, -FLOATS) for other in hungry):
            continue
        for other in waiting(facts, pool):
            if other.spec.allocation != leaf and not beyond(facts, other, pool):
                assert place(facts.by_pool[pool], other.spec.shape) is None
        if isinstance(action, act.Reserve):
            reasons = {one.workload: one.reason for one in entry.actions if isinstance(one, act.BeginCheckpoint)}
            assert {reasons[one] for one in action.victims} <= {PreemptReason.UNALLOCATED, PreemptReason.PRIORITY}
