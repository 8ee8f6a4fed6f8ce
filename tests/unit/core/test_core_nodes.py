"""Placement, nodes that come and go, gangs, and work without GPUs."""

from __future__ import annotations

import pytest

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.errors import NodeNotLost, UnknownNode
from gpufair.core.model import Allocation, Kind, Maintenance, Node, Phase, PreemptReason
from gpufair.core.units import AllocationPath, Instant, NodeName, PoolName, WorkloadId
from tests.world import CAUSE, DEFAULT, PROMPT, Delays, World

A, B = Allocation(AllocationPath("a")), Allocation(AllocationPath("b"))
CPU = PoolName("cpu")


def cluster(*gpus: int, delays: Delays = PROMPT) -> World:
    return World(delays=delays).set_up([A, B], [Node(NodeName(f"n{i}"), count) for i, count in enumerate(gpus)])


def node(
    world: World, what: type[ev.NodeLost | ev.NodeRemoved | ev.NodeCordoned | ev.NodeUncordoned], name: str
) -> list[act.Action]:
    return world.feed(what(world.now, CAUSE, NodeName(name)))


def at(world: World, after_ms: int) -> Instant:
    return Instant(world.now + after_ms)


def test_small_workloads_fill_partly_used_nodes() -> None:
    """Whole nodes stay whole for those who need them."""
    world = cluster(4, 4)
    world.submit("big", "a", gpus=3)
    world.submit("small", "a")
    assert world.where("small") == world.where("big") == ("n0",)
    world.submit("whole", "a", gpus=4)
    assert world.where("whole") == ("n1",)


def test_gangs_take_the_tightest_distinct_nodes() -> None:
    """All or nothing."""
    world = cluster(4, 2, 2)
    world.submit("gang", "a", gpus=2, nodes=2)
    assert world.where("gang") == ("n1", "n2")
    world.submit("other", "a", gpus=2, nodes=2)
    assert world.phase("other") is Phase.QUEUED


def test_a_gpu_type_is_kept_to() -> None:
    """And no type means any."""
    world = World().set_up([A], [Node(NodeName("n0"), 1, "t"), Node(NodeName("n1"), 1, "s")])
    world.submit("v", "a", gpu_type="s")
    world.submit("w", "a")
    assert (world.where("v"), world.where("w")) == (("n1",), ("n0",))


def test_pools_are_tried_in_the_order_in_which_they_are_named() -> None:
    """Each has its own ledger."""
    fast, slow = PoolName("fast"), PoolName("slow")
    nodes = [Node(NodeName("f"), 1, pool=fast), Node(NodeName("s"), 1, pool=slow)]
    world = World().set_up([A], nodes)
    for name in ("one", "two"):
        world.submit(name, "a", pools=(slow, fast))
    assert (world.where("one"), world.where("two")) == (("s",), ("f",))
    world.advance(1_000)
    occupied = {one.pool: one.occupancy for one in world.state.budgets() if one.path == "a"}
    assert occupied == {fast: 1_000, slow: 1_000}


def test_nobody_is_evicted_while_a_pool_that_is_named_later_has_room() -> None:
    """And if somebody else takes that room first, the first pool is asked again at once."""
    fast, slow = PoolName("fast"), PoolName("slow")
    nodes = [Node(NodeName("f"), 1, pool=fast), Node(NodeName("s"), 1, pool=slow)]
    world = World().set_up([A, B], nodes)
    world.submit("v", "a", min_runtime=0, pools=(fast,))
    world.submit("p", "b", pools=(fast, slow))
    assert world.where("p") == ("s",)
    assert world.phase("v") is Phase.STARTING
    world.submit("q", "b", pools=(fast, slow))
    assert world.phase("v") is Phase.CHECKPOINTING
    assert [node.reserved for node in world.state.nodes()] == [(("q", 1),), ()]


