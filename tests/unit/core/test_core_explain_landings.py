"""What people are told where there are landings: when they start at the latest, what fits before, who must make way."""

from __future__ import annotations

from dataclasses import replace

from gpufair.core.brief import brief
from gpufair.core.coach import Outlook
from gpufair.core.estimate import estimate
from gpufair.core.explain import Explanation
from gpufair.core.model import Allocation, Kind, Node, PreemptReason, Shape, WorkloadSpec
from gpufair.core.preview import Assumed, StepKind
from gpufair.core.units import AllocationPath, Instant, Millis, NodeName, WorkloadId
from tests.world import LANDINGS, Delays, World

LEAVES = [Allocation(AllocationPath(path)) for path in ("a", "b", "c", "d")]
POLICY = replace(LANDINGS, debug_min_runtime=Millis(0))


def hole() -> World:
    """Two of four GPUs are free until a gang lands at 12 s."""
    world = World(POLICY, Delays(0, 100, 200)).set_up(LEAVES, [Node(NodeName("n0"), 4)])
    world.submit("early", "a", gpus=2, min_runtime=2_000)
    world.submit("late", "a", gpus=2, min_runtime=12_000)
    world.submit("gang", "b", gpus=4, min_runtime=1_000)
    world.exit("early")
    return world


def told(world: World, name: str) -> Explanation:
    return world.state.explain(WorkloadId(name))


def test_the_owner_of_a_landing_is_told_a_binding_time_and_how_it_comes_about() -> None:
    """A promise, not an estimate."""
    world = hole()
    gang = told(world, "gang")
    assert gang.binding
    facts = world.state.facts
    record = facts.record(WorkloadId("gang"))
    said = brief(facts, record, estimate(facts, record, 0))
    assert said == "it owns a landing and starts by 1970-01-01 00:00:18Z at the latest"
    assert gang.estimate == 18_000
    assert gang.estimate_basis.startswith("it will start by 1970-01-01 00:00:18Z at the latest: 4 GPUs on n0")
    assert gang.sentence.startswith("It owns a landing on n0 at 1970-01-01 00:00:12Z: it will start by")


def test_a_protection_that_ends_before_the_landing_is_named() -> None:
    """Whoever is done by then may use the hole."""
    world = hole()
    world.submit("long", "c", min_runtime=20_000)
    long = told(world, "long")
    assert not long.binding
    assert "0 GPUs are free, 2 more until others land or a maintenance begins" in long.sentence
    assert long.smallest_change is not None
    assert (long.smallest_change.shape, long.smallest_change.min_runtime) == (Shape(1), 12_000)
    assert long.smallest_change.sentence == "12 s of protection instead of 20 s of protection would start now"


def test_the_gap_before_a_landing_is_named_exactly() -> None:
    """The longest protection that still fits, however short the gap has become."""
    world = hole()
    world.advance(11_990)
    world.submit("long", "c", min_runtime=40)
    change = told(world, "long").smallest_change
    assert change is not None
    assert change.sentence == "0.01 s of protection instead of 0.04 s of protection would start now"


def test_who_is_on_the_nodes_of_a_landing_learns_when_he_has_to_go() -> None:
    """Long before his notice."""
    world = hole()
    late = told(world, "late")
    assert late.threat is not None
    assert (late.threat.by, late.threat.earliest) == ("gang", 12_000)
    world.submit("guest", "d", min_runtime=3_000)
    world.advance(4_000)
    guest = told(world, "guest")
    assert guest.threat is not None
    world.advance(8_000)
    leaving = told(world, "guest")
    assert leaving.preempted is not None
    assert (leaving.preempted.by, leaving.preempted.right) == ("gang", PreemptReason.LANDING)


def test_the_coach_tells_the_start_by_time_that_a_gang_would_own() -> None:
    """Before anybody submits it."""
    world = World(POLICY, Delays(0, 100, 200)).set_up(LEAVES, [Node(NodeName("n0"), 4)])
    world.submit("v", "a", gpus=4, min_runtime=12_000)
    spec = WorkloadSpec(AllocationPath("b"), "u", Kind.BATCH, Shape(4), Millis(1_000))
    coaching = world.state.coach(spec, ())
    assert (coaching.asked.outlook, coaching.asked.at) == (Outlook.START_BY, 18_000)
    assert coaching.asked.right is PreemptReason.LANDING


def test_a_landing_is_foretold() -> None:
    """Who is granted one, who leaves for it, and its start."""
    world = hole()
    steps = world.state.preview(Instant(13_000), Assumed(Millis(0), Millis(100), Millis(200))).steps
    assert [(step.at, step.what, step.workload) for step in steps] == [
        (12_000, StepKind.TOLD_TO_LEAVE, "late"),
        (12_200, StepKind.RELEASES, "late"),
        (12_200, StepKind.QUEUED_AGAIN, "late"),
        (12_200, StepKind.STARTS, "gang"),
        (12_200, StepKind.LANDING, "late"),
    ]
    assert (steps[0].reason, steps[0].beneficiary) == (PreemptReason.LANDING, "gang")
