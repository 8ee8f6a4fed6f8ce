"""Landings: a gang among singles, guests, what nothing that comes later can change, and the half of the pool."""

from __future__ import annotations

from dataclasses import replace

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.model import Allocation, Node, Phase, PreemptReason
from gpufair.core.record import Landing
from gpufair.core.units import AllocationPath, Millis, NodeName, WorkloadId
from tests.world import CAUSE, LANDINGS, Delays, World, evictions

LEAVES = [Allocation(AllocationPath(path)) for path in ("a", "b", "c", "d")]
POLICY = replace(LANDINGS, debug_min_runtime=Millis(0))
GRACES = 2 * 3_000


def cluster(*gpus: int, share: float = 0.5) -> World:
    nodes = [Node(NodeName(f"n{index}"), count) for index, count in enumerate(gpus)]
    return World(replace(POLICY, landing_share=share), Delays(0, 100, 200)).set_up(LEAVES, nodes)


def landing(world: World, name: str) -> Landing | None:
    return world.state.facts.records[WorkloadId(name)].landing


def of_kind(world: World, kind: type[act.Action]) -> list[act.Action]:
    return [action for _, action in world.actions() if isinstance(action, kind)]


def started_at(world: World, name: str) -> list[int]:
    return [
        entry.event.at for entry, action in world.actions() if isinstance(action, act.Start) and action.workload == name
    ]


def test_a_gang_among_singles_lands_when_the_last_of_them_is_ready() -> None:
    """Without a landing each GPU that comes free would go to the next single, for ever."""
    world = cluster(2, 2)
    for index, span in enumerate((3_000, 6_000, 9_000, 12_000)):
        world.submit(f"s{index}", "a", min_runtime=span)
    world.submit("gang", "b", gpus=2, nodes=2, min_runtime=1_000)
    own = landing(world, "gang")
    assert own is not None
    assert [(lease.node, lease.gpus) for lease in own.leases] == [("n0", 2), ("n1", 2)]
    # b has had nothing, so it outranks a now: the singles are ready as their protections end.
    assert (own.at, own.start_by) == (12_000, 12_000 + GRACES)
    for index in range(8):
        world.submit(f"later{index}", "c", min_runtime=20_000)
    world.advance(12_000)
    told = [action for _, action in evictions(world) if action.reason is PreemptReason.LANDING]
    assert {action.workload for action in told} == {"s0", "s1", "s2", "s3"}
    world.advance(200)
    assert started_at(world, "gang") == [12_200]
    assert landing(world, "gang") is None


def test_whoever_is_not_outranked_is_ready_after_the_longest_protection() -> None:
    """No leaf waits longer than one protection for its gang, however well it has been served."""
    world = cluster(2)
    world.submit("past", "b", gpus=2, min_runtime=1_000)
    world.advance(9_000)
    world.exit("past")
    world.submit("v", "a", gpus=2, min_runtime=1_000)
    world.submit("gang", "b", gpus=2, min_runtime=1_000)
    own = landing(world, "gang")
    assert own is not None
    assert own.at == world.now + POLICY.max_min_runtime
    granted = world.now
    world.advance(POLICY.max_min_runtime + GRACES)
    assert started_at(world, "gang")[0] <= granted + POLICY.max_min_runtime + GRACES


def test_guests_use_the_hole_and_leave_at_its_time() -> None:
    """GPUs that wait for a gang work until then: for whoever is done by then, and for unallocated work."""
    world = cluster(4)
    world.submit("early", "a", gpus=2, min_runtime=2_000)
    world.submit("late", "a", gpus=2, min_runtime=12_000)
    world.submit("gang", "b", gpus=4, min_runtime=1_000)
    world.exit("early")
    assert landing(world, "gang") is not None
    world.submit("long", "c", min_runtime=12_001)
    world.submit("fits", "c", min_runtime=12_000)
    world.submit("free", "d", min_runtime=0)
    assert (world.phase("long"), world.phase("fits"), world.phase("free")) == (
        Phase.QUEUED,
        Phase.STARTING,
        Phase.STARTING,
    )
    world.advance(11_999)
    assert world.phase("fits") is Phase.RUNNING
    world.advance(1)
    gone = {a.workload for a in of_kind(world, act.BeginCheckpoint)}
    assert gone == {"late", "fits", "free"}
    world.advance(200)
    assert started_at(world, "gang") == [12_200]


