"""First come, first served."""

from __future__ import annotations

from gpufair.core import events as ev
from gpufair.core.model import Allocation, Node
from gpufair.core.units import AllocationPath, Instant, NodeName, PoolName, WorkloadId
from gpufair.sim.policies.registry import contender
from tests.contest import CAUSE, Contest, contest, told
from tests.world import DEFAULT

OTHER = PoolName("other")


def test_the_head_blocks_the_rest() -> None:
    """It is what strict order costs: two GPUs idle while somebody waits who wants one."""
    world = contest("fifo", (4,))
    world.submit("one", gpus=2)
    world.submit("head", gpus=4)
    assert world.submit("small", gpus=1) == []
    assert told(world.exit("one")) == [("End", "one"), ("Start", "head")]
    assert told(world.exit("head")) == [("End", "head"), ("Start", "small")]


def test_who_is_queued_again_has_its_first_place() -> None:
    world = contest("fifo", (2,))
    for name in ("w1", "w2", "w3"):
        world.submit(name, gpus=2)
    world.exit("w1")
    again = world.feed(ev.Released(Instant(world.now), CAUSE, WorkloadId("w2"), 1))
    assert told(again) == [("Requeue", "w2"), ("Start", "w2")]


def test_a_head_blocks_only_the_pools_that_it_accepts() -> None:
    nodes = (Node(NodeName("n0"), 2), Node(NodeName("n1"), 2, pool=OTHER))
    world = Contest(contender("fifo")).set_up([Allocation(AllocationPath("a"))], nodes)
    world.submit("w1", gpus=1)
    world.submit("w2", gpus=2)
    assert told(world.submit("w3", gpus=2, pools=(OTHER,))) == [("Start", "w3")]
    assert world.submit("w4", gpus=1, pools=(DEFAULT, OTHER)) == []
    assert told(world.exit("w3")) == [("End", "w3"), ("Start", "w4")]
    assert world.where("w4") == ("n1",)


def test_gangs_have_whole_nodes_and_small_work_fills_the_used_ones() -> None:
    world = contest("fifo", (4, 4, 4))
    world.submit("a-small", gpus=1)
    world.submit("gang", gpus=4, nodes=2)
    world.submit("next", gpus=3)
    assert (world.where("a-small"), world.where("gang"), world.where("next")) == (("n0",), ("n1", "n2"), ("n0",))
