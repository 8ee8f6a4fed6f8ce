"""What the simulator's nodes and users do, played under fair share on clusters that one can follow by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gpufair.core import events as ev
from gpufair.core.model import Allocation, Kind, Node, Outcome, Policy, PreemptReason, Shape, WorkloadSpec
from gpufair.core.state import State
from gpufair.core.units import HOUR, MINUTE, SECOND, AllocationPath, Instant, Millis, NodeName, WorkloadId
from gpufair.sim.costs import FREE, Costs
from gpufair.sim.engine import play
from gpufair.sim.job import Burst, Job, JobKind
from gpufair.sim.policies.contender import Contender
from gpufair.sim.scenario import Scenario
from gpufair.sim.site import CAUSE
from gpufair.sim.story import Life, Stint, Story

A, B = AllocationPath("a"), AllocationPath("b")
FAIR = Contender("fair-share", "checked after every event", lambda options: State(options, validate=True))
FIXED = Costs(
    launch_least=Millis(30 * SECOND),
    launch_most=Millis(30 * SECOND),
    save_per_gib=Millis(10 * SECOND),
    restore_per_gib=Millis(5 * SECOND),
    stop=Millis(2 * SECOND),
    checkpoint_every=Millis(10 * MINUTE),
)


def job(
    name: str,
    work: int,
    *,
    submit: int = 0,
    gpus: int = 4,
    protected: int = MINUTE,
    allocation: AllocationPath = A,
    gib: float = 1.0,
    bursts: tuple[Burst, ...] = (),
    **spec,
) -> Job:
    kind = Kind.SESSION if bursts else Kind.BATCH
    return Job(
        id=WorkloadId(name),
        submit=Instant(submit),
        work=Millis(sum(burst.work for burst in bursts) if bursts else work),
        spec=WorkloadSpec(allocation, spec.pop("user", "ada"), kind, Shape(gpus), Millis(protected), **spec),
        kind=JobKind.SESSION if bursts else JobKind.BATCH,
        state_gib=gib,
        bursts=bursts,
    )


def world(*jobs: Job, gpus: tuple[int, ...] = (4,), until: int = 12 * HOUR, costs: Costs = FIXED, **more) -> Scenario:
    nodes = tuple(Node(NodeName(f"n{number}"), count) for number, count in enumerate(gpus))
    shares = (Allocation(A), Allocation(B))
    in_order = sorted(jobs, key=lambda one: (one.submit, one.id))
    return Scenario("by hand", nodes, shares, in_order, Instant(until), costs=costs, **more)


def life(story: Story, name: str) -> Life:
    return story.lives[WorkloadId(name)]


def times(stint: Stint) -> tuple[int, int | None, int | None, int | None]:
    return stint.granted, stint.up, stint.notice, stint.freed


def test_a_job_alone_is_launched_works_and_ends():
    story = play(world(job("one", HOUR)), FAIR)
    (stint,) = life(story, "one").stints
    assert times(stint) == (0, 30_000, None, HOUR + 30_000)
    assert (stint.worked, stint.lost, stint.switching, stint.reason) == (HOUR, 0, 30_000, None)
    assert (life(story, "one").ended, life(story, "one").outcome) == (HOUR + 30_000, Outcome.COMPLETED)


def test_who_can_save_within_the_grace_loses_nothing():
    """1 GiB takes 10 s of the 20 s of a batch run; the rest of the work is done after the other one."""
    story = play(world(job("one", HOUR), job("two", MINUTE, submit=10 * MINUTE, allocation=B)), FAIR)
    first, second = life(story, "one").stints
    notice = 10 * MINUTE
    assert times(first) == (0, 30_000, notice, notice + 12_000)
    assert (first.reason, first.beneficiary, first.lost) == (PreemptReason.RANK, "two", 0)
    assert first.switching == 30_000 + 12_000
    assert second.granted == life(story, "two").stints[0].freed
    assert second.up == second.granted + 35_000  # launched, and 1 GiB restored
    assert first.worked + second.worked == HOUR


def test_who_cannot_save_in_time_goes_on_from_the_last_periodic_checkpoint():
    """4 GiB take 40 s, longer than the grace: at once gone, and back to what was durable after 20 minutes of work."""
    story = play(world(job("one", HOUR, gib=4), job("two", MINUTE, submit=25 * MINUTE, allocation=B)), FAIR)
    first, second = life(story, "one").stints
    assert times(first) == (0, 30_000, 25 * MINUTE, 25 * MINUTE + 2_000)
    assert first.worked == 25 * MINUTE - 30_000
    assert first.worked - first.lost == 20 * MINUTE
    assert second.worked == 40 * MINUTE


def test_who_would_save_until_the_very_deadline_is_too_late_and_keeps_the_periodic_checkpoint():
    """2 GiB take the 20 s of grace: at the deadline it is told to stop, so it does not even try."""
    story = play(world(job("one", HOUR, gib=2), job("two", MINUTE, submit=25 * MINUTE, allocation=B)), FAIR)
    first, second = life(story, "one").stints
    assert times(first) == (0, 30_000, 25 * MINUTE, 25 * MINUTE + 2_000)
    assert (first.worked - first.lost, second.worked) == (20 * MINUTE, 40 * MINUTE)


def test_a_node_lost_in_the_middle_of_a_save_costs_no_periodic_checkpoint():
    """What is durable does not depend on what is being written."""
    at = Instant(25 * MINUTE + 5 * SECOND)
    back = Node(NodeName("n0"), 4)
    incidents = (ev.NodeLost(at, CAUSE, back.name), ev.NodeJoined(Instant(at + MINUTE), CAUSE, back))
    jobs = (job("one", HOUR), job("two", MINUTE, submit=25 * MINUTE, allocation=B))
    story = play(world(*jobs, incidents=incidents), FAIR)
    first, second = life(story, "one").stints
    assert (first.notice, first.freed) == (25 * MINUTE, at)
    assert (first.worked - first.lost, second.worked) == (20 * MINUTE, 40 * MINUTE)


def test_what_cannot_be_resumed_begins_anew():
    story = play(world(job("one", HOUR, resumable=False), job("two", MINUTE, submit=25 * MINUTE, allocation=B)), FAIR)
    first, second = life(story, "one").stints
    assert first.lost == first.worked == 25 * MINUTE - 30_000
    assert (second.up, second.worked) == (second.granted + 30_000, HOUR)


def test_an_idle_session_gives_its_gpus_back_and_returns_with_its_user():
    bursts = (Burst(Millis(5 * MINUTE), Millis(3 * HOUR)), Burst(Millis(10 * MINUTE), Millis(0)))
    story = play(world(job("one", 0, bursts=bursts, protected=4 * HOUR, idle_release=HOUR)), FAIR)
    first, second = life(story, "one").stints
    done, back = 30_000 + 5 * MINUTE, 30_000 + 5 * MINUTE + 3 * HOUR
    assert times(first) == (0, 30_000, done + HOUR, done + HOUR + 2_000)  # saved after the cell already
    assert first.reason is PreemptReason.IDLE
    assert (second.touched, second.waited_since, second.granted) == (True, back, back)
    assert second.granted + 15 * MINUTE == second.protected_until
    assert times(second) == (back, back + 35_000, None, back + 35_000 + 10 * MINUTE)
    assert life(story, "one").outcome is Outcome.COMPLETED


def test_a_slice_is_extended_while_cells_run():
    bursts = (Burst(Millis(MINUTE), Millis(3 * HOUR)), Burst(Millis(HOUR), Millis(0)))
    story = play(world(job("one", 0, bursts=bursts, protected=4 * HOUR, idle_release=HOUR)), FAIR)
    second = life(story, "one").stints[1]
    assert second.freed is not None
    assert second.protected_until >= second.freed


def test_a_user_who_goes_home_ends_a_parked_session():
    bursts = (Burst(Millis(MINUTE), Millis(2 * HOUR)),)
    story = play(world(job("one", 0, bursts=bursts, protected=4 * HOUR, idle_release=HOUR)), FAIR)
    assert len(life(story, "one").stints) == 1
    assert life(story, "one").ended == 30_000 + MINUTE + 2 * HOUR


def test_a_session_cut_in_a_burst_is_queued_and_finishes_it():
    bursts = (Burst(Millis(HOUR), Millis(0)),)
    story = play(world(job("one", 0, bursts=bursts), job("two", MINUTE, submit=10 * MINUTE, allocation=B)), FAIR)
    first, second = life(story, "one").stints
    assert (second.touched, second.waited_since) == (False, first.freed)
    assert first.worked + second.worked == HOUR


def test_a_lost_node_takes_what_was_not_durable():
    lost = ev.NodeLost(Instant(25 * MINUTE), CAUSE, NodeName("n0"))
    back = ev.NodeJoined(Instant(30 * MINUTE), CAUSE, Node(NodeName("n0"), 4))
    story = play(world(job("one", HOUR), incidents=(lost, back)), FAIR)
    first, second = life(story, "one").stints
    assert first.failed
    assert (first.freed, second.granted) == (25 * MINUTE, 30 * MINUTE)
    assert first.worked - first.lost == 20 * MINUTE
    assert second.worked == 40 * MINUTE


def test_the_rest_of_a_gang_is_stopped_with_its_lost_node():
    lost = ev.NodeLost(Instant(25 * MINUTE), CAUSE, NodeName("n1"))
    gang = replace(job("one", HOUR), spec=WorkloadSpec(A, "ada", Kind.BATCH, Shape(4, 2), MINUTE))
    story = play(world(gang, gpus=(4, 4, 4), incidents=(lost,)), FAIR)
    first, second = life(story, "one").stints
    assert first.failed
    assert first.freed == 25 * MINUTE + 2_000
    assert {lease.node for lease in second.leases} == {"n0", "n2"}


def test_in_a_closed_loop_a_user_waits_for_his_own_results():
    jobs = [job("one", HOUR), job("two", HOUR, submit=MINUTE), job("three", HOUR, submit=MINUTE, user="bob")]
    story = play(world(*jobs, gpus=(4, 4, 4), outstanding=1, think=Millis(5 * MINUTE)), FAIR)
    ended = life(story, "one").stints[0].freed
    assert ended is not None
    assert life(story, "two").submitted == Instant(ended + 5 * MINUTE)
    assert life(story, "three").submitted == Instant(MINUTE)


def test_a_refused_submission_is_told_and_frees_the_loop():
    jobs = [job("one", HOUR, gpus=400), job("two", HOUR, submit=MINUTE)]
    story = play(world(*jobs, outstanding=1), FAIR)
    assert "400" in life(story, "one").refused
    assert life(story, "two").submitted == Instant(MINUTE)


def test_what_is_not_over_at_the_end_is_left_open():
    story = play(world(job("one", 20 * HOUR), job("late", HOUR, submit=13 * HOUR)), FAIR)
    assert life(story, "one").stints[0].freed is None
    assert WorkloadId("late") not in story.lives


def crowd(seed: int) -> Scenario:
    """A few hours of everything: gangs, sessions, runs that cannot be resumed, a node that is lost."""
    draw, jobs = random.Random(seed), []
    for number in range(40):
        bursts: tuple[Burst, ...] = ()
        if draw.random() < 0.3:
            bursts = tuple(
                Burst(Millis(draw.randrange(1, 900_000)), Millis(draw.randrange(3_600_000))) for _ in range(3)
            )
        jobs.append(
            job(
                f"w{number:02d}",
                draw.randrange(1, 5_000_000),
                submit=draw.randrange(4 * HOUR),
                gpus=draw.choice((1, 1, 2, 4)),
                protected=draw.choice((0, 5 * MINUTE, 20 * MINUTE)),
                allocation=draw.choice((A, B)),
                gib=draw.choice((0.5, 1, 3)),
                bursts=bursts,
                resumable=draw.random() < 0.8,
                user=draw.choice(("ada", "bob", "eve")),
                idle_release=Millis(30 * MINUTE) if bursts else None,
            )
        )
    lost = ev.NodeLost(Instant(2 * HOUR + 7), CAUSE, NodeName("n1"))
    back = ev.NodeJoined(Instant(2 * HOUR + 10 * MINUTE), CAUSE, Node(NodeName("n1"), 4))
    return world(*jobs, gpus=(4, 4), until=8 * HOUR, incidents=(lost, back), seed=seed, outstanding=4)


@pytest.mark.parametrize("seed", range(3))
def test_p23_looking_at_the_clock_in_between_changes_nothing(seed):
    """Event-driven and in fixed steps: the same story, to the millisecond."""
    policy = Policy(window=Millis(4 * HOUR), max_min_runtime=HOUR)
    jumps = play(crowd(seed), FAIR, policy)
    steps = play(crowd(seed), Contender("", "", State), policy, step=Millis(7 * SECOND))
    assert sum(len(one.stints) for one in jumps.lives.values()) > len(jumps.lives)
    assert jumps.protected_preemptions == 0
    assert jumps.lives == steps.lives
    assert jumps.landings == steps.landings


def test_a_seed_decides_how_long_launches_take():
    drawn = Costs()
    scenario = world(*[job(f"w{number}", MINUTE, gpus=1) for number in range(4)], costs=drawn)
    first = play(scenario, FAIR)
    again = play(scenario, FAIR)
    other = play(replace(scenario, seed=1), FAIR)
    assert first.lives == again.lives
    assert first.lives != other.lives
    ups = [one.stints[0].up for one in first.lives.values()]
    assert all(up is not None and 15_000 <= up <= 60_000 for up in ups)
    assert len(set(ups)) > 1


def test_without_costs_everything_is_work():
    story = play(world(job("one", HOUR), job("two", MINUTE, submit=10 * MINUTE, allocation=B), costs=FREE), FAIR)
    stints = [stint for one in story.lives.values() for stint in one.stints]
    assert sum(stint.switching for stint in stints) == 0
    assert sum(stint.worked - stint.lost for stint in stints) == HOUR + MINUTE