def test_what_a_landing_does_not_need_is_anybodys() -> None:
    """On a node of four GPUs a landing of two leaves two for whoever stays."""
    world = cluster(4)
    world.submit("v", "a", gpus=3, min_runtime=10_000)
    world.submit("w", "a", min_runtime=20_000)
    world.submit("pair", "b", gpus=2, min_runtime=1_000)
    own = landing(world, "pair")
    assert own is not None
    assert own.at == 10_000
    world.exit("w")
    world.submit("long", "c", min_runtime=20_000)
    assert world.phase("long") is Phase.STARTING
    world.submit("more", "c", min_runtime=20_000)
    assert world.phase("more") is Phase.QUEUED
    world.advance(10_200)
    assert started_at(world, "pair") == [10_200]
    assert world.phase("long") is Phase.RUNNING


def test_a_landing_does_not_move_when_others_come_or_ranks_change() -> None:
    """Its owner has been told a time; a promise that could be taken back would be none."""
    world = cluster(2)
    world.submit("v", "a", gpus=2, min_runtime=15_000)
    world.submit("gang", "b", gpus=2, min_runtime=1_000)
    before = landing(world, "gang")
    world.feed(
        ev.BudgetsApplied(world.now, CAUSE, tuple(Allocation(x.path, "99" if x.path == "a" else "1") for x in LEAVES))
    )
    for index in range(6):
        world.submit(f"urgent{index}", "c", gpus=2, min_runtime=1_000, priority=9)
    world.advance(14_999)
    assert landing(world, "gang") == before
    world.advance(1_000)
    assert started_at(world, "gang") == [15_200]


def test_each_leaf_has_one_landing_and_the_next_comes_when_it_has_started() -> None:
    """A leaf that submits many gangs gets no more of the pool for that."""
    world = cluster(2, 2, share=1.0)
    for index in range(4):
        world.submit(f"v{index}", "a", min_runtime=10_000)
    world.submit("g1", "b", gpus=2, min_runtime=1_000)
    world.submit("g2", "b", gpus=2, min_runtime=1_000)
    world.submit("h1", "c", gpus=2, min_runtime=1_000)
    assert [a.workload for a in of_kind(world, act.GrantLanding)] == ["g1", "h1"]
    world.advance(10_200)
    assert [a.workload for a in of_kind(world, act.GrantLanding)][:3] == ["g1", "h1", "g2"]


def test_all_landings_together_hold_half_the_pool_and_the_first_without_one_blocks_the_others() -> None:
    """Smaller ones would else be served before the large gang that comes first, again and again."""
    world = cluster(2, 2, 2, 2)
    for index in range(8):
        world.submit(f"v{index}", "a", min_runtime=10_000)
    world.submit("small", "b", gpus=2, min_runtime=1_000)
    world.submit("large", "c", gpus=2, nodes=2, min_runtime=1_000)
    world.submit("other", "d", gpus=2, min_runtime=1_000)
    assert [a.workload for a in of_kind(world, act.GrantLanding)] == ["small"]
    world.exit("v0")
    world.exit("v1")
    assert world.phase("small") is Phase.STARTING
    assert [a.workload for a in of_kind(world, act.GrantLanding)] == ["small", "large"]


def test_one_landing_may_be_larger_than_half_the_pool_if_it_is_the_only_one() -> None:
    """A gang of the whole cluster would else never run."""
    world = cluster(2, 2)
    world.submit("v", "a", gpus=2, min_runtime=10_000)
    world.submit("all", "b", gpus=2, nodes=2, min_runtime=1_000)
    world.submit("other", "c", gpus=2, min_runtime=15_000)
    assert landing(world, "all") is not None
    assert landing(world, "other") is None
    world.advance(10_200)
    assert started_at(world, "all") == [10_200]


def test_a_single_gpu_gets_no_landing() -> None:
    """It is had in its turn as soon as one is free."""
    world = cluster(1)
    world.submit("v", "a", min_runtime=10_000)
    world.submit("single", "b", min_runtime=1_000)
    assert of_kind(world, act.GrantLanding) == []


def test_an_owner_starts_on_its_own_nodes_as_soon_as_they_are_free() -> None:
    """Nobody could use the GPUs for longer anyway."""
    world = cluster(2)
    world.submit("v", "a", gpus=2, min_runtime=10_000)
    world.submit("gang", "b", gpus=2, min_runtime=1_000)
    world.advance(3_000)
    world.exit("v")
    assert started_at(world, "gang") == [3_000]


def test_an_owner_may_move_unallocated_work_out_of_its_hole_before_its_time() -> None:
    """Its right to do so does not depend on where its landing is."""
    world = cluster(4)
    world.submit("early", "a", gpus=2, min_runtime=2_000)
    world.submit("late", "a", gpus=2, min_runtime=12_000)
    world.submit("gang", "b", gpus=4, min_runtime=1_000)
    world.exit("early")
    world.submit("free", "d", gpus=2, min_runtime=0)
    world.advance(1_000)
    world.exit("late")
    world.advance(200)
    assert started_at(world, "gang") == [1_200]


