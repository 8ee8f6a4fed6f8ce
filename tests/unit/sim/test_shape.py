"""A trace on another cluster, at another demand, with what nobody recorded drawn."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpufair.core.errors import BudgetError
from gpufair.core.model import Allocation, Kind, Outcome, Policy
from gpufair.core.tree import Tree
from gpufair.core.units import DAY, HOUR, MINUTE, AllocationPath, Millis
from gpufair.sim.assumptions import parse_assumptions
from gpufair.sim.cluster import Cluster
from gpufair.sim.errors import ScenarioError, TooLarge, UnknownProjects
from gpufair.sim.job import JobKind
from gpufair.sim.scenario import Scenario
from gpufair.sim.shape import shape
from gpufair.sim.traces.row import Row, Trace
from tests.unit.sim.admitted import refused

CLUSTER = Cluster.parse("8x8")
PROJECTS = ("vision", "speech", "text", "robots")


def trace(count: int = 4_000, days: int = 14, seed: int = 1) -> Trace:
    """Bursty and heavy-tailed, as real ones are."""
    draw = Random(seed)
    times = sorted(min(draw.random(), draw.random() + 0.2) % 1 for _ in range(count))
    rows = [
        Row(
            line=number + 2,
            job_id=f"job{number:05d}",
            submit=Millis(round(at * days * DAY)),
            duration=Millis(round(min(1 + draw.lognormvariate(7, 2), 5 * 86_400) * 1000)),
            gpus=draw.choices((1, 2, 4, 8, 16, 32), (60, 15, 10, 10, 4, 1))[0],
            user=f"u{draw.randrange(9)}",
            project=draw.choices(PROJECTS, (8, 4, 2, 1))[0],
            status=draw.choice(("completed", "failed", "cancelled")),
        )
        for number, at in enumerate(times)
    ]
    return Trace("made.csv", "csv", tuple(rows))


TRACE = trace()


def demand(scenario: Scenario, begin: float = 0.0, end: float = 1.0) -> float:
    """GPU time asked for per GPU time there is, in a part of the run."""
    first, last = begin * scenario.until, end * scenario.until
    asked = sum(job.gpus * job.work for job in scenario.jobs if first <= job.submit < last)
    return asked / (scenario.gpus * (last - first))


@pytest.mark.parametrize("asked", [0.2, 1.0, 2.5, 7.3])
def test_the_demand_asked_for_is_reached_in_each_week(asked):
    """Within two in a hundred: a quiet week must not decide about a comparison."""
    scenario = shape(TRACE, CLUSTER, demand=asked)
    assert demand(scenario) == pytest.approx(asked, rel=0.02)
    assert demand(scenario, 0, 0.5) == pytest.approx(asked, rel=0.02)
    assert demand(scenario, 0.5, 1) == pytest.approx(asked, rel=0.02)
    assert f"demand is {demand(scenario):.3f} of the GPU time there is ({asked:g} was asked for" in " ".join(
        scenario.notes
    )


@settings(max_examples=25, deadline=None)
@example(seed=0, asked=0.0625, cluster="5x4,3x8", days=14, session_tenths=0)
@given(
    st.integers(0, 5),
    st.floats(0.05, 4),
    st.sampled_from(["4x8", "8x8", "5x4,3x8"]),
    st.sampled_from([3, 7, 14]),
    st.integers(0, 3),
)
def test_scaling_reaches_what_the_trace_allows(seed, asked, cluster, days, session_tenths):
    """Whatever is asked for, within 2 %; durations as recorded, ids unique, everything within the run."""
    made = trace(400, 14, seed)
    scenario = shape(
        made,
        Cluster.parse(cluster),
        demand=asked,
        days=days,
        seed=seed,
        session_share=session_tenths / 10,
        oversize="clip",
    )
    note = next(note for note in scenario.notes if note.startswith("demand is "))
    # A single large job can be more than that, of a demand that a few jobs make: also one that was left out for it.
    largest = max(min(row.gpus, scenario.gpus) * row.duration for row in made.rows) / (scenario.gpus * scenario.until)
    assert float(note.split()[2]) == pytest.approx(asked, abs=max(0.02 * asked, largest / 2))
    recorded = {row.job_id: row.duration for row in made.rows}
    for job in scenario.jobs:
        if job.kind is JobKind.SESSION:
            assert sum(one.work + one.thought for one in job.bursts) == pytest.approx(
                recorded[job.id.partition("~")[0]], abs=len(job.bursts)
            )
            assert job.work == sum(one.work for one in job.bursts)
        else:
            assert job.work == recorded[job.id.partition("~")[0]]
    assert len({job.id for job in scenario.jobs}) == len(scenario.jobs)
    assert list(scenario.jobs) == sorted(scenario.jobs, key=lambda job: (job.submit, job.id))
    assert all(scenario.start <= job.submit < scenario.until for job in scenario.jobs)


def test_the_same_seed_gives_the_same_scenario():
    """And another one another: users of repetitions, times, protections and kinds are drawn."""
    first, again, other = (shape(TRACE, CLUSTER, demand=2.5, days=7, seed=seed) for seed in (3, 3, 4))
    assert first == again
    assert first.jobs != other.jobs
    assert first.allocations == other.allocations


def test_without_a_demand_everything_is_as_recorded():
    """And a small trace is played until its jobs can have ended."""
    scenario = shape(TRACE, CLUSTER)
    played = [(str(job.id), int(job.submit), job.work, job.spec.user) for job in scenario.jobs]
    assert played == [(row.job_id, row.submit, row.duration, row.user) for row in TRACE.rows]
    assert Counter(job.outcome for job in scenario.jobs)[Outcome.FAILED] > 0
    few = Trace("few", "csv", (Row(2, "a", Millis(0), Millis(3 * HOUR), 1), Row(3, "b", MINUTE, Millis(3 * HOUR), 1)))
    assert 3 * HOUR < shape(few, CLUSTER).until < DAY


def test_days_are_cut_out():
    """Time begins with them."""
    scenario = shape(TRACE, CLUSTER, days=3, skip_days=2)
    rows = [row for row in TRACE.rows if 2 * DAY <= row.submit < 5 * DAY]
    assert [(job.id, job.submit) for job in scenario.jobs] == [(row.job_id, row.submit - 2 * DAY) for row in rows]
    assert scenario.until == 3 * DAY


@pytest.mark.parametrize("unallocated", [0.0, 0.66])
def test_the_core_admits_every_job(unallocated):
    """A refused submission would be demand that is not there."""
    scenario = shape(
        TRACE, Cluster.parse("5x8:a100,6x4:l40"), demand=1.5, levels=2, unallocated_share=unallocated,
        session_share=0.2, users="drawn", max_min_runtime=Millis(2 * HOUR),
    )  # fmt: skip
    assert refused(scenario, Policy(max_min_runtime=Millis(2 * HOUR))) == []
    assert max(job.spec.min_runtime for job in scenario.jobs) == 2 * HOUR


def test_a_drawn_tree_gives_each_project_what_it_used():
    """On one level and on two; or the same to all."""
    used: Counter[str] = Counter()
    for row in TRACE.rows:
        used[row.project] += row.duration * int(row.gpus)
    for scenario, depth in ((shape(TRACE, CLUSTER, levels=1), 1), (shape(TRACE, CLUSTER, levels=2), 2)):
        tree = Tree(scenario.allocations)
        assert {tree[leaf].depth for leaf in tree.leaves} == {depth}
        for leaf in tree.leaves:
            assert float(tree[leaf].entitlement) == pytest.approx(
                used[leaf.rpartition("/")[2]] / used.total(), rel=1e-4
            )
    tree = Tree(shape(TRACE, CLUSTER, equal=True).allocations)
    assert len(tree.leaves) == 4
    assert {tree[leaf].entitlement for leaf in tree.leaves} == {tree[tree.leaves[0]].entitlement}


def test_projects_are_matched_with_a_given_tree():
    """By path, by the only last name, or by the leaf that takes all the rest."""

    def tree(*paths: str) -> tuple[Allocation, ...]:
        return tuple(Allocation(AllocationPath(path)) for path in paths)

    scenario = shape(TRACE, CLUSTER, budgets=tree("a/vision", "b/speech", "text", "b/other"))
    assert {job.spec.allocation for job in scenario.jobs} == {"a/vision", "b/speech", "text", "b/other"}
    with pytest.raises(
        UnknownProjects, match=r"robots of the trace is no leaf of the budget tree \(a/vision, "
    ) as raised:
        shape(TRACE, CLUSTER, budgets=tree("a/vision", "b/speech", "text"))
    assert raised.value.projects == ("robots",)
    with pytest.raises(UnknownProjects, match="'other'"):  # two have that last name: nobody can say which
        shape(TRACE, CLUSTER, budgets=tree("a/vision", "b/vision", "speech", "text", "robots"))
    with pytest.raises(BudgetError, match="declared twice"):
        shape(TRACE, CLUSTER, budgets=tree("vision", "vision"))
    with pytest.raises(BudgetError, match="has a share"):
        shape(TRACE, CLUSTER, budgets=())


def test_who_has_no_share_runs_unallocated():
    """As the core demands."""
    shares = (("vision", "1"), ("speech", "1"), ("text", "1"), ("robots", "0"))
    scenario = shape(TRACE, CLUSTER, budgets=[Allocation(AllocationPath(path), share) for path, share in shares])
    unallocated = {job.spec.allocation for job in scenario.jobs if not job.spec.allocated}
    assert unallocated == {"robots"}
    assert refused(scenario) == []


def test_kinds_are_split_as_asked():
    """A tenth of the short and small are debug runs, and so many of the long and small are sessions."""
    scenario = shape(TRACE, CLUSTER, debug_share=0.1, session_share=0.25)
    rows = {row.job_id: row for row in TRACE.rows}
    short = [row for row in TRACE.rows if row.duration <= 15 * MINUTE and row.gpus <= 8]
    long = [row for row in TRACE.rows if row.duration >= 2 * HOUR and row.gpus <= 8]
    kinds = {kind: [job for job in scenario.jobs if job.kind is kind] for kind in JobKind}
    assert len(kinds[JobKind.DEBUG]) == round(0.1 * len(short))
    assert len(kinds[JobKind.SESSION]) == round(0.25 * len(long))
    for job in kinds[JobKind.DEBUG]:
        assert rows[job.id].duration <= 15 * MINUTE
        assert (job.spec.min_runtime, job.spec.priority) == (15 * MINUTE, 10)
    for job in kinds[JobKind.SESSION]:
        assert (job.spec.kind, job.spec.idle_release, job.spec.resumable) == (Kind.SESSION, HOUR, True)
    # The others are no debug workloads to the policy either, however short they are.
    assert min(job.spec.min_runtime for job in kinds[JobKind.BATCH]) > 15 * MINUTE
    non_resumable = sum(not job.spec.resumable for job in kinds[JobKind.BATCH])
    assert non_resumable / len(kinds[JobKind.BATCH]) == pytest.approx(0.1, abs=0.02)


def test_sessions_think_as_published():
    """Cells run in 28 to 42 % of the time; 93 % of the rest lies in gaps above an hour."""
    scenario = shape(TRACE, CLUSTER, session_share=1.0, debug_share=0)
    sessions = [job for job in scenario.jobs if job.kind is JobKind.SESSION]
    thought = sum(one.thought for job in sessions for one in job.bursts)
    long = sum(one.thought for job in sessions for one in job.bursts if one.thought >= HOUR)
    busy = sum(job.work for job in sessions)
    assert 0.33 < busy / (busy + thought) < 0.37
    assert 0.85 < long / thought <= 0.94
    assert all(one.work > 0 and one.thought >= 0 for job in sessions for one in job.bursts)


def test_so_much_of_the_demand_runs_unallocated():
    """In GPU time, evenly over the projects."""
    scenario = shape(TRACE, CLUSTER, demand=2.5, unallocated_share=0.66)
    every: Counter[str] = Counter()
    free: Counter[str] = Counter()
    for job in scenario.jobs:
        every[job.spec.allocation] += job.gpus * job.work
        free[job.spec.allocation] += 0 if job.spec.allocated else job.gpus * job.work
    assert free.total() / every.total() == pytest.approx(0.66, rel=0.02)
    assert all(0.4 < free[leaf] / every[leaf] < 0.9 for leaf in every)


def test_what_was_recorded_comes_before_what_is_drawn():
    """Kinds, protections, priorities, users, time limits."""
    rows = (
        Row(2, "a", Millis(0), HOUR, 1, "ada", "x", "debug", min_runtime=MINUTE, priority=7, resumable=False),
        Row(3, "b", Millis(0), HOUR, 2, "bo", "x", "session", min_runtime=Millis(99 * HOUR)),
        Row(4, "c", Millis(5), HOUR, 4.5, "", "", "batch", "failed", min_runtime=Millis(0), requested=DAY),
        Row(5, "d", Millis(5), MINUTE, 1, "", "", "", gpu_type="tpu"),
    )
    scenario = shape(Trace("t", "csv", rows, epoch_s=1_000.0), CLUSTER)
    a, b, c, d = scenario.jobs
    assert (a.kind, a.spec.min_runtime, a.spec.priority, a.spec.resumable) == (JobKind.DEBUG, MINUTE, 7, False)
    assert (b.kind, b.spec.min_runtime, b.spec.user) == (JobKind.SESSION, 8 * HOUR, "bo")
    assert (c.spec.allocated, c.gpus, c.spec.allocation, c.outcome) == (False, 5, "other", Outcome.FAILED)
    assert c.spec.expected == DAY
    assert c.spec.user.startswith("other-u")
    assert d.kind is JobKind.BATCH  # the trace knows kinds: nothing is drawn
    assert scenario.epoch_s == 1_000.0
    notes = " ".join(scenario.notes)
    assert "jobs that asked for parts of a GPU and get whole ones: 1" in notes
    assert "jobs that name a GPU type that the cluster lacks and run on any: 1" in notes
    assert refused(scenario) == []


def test_users_can_be_drawn_anew():
    """So that seeds differ in who submits what, and some submit more than others."""
    scenario = shape(TRACE, CLUSTER, users="drawn")
    counts = Counter(job.spec.user for job in scenario.jobs if job.spec.allocation == "vision")
    assert counts.most_common(1)[0][0] == "vision-u0"
    assert counts["vision-u0"] > 2 * counts["vision-u7"] > 0


def test_jobs_that_never_fit_are_refused_clipped_or_skipped():
    """As is asked for, and counted."""
    small = Cluster.parse("2x8")
    large = [row.job_id for row in TRACE.rows if row.gpus > 16]
    with pytest.raises(TooLarge, match=f"{len(large)} jobs of the trace can never run on 2x8: '{large[0]}'"):
        shape(TRACE, small)
    clipped = {str(job.id): job for job in shape(TRACE, small, oversize="clip").jobs}
    assert {clipped[job].gpus for job in large} == {16}
    skipped = shape(TRACE, small, oversize="skip")
    assert not {job.id for job in skipped.jobs} & set(large)
    assert any(note == f"jobs that are too large for the cluster and left out: {len(large)}" for note in skipped.notes)


def test_failures_of_nodes_are_drawn_if_assumed():
    """Each loss comes back, unless the run ends before."""
    often = parse_assumptions("[nodes]\nmtbf_d = 2\nrepair_h = 1")
    scenario = shape(TRACE, CLUSTER, assumptions=often, days=14)
    names = Counter(type(event).__name__ for event in scenario.incidents)
    assert 25 < names["NodeLost"] < 100
    assert 0 <= names["NodeLost"] - names["NodeJoined"] <= 8
    assert list(scenario.incidents) == sorted(scenario.incidents, key=lambda event: event.at)
    assert shape(TRACE, CLUSTER, days=14).incidents == ()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"demand": 0}, "a demand of 0 times"),
        ({"demand": -1}, "a demand of -1 times"),
        ({"demand": float("nan")}, "a demand of nan"),
        ({"days": 0}, "0 days are no time"),
        ({"days": float("inf")}, "inf days"),
        ({"days": 90}, "has submissions of 14.0 days, not of 90.0; take fewer days"),
        ({"skip_days": 20}, "skip fewer"),
        ({"outstanding": 0}, "nobody ever submits"),
        ({"debug_share": 1.5}, "a share of 1.5"),
        ({"unallocated_share": -0.1}, "a share of -0.1"),
        ({"max_min_runtime": Millis(0)}, "max_min_runtime"),
    ],
)
def test_what_makes_no_sense_is_refused(options, says):
    """In a sentence."""
    with pytest.raises(ScenarioError) as raised:
        shape(TRACE, CLUSTER, **options)
    assert says in str(raised.value)


def test_a_trace_without_jobs_is_refused():
    """There is nothing to play."""
    with pytest.raises(ScenarioError, match="has no jobs"):
        shape(Trace("empty", "csv", ()), CLUSTER)
