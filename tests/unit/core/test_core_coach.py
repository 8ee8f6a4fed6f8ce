"""What somebody is told before he submits."""

from __future__ import annotations

import pytest

from gpufair.core.coach import Outlook, usual_shapes
from gpufair.core.model import Allocation, Kind, Node, PreemptReason, Shape, WorkloadSpec
from gpufair.core.units import AllocationPath, Millis, NodeName
from tests.world import World

HALVES = [Allocation(AllocationPath(path), "50") for path in ("a", "b")]
SPANS = tuple(Millis(span) for span in (0, 500, 5_000, 20_000))


def cluster(*gpus: int) -> World:
    return World().set_up(HALVES, [Node(NodeName(f"n{i}"), count) for i, count in enumerate(gpus)])


def spec(leaf: str = "b", gpus: int = 1, nodes: int = 1, min_runtime: int = 20_000) -> WorkloadSpec:
    return WorkloadSpec(AllocationPath(leaf), "eve", Kind.SESSION, Shape(gpus, nodes), Millis(min_runtime))


def test_where_there_is_room_everything_starts_now() -> None:
    """What differs is what it costs the budget."""
    told = cluster(1).state.coach(spec(), SPANS)
    assert [one.outlook for one in told.choices] == [Outlook.NOW] * 4
    assert [one.committed for one in told.choices] == [0, 500, 5_000, 20_000]
    # Half of one GPU for a minute is the budget.
    assert [one.of_budget for one in told.choices] == pytest.approx([0, 500 / 30_000, 5_000 / 30_000, 20_000 / 30_000])
    assert told.advice == (
        "1 GPU with 20 s of protection starts now: b (m 0) was next; 1 GPU was free on n0. "
        "It commits 0.00556 GPU h, 66.7 % of the budget of b."
    )


def test_short_protection_outranks_where_long_does_not() -> None:
    """The case for which there is a coach: nobody asks for 8 h who sees that 15 min start at once."""
    world = cluster(1)
    world.submit("v", "a", min_runtime=2_000)
    world.advance(4_000)
    told = world.state.coach(spec(), (Millis(1_000), Millis(10_000)))
    short, long = told.choices
    assert (short.outlook, short.right, short.at) == (Outlook.MAKES_ROOM, PreemptReason.RANK, world.now + 1_000)
    assert (long.outlook, long.right) == (Outlook.ESTIMATED, None)
    assert told.asked.outlook is Outlook.ESTIMATED
    assert told.advice == short.sentence == (
        "1 GPU with 1 s of protection starts by 1970-01-01 00:00:05Z: u's batch run v must leave for it at once (rank). "
        "It commits 0.000278 GPU h, 3.33 % of the budget of b."
    )


def test_a_smaller_shape_is_advised_where_only_that_helps() -> None:
    """The largest that starts now."""
    world = cluster(4)
    world.submit("v", "a", gpus=2, min_runtime=20_000)
    told = world.state.coach(spec(gpus=4), SPANS)
    assert [one.outlook for one in told.choices if one.shape == Shape(4)] == [Outlook.UNKNOWN] + [Outlook.ESTIMATED] * 3
    assert [one.outlook for one in told.choices if one.shape == Shape(2)] == [Outlook.NOW] * 4
    assert told.advice.startswith("2 GPUs with 20 s of protection starts now")


def test_what_would_be_refused_says_so() -> None:
    """In the words of the refusal."""
    told = cluster(1).state.coach(spec(min_runtime=30_000), SPANS)
    assert told.asked.outlook is Outlook.REFUSED
    assert "max_min_runtime is 20 s" in told.advice
    assert cluster(1).state.coach(spec(leaf="nowhere"), SPANS).asked.outlook is Outlook.REFUSED


@pytest.mark.parametrize(
    ("asked", "usual"),
    [
        (Shape(1), [Shape(1)]),
        (Shape(8), [Shape(8), Shape(4), Shape(1)]),
        (Shape(2, 4), [Shape(2, 4), Shape(2, 2), Shape(8), Shape(1)]),
        (Shape(8, 2), [Shape(8, 2), Shape(8, 1), Shape(8, 1), Shape(1)]),
        (Shape(0), [Shape(0)]),
    ],
)
def test_the_usual_shapes(asked: Shape, usual: list[Shape]) -> None:
    """The asked one, half of it, all on one node, one GPU."""
    facts = cluster(8, 8).state.facts
    assert usual_shapes(facts, spec(gpus=asked.gpus_per_node, nodes=asked.nodes)) == usual
