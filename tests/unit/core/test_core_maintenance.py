"""Planned maintenance: guests until its time, a cordon at its time, and nothing that is protected is cut."""

from __future__ import annotations

import json

import pytest

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.errors import InvalidSpec, UnknownNode
from gpufair.core.model import Allocation, Maintenance, Node, Phase, PreemptReason
from gpufair.core.snapshot import recover, restore, snapshot
from gpufair.core.units import AllocationPath, Instant, NodeName, WorkloadId
from tests.world import CAUSE, FULL, LANDINGS, Delays, World

LEAVES = [Allocation(AllocationPath(path)) for path in ("a", "b")]


def cluster(*gpus: int, landings: bool = False) -> World:
    nodes = [Node(NodeName(f"n{index}"), count) for index, count in enumerate(gpus)]
    return World(LANDINGS if landings else FULL, Delays(0, 100, 200)).set_up(LEAVES, nodes)


def plan(world: World, at: int, *nodes: str, name: str = "m") -> None:
    world.feed(
        ev.MaintenancePlanned(world.now, CAUSE, Maintenance(name, tuple(NodeName(node) for node in nodes), Instant(at)))
    )


def test_only_guests_start_before_it_and_the_nodes_are_empty_at_its_time() -> None:
    """Nobody waits for the work of those who began too late."""
    world = cluster(4, 1)
    world.submit("busy", "a", min_runtime=20_000)
    assert world.where("busy") == ("n1",)
    plan(world, 10_000, "n0")
    world.submit("long", "a", min_runtime=10_001)
    world.submit("fits", "a", min_runtime=10_000)
    world.submit("free", "b", min_runtime=0)
    assert [world.phase(name) for name in ("long", "fits", "free")] == [Phase.QUEUED, Phase.STARTING, Phase.STARTING]
    world.advance(10_000)
    (node, _) = world.state.nodes()
    assert (node.cordoned, node.closes_at) == (True, None)
    told = {
        a.workload for _, a in world.actions() if isinstance(a, act.BeginCheckpoint) and a.reason is PreemptReason.DRAIN
    }
    assert told == {"fits", "free"}
    world.advance(200)
    assert world.state.nodes()[0].holders == ()
    assert world.phase("long") is Phase.QUEUED


def test_a_protection_that_lasts_longer_is_not_cut() -> None:
    """What was promised before the plan stays promised."""
    world = cluster(1)
    world.submit("v", "a", min_runtime=15_000)
    plan(world, 10_000, "n0")
    world.advance(14_999)
    assert world.phase("v") is Phase.RUNNING
    world.advance(1)
    assert world.phase("v") is Phase.CHECKPOINTING


def test_a_cancelled_plan_leaves_no_trace() -> None:
    """Whoever waited for the nodes starts in the same moment."""
    world = cluster(1)
    plan(world, 10_000, "n0")
    world.submit("long", "a", min_runtime=15_000)
    assert world.phase("long") is Phase.QUEUED
    assert (world.state.nodes()[0].free, world.state.nodes()[0].guests) == (0, 1)
    world.feed(ev.MaintenanceCancelled(world.now, CAUSE, "m"))
    assert world.phase("long") is Phase.STARTING
    world.advance(12_000)
    assert not world.state.nodes()[0].cordoned


def test_of_several_plans_the_earliest_counts() -> None:
    """And when it is cancelled, the next."""
    world = cluster(1)
    plan(world, 20_000, "n0", name="late")
    plan(world, 10_000, "n0", name="early")
    assert world.state.nodes()[0].closes_at == 10_000
    world.feed(ev.MaintenanceCancelled(world.now, CAUSE, "early"))
    assert world.state.nodes()[0].closes_at == 20_000


def test_work_without_gpus_is_kept_off_too() -> None:
    """A node that will be closed is closed to everything."""
    world = cluster(0)
    plan(world, 10_000, "n0")
    world.submit("long", "a", gpus=0, min_runtime=15_000)
    world.submit("short", "a", gpus=0, min_runtime=9_000)
    assert (world.phase("long"), world.phase("short")) == (Phase.QUEUED, Phase.STARTING)


def test_a_landing_is_granted_where_it_is_done_in_time_or_not_at_all() -> None:
    """And one that a later plan overtakes is dropped, with the reason."""
    world = cluster(2, 2, landings=True)
    world.submit("v", "a", gpus=2, min_runtime=5_000)
    world.submit("w", "a", gpus=2, min_runtime=8_000)
    plan(world, 15_000, "n0")
    world.submit("gang", "b", gpus=2, min_runtime=9_000)
    own = world.state.facts.records[WorkloadId("gang")].landing
    assert own is not None
    assert own.leases[0].node == "n1"
    plan(world, 18_000, "n1", name="other")
    (dropped,) = (action for _, action in world.actions() if isinstance(action, act.DropLanding))
    assert "is to be closed" in dropped.why
    assert world.state.facts.records[WorkloadId("gang")].landing is None


def test_plans_that_make_no_sense_are_refused() -> None:
    """With what is true and what to do."""
    world = cluster(1)
    plan(world, 10_000, "n0")
    for name, nodes in (("m", ("n0",)), ("", ("n0",)), ("x", ()), ("x", ("n0", "n0"))):
        with pytest.raises(InvalidSpec):
            plan(world, 10_000, *nodes, name=name)
    with pytest.raises(UnknownNode):
        plan(world, 10_000, "n9", name="x")
    with pytest.raises(InvalidSpec, match="planned are: m"):
        world.feed(ev.MaintenanceCancelled(world.now, CAUSE, "other"))


def test_a_restart_remembers_plans() -> None:
    """From a snapshot and from the journal alike; and the nodes close at the time, also in a recovery."""
    world = cluster(2, 1)
    plan(world, 10_000, "n0")
    world.submit("v", "a", min_runtime=3_000)
    written = snapshot(world.state)
    assert snapshot(restore(json.loads(json.dumps(written)))) == written
    world.advance(12_000)
    again = recover([(entry.event, entry.actions) for entry in world.journal], policy=world.policy)
    again.validate()
    assert snapshot(again) == snapshot(world.state)
    assert again.nodes()[0].cordoned
