"""Where gangs and workloads with demands go: blocks, exclusions, CPUs and memory, in the tables that show each rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.admission import check_spec
from gpufair.core.brief import brief
from gpufair.core.errors import InvalidSpec, NeverFits
from gpufair.core.estimate import estimate
from gpufair.core.model import Allocation, Kind, Node, Phase, Shape, WorkloadSpec
from gpufair.core.possible import could_hold, largest
from gpufair.core.units import AllocationPath, Millis, NodeName, WorkloadId
from tests.world import CAUSE, PROMPT, SMALL, Delays, World

A, B = Allocation(AllocationPath("a")), Allocation(AllocationPath("b"))
GIB = 1 << 30
P = WorkloadId("p")


def racks(*where: str, gpus: int = 4, delays: Delays = PROMPT) -> World:
    """A node per word: "r1" is its rack, "r1/x" its rack and its NVLink domain, "" neither."""
    nodes = []
    for index, word in enumerate(where):
        rack, _, link = word.partition("/")
        labels = {label: value for label, value in (("rack", rack), ("nvlink", link)) if value}
        nodes.append(Node(NodeName(f"n{index}"), gpus, labels=labels))
    return World(delays=delays).set_up([A, B], nodes)


def counted(*nodes: tuple[int, int | None, int | None]) -> World:
    """A node per triple of GPUs, CPUs, memory."""
    return World(delays=Delays(0, 0, 400)).set_up(
        [A, B],
        [Node(NodeName(f"n{i}"), gpus, cpus=cpus, memory=memory) for i, (gpus, cpus, memory) in enumerate(nodes)],
    )


# (racks of the nodes, (GPUs per node, nodes, demands) of the gang, where it goes)
GANGS: list[tuple[tuple[str, ...], tuple[int, int, dict[str, object]], tuple[str, ...]]] = [
    # One rack, though the first two nodes by name are in two.
    (("r1", "r2", "r2"), (4, 2, {}), ("n1", "n2")),
    # The rack that it fills, so that the larger one stays whole.
    (("r1", "r1", "r1", "r2", "r2"), (4, 2, {}), ("n3", "n4")),
    # The first label of the policy goes before the second.
    (("r1/x", "r1", "r1/x", "r2", "r2"), (4, 2, {}), ("n0", "n2")),
    # No NVLink domain is large enough, a rack is.
    (("r1/x", "r2/y", "r2/z", "r2/z"), (4, 3, {}), ("n1", "n2", "n3")),
    # No rack is large enough: it spreads, unless it asked for one.
    (("r1", "r2", "r3"), (4, 2, {}), ("n0", "n1")),
    # A demand for a rack still prefers an NVLink domain in it.
    (("r1", "r1", "r2", "r2/x", "r2/x"), (4, 2, {"within": "rack"}), ("n3", "n4")),
    # Nodes without the label lie in no block.
    (("", "", "r1", "r1"), (4, 2, {"within": "rack"}), ("n2", "n3")),
    # Exclusions and labels narrow the choice, also of a single node.
    (("r1", "r1"), (1, 1, {"exclude": ("n0",)}), ("n1",)),
    (("r1", "r2"), (1, 1, {"where": (("rack", "r2"),)}), ("n1",)),
    # Of one node one block demands nothing.
    (("", "r1"), (1, 1, {"within": "rack"}), ("n0",)),
]


@pytest.mark.parametrize(("where", "asked", "expected"), GANGS)
def test_a_gang_lies_in_the_tightest_block_of_the_best_label(
    where: tuple[str, ...], asked: tuple[int, int, dict[str, object]], expected: tuple[str, ...]
) -> None:
    """And spreads only where no block holds it."""
    world = racks(*where)
    gpus, nodes, demands = asked
    world.submit("gang", "a", gpus, nodes=nodes, demands=demands)
    assert world.where("gang") == expected


def test_a_gang_that_demands_a_block_waits_for_one() -> None:
    """Two free nodes in two racks are nothing to it, and it starts when one rack holds it."""
    world = racks("r1", "r1", "r2", "r2")
    for name, node in (("v1", "n0"), ("v2", "n2")):
        others = tuple(f"n{index}" for index in range(4) if f"n{index}" != node)
        world.submit(name, "a", 4, min_runtime=9_000, demands={"exclude": others})
    world.submit("gang", "a", 4, nodes=2, demands={"within": "rack"})
    assert world.phase("gang") is Phase.QUEUED
    change = world.state.explain(WorkloadId("gang")).smallest_change
    assert change is not None
    assert change.shape == Shape(4, 2)
    assert change.sentence == "2 nodes × 4 GPUs instead of 2 nodes × 4 GPUs in one rack would start now"
    world.exit("v2")
    assert world.where("gang") == ("n2", "n3")


def test_victims_leave_one_block_where_their_rank_allows_it() -> None:
    """A gang that is to run for hours is not scattered over two racks to save a neighbour some minutes."""
    world = racks("r1", "r2", "r2")
    for node, others in (("n1", ("n0", "n2")), ("n2", ("n0", "n1")), ("n0", ("n1", "n2"))):
        world.submit(f"on-{node}", "b", 4, min_runtime=1_000, demands={"exclude": others})
        world.advance(1_000)
    # Those on n0 and n2 have the least to lose.
    world.submit("gang", "a", 4, nodes=2, min_runtime=1_000)
    told = {one.workload for _, one in world.actions() if isinstance(one, act.BeginCheckpoint)}
    assert told == {"on-n1", "on-n2"}
    world.advance(1_000)
    assert world.where("gang") == ("n1", "n2")


def test_nobody_is_evicted_from_two_blocks_for_a_gang_that_demands_one() -> None:
    """An eviction that frees scattered GPUs helps nobody."""
    world = racks("r1", "r2")
    world.submit("v", "b", 4, min_runtime=1_000)
    world.submit("w", "b", 4, min_runtime=1_000)
    world.feed(ev.NodeJoined(world.now, CAUSE, Node(NodeName("n2"), 4, labels={"rack": "r1"})))
    world.submit("u", "b", 4, min_runtime=19_000)
    world.advance(9_000)
    world.submit("gang", "a", 4, nodes=2, min_runtime=1_000, demands={"within": "rack"})
    assert not [one for _, one in world.actions() if isinstance(one, act.BeginCheckpoint)]
    world.advance(20_000)
    assert world.where("gang") == ("n0", "n2")


def test_cpus_and_memory_are_reserved_beside_gpus() -> None:
    """The GPUs of a node whose CPUs are taken are no room for who needs CPUs, and room for who does not care."""
    world = counted((4, 8, 64 * GIB))
    world.submit("v", "a", 1, demands={"cpus_per_node": 6, "memory_per_node": 16 * GIB})
    world.submit("p", "a", 1, demands={"cpus_per_node": 4})
    world.submit("plain", "a", 1)
    assert (world.phase("p"), world.where("plain")) == (Phase.QUEUED, ("n0",))
    record, facts = world.state.facts.record(P), world.state.facts
    assert brief(facts, record, estimate(facts, record, 0)).startswith(
        "waiting for 1 GPU + 4 CPUs: 2 of 4 GPUs are free, 0 of 1 nodes have CPUs enough"
    )
    change = world.state.explain(P).smallest_change
    assert change is not None
    assert change.shape == Shape(1, cpus_per_node=2)
    world.exit("v")
    assert world.where("p") == ("n0",)


def test_cpus_of_who_is_checkpointing_still_count() -> None:
    """They are free when its processes are gone, not before, and its victim frees them for the beneficiary."""
    world = counted((4, 8, None))
    world.submit("v", "b", 1, min_runtime=1_000, demands={"cpus_per_node": 8})
    world.advance(5_000)
    world.submit("p", "a", 1, min_runtime=1_000, demands={"cpus_per_node": 4})
    (reserve,) = [one for _, one in world.actions() if isinstance(one, act.Reserve)]
    assert (reserve.workload, reserve.victims) == ("p", ("v",))
    world.submit("q", "a", 1, min_runtime=1_000, demands={"cpus_per_node": 5})
    world.advance(399)
    assert (world.where("p"), world.where("v")) == ((), ("n0",))
    world.advance(1)
    assert world.where("p") == ("n0",)
    assert world.phase("q") is Phase.QUEUED


def test_a_victim_is_chosen_for_its_memory_too() -> None:
    """Two GPUs are free, but the memory is with one of three who hold GPUs."""
    world = counted((8, None, 64))
    for name, memory in (("small", 8), ("large", 40), ("third", 8)):
        world.submit(name, "b", 2, min_runtime=1_000, demands={"memory_per_node": memory})
    world.advance(9_000)
    world.submit("p", "a", 2, min_runtime=1_000, demands={"memory_per_node": 40})
    assert [one.workload for _, one in world.actions() if isinstance(one, act.BeginCheckpoint)] == ["large"]


def test_work_without_gpus_waits_for_cpus_and_lets_smaller_work_pass() -> None:
    """It evicts nobody for them; whoever fits goes on."""
    world = counted((1, 4, None), (0, 4, None))
    world.submit("one", "a", 0, demands={"cpus_per_node": 3})
    world.submit("two", "a", 0, demands={"cpus_per_node": 3})
    world.submit("three", "a", 0, demands={"cpus_per_node": 3})
    world.submit("four", "a", 0, demands={"cpus_per_node": 1})
    assert [world.where(name) for name in ("one", "two", "three", "four")] == [("n1",), ("n0",), (), ("n1",)]
    told = world.state.explain(WorkloadId("three"))
    assert told.sentence == (
        "It waits for 0 GPUs + 3 CPUs, 0 of 2 nodes have CPUs enough; it starts as soon as there is enough."
    )
    assert told.smallest_change is not None
    assert told.smallest_change.shape == Shape(0, cpus_per_node=1)
    world.exit("two")
    assert world.where("three") == ("n0",)


def test_cpus_that_are_being_released_anyway_spare_a_victim() -> None:
    """Who waits for CPUs counts on those of a workload that was cancelled."""
    world = counted((2, 4, None), (2, 4, None))
    for name in ("v", "w"):
        world.submit(name, "b", 1, min_runtime=1_000, demands={"cpus_per_node": 4})
    world.advance(9_000)
    world.feed(ev.Cancelled(world.now, CAUSE, WorkloadId("w")))
    world.submit("p", "a", 1, min_runtime=1_000, demands={"cpus_per_node": 4})
    assert not [one for _, one in world.actions() if isinstance(one, act.BeginCheckpoint)]
    world.advance(400)
    assert world.where("p") == ("n1",)


SPEC = WorkloadSpec(AllocationPath("a"), "u", Kind.BATCH, Shape(1), Millis(1_000))
NEVER: list[tuple[Shape, str, str]] = [
    (Shape(4, 3, within="rack"), "2 nodes × 4 GPUs in one rack", "the demand for one rack"),
    (Shape(4, 2, where=(("rack", "r2"),)), "4 GPUs where rack is r2", "the demand for rack r2"),
    (Shape(4, 2, exclude=(NodeName("n0"), NodeName("n1"))), "4 GPUs not on n0, n1", "the exclusion of n0"),
    (Shape(1, where=(("rack", "r9"),)), "nothing: no node here is like that", "the demand for rack r9"),
    (Shape(1, cpus_per_node=99), "1 GPU + 16 CPUs", "the demand for CPUs"),
    (Shape(1, memory_per_node=99 * GIB), "1 GPU + 64 GiB", "the demand for memory"),
    (Shape(4, 2, "h", within="rack"), "nothing: no node here is like that", "the GPU type h"),
    (Shape(5, exclude=(NodeName("n0"),)), "4 GPUs not on n0", ""),
]


@pytest.mark.parametrize(("shape", "most", "demand"), NEVER)
def test_who_can_never_start_learns_which_demand_rules_it_out(shape: Shape, most: str, demand: str) -> None:
    """With the largest that could be had, which really could."""
    nodes = [
        Node(NodeName(f"n{index}"), 4, labels={"rack": rack}, cpus=16, memory=64 * GIB)
        for index, rack in enumerate(("r1", "r1", "r2"))
    ]
    world = World().set_up([A], nodes)
    facts = world.state.facts
    with pytest.raises(NeverFits) as caught:
        check_spec(replace(SPEC, shape=shape), facts)
    assert f"the largest that fits is {most}; ask for less" in str(caught.value)
    assert caught.value.ruled_out_by == demand
    assert ("or drop " in str(caught.value)) == bool(demand)
    assert demand in str(caught.value)
    pool = facts.by_pool[SPEC.pools[0]]
    best = largest(pool, shape)
    assert best is None or could_hold(pool, best)
    for node in ("n0", "n1", "n2"):  # they may come back
        world.feed(ev.NodeLost(world.now, CAUSE, NodeName(node)))
    with pytest.raises(NeverFits):
        check_spec(replace(SPEC, shape=shape), facts)


SENSELESS: list[tuple[Shape, str]] = [
    (Shape(1, cpus_per_node=-1), "cannot be negative"),
    (Shape(1, memory_per_node=-1), "cannot be negative"),
    (Shape(1, exclude=(NodeName("b"), NodeName("a"))), "alphabetical order"),
    (Shape(1, exclude=(NodeName(""),)), "each node once"),
    (Shape(1, where=(("rack", "x"), ("rack", "y"))), "each label once"),
    (Shape(1, where=(("", "x"),)), "none empty"),
]


@pytest.mark.parametrize(("shape", "said"), SENSELESS)
def test_a_demand_that_makes_no_sense_is_refused(shape: Shape, said: str) -> None:
    """Equal wishes must be equal, or a pass looks for each of them anew."""
    world = counted((1, None, None))
    with pytest.raises(InvalidSpec, match=said):
        check_spec(replace(SPEC, shape=shape), world.state.facts)


@pytest.mark.parametrize("node", [Node(NodeName("n0"), 4, cpus=5), Node(NodeName("n0"), 4, cpus=9, memory=7)])
def test_a_node_does_not_come_back_with_less_than_is_held_on_it(node: Node) -> None:
    """Of CPUs and memory as of GPUs."""
    world = counted((4, 8, 8))
    world.submit("v", "a", 1, demands={"cpus_per_node": 6, "memory_per_node": 8})
    with pytest.raises(InvalidSpec, match="held on it"):
        world.feed(ev.NodeJoined(world.now, CAUSE, node))
    with pytest.raises(InvalidSpec, match="fewer than 0"):
        world.feed(ev.NodeJoined(world.now, CAUSE, replace(node, cpus=-1)))


def test_what_is_kept_on_a_node_that_came_back_as_another_is_given_up() -> None:
    """In another rack it is no part of the gang's block any more."""
    world = racks("r1", "r1", delays=Delays(0, 0, -9_000))
    world.submit("v", "b", 4, min_runtime=1_000, demands={"exclude": ("n1",)})
    world.advance(5_000)
    world.submit("gang", "a", 4, nodes=2, min_runtime=1_000, demands={"within": "rack"})
    assert world.state.nodes()[1].reserved == (("gang", 4),)
    world.feed(ev.NodeJoined(world.now, CAUSE, Node(NodeName("n1"), 4, labels={"rack": "r2"})))
    assert world.state.nodes()[1].reserved == ()
    world.advance(30_000)
    assert world.phase("gang") is Phase.QUEUED


def test_without_labels_in_the_policy_gangs_go_to_the_tightest_nodes() -> None:
    """The option by which placements are compared."""
    nodes = [Node(NodeName(f"n{index}"), 4, labels={"rack": rack}) for index, rack in enumerate(("r1", "r2", "r2"))]
    world = World(policy=replace(SMALL, blocks=())).set_up([A], nodes)
    world.submit("gang", "a", 4, nodes=2, min_runtime=1_000)
    assert world.where("gang") == ("n0", "n1")
    world.exit("gang")
    # A demand needs no preference.
    world.submit("one", "a", 4, nodes=2, demands={"within": "rack"})
    assert world.where("one") == ("n1", "n2")
