"""What each figure of a run says, on stories that can be checked in the head."""

from __future__ import annotations

import json

import pytest

from gpufair.core.model import Lease, PreemptReason
from gpufair.core.units import HOUR, MINUTE, Millis, NodeName, WorkloadId
from gpufair.sim.job import JobKind
from gpufair.sim.measures import NothingToMeasure, as_json, compare, measure
from gpufair.sim.measures.table import Better, Row
from gpufair.sim.measures.waits import Sample
from gpufair.sim.story import Landed, Stint
from tests.unit.sim.stories import at, job, life, stint, story

CONTRACT = {
    "jobs",
    "gpus",
    "span_s",
    "wall_s",
    "events",
    "decisions",
    "starts",
    "completions",
    "preemptions",
    "protected_preemptions",
    "occupancy",
    "unallocated_share",
    "delivered_over_owed",
    "wait_s",
    "lost_gpu_s",
    "switching_gpu_s",
}


def test_delivered_is_capped_by_what_was_owed() -> None:
    """`a` wants more than its half and gets 6 of 8 GPUs; `b` wants 8, is owed 4 and gets 2."""
    run = story(
        life(job("greedy", 0, 6, leaf="a"), stint(0, 0, 60, gpus=6), ended=60),
        life(job("small", 0, 2, leaf="b"), stint(0, 0, 60, gpus=2), ended=60),
        life(job("waits", 0, 6, leaf="b"), ended=None, waiting=0),
        shares=(("a", "1"), ("b", "1")),
        until=60,
    )
    found = measure(run).delivered
    assert [(one.path, one.delivered) for one in found.accounts] == [("", 1.0), ("a", 1.5), ("b", 0.5)]
    assert (found.capped, found.uncapped, found.hourly) == (0.75, 1.0, 0.75)
    assert found.worst is None  # nobody is entitled to 8 GPUs


def test_hour_by_hour_nothing_is_made_up_for() -> None:
    """All of the cluster in one hour and nothing in the other is what was due in two, and half of it hour by hour."""
    run = story(
        life(job("early", 0, 8, leaf="a"), stint(0, 0, 60, gpus=8), ended=60),
        life(job("late", 60, 8, leaf="a"), ended=None, waiting=60),
        life(job("first", 0, 8, leaf="b"), stint(0, 60, None, gpus=8)),
        shares=(("a", "1"), ("b", "1")),
        until=120,
    )
    found = measure(run).delivered
    assert (found.capped, found.hourly) == (1.0, 0.5)


def test_who_is_over_and_never_started_was_owed_nothing() -> None:
    """Queueing and cancelling leaves no trace, while who still waits is owed."""
    gone, waits = life(job("gone", 0, 8), ended=30, waiting=0), life(job("waits", 0, 2), waiting=0)
    assert measure(story(gone, until=60)).delivered.whole.owed == 0
    assert measure(story(gone, waits, until=60)).delivered.whole.owed == 2 * HOUR
    refused = life(job("refused", 0, 2), ended=0, waiting=0)
    refused.refused = "it never fits"
    assert measure(story(refused, until=60)).delivered.whole.owed == 0


def test_the_worst_is_looked_for_among_the_large() -> None:
    """One job decides of an allocation that is entitled to less than 8 GPUs."""
    run = story(
        life(job("one", 0, 8, leaf="a"), stint(0, 15, None, gpus=8)),
        life(job("two", 0, 1, leaf="b"), waiting=0),
        life(job("later", 45, 9, leaf="a"), waiting=45),
        shares=(("a", "8"), ("b", "1")),
        gpus=9,
        until=60,
    )
    found = measure(run).delivered
    assert found.worst is not None
    assert (found.worst.path, found.worst.delivered, found.worst.granularity) == ("a", 0.75, 1.125)
    early = measure(run, (at(0), at(30))).delivered.worst
    assert early is not None
    assert early.granularity == 2.0
    plain = as_json(measure(run))["delivered_over_owed"]
    assert plain["by_allocation"] == {"a": 0.75, "b": 0.0}
    assert (plain["worst"], plain["worst_allocation"]) == (0.75, "a")


def test_what_was_lost_and_spent_on_switching_is_not_work() -> None:
    """An hour on two GPUs: 6 minutes until it is up, 6 to leave; of 48 minutes of work 12 have to be done again."""
    told = stint(0, 0, 60, up=6, notice=54, reason=PreemptReason.RANK, worked=48, lost=12, gpus=2)
    run = story(life(job("w", 0, 2, resumable=False), told, waiting=60), gpus=4, until=120)
    figures = measure(run)
    time = figures.time
    assert (time.switching, time.lost, time.useful) == (24 * MINUTE, 24 * MINUTE, 72 * MINUTE)
    assert time.lost_for_good == time.lost
    assert time.of_available(time.held) == 0.25
    assert figures.delivered.capped == 0.5  # two hours of two GPUs were owed
    assert figures.delivered.net == 72 / 240
    half = measure(run, (at(30), at(120)))
    assert (half.time.switching, half.time.lost, half.time.useful) == (12 * MINUTE, 12 * MINUTE, 36 * MINUTE)


