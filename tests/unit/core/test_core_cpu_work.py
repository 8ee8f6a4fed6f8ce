"""Work without GPUs waits for CPUs and memory in a fair order: by what allocations and researchers have and had of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gpufair.core import actions as act
from gpufair.core.cpu_work import EXACT
from gpufair.core.model import Allocation, Node
from gpufair.core.snapshot import restore, snapshot
from gpufair.core.units import AllocationPath, NodeName, PoolName, WorkloadId
from tests.world import DEFAULT, Delays, World

OTHER = PoolName("other")


def world_of(shares: Mapping[str, str], *nodes: tuple[int | None, int | None], pools: tuple[PoolName, ...] = ()) -> World:
    """A CPU node per pair of CPUs and memory."""
    return World(delays=Delays(0, 0, 400)).set_up(
        [Allocation(AllocationPath(path), share) for path, share in shares.items()],
        [
            Node(NodeName(f"n{index}"), 0, pool=pools[index] if pools else DEFAULT, cpus=cpus, memory=memory)
            for index, (cpus, memory) in enumerate(nodes)
        ],
    )


def job(world: World, name: str, leaf: str, cpus: int = 1, memory: int = 0, **more: object) -> list[str]:
    """Submit one; who starts."""
    demands = {"cpus_per_node": cpus, "memory_per_node": memory}
    return started(world.submit(name, leaf, 0, min_runtime=0, demands=demands, **more))  # type: ignore[arg-type]


def started(actions: list[act.Action]) -> list[str]:
    """Everything else would be news: work without GPUs moves nobody."""
    assert all(isinstance(one, act.Start | act.End) for one in actions)
    return [one.workload for one in actions if isinstance(one, act.Start)]


def waiting(world: World) -> list[str]:
    return list(world.state.queue())


def test_one_job_does_not_wait_for_the_two_hundred_of_somebody_else() -> None:
    """The next CPU that is given back is its."""
    world = world_of({"a": "1", "b": "1"}, (4, None))
    for number in range(200):
        job(world, f"a{number:03d}", "a")
    assert job(world, "b", "b") == []
    assert waiting(world)[:2] == ["b", "a004"]
    told = world.state.explain(WorkloadId("a004"))
    assert told.position == 2
    assert told.sentence == (
        "It waits for 0 GPUs + 1 CPUs, 0 of 1 nodes have CPUs enough; it starts as soon as there is enough. It is the 2nd "
        "of 197 who wait without GPUs: b holds 0 % of CPUs and memory (over the last hour 0 %) and is entitled to 50 %, "
        "and a holds 100 % of CPUs and memory (over the last hour 0 %) and is entitled to 50 %; whoever had less of its "
        "part comes first."
    )
    assert world.state.explain(WorkloadId("b")).position == 1
    assert started(world.exit("a000")) == ["b"]
    assert started(world.exit("a001")) == ["a004"]


def test_far_back_in_the_queue_submission_decides_what_is_shown() -> None:
    """Everybody has one place, and what starts next is exact."""
    world = world_of({"a": "1", "b": "1"}, (1, None))
    for number in range(EXACT + 20):
        job(world, f"a{number:03d}", "a")
    for number in range(EXACT):
        job(world, f"b{number:03d}", "b")
    shown = waiting(world)
    assert len(set(shown)) == len(shown) == 2 * EXACT + 19
    assert shown[:3] == ["b000", "a001", "b001"]
    assert shown[EXACT:] == sorted(shown[EXACT:])
    world.state.validate()


def test_colleagues_of_an_allocation_take_turns() -> None:
    """Whoever had less comes first, whenever he came."""
    world = world_of({"a": "1"}, (2, None))
    for number in range(6):
        job(world, f"u{number}", "a", user="ada")
    for number in range(2):
        job(world, f"v{number}", "a", user="bob")
    assert waiting(world) == ["v0", "v1", "u2", "u3", "u4", "u5"]
    told = world.state.explain(WorkloadId("u2")).sentence
    assert told.endswith(
        "It is the 3rd of 6 who wait without GPUs: in a bob holds 0 % of CPUs and memory (over the last hour 0 %), "
        "and ada holds 100 % of CPUs and memory (over the last hour 0 %); whoever had less comes first."
    )
    assert [*started(world.exit("u0")), *started(world.exit("u1")), *started(world.exit("v0"))] == ["v0", "u2", "v1"]
    assert world.state.explain(WorkloadId("u4")).sentence.endswith("in a ada's batch run u3 was there before it.")


def test_shares_are_weights_and_an_allocation_without_any_comes_last() -> None:
    """Three CPUs to one, as the shares are; what has no share has what is left."""
    world = world_of({"a": "3", "b": "1", "z": "0"}, (4, None))
    job(world, "first", "z", cpus=4)
    for number in range(4):
        for leaf in "zba":
            job(world, f"{leaf}{number}", leaf)
    assert waiting(world) == ["a0", "b0", "a1", "a2", "a3", "b1", "b2", "b3", "z0", "z1", "z2", "z3"]
    assert started(world.exit("first")) == ["a0", "b0", "a1", "a2"]


def test_a_workload_counts_as_the_larger_of_its_parts() -> None:
    """Half of the memory is more than a quarter of the CPUs."""
    world = world_of({"a": "1", "b": "1"}, (8, 64))
    job(world, "memory", "a", cpus=1, memory=32)
    job(world, "cpus", "b", cpus=3, memory=4)
    for name in "ab":
        job(world, name, name, cpus=5)
    assert waiting(world) == ["b", "a"]
    assert started(world.exit("cpus")) == ["b"]


def test_priority_counts_inside_its_allocation_only() -> None:
    """It moves nobody elsewhere."""
    world = world_of({"a": "1", "b": "1"}, (1, None))
    job(world, "first", "a")
    job(world, "late", "a")
    job(world, "urgent", "a", priority=5)
    job(world, "b", "b")
    assert waiting(world) == ["b", "urgent", "late"]
    assert "in a u's batch run urgent" not in world.state.explain(WorkloadId("late")).sentence
    world.advance(1_000)
    assert started(world.exit("first")) == ["b"]
    told = world.state.explain(WorkloadId("late")).sentence
    assert told.endswith("It is the 2nd of 2 who wait without GPUs: in a u's batch run urgent has priority 5, above 0.")


def test_each_pool_is_first_for_those_who_name_it_first() -> None:
    """As in the queue for GPUs: second choices come after everybody's first."""
    world = world_of({"a": "1", "b": "1"}, (1, None), (1, None), pools=(DEFAULT, OTHER))
    job(world, "one", "a")
    job(world, "two", "a", pools=(OTHER,))
    job(world, "b", "b", pools=(DEFAULT, OTHER))
    job(world, "a", "a", pools=(OTHER,))
    assert started(world.exit("two")) == ["a"]
    assert started(world.exit("one")) == ["b"]


