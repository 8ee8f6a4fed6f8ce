"""GPUs: none held twice, gangs whole, none idle while somebody who fits waits, cordoned nodes empty."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.backoff import rests
from gpufair.core.model import Allocation, Node, Phase, Shape
from gpufair.core.record import NodeView
from gpufair.core.units import AllocationPath, Instant, Millis, NodeName, PoolName, WorkloadId
from tests.strategies import CLUSTERS, TREES, Script, begin, crowds, run, scripts, step
from tests.world import CAUSE, SMALL, Audit, Delays, World


@given(scripts())
def test_p02_no_gpu_is_held_twice(script: Script) -> None:
    """At every moment at which something starts, what is held on a node fits on it, those who are leaving included."""
    world = run(script)
    stays = Audit.of(world.journal).stays
    for node in script.nodes():
        here = [stay for stay in stays if stay.node == node.name]
        for moment in {stay.start for stay in here}:
            now = [stay for stay in here if stay.start <= moment < stay.end]
            assert sum(stay.gpus for stay in now) <= node.gpus
            assert node.cpus is None or sum(stay.spec.shape.cpus_per_node for stay in now) <= node.cpus
            assert node.memory is None or sum(stay.spec.shape.memory_per_node for stay in now) <= node.memory


GREEDY = st.tuples(
    st.sampled_from((0, 1, 2)),  # GPUs
    st.integers(0, 4),  # CPUs
    st.integers(0, 8),  # memory
    st.sampled_from((0, 1_000, 5_000)),  # min_runtime
    st.sampled_from((0, 0, 300, 2_500)),  # wait
    st.booleans(),  # of b, or of a
)


@given(st.lists(GREEDY, min_size=4, max_size=20), st.sampled_from((Delays(), Delays(900, 900, 950))))
def test_p02_cpus_and_memory_are_held_by_one_at_a_time(
    asked: list[tuple[int, int, int, int, int, bool]], delays: Delays
) -> None:
    """Where GPUs abound, what is short beside them decides; who is saving or stopping still has it."""
    nodes = [Node(NodeName("n0"), 8, cpus=4, memory=8), Node(NodeName("n1"), 2, cpus=6)]
    world = World(delays=delays).set_up([Allocation(AllocationPath(leaf)) for leaf in "ab"], nodes)
    for number, (gpus, cpus, memory, min_runtime, wait, other) in enumerate(asked):
        world.advance(wait)
        demands = {"cpus_per_node": cpus, "memory_per_node": memory}
        world.submit(f"w{number:02d}", "b" if other else "a", gpus, min_runtime, demands=demands)
    world.advance(20_000)
    stays = Audit.of(world.journal).stays
    for node in nodes:
        here = [stay for stay in stays if stay.node == node.name]
        for moment in {stay.start for stay in here}:
            now = [stay.spec.shape for stay in here if stay.start <= moment < stay.end]
            assert sum(shape.cpus_per_node for shape in now) <= (node.cpus or 0)
            assert node.memory is None or sum(shape.memory_per_node for shape in now) <= node.memory


@given(scripts())
def test_p03_gangs_start_stop_and_requeue_whole(script: Script) -> None:
    """Half a gang is worth nothing, and costs as much; and all of it is where it asked to be."""
    world = run(script)
    nodes = {node.name: node for node in script.nodes()}
    shapes: dict[WorkloadId, Shape] = {}  # as asked for at that moment
    for entry in world.journal:
        if isinstance(entry.event, ev.Submitted):
            shapes[entry.event.workload] = entry.event.spec.shape
        elif isinstance(entry.event, ev.Amended):
            shapes[entry.event.workload] = entry.event.shape
        for action in entry.actions:
            if not isinstance(action, act.Start | act.Reserve):
                continue
            leases = action.held.leases if isinstance(action, act.Start) else action.leases
            shape = shapes[action.workload]
            assert len({lease.node for lease in leases}) == len(leases) == shape.nodes
            assert all(lease.gpus == shape.gpus_per_node for lease in leases)
            where = [nodes[lease.node] for lease in leases]
            assert shape.nodes == 1 or not shape.within or len({node.labels[shape.within] for node in where}) == 1
            assert not [node for node in where if node.name in shape.exclude]
            assert all(node.labels.get(label) == value for node in where for label, value in shape.where)


def suits(world: World, node: NodeView, shape: Shape) -> bool:
    """Whether a node is one of those that a shape asks for, with enough left, seen from outside."""
    if node.cordoned or node.lost or node.free < shape.gpus_per_node or node.node.name in shape.exclude:
        return False
    if shape.gpu_type and node.node.gpu_type != shape.gpu_type:
        return False
    if any(node.node.labels.get(label) != value for label, value in shape.where):
        return False
    cpus, memory = beside(world, node)
    return cpus >= shape.cpus_per_node and memory >= shape.memory_per_node


def beside(world: World, node: NodeView) -> tuple[float, float]:
    """CPUs and memory that nobody holds and that are kept for nobody."""
    left = [inf if has is None else has for has in (node.node.cpus, node.node.memory)]
    for holder, _ in node.holders:
        shape = world.state.workload(holder).spec.shape
        left = [left[0] - shape.cpus_per_node, left[1] - shape.memory_per_node]
    facts = world.state.facts
    for owner, _ in node.reserved:
        shape, reservation = facts.records[owner].spec.shape, facts.records[owner].reservation
        assert reservation is not None
        leaving = [facts.records[one].spec.shape for one in reservation.pending if one in dict(node.holders)]
        left = [
            left[0] - max(0, shape.cpus_per_node - sum(one.cpus_per_node for one in leaving)),
            left[1] - max(0, shape.memory_per_node - sum(one.memory_per_node for one in leaving)),
        ]
    return left[0], left[1]


def fits(world: World, shape: Shape, pools: tuple[PoolName, ...]) -> bool:
    """Whether what is free would hold a shape, seen from outside."""
    for pool in pools:
        nodes = [one.node for one in world.state.nodes() if one.node.pool == pool and suits(world, one, shape)]
        if shape.nodes > 1 and shape.within:
            values = [node.labels[shape.within] for node in nodes if shape.within in node.labels]
            enough = any(values.count(value) >= shape.nodes for value in values)
        else:
            enough = len(nodes) >= shape.nodes
        if enough:
            return True
    return False


@given(st.one_of(crowds(), scripts()))
def test_p13_no_fitting_gpus_idle_while_somebody_waits(script: Script) -> None:
    """After every single event."""
    world = begin(script)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
        for waiting in world.state.queue():
            spec = world.state.workload(waiting).spec
            if rests(world.state.facts.records[waiting], world.now):
                continue  # unallocated work that was preempted again and again comes back later
            assert not fits(world, spec.shape, spec.pools), f"{waiting} could start"


FOLK = ("submit", "submit", "exit", "park", "cancel")
SPANS = st.sampled_from((None, 0, 700, 4_000))


@given(scripts(FOLK, late=False), st.integers(0, 7), SPANS, st.booleans())
def test_p21_a_cordoned_node_gets_nothing_new_and_empties(
    script: Script, which: int, span: int | None, force: bool
) -> None:
    """Within the longest protection and a grace, whatever ran there; within a grace of the deadline if it is forced.
    The node says when at every moment, and is never later."""
    world = begin(script)
    nodes = script.nodes()
    node = nodes[which % len(nodes)].name
    half = len(script.commands) // 2
    for index, command in enumerate(script.commands[:half]):
        step(world, script, command, index)
    deadline = Instant(world.now + span) if span is not None else None
    world.feed(ev.NodeDrained(world.now, CAUSE, node, deadline, force=force and span is not None))
    since, cordoned = len(world.journal), world.now
    promised = empty_by(world, node)
    for index, command in enumerate(script.commands[half:]):
        step(world, script, command, half + index)
        # Nobody comes; who is there may leave earlier, or be parked and take its grace from now on.
        assert empty_by(world, node) <= max(promised, world.now + SMALL.grace_session)
    last = span if span is not None and force else SMALL.max_min_runtime
    world.advance(max(0, cordoned + last + SMALL.grace_session - world.now))
    for entry in world.journal[since:]:
        for action in entry.actions:
            if isinstance(action, act.Start):
                assert node not in {lease.node for lease in action.held.leases}
    (seen,) = (one for one in world.state.nodes() if one.node.name == node)
    assert seen.holders == seen.protected == ()
    assert promised <= cordoned + last + SMALL.grace_session


def empty_by(world: World, name: NodeName) -> Instant:
    """What a cordoned node promises; and that it names exactly those who are protected there."""
    (node,) = (one for one in world.state.nodes() if one.node.name == name)
    assert node.empty_by is not None
    stay = {Phase.STARTING, Phase.RESTORING, Phase.RUNNING}
    assert [one for one, _ in node.protected] == [
        holder for holder, _ in node.holders if world.state.workload(holder).phase in stay
    ]
    return node.empty_by


STEADY = 12


@given(
    shares=st.lists(st.integers(1, 4), min_size=2, max_size=3),
    gpus=st.sampled_from((1, 2, 4)),
    min_runtime=st.sampled_from((1_000, 2_000, 3_000)),
    sizes=st.lists(st.sampled_from((1, 2)), min_size=3, max_size=3),
)
def test_p12_steady_demand_is_delivered_in_the_shares(
    shares: list[int], gpus: int, min_runtime: int, sizes: list[int]
) -> None:
    """Closed-loop demand: everybody always has enough waiting. The bound is the one of docs/policy.md."""
    sizes = [min(size, gpus) for size in sizes]
    tree = [("abc"[index], str(share)) for index, share in enumerate(shares)]
    # The grid is a small part of the window, as it is in life; the ranks cross between two of its moments.
    policy = replace(SMALL, grid=Millis(500))
    nodes = [Node(NodeName(name), gpus) for name in ("n0", "n1")]
    world = World(policy, Delays(0, 0, 0), validate=False)
    world.set_up([Allocation(AllocationPath(path), share) for path, share in tree], nodes)
    for index, (leaf, _) in enumerate(tree):
        for number in range(STEADY):
            world.submit(f"{leaf}{number:02d}", leaf, gpus=sizes[index], min_runtime=min_runtime)
    world.advance(2 * SMALL.window)
    figures = {one.path: one for one in world.state.budgets()}
    capacity = 2 * gpus
    idle = world.state.conservation().idle
    granule = max(sizes[: len(tree)]) * min_runtime
    for leaf, _ in tree:
        one = figures[leaf]  # type: ignore[index]
        entitled = float(one.entitlement) * capacity * SMALL.window
        late = capacity * policy.grid
        assert abs(one.occupancy - entitled) <= granule + SMALL.hysteresis * entitled + late + idle


def test_the_laws_run_in_more_than_one_world() -> None:
    """A law that was never tried says nothing."""
    assert len(TREES) > 3
    assert len(CLUSTERS) > 3