def test_unallocated_work_is_held_and_charged_to_nobody() -> None:
    """It counts for occupancy alone."""
    run = story(
        life(job("free", 0, 4, min_runtime=Millis(0)), stint(0, 0, None, gpus=4)),
        life(job("paid", 0, 2), stint(0, 0, None, gpus=2)),
        until=60,
    )
    plain = as_json(measure(run))
    assert (plain["occupancy"], plain["unallocated_share"]) == (0.75, 0.666667)
    assert plain["allocations"]["a"]["charged_gpu_s"] == 7200
    assert plain["allocations"]["a"]["unallocated_gpu_s"] == 14400


def test_scattered_is_told_apart_from_kept() -> None:
    """Four free GPUs on two nodes: not for one who wants four on one, though for one who wants two."""
    held = [life(job(f"w{index}", 0, 2), stint(0, 0, None, gpus=2, node=f"n{index}")) for index in range(2)]
    wants = life(job("wants", 0, 4), waiting=0)
    takes = life(job("takes", 30, 2), waiting=30)
    time = measure(story(*held, wants, takes, gpus=4, nodes=2, until=60)).time
    assert (time.fragmented, time.withheld) == (4 * HOUR, 2 * HOUR)
    assert measure(story(*held, gpus=4, nodes=2, until=60)).time.fragmented == 0  # nobody waits


def test_percentiles_are_of_the_nearest_rank() -> None:
    """Of ten waits the 90th percentile is the ninth, and nothing is interpolated."""
    found = Sample(list(range(10, 0, -1))).quantiles()
    assert (found.p50, found.p90, found.p99, found.longest) == (5, 9, 10, 10)
    assert Sample([7]).quantiles().p50 == 7
    assert Sample().quantiles().p50 is None


def test_waits_that_have_not_ended_count_as_at_least_so_long() -> None:
    """What they can move is marked; what they cannot is not."""
    found = Sample([1, 2, 3, 4, 5, 6], [5, 20]).quantiles()
    assert (found.count, found.unfinished) == (8, 2)
    assert (found.p50, found.p90, found.longest) == (4, 20, 20)
    assert found.at_least == ("p90", "p99", "max")
    assert Sample([1, 2, 3, 4], [1]).quantiles().at_least == ("p50", "p90", "p99", "max")


def test_whose_wait_is_whose() -> None:
    """First waits by kind, size and allocation; later ones by whether a user came back; none is dropped."""
    session = job("s", 0, kind=JobKind.SESSION)
    run = story(
        life(session, stint(0, 1, 10), stint(20, 21, 30, touched=True), stint(30, 35, 40), waiting=50, touched=True),
        life(job("d", 5, kind=JobKind.DEBUG), stint(5, 7, 9), ended=9),
        life(job("g", 5, 8, leaf="b"), waiting=5),
        life(job("gone", 0), waiting=0, ended=4),
        life(job("before", 0, 4, min_runtime=Millis(0)), stint(0, 60, None, gpus=4)),
        shares=(("a", "1"), ("b", "1")),
        until=100,
    )
    waits = measure(run).waits
    assert {name: (one.count, one.unfinished) for name, one in waits.by_class.items()} == {
        "all": (5, 2),
        "debug": (1, 0),
        "session": (1, 0),
        "batch": (3, 2),
        "allocated": (4, 2),
        "unallocated": (1, 0),
        "largest_gang": (1, 1),
    }
    assert waits.by_class["largest_gang"].longest == 95 * MINUTE
    assert waits.largest_gang == 8
    assert list(waits.by_size) == ["1", "3-4", "5-8"]
    assert {leaf: one.count for leaf, one in waits.by_allocation.items()} == {"a": 4, "b": 1}
    assert (waits.resumed.count, waits.resumed.p50, waits.resumed.longest) == (2, MINUTE, 50 * MINUTE)
    assert waits.resumed.at_least == ("p90", "p99", "max")
    assert (waits.requeued.count, waits.requeued.p50) == (1, 5 * MINUTE)
    assert (waits.unfinished.count, waits.unfinished.longest) == (2, 95 * MINUTE)
    later = measure(run, (at(5), at(100))).waits
    assert later.by_class["all"].count == 2  # submissions of the period alone


def landed(name: str, granted: float, start_by: float, over: float | None = None, dropped: str = "") -> Landed:
    leases = (Lease(NodeName("n0"), 8),)
    over_at = None if over is None else at(over)
    return Landed(WorkloadId(name), leases, at(granted), at(start_by), at(start_by), over_at, dropped)


