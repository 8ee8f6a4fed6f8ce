"""Rows of GPUs: a picture shows all the GPU time of a story, and no GPU twice."""

from __future__ import annotations

import itertools

import pytest

from gpufair.core.errors import Inconsistent
from gpufair.core.events import NodeJoined
from gpufair.core.model import Lease, Node, Policy
from gpufair.core.units import HOUR, CauseId, Instant, Millis, NodeName
from gpufair.sim.measures.cluster import Cluster
from gpufair.sim.report.coarse import thinned
from gpufair.sim.report.rows import Bar, Floor, bars, shades
from gpufair.sim.scenario import Scenario
from gpufair.sim.story import Life, Stint, Story
from tests.drawn_stories import scenario, story


def floor_of(world: Scenario) -> Floor:
    return Floor(Cluster(world, world.until, {}))


def held(told: Story) -> int:
    """GPU-ms of a story, straight from its stints."""
    return sum(
        ((told.ended_at if stint.freed is None else stint.freed) - stint.granted)
        * sum(one.gpus for one in stint.leases)
        for life in told.lives.values()
        for stint in life.stints
    )


def by_row(drawn: list[Bar]) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for bar in drawn:
        for first, count in bar.rows:
            for row in range(first, first + count):
                found.setdefault(row, []).append((bar.start, bar.end))
    return found


@pytest.mark.parametrize("evict", [True, False])
def test_no_gpu_is_drawn_twice_and_no_gpu_time_is_missing(evict: bool) -> None:
    told = story(scenario(6, 3, 900, seed=3), evict=evict)
    floor = floor_of(told.scenario)
    drawn = bars(told, floor)
    for spans in by_row(drawn).values():
        ordered = sorted(spans)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(ordered))
    assert sum(bar.gpu_time for bar in drawn) == held(told) > 0
    assert max(by_row(drawn)) < floor.rows == 48


def test_rows_lie_on_the_nodes_of_the_leases() -> None:
    told = story(scenario(5, 2, 300, seed=1))
    floor = floor_of(told.scenario)
    for bar in bars(told, floor):
        rows = [row for first, count in bar.rows for row in range(first, first + count)]
        on = {lease.node: lease.gpus for lease in bar.stint.leases}
        for node, gpus in on.items():
            assert sum(floor.first[node] <= row < floor.first[node] + 8 for row in rows) == gpus
        assert len(rows) == sum(on.values())


def test_the_same_story_makes_the_same_picture() -> None:
    """Neither the order of lives in memory nor that of leases matters."""
    told = story(scenario(4, 1, 200))
    before = [(bar.job.id, bar.start, bar.rows) for bar in bars(told, floor_of(told.scenario))]
    told.lives = dict(reversed(told.lives.items()))
    assert [(bar.job.id, bar.start, bar.rows) for bar in bars(told, floor_of(told.scenario))] == before


def test_gpus_of_one_job_stand_side_by_side_where_there_is_room() -> None:
    told = story(scenario(4, 1, 150))
    whole = [bar for bar in bars(told, floor_of(told.scenario)) if all(lease.gpus == 8 for lease in bar.stint.leases)]
    assert whole
    for bar in whole:
        nodes = sorted(floor_of(told.scenario).first[lease.node] for lease in bar.stint.leases)
        neighbours = sum(later - earlier == 8 for earlier, later in itertools.pairwise(nodes))
        assert len(bar.rows) == len(nodes) - neighbours


def one_job(*stints: Stint) -> Story:
    world = scenario(1, 1, 1)
    told = Story(world, "fifo", Policy(), ended_at=world.until)
    told.lives[world.jobs[0].id] = Life(world.jobs[0], stints=list(stints))
    return told


def stint(start_h: float, end_h: float | None, gpus: int) -> Stint:
    leases = (Lease(NodeName("node-000"), gpus),)
    freed = None if end_h is None else Instant(int(end_h * HOUR))
    start = Instant(int(start_h * HOUR))
    return Stint(leases, one_pool, start, start, start, freed=freed)


one_pool = scenario(1, 1, 1).nodes[0].pool


def test_a_gpu_held_twice_is_an_error_not_a_picture() -> None:
    told = one_job(stint(1, 3, 5), stint(2, 4, 5))
    with pytest.raises(Inconsistent, match="only 3 were free"):
        bars(told, floor_of(told.scenario))


def test_what_is_freed_at_an_instant_can_be_granted_at_it_and_what_runs_on_ends_with_the_story() -> None:
    told = one_job(stint(1, 3, 8), stint(3, None, 8))
    first, second = bars(told, floor_of(told.scenario))
    assert (first.end, second.start, second.end) == (3 * HOUR, 3 * HOUR, told.ended_at)
    assert first.rows == second.rows == ((0, 8),)


def test_a_node_that_joins_later_has_rows_as_well() -> None:
    world = scenario(2, 1, 10)
    late = NodeJoined(Instant(0), CauseId("new"), Node(NodeName("late"), 4))
    grown = Scenario("grown", world.nodes, world.allocations, world.jobs, world.until, incidents=(late,))
    floor = floor_of(grown)
    assert (floor.rows, floor.first[NodeName("late")]) == (20, 16)


def test_a_landing_is_shaded_where_its_owner_starts() -> None:
    told = story(scenario(6, 4, 1200, seed=5))
    floor = floor_of(told.scenario)
    drawn = bars(told, floor)
    found = shades(told, floor, drawn)
    assert len(found) == len([landed for landed in told.landings if landed.over != landed.granted]) > 0
    for shade in found:
        on = {lease.node for lease in shade.landed.leases}
        rows = [row for first, count in shade.rows for row in range(first, first + count)]
        assert {node for node in on if any(floor.first[node] <= row < floor.first[node] + 8 for row in rows)} == on
        assert len(rows) == sum(lease.gpus for lease in shade.landed.leases)


def test_thinning_keeps_what_is_long_and_counts_the_rest() -> None:
    told = story(scenario(6, 3, 900, seed=3))
    drawn = bars(told, floor_of(told.scenario))
    exact = thinned(drawn, Millis(0))
    assert (list(exact.bars), exact.left_out) == (drawn, 0)
    step = Millis(4 * HOUR)
    coarse = thinned(drawn, step)
    assert coarse.left_out == len(drawn) - len(coarse.bars) > 0
    assert coarse.gpu_time == sum(bar.gpu_time for bar in drawn) - sum(bar.gpu_time for bar in coarse.bars)
    assert [bar for bar in drawn if bar.end - bar.start >= step] == [
        bar for bar in coarse.bars if bar.end - bar.start >= step
    ]
