"""What is drawn over time adds up: usage, entitlement, the metric, waits."""

from __future__ import annotations

import base64
import json
import random
import struct
import zlib
from itertools import accumulate

import pytest

from gpufair.core.events import BudgetsApplied, NodeDrained, NodeJoined, NodeLost, NodeUncordoned
from gpufair.core.model import DEFAULT_POOL, Allocation, Node
from gpufair.core.units import DAY, HOUR, AllocationPath, CauseId, Instant, Millis, NodeName
from gpufair.sim.job import JobKind
from gpufair.sim.measures.cluster import Cluster
from gpufair.sim.report.closed import closed, eras
from gpufair.sim.report.encode import column, texts
from gpufair.sim.report.rows import Floor, bars
from gpufair.sim.report.series import MOST_METRIC, UNKNOWN, Binned, Bins, entitled, metrics, usage
from gpufair.sim.report.waits import POINTS, TOUCHED, Waits, waits
from gpufair.sim.scenario import Scenario
from gpufair.sim.story import Sample
from tests.drawn_stories import scenario, story

CAUSE = CauseId("test")


def nodes_of(world: Scenario) -> Cluster:
    return Cluster(world, world.until, {})


def test_bins_hold_what_was_put_in_to_the_last_millisecond() -> None:
    rng = random.Random(1)
    bins = Bins.of(Instant(500), Instant(100_500), 7)
    binned, by_hand = Binned(bins), [0] * bins.count
    for _ in range(200):
        start, end = sorted((rng.randrange(500, 100_501), rng.randrange(500, 100_501)))
        binned.add(start, end, 3)
        for place in range(bins.count):
            low, high = bins.start + place * bins.width, bins.start + (place + 1) * bins.width
            by_hand[place] += 3 * max(0, min(end, high) - max(start, low))
    assert binned.sums() == by_hand


def test_usage_of_the_root_is_all_gpu_time() -> None:
    told = story(scenario(6, 3, 700, seed=2))
    drawn = bars(told, Floor(nodes_of(told.scenario)))
    paths = [AllocationPath(""), *sorted(allocation.path for allocation in told.scenario.allocations)]
    used = usage(drawn, paths, Bins.of(Instant(0), told.ended_at, 100))
    root = AllocationPath("")
    total = sum(used.charged[root]) + sum(used.unallocated[root])
    assert total == sum(bar.gpu_time for bar in drawn)
    tops = [path for path in paths if path and "/" not in path]
    assert sum(used.charged[root]) == sum(sum(used.charged[path]) for path in tops) > 0
    assert sum(used.unallocated[root]) == sum(sum(used.unallocated[path]) for path in tops) > 0


def world_with(*incidents) -> Scenario:
    node = Node(NodeName("a"), 8)
    allocations = (Allocation(AllocationPath("x"), "3"), Allocation(AllocationPath("y"), "1"))
    other = Node(NodeName("b"), 8)
    return Scenario("w", (node, other), allocations, (), Instant(DAY), incidents=incidents)


def test_entitlement_follows_lost_nodes_and_new_budgets() -> None:
    even = (Allocation(AllocationPath("x")), Allocation(AllocationPath("y")))
    world = world_with(
        NodeLost(Instant(6 * HOUR), CAUSE, NodeName("b")),
        BudgetsApplied(Instant(12 * HOUR), CAUSE, even),
        NodeJoined(Instant(18 * HOUR), CAUSE, Node(NodeName("b"), 8)),
    )
    bins = Bins.of(Instant(0), Instant(DAY), 4)
    found = entitled(eras(nodes_of(world), Instant(0), Instant(DAY)), [AllocationPath("x"), AllocationPath("y")], bins)
    assert [amount / (6 * HOUR) for amount in found[AllocationPath("x")]] == [12, 6, 4, 8]
    assert [amount / (6 * HOUR) for amount in found[AllocationPath("y")]] == [4, 2, 4, 8]


def test_closed_nodes_are_those_that_were_lost_or_drained() -> None:
    world = world_with(
        NodeDrained(Instant(1 * HOUR), CAUSE, NodeName("a")),
        NodeLost(Instant(2 * HOUR), CAUSE, NodeName("b")),
        NodeUncordoned(Instant(3 * HOUR), CAUSE, NodeName("a")),
        NodeJoined(Instant(5 * HOUR), CAUSE, Node(NodeName("new"), 8)),
    )
    found = [
        (one.node, one.start // HOUR, one.end // HOUR, one.cordoned)
        for one in closed(nodes_of(world), Instant(0), Instant(DAY))
    ]
    assert found == [("a", 1, 3, True), ("b", 2, 24, False), ("new", 0, 5, False)]


def test_metrics_keep_the_last_sample_of_each_bin() -> None:
    path = AllocationPath("x")
    samples = [
        Sample(Instant(at * HOUR), DEFAULT_POOL, ((path, value),), ())
        for at, value in ((0, 1.0), (1, 2.0), (13, float("inf")))
    ]
    found = metrics(samples, [AllocationPath(""), path], Bins.of(Instant(0), Instant(DAY), 4))
    assert found == {DEFAULT_POOL: {path: [2000, UNKNOWN, MOST_METRIC, UNKNOWN]}}


def test_waits_count_who_never_started() -> None:
    world = scenario(2, 1, 400, seed=4)
    told = story(world)
    found = {one.kind: one for one in waits(told)}
    counted = [life for life in told.lives.values() if life.submitted is not None and life.submitted >= world.warm_up]
    for kind in JobKind:
        own = [life for life in counted if life.job.kind is kind]
        assert len(found[kind].started) + found[kind].waiting == len(own) > 0
        assert len(found[kind].started) == sum(1 for life in own if life.stints)
    assert found[JobKind.BATCH].waiting > 0
    assert found[TOUCHED].started


def test_a_curve_of_many_waits_keeps_its_ends() -> None:
    many = Waits("debug", tuple(Millis(wait) for wait in range(1000)), 24)
    points = many.points()
    assert len(points) == POINTS
    assert (points[0], points[-1]) == ((1, 0), (1000, 999))
    assert all(wait == started - 1 for started, wait in points)


@pytest.mark.parametrize("values", [[], [5], [0, -1, 2**31 - 2, 2**31 - 2], [3, -7, 100_000, 99_999, -(2**30)]])
def test_columns_can_be_read_back(values: list[int]) -> None:
    """As ``page/decode.js`` does it."""
    written = column(values)
    plain = zlib.decompress(base64.b64decode(str(written["z"])))
    count = len(values)
    steps = [struct.unpack("<i", bytes(plain[place * count + at] for place in range(4)))[0] for at in range(count)]
    assert (list(accumulate(steps)), written["n"]) == (values, count)


def test_long_texts_are_cut() -> None:
    written = json.loads(zlib.decompress(base64.b64decode(str(texts(["a" * 10_000, "ünï\ud800"])["t"]))))
    assert (len(written[0]), written[0][-1], written[1][:3]) == (120, "…", "ünï")
