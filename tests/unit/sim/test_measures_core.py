"""Figures against the core's own ledger, over the same hours of the same run: two sets of books, one truth."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from gpufair.core import events as ev
from gpufair.core.model import HOLDING, Allocation, Kind, Maintenance, Node, Phase, Policy, Shape, WorkloadSpec
from gpufair.core.pyramid import Pyramid
from gpufair.core.state import State
from gpufair.core.units import HOUR, MINUTE, AllocationPath, CauseId, Instant, Millis, NodeName, PoolName, WorkloadId
from gpufair.sim.engine import Engine, play
from gpufair.sim.job import Burst, Job, JobKind
from gpufair.sim.measures import Figures, as_json, measure
from gpufair.sim.policies.registry import CONTENDERS
from gpufair.sim.scenario import Scenario
from gpufair.sim.story import Story

CAUSE = CauseId("test")
BIG, SMALL = PoolName("big"), PoolName("small")
UNTIL = Instant(24 * HOUR)
SHARES = (("a", "2"), ("a/x", "1"), ("a/y", "2"), ("b", "1"))


def allocations(*shares: tuple[str, str]) -> tuple[Allocation, ...]:
    return tuple(Allocation(AllocationPath(path), share) for path, share in shares)


def jobs(seed: int, many: int, pools: tuple[PoolName, ...]) -> tuple[Job, ...]:
    """Sessions, batch and unallocated work, more than there is room for."""
    rng, found = random.Random(seed), []
    for index, at in enumerate(sorted(rng.randrange(UNTIL) for _ in range(many))):
        session = rng.random() < 0.3
        bursts = tuple(
            Burst(Millis(rng.randrange(MINUTE, HOUR)), Millis(rng.randrange(3 * HOUR)))
            for _ in range(rng.randint(1, 4))
        )
        work = sum(burst.work for burst in bursts) if session else rng.randrange(MINUTE, 6 * HOUR)
        spec = WorkloadSpec(
            AllocationPath(rng.choice(("a/x", "a/y", "b"))),
            rng.choice("uv"),
            Kind.SESSION if session else Kind.BATCH,
            Shape(rng.choice((1, 2, 4))) if session else Shape(rng.choice((1, 2, 8)), rng.choice((1, 1, 2))),
            Millis(rng.choice((0, 10 * MINUTE, HOUR, 4 * HOUR))),
            resumable=rng.random() < 0.9,
            pools=rng.choice((pools, pools[::-1])),
            idle_release=HOUR if session else None,
        )
        kind = JobKind.SESSION if session else JobKind.BATCH
        found.append(
            Job(WorkloadId(f"j{index:03}"), Instant(at), Millis(work), spec, kind, 4.0, bursts if session else ())
        )
    return tuple(found)


def world(seed: int, weighted: bool = False) -> Scenario:
    """Two pools; a node is lost and comes back, one is drained, one lost for good; budgets are edited."""
    pools = (BIG, SMALL) if weighted else (BIG,)
    nodes = [Node(NodeName(f"n{index}"), 8, pool=BIG) for index in range(4)]
    if weighted:
        nodes += [Node(NodeName(f"s{index}"), 8, "old", SMALL) for index in range(2)]
    incidents = (
        ev.NodeLost(Instant(3 * HOUR + 1_234), CAUSE, NodeName("n0")),
        ev.BudgetsApplied(
            Instant(5 * HOUR + 77), CAUSE, allocations(("a", "1"), ("a/x", "1"), ("a/y", "1"), ("b", "3"))
        ),
        ev.NodeJoined(Instant(7 * HOUR + 4_321), CAUSE, nodes[0]),
        ev.NodeDrained(Instant(9 * HOUR + 5), CAUSE, NodeName("n1")),
        ev.MaintenancePlanned(
            Instant(10 * HOUR), CAUSE, Maintenance("m", (NodeName("n2"),), Instant(12 * HOUR + 30 * MINUTE))
        ),
        ev.NodeUncordoned(Instant(14 * HOUR + 9), CAUSE, NodeName("n1")),
        ev.NodeUncordoned(Instant(16 * HOUR), CAUSE, NodeName("n2")),
        ev.NodeLost(Instant(20 * HOUR + 1), CAUSE, NodeName("n3")),
        ev.NodeRemoved(Instant(22 * HOUR + 3), CAUSE, NodeName("n3")),
    )
    return Scenario(
        "two books", tuple(nodes), allocations(*SHARES), jobs(seed, 110, pools), UNTIL, incidents=incidents, seed=seed
    )


def played(scenario: Scenario, options: Policy) -> tuple[Story, State]:
    state = State(options)
    story = Engine(scenario, "fair-share", state, options).run()
    state.handle(ev.TimePassed(UNTIL, CAUSE))  # the ledger knows the time up to the last event only
    return story, state


def same(figures: Figures, pools: tuple[Pyramid, ...]) -> None:
    """What both count, to the millisecond; sums of several pools are rounded down in each by the core."""
    time, slack = figures.time, len(pools)
    assert time.installed == sum(pool.availability.of for pool in pools)
    assert time.available == sum(pool.availability.kept for pool in pools)
    assert time.held == sum(pool.occupancy.kept for pool in pools)
    assert time.unallocated == sum(pool.unallocated for pool in pools)
    assert time.switching == sum(pool.switching for pool in pools)
    for account in figures.delivered.accounts:
        theirs = [one for pool in pools for one in pool.delivery.allocations if one.path == account.path]
        assert account.leaf == theirs[0].leaf
        for mine, others in (
            (account.owed, sum(one.owed for one in theirs)),
            (account.charged, sum(one.charged for one in theirs)),
            (account.capped, sum(one.capped for one in theirs)),
            (account.hourly, sum(one.capped_hourly for one in theirs)),
        ):
            assert 0 <= mine - others < slack, account.path


def test_the_figures_are_those_of_the_ledger() -> None:
    """One pool, whole hours, while nodes and budgets come and go."""
    story, state = played(world(1), Policy())
    for start, end in ((0, UNTIL), (2 * HOUR, 21 * HOUR)):
        figures = measure(story, (Instant(start), Instant(end)))
        pools = state.pyramid(Instant(start), Instant(end))
        same(figures, pools)
    assert figures.delivered.capped == pools[0].delivery.capped
    assert figures.delivered.hourly == pools[0].delivery.capped_hourly


def test_the_figures_are_those_of_the_ledger_in_two_pools_of_weighted_gpus() -> None:
    """Who waits is demand in the first of his pools that could hold him, and old GPUs count half."""
    options = replace(Policy(), gpu_weights={"old": 0.5})
    story, state = played(world(3, weighted=True), options)
    same(measure(story), state.pyramid(Instant(0), UNTIL))


def test_what_stints_say_of_switching_is_what_is_measured() -> None:
    """A story says it twice: as instants, and as a sum."""
    story, _ = played(replace(world(4), incidents=()), Policy())
    over = {name: life for name, life in story.lives.items() if life.ended is not None}
    assert len(over) > 40
    time = measure(replace(story, lives=over)).time
    stints = [(life.job.gpus, stint) for life in over.values() for stint in life.stints]
    assert time.switching == sum(gpus * stint.switching for gpus, stint in stints)
    assert time.lost == sum(gpus * stint.lost for gpus, stint in stints) > 0
    assert time.useful + time.lost == sum(gpus * stint.worked for gpus, stint in stints)


@pytest.mark.parametrize("name", sorted(CONTENDERS))
def test_every_policy_is_measured_alike(name: str) -> None:
    """Nobody holds more than there is, parts add up, and what is written is JSON."""
    scenario = replace(world(5), warm_up=Millis(4 * HOUR))
    figures = measure(play(scenario, CONTENDERS[name]))
    time, delivered = figures.time, figures.delivered
    assert 0 < time.held <= time.available
    assert time.switching + time.useful + time.lost <= time.held
    assert max(time.fragmented, time.withheld) <= time.available - time.held
    assert sum(leaf.charged for leaf in delivered.leaves) == time.allocated
    assert sum(leaf.unallocated for leaf in delivered.leaves) == time.unallocated
    assert delivered.hourly is not None
    assert delivered.capped is not None
    assert 0 < delivered.hourly <= delivered.capped <= 1
    waits = figures.waits
    assert figures.counts.submitted - figures.counts.refused == waits.by_class["all"].count
    assert waits.by_class["all"].count == sum(one.count for one in waits.by_size.values())
    json.dumps(as_json(figures), allow_nan=False)


def test_who_waits_in_the_end_is_who_is_queued() -> None:
    """A story knows of each wait that has not ended, touched sessions and those queued again included."""
    story, state = played(world(6), Policy())
    waiting = {name for name, life in story.lives.items() if life.waiting_since is not None and life.ended is None}
    queued = {one.id for one in state.workloads() if one.phase is Phase.QUEUED}
    leaving = {one.id for one in state.workloads() if one.phase in HOLDING}
    assert queued <= waiting <= queued | leaving
    assert len(queued) > 5
    assert measure(story).waits.unfinished.count == len(waiting)
