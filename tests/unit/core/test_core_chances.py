"""What a pass remembers of GPUs that are coming: only for as long as nothing changes that it depends on."""

from __future__ import annotations

from dataclasses import replace

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.amount import Amount
from gpufair.core.chances import Chances
from gpufair.core.commit import commit
from gpufair.core.facts import Facts
from gpufair.core.model import Allocation, Held, Kind, Lease, Node, PreemptReason, Shape
from gpufair.core.units import AllocationPath, Instant, Millis, NodeName, WorkloadId
from tests.world import CAUSE, DEFAULT, LANDINGS, World

LEAVES = [Allocation(AllocationPath(path)) for path in ("a", "b")]
N0, N1 = NodeName("n0"), NodeName("n1")
SOON, LATE = 1_000, 15_000


def two_are_leaving() -> Facts:
    """Two nodes of two GPUs, on each a session that is just being parked; somebody waits for both nodes at once."""
    policy = replace(LANDINGS, debug_min_runtime=Millis(0), take_limit=None)
    world = World(policy).set_up(LEAVES, [Node(N0, 2), Node(N1, 2)])
    for name in ("s0", "s1"):
        world.submit(name, "a", 2, 20_000, kind=Kind.SESSION)
    world.advance(500)
    for name in ("s0", "s1"):
        world.feed(ev.ParkRequested(world.now, CAUSE, WorkloadId(name), PreemptReason.PARK))
    return world.state.facts


def will_fit(here: Chances, facts: Facts, gpus: int, nodes: int = 1, span: int = SOON) -> bool:
    return here.is_coming(Shape(gpus, nodes), Instant(facts.now + span))


def test_what_somebody_counts_on_is_coming_for_nobody_else() -> None:
    """Two who wait for the same GPUs would both spare a victim, and one of them would wait on for nothing."""
    facts = two_are_leaving()
    here = Chances(facts, DEFAULT)
    assert will_fit(here, facts, 2)
    assert will_fit(here, facts, 2, nodes=2)
    here.count_on(N0, Amount(1, 0, 0))
    assert will_fit(here, facts, 2)
    assert not will_fit(here, facts, 2, nodes=2)
    here.count_on(N1, Amount(1, 0, 0))
    assert not will_fit(here, facts, 2)
    assert will_fit(here, facts, 1, nodes=2)


def test_what_is_granted_beside_it_changes_what_will_fit() -> None:
    """GPUs that were free when the pass asked first, and with which somebody has been started since."""
    facts = two_are_leaving()
    facts.put_node(Node(NodeName("n2"), 2))
    here = Chances(facts, DEFAULT)
    assert will_fit(here, facts, 2, nodes=3)
    held = Held((Lease(NodeName("n2"), 1),), DEFAULT, 1, facts.now, Instant(facts.now + SOON))
    facts.add(WorkloadId("w"), facts.records[WorkloadId("s0")].spec)
    commit(act.Start(CAUSE, WorkloadId("w"), held, None, "by hand"), facts)
    assert not will_fit(here, facts, 2, nodes=3)


def test_a_landing_that_is_granted_meanwhile_is_seen() -> None:
    """Whoever would still be protected at its time must not count on its GPUs."""
    facts = two_are_leaving()
    here = Chances(facts, DEFAULT)
    facts.add(WorkloadId("gang"), replace(facts.records[WorkloadId("s0")].spec, shape=Shape(2)))
    assert will_fit(here, facts, 2, nodes=2, span=LATE)
    at = Instant(facts.now + 10_000)
    why = "by hand"
    commit(act.GrantLanding(CAUSE, WorkloadId("gang"), (Lease(N0, 2),), DEFAULT, at, at, Millis(0), (), why), facts)
    assert will_fit(here, facts, 2, nodes=2, span=SOON)
    assert not will_fit(here, facts, 2, nodes=2, span=LATE)
    assert will_fit(here, facts, 2, span=LATE)
    commit(act.DropLanding(CAUSE, WorkloadId("gang"), why), facts)
    assert will_fit(here, facts, 2, nodes=2, span=LATE)
