"""The contract between a workload and the scheduler: protection, the unallocated tier, who may preempt whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.commit import PREEMPTIONS, commit
from gpufair.core.errors import MinRuntimeTooLong
from gpufair.core.facts import Facts
from gpufair.core.model import Allocation, Kind, Node, Phase, PreemptReason, Shape, WorkloadSpec
from gpufair.core.owed import MICRO
from gpufair.core.recording import record_event
from gpufair.core.snapshot import snapshot
from gpufair.core.units import AllocationPath, Millis, NodeName, PoolName, WorkloadId
from tests.strategies import CLUSTERS, TREES, Script, crowds, run, scripts
from tests.world import CAUSE, FULL, SMALL, Audit, Delays, Entry, World, evictions

POLICIES = (SMALL, FULL)
HALVES = (Allocation(AllocationPath("a"), "50"), Allocation(AllocationPath("b"), "50"))


def one_gpu() -> World:
    return World().set_up(HALVES, [Node(NodeName("n"), 1)])


@given(st.one_of(crowds(POLICIES), scripts(policies=POLICIES)))
def test_p01_a_protected_workload_is_never_preempted(script: Script) -> None:
    """The promise on which people plan: worked out from the journal, apart from the core's own clock."""
    world = run(script)
    promised: dict[WorkloadId, int] = {}
    for entry, facts, action in before_each_action(world):
        if isinstance(action, act.Start):
            record = facts.records[action.workload]
            promised[action.workload] = entry.event.at + record.min_runtime
            assert action.held.protected_until == promised[action.workload]
        elif isinstance(action, act.Extend):
            assert action.protected_until >= promised[action.workload]
            promised[action.workload] = action.protected_until
        elif isinstance(action, act.BeginCheckpoint) and action.reason not in {PreemptReason.PARK, PreemptReason.IDLE}:
            early = entry.event.at < promised[action.workload]
            assert early == (action.reason in {PreemptReason.FORCED, PreemptReason.MOVED})
            # The two exceptions, neither of which anybody gains by who waits.
            assert action.reason is not PreemptReason.MOVED or facts.records[action.workload].spec.movable
            assert action.reason is not PreemptReason.FORCED or _forced_off(facts, action.workload, entry.event.at)
            assert not early or action.beneficiary is None
    assert world.state.protected_preemptions == 0


def _forced_off(facts: Facts, workload: WorkloadId, at: int) -> bool:
    """Whether an operator wanted a node of a workload empty by now, whatever is protected there."""
    held = facts.records[workload].held
    drains = [facts.nodes[lease.node].drain for lease in held.leases] if held is not None else []
    return any(one is not None and one.force and one.deadline is not None and one.deadline <= at for one in drains)


@given(st.one_of(crowds(POLICIES), scripts(policies=POLICIES)))
def test_p01_a_start_is_protected_for_what_it_asks_and_only_a_resumed_slice_asks_less(script: Script) -> None:
    """What the next start asks for is the spec's, unless the owner resumed the session for a slice of it."""
    world = run(script)
    sliced: dict[WorkloadId, int] = {}
    asked: dict[WorkloadId, int] = {}
    for entry in world.journal:
        event = entry.event
        if isinstance(event, ev.Submitted):
            asked[event.workload] = event.spec.min_runtime
        elif isinstance(event, ev.Amended):
            asked[event.workload] = event.min_runtime
        elif isinstance(event, ev.ResumeRequested) and event.slice is not None:
            sliced[event.workload] = min(event.slice, sliced.get(event.workload, event.slice))
        for action in entry.actions:
            if isinstance(action, act.Start):
                whole = asked[action.workload]
                least = min(whole, sliced.get(action.workload, whole))
                assert action.held.granted == whole or least <= action.held.granted < whole


@given(min_runtime=st.integers(1, 20_000), wait=st.integers(0, 30_000), asked=st.integers(1, 3_000))
def test_p01_it_is_preemptible_exactly_at_start_plus_min_runtime(min_runtime: int, wait: int, asked: int) -> None:
    """Not a millisecond early, and not a grid later."""
    world = World(delays=Delays(0, 0, 0)).set_up(HALVES, [Node(NodeName("n"), 1)])
    world.submit("v", "a", min_runtime=min_runtime)
    world.advance(wait)
    world.submit("p", "b", min_runtime=asked)
    world.advance(120_000)
    notices = [(entry.event.at, action.workload) for entry, action in evictions(world)]
    # b is better off only when a has had clearly more than b asks for; from then on the end of protection decides.
    ripe = next(at for at in _moments(min_runtime, wait) if asked <= (1 - SMALL.hysteresis) * at)
    assert notices[0] == (ripe, "v")


