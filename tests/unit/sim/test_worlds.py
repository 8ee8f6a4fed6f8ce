"""Constructed worlds: they ask for what they say, at all times, and the core takes all of it."""

from __future__ import annotations

from collections import defaultdict

import pytest

from gpufair.core.tree import Tree
from gpufair.core.units import HOUR, MINUTE, AllocationPath, Millis
from gpufair.sim.cluster import Cluster
from gpufair.sim.errors import ScenarioError
from gpufair.sim.job import Job, JobKind
from gpufair.sim.scenario import Scenario
from gpufair.sim.worlds import WORLDS, Setting, world
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
    """Debug runs a tenth of the jobs, sessions a tenth of the demand, gangs on many nodes."""
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


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"days": 0}, "0 days"),
        ({"days": float("nan")}, "nan days"),
        ({"days": 1e9}, "3,660 at most"),
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