def test_an_owner_that_starts_elsewhere_leaves_its_place_to_others_at_once() -> None:
    """In the same moment, not at the next event."""
    world = cluster(2, 2)
    world.submit("v", "a", gpus=2, min_runtime=10_000)
    world.submit("w", "a", gpus=1, min_runtime=15_000)
    world.submit("x", "a", gpus=1, min_runtime=15_000)
    world.submit("gang", "b", gpus=2, min_runtime=1_000)
    own = landing(world, "gang")
    assert own is not None
    assert own.leases[0].node == "n0"
    world.exit("w")
    world.submit("y", "c", gpus=1, min_runtime=1)
    world.exit("x")
    assert world.where("gang") == ()
    world.exit("y")
    assert world.where("gang") == ("n1",)
    assert landing(world, "gang") is None
    world.exit("v")
    world.submit("z", "c", gpus=2, min_runtime=20_000)
    assert world.where("z") == ("n0",)


def test_a_lost_node_voids_a_landing_and_a_new_one_is_granted() -> None:
    """It is recorded, with its reason; the start-by time is a new one."""
    world = cluster(2, 2)
    world.submit("v", "a", gpus=2, min_runtime=10_000)
    world.submit("w", "a", gpus=2, min_runtime=15_000)
    world.submit("gang", "b", gpus=2, min_runtime=1_000)
    world.advance(1)
    actions = world.feed(ev.NodeLost(world.now, CAUSE, NodeName("n0")))
    (dropped,) = (one for one in actions if isinstance(one, act.DropLanding))
    assert "n0" in dropped.why
    own = landing(world, "gang")
    assert own is not None
    assert (own.leases[0].node, own.at) == ("n1", 15_000)


def test_a_cordon_and_a_budget_of_nothing_void_landings_too() -> None:
    """What cannot come true is not promised any longer."""
    world = cluster(2)
    world.submit("v", "a", gpus=2, min_runtime=10_000)
    world.submit("gang", "b", gpus=2, min_runtime=1_000)
    world.feed(ev.NodeCordoned(world.now, CAUSE, NodeName("n0")))
    assert landing(world, "gang") is None
    world.feed(ev.NodeUncordoned(world.now, CAUSE, NodeName("n0")))
    assert landing(world, "gang") is not None
    shares = tuple(Allocation(one.path, "0" if one.path == "b" else "1") for one in LEAVES)
    world.feed(ev.BudgetsApplied(world.now, CAUSE, shares))
    assert landing(world, "gang") is None
    assert len(of_kind(world, act.DropLanding)) == 2


def test_a_cancelled_owner_gives_its_landing_to_the_next_of_its_leaf() -> None:
    """A leaf never loses its turn for a workload that is not wanted any more."""
    world = cluster(2)
    world.submit("v", "a", gpus=2, min_runtime=10_000)
    world.submit("g1", "b", gpus=2, min_runtime=1_000)
    world.submit("g2", "b", gpus=2, min_runtime=1_000)
    world.feed(ev.Cancelled(world.now, CAUSE, WorkloadId("g1")))
    assert landing(world, "g2") is not None


def test_free_gpus_that_only_guests_may_use_are_held_and_not_idle() -> None:
    """What a landing costs must show in the figures."""
    world = cluster(4)
    world.submit("early", "a", gpus=2, min_runtime=2_000)
    world.submit("late", "a", gpus=2, min_runtime=12_000)
    world.submit("gang", "b", gpus=4, min_runtime=1_000)
    world.exit("early")
    world.advance(1_000)
    where = world.state.conservation()
    assert (where.held, where.idle, where.error) == (2_000, 0, 0)


def test_what_comes_to_an_end_in_flight_is_waited_for_and_spares_a_victim() -> None:
    """At its time a landing takes what is being released already before it moves anybody else."""
    world = World(POLICY, Delays(0, 100, 900)).set_up(LEAVES, [Node(NodeName("n0"), 4)])
    world.submit("v", "a", gpus=2, min_runtime=10_000)
    world.submit("w", "a", gpus=2, min_runtime=10_000)
    world.submit("gang", "b", gpus=2, min_runtime=1_000)
    world.advance(9_500)
    world.feed(ev.Cancelled(world.now, CAUSE, WorkloadId("w")))
    world.advance(500)
    assert [a.workload for a in of_kind(world, act.BeginCheckpoint)] == []
    world.advance(400)
    assert started_at(world, "gang") == [10_400]
    assert world.phase("v") is Phase.RUNNING