def _moments(min_runtime: int, wait: int) -> Iterator[int]:
    """When a pass looks: at b's submission, at the end of a's protection, then on the grid."""
    first = max(min_runtime, wait)
    yield first
    at = first // SMALL.grid * SMALL.grid
    while True:
        at += SMALL.grid
        yield at


@given(more=st.integers(1, 10**9))
def test_p04_a_min_runtime_above_the_cap_is_rejected(more: int) -> None:
    """A longer protection than the cap would break everybody's bound on waiting."""
    world = one_gpu()
    before = snapshot(world.state)
    with pytest.raises(MinRuntimeTooLong) as caught:
        world.submit("v", "a", min_runtime=SMALL.max_min_runtime + more)
    assert "20 s" in str(caught.value)
    assert snapshot(world.state) == before


@given(scripts(policies=POLICIES))
def test_p04_unallocated_work_is_never_charged_and_never_protected(script: Script) -> None:
    """It is free because it has no rights."""
    world = run(script)
    asked: dict[WorkloadId, int] = {}
    ever: set[WorkloadId] = set()  # who was allocated once
    for entry in world.journal:
        if isinstance(entry.event, ev.Submitted):
            asked[entry.event.workload] = entry.event.spec.min_runtime
        elif isinstance(entry.event, ev.Amended):
            asked[entry.event.workload] = entry.event.min_runtime
        for action in entry.actions:
            if isinstance(action, act.Start) and asked[action.workload]:
                ever.add(action.workload)
            elif isinstance(action, act.Start):
                assert action.held.protected_until == action.held.granted_at
    for workload in world.state.workloads():
        if workload.id not in ever:
            assert workload.charged == 0


def before_each_action(world: World) -> Iterator[tuple[Entry, Facts, act.Action]]:
    """Every action of the journal with the facts just before it was applied."""
    facts = Facts(world.policy)
    for entry in world.journal:
        facts.advance(entry.event.at)
        if _was_recorded(entry, facts):
            record_event(entry.event, facts)
        for action in entry.actions:
            yield entry, facts, action
            commit(action, facts)


def _was_recorded(entry: Entry, facts: Facts) -> bool:
    from gpufair.core.admission import is_stale

    return not is_stale(entry.event, facts)


def metric_by_hand(facts: Facts, path: AllocationPath, pool: PoolName, more: int) -> Fraction:
    """(O + K) / (beta a Cap + (1 - beta) owed + a newcomer's entitlement) from first principles, exact."""
    committed = more
    for record in facts.records.values():
        if not record.spec.allocated or path not in facts.tree[record.spec.allocation].lineage:
            continue
        staying = record.phase in {Phase.STARTING, Phase.RESTORING, Phase.RUNNING}
        if staying and record.held is not None and record.held.pool == pool:
            committed += record.gpus * max(0, record.held.protected_until - facts.now)
        elif record.reservation is not None and record.reservation.pool == pool:
            committed += record.gpus * record.min_runtime
    ledger, now, policy, entitlement = facts.ledger(pool), facts.now, facts.policy, facts.tree[path].entitlement
    had = ledger.occupancies(facts.tree, now, policy.window)[path] + committed
    if policy.banking == 1:
        return had / entitlement
    entitled, beta = entitlement * ledger.capacity.occupancy(now, policy.window), Fraction(str(policy.banking))
    owed = Fraction(ledger.owed_within(facts.tree, now, policy.window)[path], MICRO)
    if not owed and not ledger.demand(facts.tree)[path]:
        owed = entitled
    return had / (beta * entitled + (1 - beta) * owed + entitlement * max(1, facts.capacity(pool)) * policy.newcomer)


@given(st.one_of(crowds(POLICIES), scripts(policies=POLICIES)))
def test_p05_only_a_right_evicts(script: Script) -> None:
    """Unallocated never evicts; rank evicts only the clearly worse-ranked; priority only within its own leaf."""
    world = run(script)
    slack = Fraction(1, 10**9)  # the core compares floats
    for entry, facts, action in before_each_action(world):
        # The rank was judged before the reservation was made, so the reservation is what is looked at.
        if not isinstance(action, act.Reserve):
            continue
        asker = facts.records[action.workload]
        mine = asker.spec
        assert mine.allocated
        reasons = {one.workload: one.reason for one in entry.actions if isinstance(one, act.BeginCheckpoint)}
        for victim in (facts.records[victim] for victim in action.victims):
            assert facts.exposed(victim)
            if reasons[victim.id] in {PreemptReason.DEBUG, PreemptReason.TAKE_LIMIT}:
                continue  # test_rights_laws: the bounds of these rights
            if not victim.spec.allocated or mine.allocation == victim.spec.allocation:
                assert not victim.spec.allocated or mine.priority > victim.spec.priority
                continue
            sides = facts.tree.diverge(mine.allocation, victim.spec.allocation)
            assert sides is not None
            own = mine.shape.gpus * asker.min_runtime
            ours = metric_by_hand(facts, sides[0], action.pool, own)
            theirs = metric_by_hand(facts, sides[1], action.pool, 0)
            assert ours <= (1 - Fraction(facts.policy.hysteresis)) * theirs * (1 + slack)


