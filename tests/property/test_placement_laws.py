"""GPUs: none held twice, gangs whole, none idle while somebody who fits waits, cordoned nodes empty."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.model import Allocation, Node, Shape
from gpufair.core.units import AllocationPath, Millis, NodeName, PoolName
from tests.strategies import CLUSTERS, TREES, Script, begin, crowds, run, scripts, step
from tests.world import CAUSE, SMALL, Audit, Delays, World


@given(scripts())
def test_p02_no_gpu_is_held_twice(script: Script) -> None:
    """At every moment at which something starts, what is held on a node fits on it, those who are leaving included."""
    world = run(script)
    stays = Audit.of(world.journal).stays
    capacity = {node.name: node.gpus for node in script.nodes()}
    for name, gpus in capacity.items():
        here = [stay for stay in stays if stay.node == name]
        for moment in {stay.start for stay in here}:
            assert sum(stay.gpus for stay in here if stay.start <= moment < stay.end) <= gpus


@given(scripts())
def test_p03_gangs_start_stop_and_requeue_whole(script: Script) -> None:
    """Half a gang is worth nothing, and costs as much."""
    world = run(script)
    for _, action in world.actions():
        if isinstance(action, act.Start | act.Reserve):
            leases = action.held.leases if isinstance(action, act.Start) else action.leases
            shape = world.state.workload(action.workload).spec.shape
            assert len({lease.node for lease in leases}) == len(leases) == shape.nodes
            assert all(lease.gpus == shape.gpus_per_node for lease in leases)
    last: dict[str, tuple[int, int]] = {}
    for stay in sorted(Audit.of(world.journal).stays, key=lambda one: (one.workload, one.incarnation)):
        incarnation, end = last.get(stay.workload, (0, 0))
        # Nothing of a later start begins before all of the earlier one has ended.
        assert stay.incarnation == incarnation or stay.start >= end
        last[stay.workload] = (stay.incarnation, max(end, stay.end))


def fits(world: World, shape: Shape, pools: tuple[PoolName, ...]) -> bool:
    """Whether the free GPUs would hold a shape, seen from outside."""
    return any(
        shape.nodes
        <= sum(
            1
            for node in world.state.nodes()
            if node.node.pool == pool
            and not node.cordoned
            and not node.lost
            and node.free >= shape.gpus_per_node
            and (not shape.gpu_type or node.node.gpu_type == shape.gpu_type)
        )
        for pool in pools
    )


@given(st.one_of(crowds(), scripts()))
def test_p13_no_fitting_gpus_idle_while_somebody_waits(script: Script) -> None:
    """After every single event."""
    world = begin(script)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
        for waiting in world.state.queue():
            spec = world.state.workload(waiting).spec
            assert not fits(world, spec.shape, spec.pools), f"{waiting} could start"


@given(scripts(("submit", "submit", "exit", "park", "cancel"), late=False), st.integers(0, 7))
def test_p21_a_cordoned_node_gets_nothing_new_and_empties(script: Script, which: int) -> None:
    """Within the longest protection and a grace, whatever ran there."""
    world = begin(script)
    nodes = script.nodes()
    node = nodes[which % len(nodes)].name
    half = len(script.commands) // 2
    for index, command in enumerate(script.commands[:half]):
        step(world, script, command, index)
    world.feed(ev.NodeCordoned(world.now, CAUSE, node))
    since, cordoned = len(world.journal), world.now
    for index, command in enumerate(script.commands[half:]):
        step(world, script, command, half + index)
    world.advance(max(0, cordoned + SMALL.max_min_runtime + SMALL.grace_session - world.now))
    for entry in world.journal[since:]:
        for action in entry.actions:
            if isinstance(action, act.Start):
                assert node not in {lease.node for lease in action.held.leases}
    (seen,) = (one for one in world.state.nodes() if one.node.name == node)
    assert seen.holders == ()
    assert isinstance(node, str)
    assert NodeName(node) == node


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