def test_work_without_gpus_keeps_off_gpu_nodes_and_costs_nothing() -> None:
    """It starts at once, protected or not, whatever the queue."""
    world = cluster(1, 0, 0)
    world.submit("v", "a")
    for name in ("one", "two", "three"):
        world.submit(name, "a", gpus=0, min_runtime=5_000)
    assert [world.where(name)[0] for name in ("one", "two", "three")] == ["n1", "n2", "n1"]
    world.advance(1_000)
    assert world.state.workload(WorkloadId("one")).charged == 0
    world.submit("p", "b")
    world.advance(30_000)
    assert world.phase("one") is Phase.RUNNING


def test_work_without_gpus_goes_to_gpu_nodes_where_there_are_no_others() -> None:
    """And it waits, in front, when there are none at all."""
    world = cluster(1)
    world.submit("one", "a", gpus=0, min_runtime=0)
    assert world.where("one") == ("n0",)
    world.submit("two", "a", gpus=0, pools=(CPU,))
    assert world.state.queue() == ("two",)
    assert "starts as soon as a node for it is there" in world.state.explain(WorkloadId("two")).estimate_basis
    world.feed(ev.NodeJoined(world.now, CAUSE, Node(NodeName("c"), 0, pool=CPU)))
    assert world.where("two") == ("c",)


def test_what_ran_on_a_lost_node_is_queued_again_or_parked() -> None:
    """Charging stops at once; the last checkpoint stands."""
    world = cluster(4)
    world.submit("batch", "a", gpus=2)
    world.submit("idle", "a", kind=Kind.SESSION)
    world.submit("busy", "a", kind=Kind.SESSION)
    world.advance(1_000)
    world.feed(ev.ActivityReported(world.now, CAUSE, WorkloadId("busy"), 1, busy=True))
    world.feed(ev.NodeJoined(world.now, CAUSE, Node(NodeName("n1"), 1)))
    actions = node(world, ev.NodeLost, "n0")
    assert sorted((type(one).__name__, one.workload) for one in actions) == [
        ("Park", "idle"),
        ("Requeue", "batch"),
        ("Requeue", "busy"),
        ("Start", "busy"),
    ]
    world.advance(1_000)
    assert world.state.workload(WorkloadId("batch")).charged == 2_000
    assert world.state.conservation().unavailable == 4_000


def test_a_gang_that_lost_a_node_stops_whole() -> None:
    """Its other leases are held, and charged, until they are really free."""
    world = cluster(2, 2)
    world.submit("gang", "a", gpus=2, nodes=2)
    world.advance(1_000)
    actions = node(world, ev.NodeLost, "n0")
    assert [type(one).__name__ for one in actions] == ["Stop"]
    assert world.where("gang") == ("n1",)
    world.advance(400)
    assert world.phase("gang") is Phase.QUEUED
    assert world.state.workload(WorkloadId("gang")).charged == 4 * 1_000 + 2 * 400


def test_a_node_that_comes_back_takes_work_again() -> None:
    """With the same inventory, or with another one if nothing is held there."""
    world = cluster(1)
    world.submit("v", "a")
    world.advance(500)
    node(world, ev.NodeLost, "n0")
    assert world.phase("v") is Phase.QUEUED
    world.feed(ev.NodeJoined(world.now, CAUSE, Node(NodeName("n0"), 2)))
    assert world.where("v") == ("n0",)
    assert world.state.nodes()[0].free == 1


def test_gpus_kept_on_a_lost_node_are_given_up() -> None:
    """The beneficiary goes back to its place in the queue."""
    world = cluster(1, delays=Delays(release=-9_000))
    world.submit("v", "a", min_runtime=1_000)
    world.advance(1)
    world.submit("p", "b", min_runtime=500)
    world.advance(1_000)
    assert world.state.nodes()[0].reserved == (("p", 1),)
    actions = node(world, ev.NodeLost, "n0")
    assert ("Unreserve", "p") in [(type(one).__name__, one.workload) for one in actions]
    assert world.state.nodes()[0].reserved == ()