@given(st.one_of(crowds(POLICIES), scripts(policies=POLICIES)))
def test_p06_every_eviction_has_a_beneficiary_and_none_is_in_vain(script: Script) -> None:
    """With the victims gone the beneficiary fits where it is to start; without any one of them it would not."""
    world = run(script)
    for entry, facts, action in before_each_action(world):
        if isinstance(action, act.BeginCheckpoint) and action.reason in PREEMPTIONS:
            reserve = [one for one in entry.actions if isinstance(one, act.Reserve) and action.workload in one.victims]
            assert [one.workload for one in reserve] == [action.beneficiary]
        if not isinstance(action, act.Reserve):
            continue
        asked = facts.records[action.workload].spec.shape
        assert len({lease.node for lease in action.leases}) == asked.nodes

        def fits(victims: tuple[WorkloadId, ...], facts: Facts = facts, action: act.Reserve = action) -> bool:
            asked = facts.records[action.workload].spec.shape
            for lease in action.leases:
                node = facts.nodes[lease.node]
                shapes = [facts.records[victim].spec.shape for victim in victims if victim in node.holders]
                gpus = node.room + sum(node.holders.get(victim, 0) for victim in victims)
                cpus = node.cpus_left + sum(shape.cpus_per_node for shape in shapes)
                memory = node.memory_left + sum(shape.memory_per_node for shape in shapes)
                # A node that has too little of something lacks nothing for those who ask for none of it.
                enough = cpus >= asked.cpus_per_node or not asked.cpus_per_node
                if gpus < lease.gpus or not enough or (memory < asked.memory_per_node and asked.memory_per_node):
                    return False
            return True

        assert fits(action.victims)
        for victim in action.victims:
            assert not fits(tuple(other for other in action.victims if other != victim))


@given(crowds(POLICIES))
def test_p15_each_start_after_the_first_was_paid_for_with_a_whole_protection(script: Script) -> None:
    """No livelock: a workload that is preempted has always had what it was granted before."""
    world = run(script)
    granted: dict[WorkloadId, list[int]] = {}
    for _, action in world.actions():
        if isinstance(action, act.Start):
            granted.setdefault(action.workload, []).append(action.held.granted)
    for workload in world.state.workloads():
        if workload.spec.allocated and workload.spec.idle_release is None:
            earlier = granted.get(workload.id, [])[:-1]
            assert workload.spec.shape.gpus * sum(earlier) <= workload.charged


@given(crowds(POLICIES))
def test_p16_every_swap_consumes_a_run_that_nothing_protects(script: Script) -> None:
    """A chain of swaps ends: no run is evicted twice, and each was expired or unallocated."""
    world = run(script)
    runs = Counter((action.workload, action.incarnation) for _, action in evictions(world))
    assert all(count == 1 for count in runs.values())
    ended = {(stay.workload, stay.incarnation): stay for stay in Audit.of(world.journal).stays}
    for run_of in runs:
        assert ended[run_of].end >= ended[run_of].protected_until


def test_a_two_gpu_node_is_shared_and_the_tree_decides_who_goes() -> None:
    """The examples by which the rules are explained must be true."""
    world = World(delays=Delays(0, 0, 0)).set_up(HALVES, [Node(NodeName("n"), 2)])
    world.submit("a1", "a", min_runtime=5_000)
    world.submit("a2", "a", min_runtime=9_000)
    world.advance(1_000)
    world.submit("b1", "b", min_runtime=2_000)
    assert world.phase("b1") is Phase.QUEUED
    world.advance(3_999)
    assert world.phase("b1") is Phase.QUEUED
    world.advance(1)
    assert (world.phase("b1"), world.phase("a1"), world.phase("a2")) == (Phase.RUNNING, Phase.QUEUED, Phase.RUNNING)


def test_specs_are_built_by_hand_too() -> None:
    """A spec without GPUs is neither charged nor ever in the way."""
    spec = WorkloadSpec(AllocationPath("a"), "u", Kind.SESSION, Shape(0), Millis(0))
    world = one_gpu()
    world.submit("v", "a")
    world.feed(ev.Submitted(world.now, CAUSE, WorkloadId("cpu"), spec))
    assert world.phase("cpu") is Phase.STARTING


def test_the_strategies_cover_several_pools_and_levels() -> None:
    """The laws would hold vacuously in a world with one leaf and one pool."""
    assert any("/" in path for tree in TREES for path, _ in tree)
    assert any(len({pool for _, _, pool in cluster}) > 1 for cluster in CLUSTERS)