def test_what_runs_is_left_alone_whoever_waits() -> None:
    """No rank and no time ends it: it holds what it has until it ends, is parked or its node is drained."""
    world = world_of({"a": "100", "z": "0"}, (1, None))
    job(world, "z", "z")
    assert job(world, "a", "a") == []
    world.advance(60_000)
    assert world.where("z") == ("n0",)
    assert not any(isinstance(action, act.BeginCheckpoint) for _, action in world.actions())


def test_short_jobs_one_after_the_other_are_not_forgotten() -> None:
    """One CPU, so nobody holds any whenever it is free: what each had within the last hour decides then."""
    world = world_of({"a": "1", "b": "1"}, (1, None))
    for number in range(20):
        job(world, f"a{number:02d}", "a", user="uv"[number > 9])
    job(world, "b0", "b")
    job(world, "b1", "b")
    order = waiting(world)[:1]
    for name in ("a00", "b0", "a10", "b1", "a01"):
        world.advance(60_000)
        order += started(world.exit(name))
    assert order == ["b0", "b0", "a10", "b1", "a01", "a11"]


def test_after_an_hour_it_is_forgotten() -> None:
    """What somebody had yesterday makes nobody wait."""
    world = world_of({"a": "1", "b": "1"}, (1, None))
    job(world, "b0", "b")
    world.advance(1_800_000)
    world.exit("b0")
    world.advance(3_540_000)
    for name in ("first", "a1", "b1"):
        job(world, name, name[0].replace("f", "a"))
    assert waiting(world) == ["b1", "a1"]
    world.advance(60_000)
    assert started(world.exit("first")) == ["b1"]


def test_a_small_long_one_does_not_shut_its_owner_out() -> None:
    """Who always has a little comes before those who have everything, one after the other."""
    world = world_of({"a": "1", "b": "1"}, (10, None))
    job(world, "kernel", "a")
    job(world, "whole", "a", cpus=9)
    for number in range(5):
        job(world, f"b{number}", "b", cpus=9)
    world.advance(60_000)
    assert started(world.exit("whole")) == ["b0"]
    job(world, "next", "a", cpus=9)
    world.advance(300_000)
    assert started(world.exit("b0")) == ["b1"]
    world.advance(600_000)
    assert started(world.exit("b1")) == ["next"]


@pytest.mark.parametrize("place", range(4))
def test_a_snapshot_knows_the_order(place: int) -> None:
    """Who had what within the last hour is kept."""
    world = world_of({"a": "2", "b": "1"}, (2, None))
    for number in range(4):
        job(world, f"a{number}", "a", user="uv"[number % 2])
        job(world, f"b{number}", "b")
        world.advance(60_000)
    again = restore(snapshot(world.state), validate=True)
    assert again.queue()[place] == world.state.queue()[place]
