"""Constructed worlds: they ask for what they say, at all times, and the core takes all of it."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from gpufair.core.events import MaintenancePlanned, NodeDrained, NodeJoined, NodeLost, NodeUncordoned
from gpufair.core.tree import Tree
from gpufair.core.units import DAY, HOUR, MINUTE, AllocationPath, Millis
from gpufair.sim.cluster import Cluster
from gpufair.sim.engine import play
from gpufair.sim.errors import ScenarioError
from gpufair.sim.job import Job, JobKind
from gpufair.sim.policies.registry import contender
from gpufair.sim.scenario import Scenario
from gpufair.sim.worlds import WORLDS, Setting, world
from gpufair.sim.worlds.bursts import FLOODED
from gpufair.sim.worlds.contrasts import AWAY, GANGS
from gpufair.sim.worlds.squatter import HONEST, NO_OP, SQUATTER, squatter
from tests.unit.sim.admitted import refused

SETTING = Setting(Cluster.parse("32x8"), days=14)


def by_leaf(scenario: Scenario) -> dict[AllocationPath, list[Job]]:
    """The jobs of each leaf, in order."""
    found: dict[AllocationPath, list[Job]] = defaultdict(list)
    for job in scenario.jobs:
        found[job.spec.allocation].append(job)
    return found


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_is_made_anew_from_its_seed(name):
    """The same one from the same seed, another one from another; and the core admits every job."""
    make = world(f"world:{name}").make
    setting = Setting(Cluster.parse("8x8"), days=4, seed=5)
    scenario = make(setting)
    assert scenario == make(setting)
    assert scenario.jobs != make(Setting(Cluster.parse("8x8"), days=4, seed=6)).jobs
    assert scenario.name == f"world:{name}"
    assert scenario.notes
    assert refused(scenario) == []
    assert list(scenario.jobs) == sorted(scenario.jobs, key=lambda job: (job.submit, job.id))
    assert all(0 <= job.submit < scenario.until for job in scenario.jobs)
    assert list(scenario.incidents) == sorted(scenario.incidents, key=lambda event: event.at)
    assert len({job.id for job in scenario.jobs}) == len(scenario.jobs)


@pytest.mark.parametrize("demand", [1.5, 2.5])
def test_in_the_steady_world_everybody_asks_for_the_same_multiple_all_the_time(demand):
    """Of his entitlement: else what was owed would be ill-defined."""
    scenario = world("steady").make(Setting(Cluster.parse("32x8"), days=14, seed=2, demand=demand))
    tree = Tree(scenario.allocations)
    jobs = by_leaf(scenario)
    assert set(jobs) == set(tree.leaves)
    for leaf in tree.leaves:
        part = float(tree[leaf].entitlement) * scenario.gpus
        # Who serves it exactly its part never runs out of its work, from the first hour to the last.
        backlog, before = 0.0, 0
        for job in jobs[leaf]:
            backlog -= part * (job.submit - before)
            before = job.submit
            assert job.submit < HOUR or backlog > 0
            backlog += job.gpus * job.work
        opening = sum(job.gpus for job in jobs[leaf] if job.submit < HOUR)
        assert opening >= demand * part
        assert max(job.gpus for job in jobs[leaf]) <= max(1, part)
    note = scenario.notes[-1]
    assert float(note.split()[2]) == pytest.approx(demand, rel=0.02)


def test_the_steady_world_holds_all_kinds():
    """Debug runs a tenth of the jobs, sessions, gangs on many nodes."""
    scenario = world("steady").make(SETTING)
    kinds = {kind: [job for job in scenario.jobs if job.kind is kind] for kind in JobKind}
    assert len(kinds[JobKind.DEBUG]) / len(scenario.jobs) == pytest.approx(0.1, abs=0.005)
    assert all(job.work <= 15 * MINUTE and job.gpus <= 8 for job in kinds[JobKind.DEBUG])
    thoughts = [one.thought for job in kinds[JobKind.SESSION] for one in job.bursts]
    assert sum(thought > HOUR for thought in thoughts) > 100
    assert {job.gpus for job in kinds[JobKind.BATCH]} == {1, 2, 4, 8, 16, 32}
    assert all(job.spec.allocated for job in scenario.jobs)


def test_a_part_of_a_steady_demand_can_run_unallocated():
    """In GPU time."""
    scenario = world("steady").make(Setting(Cluster.parse("32x8"), days=14, unallocated_share=0.4))
    words = scenario.notes[-1].split()
    assert float(words[9]) / float(words[2]) == pytest.approx(0.4, rel=0.02)


def test_once_a_day_debug_runs_come_in_a_burst():
    """All of one researcher, within ten minutes."""
    scenario = world("debug-burst").make(SETTING)
    runs = [job for job in scenario.jobs if job.kind is JobKind.DEBUG]
    for day in range(13):
        today = [job for job in runs if day * DAY <= job.submit < (day + 1) * DAY]
        dense = [
            sum(job.spec.user == one.spec.user and 0 <= job.submit - one.submit < 10 * MINUTE for job in today)
            for one in today
        ]
        assert max(dense) >= 64


def test_the_squatters_useful_work_is_his_twins():
    """To the millisecond, so that what each gets of it can be compared; without no-ops nothing else is there."""
    scenario = squatter(SETTING)
    jobs = by_leaf(scenario)

    def work(leaf: AllocationPath) -> list[tuple[object, ...]]:
        return sorted(
            (job.submit, job.work, job.gpus, job.kind, job.bursts, job.spec.min_runtime, job.spec.resumable)
            for job in jobs[leaf]
            if job.spec.name != NO_OP
        )

    assert work(HONEST) == work(SQUATTER) != []
    no_ops = [job for job in jobs[SQUATTER] if job.spec.name == NO_OP]
    assert {job.spec.min_runtime for job in no_ops} == {8 * HOUR}
    assert sum(job.gpus * 8 * HOUR for job in no_ops) > 0.7 * 0.15 * 256 * scenario.until
    # Nobody works at night or at weekends.
    assert all(8 * HOUR <= job.submit % DAY < 20 * HOUR and job.submit // DAY % 7 < 5 for job in jobs[HONEST])
    assert [job for job in squatter(SETTING, squats=False).jobs if job.spec.name == NO_OP] == []


def test_a_season_is_two_thirds_absence():
    """And the rest asks for as much per time as the others do."""
    scenario = world("seasonal").make(Setting(Cluster.parse("32x8"), days=21))
    season, times = scenario.until // 2, [job.submit for job in by_leaf(scenario)[AWAY]]
    assert all(at % season >= season * 2 // 3 for at in times)
    assert len([at for at in times if at < season]) > 50 < len([at for at in times if at >= season])
    part = float(Tree(scenario.allocations)[AWAY].entitlement) * scenario.gpus
    asked = sum(job.gpus * job.work for job in by_leaf(scenario)[AWAY])
    assert asked / (part * scenario.until / 3) == pytest.approx(2.5, rel=0.05)


def test_gangs_of_half_the_cluster_stand_against_single_gpus():
    """The worst case of fragmentation."""
    jobs = by_leaf(world("gang-against-small").make(SETTING))
    assert {job.gpus for job in jobs[GANGS]} == {128}
    assert {job.gpus for leaf in jobs if leaf != GANGS for job in jobs[leaf] if job.kind is JobKind.BATCH} == {1, 2}


def test_a_flood_lasts_all_day_and_is_one_researchers():
    """In single GPUs, four times what his allocation is entitled to."""
    scenario = world("all-day-flood").make(SETTING)
    flood = [job for job in scenario.jobs if job.spec.user == "flood"]
    assert all(8 * HOUR <= job.submit % DAY < 20 * HOUR and job.gpus == 1 for job in flood)
    part = float(Tree(scenario.allocations)[FLOODED].entitlement) * scenario.gpus
    assert sum(job.work for job in flood) / (part * 14 * 12 * HOUR) == pytest.approx(4, rel=0.02)


def test_drained_and_closed_nodes_are_opened_again():
    """Each is a node of the cluster, and nothing stays closed but what the end of the run cuts."""
    scenario = world("drain").make(SETTING)
    names = {node.name for node in scenario.nodes}
    closed: set[str] = set()
    kinds = set()
    for event in scenario.incidents:
        kinds.add(type(event))
        if isinstance(event, NodeDrained):
            assert event.node in names
            closed.add(event.node)
        elif isinstance(event, MaintenancePlanned):
            assert names.issuperset(event.plan.nodes)
            closed.update(event.plan.nodes)
        elif isinstance(event, NodeUncordoned):
            closed.remove(event.node)
    assert closed == set()
    assert kinds == {NodeDrained, MaintenancePlanned, NodeUncordoned, NodeLost, NodeJoined}


def test_in_the_unallocated_regime_funded_demand_is_below_capacity():
    """But not at all times: in office hours some ask for far more than they own."""
    scenario = world("unallocated-regime").make(Setting(Cluster.parse("32x8"), days=28))
    tree, jobs = Tree(scenario.allocations), by_leaf(scenario)
    assert len(tree.leaves) == 15
    every: Counter[int] = Counter()
    funded: Counter[int] = Counter()
    for job in scenario.jobs:
        every[job.submit // (DAY // 4)] += job.gpus * job.work
        funded[job.submit // (DAY // 4)] += job.gpus * job.work if job.spec.allocated else 0
    assert 1 - funded.total() / every.total() == pytest.approx(0.66, abs=0.02)
    rates = sorted(funded[quarter] / (scenario.gpus * DAY // 4) for quarter in range(28 * 4))
    assert rates[28] < 0.6
    assert rates[-28] > 1.2
    assert set(jobs) == set(tree.leaves)


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_can_be_played(name):
    """Through the very core, to the end, and nobody who is protected is told to leave."""
    scenario = world(name).make(Setting(Cluster.parse("4x8"), days=1, seed=1))
    story = play(scenario, contender("fair-share"))
    assert story.protected_preemptions == 0
    assert [life.refused for life in story.lives.values() if life.refused] == []
    assert len(story.lives) == len(scenario.jobs)
    assert any(life.ended for life in story.lives.values())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"days": 0}, "0 days"),
        ({"days": float("nan")}, "nan days"),
        ({"days": 1e9}, "use 0.01 to 3,660"),
        ({"demand": 0}, "a demand of 0"),
        ({"unallocated_share": 2}, "an unallocated share of 2"),
        ({"outstanding": 0}, "nobody ever submits"),
        ({"window": Millis(0)}, "longer than 0"),
    ],
)
def test_what_makes_no_sense_is_refused(options, says):
    """In a sentence."""
    with pytest.raises(ScenarioError) as raised:
        Setting(Cluster.parse("2x8"), **options)
    assert says in str(raised.value)


def test_an_unknown_world_is_named():
    """With those there are."""
    with pytest.raises(ScenarioError, match="there is no world 'stead'; there are steady"):
        world("stead")