def test_a_cordoned_node_is_left_as_protections_end() -> None:
    """Not before; and unallocated work leaves at once."""
    world = cluster(2, delays=Delays(0, 0, 0))
    world.submit("v", "a", min_runtime=5_000)
    world.submit("free", "a", min_runtime=0)
    world.advance(1_000)
    (notice,) = node(world, ev.NodeCordoned, "n0")
    assert isinstance(notice, act.BeginCheckpoint)
    assert (notice.workload, notice.reason, notice.beneficiary) == ("free", PreemptReason.DRAIN, None)
    world.advance(3_999)
    assert world.phase("v") is Phase.RUNNING
    world.advance(1)
    assert world.where("v") == ()
    assert world.state.queue() == ("v", "free")
    node(world, ev.NodeUncordoned, "n0")
    assert world.where("v") == world.where("free") == ("n0",)


def test_the_default_pool_is_enough_for_most() -> None:
    """Nodes and workloads that name none meet there."""
    world = cluster(1)
    assert {one.pool for one in world.state.budgets()} == {DEFAULT}


def test_a_removed_node_is_known_no_longer() -> None:
    """An autoscaler makes nodes with new names for ever: none may stay in the books as lost."""
    world = World().set_up([A, B], [Node(NodeName("n0"), 4), Node(NodeName("n1"), 2, pool=PoolName("other"))])
    world.submit("v", "a", gpus=4, min_runtime=20_000)
    world.advance(1_000)
    node(world, ev.NodeCordoned, "n0")
    world.feed(ev.MaintenancePlanned(world.now, CAUSE, Maintenance("both", (NodeName("n0"), NodeName("n1")), at(world, 9_000))))
    world.feed(ev.MaintenancePlanned(world.now, CAUSE, Maintenance("one", (NodeName("n0"),), at(world, 9_000))))
    with pytest.raises(NodeNotLost, match="'n0' cannot be removed: it is there"):
        node(world, ev.NodeRemoved, "n0")
    node(world, ev.NodeLost, "n0")
    world.advance(1_000)
    assert node(world, ev.NodeRemoved, "n0") == []
    assert [view.node.name for view in world.state.nodes()] == ["n1"]
    assert {name: plan.nodes for name, plan in world.state.facts.maintenance.items()} == {"both": ("n1",)}
    # It was there for a second, and lost for another one; what it was charged for stays in the books.
    world.advance(5_000)
    assert world.state.workload(WorkloadId("v")).charged == 4_000
    counted = world.state.facts.ledgers[DEFAULT].conservation(DEFAULT)
    assert (counted.charged, counted.unavailable, counted.idle, counted.error) == (4_000, 4_000, 0, 0)
    # What it could have held may be submitted still: the pool may get other nodes.
    assert world.submit("w", "a", gpus=8) == []
    with pytest.raises(UnknownNode):
        node(world, ev.NodeLost, "n0")


def test_a_node_of_the_name_of_a_removed_one_is_new() -> None:
    """Nothing of the old one counts for it: no cordon, no drain, no inventory."""
    world = cluster(4, 1)
    world.feed(ev.NodeDrained(world.now, CAUSE, NodeName("n0"), at(world, 1_000)))
    world.submit("v", "a", gpus=2)
    node(world, ev.NodeLost, "n0")
    node(world, ev.NodeRemoved, "n0")
    assert world.phase("v") is Phase.QUEUED
    world.feed(ev.NodeJoined(world.now, CAUSE, Node(NodeName("n0"), 2, "t")))
    (view,) = [one for one in world.state.nodes() if one.node.name == "n0"]
    assert (view.node, view.cordoned, view.drain) == (Node(NodeName("n0"), 2, "t"), False, None)
    assert world.where("v") == ("n0",)