def test_landings_are_held_against_their_start_by() -> None:
    """One in time, one late, one lost, one that is over before, one that still waits though its time is past."""
    run = story(
        life(job("good", 0, 8), stint(0, 90, 100, gpus=8), ended=100),
        life(job("late", 0, 8), stint(0, 130, 140, gpus=8), ended=140),
        life(job("lost", 0, 8), stint(0, 200, 210, gpus=8), ended=210),
        life(job("waits", 0, 8), waiting=0),
        life(job("gone", 0, 8), waiting=0, ended=50),
        until=300,
        landings=(
            landed("good", 10, 90, 90),
            landed("gone", 10, 290, 50),
            landed("late", 10, 128, 130),
            landed("lost", 10, 50, 40, "a node went"),
            landed("waits", 20, 290),
        ),
    )
    found = measure(run).landings
    assert (found.granted, found.kept, found.late, found.open) == (5, 2, 2, 2)
    assert found.dropped == {"a node went": 1}
    assert found.worst_lateness == 10 * MINUTE
    assert (found.longest, found.longest_wait, found.longest_of) == (120 * MINUTE, 130 * MINUTE, "late")
    assert found.bound == 8 * HOUR + 4 * MINUTE


def test_preemptions_are_told_apart_from_other_notices() -> None:
    """By the right that was used; a protected one is counted though the policy says there was none."""

    def told(granted: float, reason: PreemptReason | None, protected: float = 0) -> Stint:
        return stint(granted, granted, granted + 5, notice=granted + 4, reason=reason, protected=protected)

    run = story(
        life(
            job("w", 0),
            told(0, PreemptReason.RANK, protected=4),  # it had just ended
            told(5, PreemptReason.IDLE),
            told(10, PreemptReason.DEBUG, protected=5),
            told(15, PreemptReason.RANK),
            told(20, None),
            stint(26, 27, 30, touched=True),
            ended=30,
        ),
        until=60,
    )
    figures = measure(run)
    assert figures.counts.preemptions == {PreemptReason.RANK: 2, PreemptReason.DEBUG: 1}
    assert figures.counts.notices == {PreemptReason.IDLE: 1}
    assert (figures.counts.starts, figures.counts.completions, figures.counts.most_restarts) == (6, 1, 4)
    assert figures.run.protected_preemptions == 1
    later = measure(run, (at(14.5), at(60))).counts
    assert (later.starts, sum(later.preemptions.values())) == (3, 1)
    assert measure(story(until=60, protected_preemptions=3)).run.protected_preemptions == 3


def test_the_warm_up_is_left_out() -> None:
    """What began in it counts from its end on."""
    run = story(life(job("w", 0, 8), stint(0, 0, 90, gpus=8), ended=90), until=120, warm_up=60)
    figures = measure(run)
    assert figures.time.allocated == 8 * 30 * MINUTE
    assert figures.time.of_available(figures.time.held) == 0.5
    assert as_json(figures)["period_s"] == [3600, 7200]
    assert figures.run.jobs == 1
    assert figures.counts.submitted == 0


def test_a_period_without_anything_in_it_is_an_error() -> None:
    """It says what was played."""
    with pytest.raises(NothingToMeasure, match=r"from 3 h to 1 h of 'by hand', which was played from 0 h to 1 h"):
        measure(story(until=60, warm_up=180))


def test_the_json_has_the_contracts_keys_even_of_an_empty_run() -> None:
    """And it is JSON: nothing that could be unknown is missing."""
    plain = json.loads(json.dumps(as_json(measure(story(until=60))), allow_nan=False))
    assert plain.keys() >= CONTRACT
    assert plain["delivered_over_owed"].keys() >= {"capped", "uncapped", "hourly", "worst", "by_allocation"}
    assert plain["delivered_over_owed"]["capped"] is None
    for kind in ("all", "debug", "session", "batch", "largest_gang"):
        assert plain["wait_s"][kind].keys() >= {"p50", "p90", "p99", "max"}
    assert plain["occupancy"] == 0


def test_policies_side_by_side() -> None:
    """The better value is named where something is better, and never on the word of a wait that has not ended."""
    quick = measure(story(life(job("w", 0), stint(0, 1, None)), until=60))
    slow = measure(story(life(job("w", 0), stint(0, 31, None)), until=60))
    never = measure(story(life(job("w", 58), waiting=58), until=60))
    rows = {row.name: row for row in compare([quick, slow, never])}
    assert rows["occupancy of available GPU time"].best == (0,)
    assert rows["wait of all, p50"].values == (60.0, 1860.0, 120.0)
    assert rows["wait of all, p50"].marks == ("", "", "≥")
    assert rows["wait of all, p50"].best == (0,)
    assert "wait of debug jobs, p50" not in rows  # there were none
    assert Row("wait", "s", Better.LOWER, (3.0, 2.0), ("", "≥")).best == ()
    assert Row("share", "%", Better.NEITHER, (3.0, 2.0), ("", "")).best == ()
