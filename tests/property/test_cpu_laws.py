"""Work without GPUs has CPUs and memory in the order of what allocations and researchers had of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf

from hypothesis import given
from hypothesis import strategies as st

from gpufair.core import actions as act
from gpufair.core.errors import NeverFits
from gpufair.core.model import Allocation, Node, Phase, Shape
from gpufair.core.record import Workload
from gpufair.core.units import HOUR, AllocationPath, NodeName
from tests.world import Delays, World

TREES = (
    {"a": "1", "b": "1", "c": "1"},
    {"a": "3", "b": "1", "c": "0"},
    {"x/a": "1", "x/b": "2", "y": "1"},
)
SIZES = ((1, 0), (2, 0), (1, 8), (0, 4), (3, 1), (0, 0))  # CPUs, memory
NODES = st.lists(st.tuples(st.sampled_from((None, 2, 4)), st.sampled_from((None, 8, 16))), min_size=1, max_size=3)
STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 63), st.integers(0, 63)), min_size=5, max_size=40)


@dataclass
class Stay:
    """Somebody who had a part of the CPUs and memory, in millionths rounded up, from one moment to another."""

    one: Workload
    part: int
    since: int
    until: int | None = None

    def counts(self, now: int) -> int:
        """Within the last hour, and for another one if it lasts."""
        end = now if self.until is None else self.until
        return self.part * (max(0, end - max(self.since, now - HOUR)) + (HOUR if self.until is None else 0))


def part_of(world: World, shape: Shape) -> int:
    """The larger of what a shape takes of all CPUs and of all memory."""
    nodes = [one.node for one in world.state.nodes() if not one.lost]
    there = sum(node.cpus or 0 for node in nodes), sum(node.memory or 0 for node in nodes)
    asked = shape.cpus_per_node, shape.memory_per_node
    return max(ceil(Fraction(mine * 10**6, all_of)) if all_of else 0 for mine, all_of in zip(asked, there, strict=True))


def key(world: World, stays: list[Stay], one: Workload) -> tuple[object, ...]:
    """By the whole rule: the allocations from the root down, the researcher, submission."""

    def had(mine: Callable[[Workload], bool]) -> int:
        return sum(stay.counts(world.now) for stay in stays if mine(stay.one))

    def ranks() -> Iterator[tuple[Fraction | float, str]]:
        for path in world.state.tree[one.spec.allocation].lineage[1:]:
            below, entitled = world.state.tree.leaves_below(path), world.state.tree[path].entitlement
            had_there = had(lambda each, below=below: each.spec.allocation in below)  # type: ignore[misc]
            yield (had_there / entitled if entitled else inf), path

    who = one.spec.allocation, one.spec.user
    return *ranks(), had(lambda each: (each.spec.allocation, each.spec.user) == who), one.submitted_at, one.id


@given(st.sampled_from(TREES), NODES, STEPS)
def test_p09_nobody_is_passed_by_one_who_had_more_of_his_part_of_the_cpus(
    tree: dict[str, str], nodes: list[tuple[int | None, int | None]], steps: list[tuple[bool, int, int]]
) -> None:
    """Of equal wishes none starts while another one waits that comes before it, as things were just before the start."""
    world = World(delays=Delays(0, 0, 0)).set_up(
        [Allocation(AllocationPath(path), share) for path, share in tree.items()],
        [Node(NodeName(f"n{i}"), 0, cpus=cpus, memory=memory) for i, (cpus, memory) in enumerate(nodes)],
    )
    leaves, stays = world.state.tree.leaves, list[Stay]()
    for number, (ends, one, two) in enumerate(steps):
        world.advance((0, 1, 700_000, 2_000_000)[two % 4])
        holding = [stay for stay in stays if stay.until is None]
        if ends and holding:
            gone = holding[one % len(holding)]
            gone.until = world.now
            actions = world.exit(gone.one.id)
        else:
            cpus, memory = SIZES[two % len(SIZES)]
            demands = {"cpus_per_node": cpus, "memory_per_node": memory}
            name, user = f"w{number:02d}", "uv"[one % 2]
            try:
                actions = world.submit(name, leaves[one % len(leaves)], 0, min_runtime=0, user=user, demands=demands)
            except NeverFits:
                continue
        waits = [each for each in world.state.workloads() if each.phase is Phase.QUEUED]
        for action in actions:
            if isinstance(action, act.Start):
                starts = world.state.workload(action.workload)
                before = key(world, stays, starts)
                assert all(before < key(world, stays, other) for other in waits if other.spec.shape == starts.spec.shape)
                stays.append(Stay(starts, part_of(world, starts.spec.shape), world.now))
