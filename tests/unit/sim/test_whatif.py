"""What-if: the present goes on as it would have, the past comes again, and a change is told by whom it helps."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from gpufair.core import events as ev
from gpufair.core.actions import Action
from gpufair.core.errors import BudgetError, GpufairError
from gpufair.core.events import Event
from gpufair.core.model import Allocation, Kind, Node, Phase, Policy, Shape, WorkloadSpec
from gpufair.core.snapshot import restore, snapshot
from gpufair.core.state import State
from gpufair.core.units import DAY, HOUR, MINUTE, AllocationPath, CauseId, Instant, Millis, NodeName, WorkloadId, since
from gpufair.service.storage import codec
from gpufair.service.storage.store import Entry
from gpufair.service.storage.timeline import records
from gpufair.sim import Cluster, Setting, worlds
from gpufair.sim.costs import FREE, USUAL
from gpufair.sim.engine import Engine
from gpufair.sim.job import Burst, Job, JobKind
from gpufair.sim.scenario import Scenario
from gpufair.sim.story import Story
from gpufair.sim.whatif import NONE, Change, Past, again, look_back, underway, whatif, with_shares
from gpufair.sim.whatif.resumed import Resumed

START = Instant(1_800_000_000_000 // DAY * DAY)
TEAMS = (Allocation(AllocationPath("a"), "1"), Allocation(AllocationPath("b"), "1"))
NODES = tuple(Node(NodeName(f"n{number}"), 8) for number in range(2))


def batch(name: str, at: int, work: int, gpus: int = 1, leaf: str = "a", min_runtime: int = HOUR) -> Job:
    spec = WorkloadSpec(
        AllocationPath(leaf), f"u{leaf}", Kind.BATCH, Shape(gpus), Millis(min_runtime), expected=Millis(work)
    )
    return Job(WorkloadId(name), Instant(START + at), Millis(work), spec)


def drawn(seed: int, count: int = 60) -> list[Job]:
    rng = Random(seed)
    jobs = [
        batch(
            f"j{number:03d}",
            rng.randrange(8 * HOUR) // 1000 * 1000,
            rng.randrange(1, 240) * MINUTE,
            rng.choice((1, 2, 4, 8)),
            rng.choice("ab"),
            rng.choice((10 * MINUTE, HOUR, 4 * HOUR)),
        )
        for number in range(count)
    ]
    return sorted(jobs, key=lambda job: (job.submit, job.id))


class Noting:
    """A state, and what a service would have journalled of it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.entries: list[Entry] = []

    def handle(self, event: Event) -> list[Action]:
        actions = self.state.handle(event)
        text = codec.dump_event(event), codec.dump_actions(actions)
        self.entries.append(Entry(event.at, *text, "", len(self.entries) + 1, ""))
        return actions

    def next_wakeup(self) -> Instant | None:
        return self.state.next_wakeup()

    def forget(self, before: Instant) -> None:
        self.state.forget(before)

    @property
    def protected_preemptions(self) -> int:
        return self.state.protected_preemptions


class Recorded:
    """A play whose events and decisions are kept."""

    def __init__(self, scenario: Scenario, state: State) -> None:
        noting = Noting(state)
        self.story = Engine(scenario, "fair-share", noting, state.policy).run()
        self.state, self.entries = state, noting.entries

    @property
    def timeline(self) -> list[dict[str, Any]]:
        return records(self.entries)


def played(jobs: list[Job], until: int, costs=USUAL, policy: Policy = Policy()) -> Recorded:
    scenario = Scenario("past", NODES, TEAMS, jobs, Instant(START + until), START, costs=costs)
    return Recorded(scenario, State(policy))


def copied(state: State) -> State:
    return restore(snapshot(state))


def starts(story: Story, after: int = 0) -> list[tuple[str, int]]:
    return sorted((life.job.id, s.granted) for life in story.lives.values() for s in life.stints if s.granted > after)


@pytest.mark.parametrize("seed", range(3))
def test_the_present_goes_on_as_it_would_have(seed: int) -> None:
    """Where all that runs says how long it needs and saves cost nothing, a resumed play is the rest of the whole one."""
    jobs, middle, end = drawn(seed), Instant(START + 5 * HOUR), Instant(START + 30 * HOUR)
    whole = played(jobs, 30 * HOUR, FREE)
    half = played(jobs, 5 * HOUR, FREE)
    state = copied(half.state)
    while (due := state.next_wakeup()) is not None and due <= middle:
        state.handle(ev.TimePassed(due, CauseId("time")))
    state.handle(ev.TimePassed(middle, CauseId("time")))
    there = underway(state, look_back(half.timeline, START, middle))
    coming = [job for job in jobs if job.submit > middle]
    assert coming
    assert len(there) > 5
    scenario = Scenario("rest", NODES, TEAMS, coming, end, middle, costs=FREE)
    rest = Resumed(scenario, state, there).run()
    assert starts(rest, middle) == starts(whole.story, middle)
    ended = {life.job.id: life.ended for life in whole.story.lives.values() if life.ended and life.ended > middle}
    assert {life.job.id: life.ended for life in rest.lives.values() if life.ended} == ended


def test_what_was_amended_comes_again_as_it_ran() -> None:
    """From the journal's own text; what was submitted before the past began stays unknown."""
    job = batch("j1", 0, HOUR, 4)
    event = ev.Amended(
        Instant(START + 5), CauseId("c"), job.id, AllocationPath("b"), Shape(2), Millis(0), job.spec.pools, 3
    )
    entries = [
        Entry(each.at, codec.dump_event(each), "[]", "", seq, "")
        for seq, each in enumerate(
            (ev.Submitted(START, CauseId("c"), job.id, job.spec), event, replace(event, workload=WorkloadId("j0"))), 1
        )
    ]
    past = look_back(records(entries), START, Instant(START + 10))
    spec = past.seen[job.id].spec
    assert spec is not None
    assert (spec.allocation, spec.shape, spec.min_runtime, spec.priority) == ("b", Shape(2), 0, 3)
    assert past.seen[WorkloadId("j0")].spec is None


def test_nothing_changed_changes_nothing() -> None:
    half = played(drawn(7), 5 * HOUR)
    state = copied(half.state)
    before = snapshot(state)
    past = look_back(half.timeline, START, state.now)
    found = whatif(state, Change(), 12, past)
    assert snapshot(state) == before
    assert starts(found.before.story) == starts(found.after.story)
    assert all(found.gain(one.path) == 0 for one in found.before.accounts)
    assert (found.kept, found.before.protected_preemptions) == (found.protected, 0)


def test_a_larger_share_gains_what_the_others_lose() -> None:
    """The change counts at once; nobody loses the protection that he has."""
    jobs = [
        batch(f"{leaf}{number:02d}", number * MINUTE, 3 * HOUR, 4, leaf, 3 * HOUR)
        for number in range(40)
        for leaf in "ab"
    ]
    half = played(jobs, 5 * HOUR)
    state = copied(half.state)
    past = look_back(half.timeline, START, state.now)
    found = whatif(state, Change(with_shares(TEAMS, {AllocationPath("a"): "3"})), 24, past)
    a, b = (
        tuple(one for one in play.accounts if one.path == path)
        for play, path in ((found.after, "a"), (found.after, "b"))
    )
    assert (found.gain(AllocationPath("a")), found.gain(AllocationPath("b"))) == (1, -1)
    assert a[0].entitlement == pytest.approx(0.75)
    was = {one.path: one for one in found.before.accounts}
    # Both always ask for more than there is: what the one has more is what the other has less.
    assert a[0].held - was[AllocationPath("a")].held > 1.5
    assert a[0].held + b[0].held == pytest.approx(
        was[AllocationPath("a")].held + was[AllocationPath("b")].held, rel=0.03
    )
    assert found.protected == found.kept > 0
    assert found.after.protected_preemptions == 0
    assert found.arrivals == 80  # those of the past five hours, at the same time of tomorrow


def test_another_window_and_other_options_are_tried() -> None:
    half = played(drawn(3), 5 * HOUR)
    state = copied(half.state)
    policy = replace(state.policy, window=Millis(HOUR))
    found = whatif(state, Change(policy=policy), 6, look_back(half.timeline, START, state.now))
    assert found.after.story.options.window == HOUR
    assert found.before.story.options.window == 7 * DAY
    assert found.protected == found.kept


def test_what_makes_no_sense_is_refused() -> None:
    state = copied(played(drawn(3), 5 * HOUR).state)
    with pytest.raises(BudgetError):
        whatif(state, Change(TEAMS[:1]), 1)
    with pytest.raises(GpufairError):
        whatif(state, Change(policy=replace(state.policy, window=Millis(-1))), 1)


def sessions() -> Recorded:
    """A session that works, thinks, is left idle until it is parked, and comes back; one that is never used again."""
    spec = WorkloadSpec(
        AllocationPath("a"), "ada", Kind.SESSION, Shape(1), Millis(HOUR), idle_release=Millis(20 * MINUTE)
    )
    used = (
        Burst(Millis(10 * MINUTE), Millis(5 * MINUTE)),
        Burst(Millis(3 * MINUTE), Millis(40 * MINUTE)),
        Burst(Millis(20 * MINUTE), Millis(2 * HOUR)),
        Burst(Millis(MINUTE), Millis(MINUTE)),
    )
    left = (Burst(Millis(7 * MINUTE), Millis(9 * HOUR)),)
    jobs = [
        Job(WorkloadId("used"), START, Millis(34 * MINUTE), spec, JobKind.SESSION, bursts=used),
        Job(WorkloadId("left"), Instant(START + MINUTE), Millis(7 * MINUTE), spec, JobKind.SESSION, bursts=left),
    ]
    return played(jobs, 4 * HOUR)


def test_what_users_did_is_read_off_the_journal() -> None:
    """Work and thought of each burst, parked in between or not."""
    engine = sessions()
    past = look_back(engine.timeline, START, Instant(START + 4 * HOUR))
    used, left = past.seen[WorkloadId("used")], past.seen[WorkloadId("left")]
    assert [burst.work for burst in used.bursts] == [10 * MINUTE, 3 * MINUTE, 20 * MINUTE, MINUTE]
    assert [burst.thought for burst in used.bursts][:3] == [5 * MINUTE, 40 * MINUTE, 2 * HOUR]
    assert used.whole
    assert used.work == 34 * MINUTE
    assert not left.whole
    assert [burst.work for burst in left.bursts] == [7 * MINUTE]
    assert since(past.until, past.since) == past.span == 4 * HOUR


def test_sessions_go_on_where_they_were() -> None:
    """Parked, idle and busy ones; whoever is parked comes back, or not."""
    engine = played([replace(job, spec=replace(job.spec, expected=None)) for job in drawn(11, 20)], 4 * HOUR)
    state = copied(engine.state)
    assert underway(state) == underway(copied(state))  # drawn, but always the same
    one = copied(sessions().state)
    there = underway(one, look_back(sessions().timeline, START, one.now), seed=5)
    assert [workload for workload, each in there.items() if each.thinks] == ["left"]
    found = whatif(one, Change(), 12, NONE, seed=5)
    life = found.before.story.lives[WorkloadId("left")]
    assert life.ended is not None or life.stints or life.waiting_since is None


def test_work_that_waits_for_other_work_is_left_out() -> None:
    """The state does not know what it waits for; that it is there must not stop the play."""
    state = copied(played([batch("first", 0, HOUR)], 10 * MINUTE).state)
    spec = batch("held", 0, HOUR).spec
    state.handle(ev.Submitted(state.now, CauseId("test"), WorkloadId("held"), spec, withheld=True))
    life = whatif(state, Change(), 4, NONE).before.story.lives[WorkloadId("held")]
    assert life.ended is None
    assert not life.stints


def test_everything_that_can_be_under_way_goes_on() -> None:
    """A busy cluster with sessions, gangs and debug runs, every invariant checked at every event of both plays."""
    world = worlds.world("steady").make(Setting(Cluster.parse("2x8"), days=0.4, seed=2))
    half = Recorded(replace(world, until=Instant(4 * HOUR + 77_777)), State())
    phases = {record.phase for record in half.state.facts.records.values()}
    assert {Phase.QUEUED, Phase.RUNNING, Phase.ENDED} <= phases
    state = restore(snapshot(half.state), validate=True)
    past = look_back(half.timeline, world.start, state.now)
    found = whatif(state, Change(policy=replace(state.policy, banking=1.0)), 3, past, seed=1)
    assert found.kept == found.protected > 0
    for play in (found.before, found.after):
        assert play.protected_preemptions == 0
        gone_on = [life for life in play.story.lives.values() if life.submitted is not None and life.submitted <= state.now]
        assert len(gone_on) == sum(record.phase is not Phase.ENDED for record in state.facts.records.values())
        assert any(life.ended for life in gone_on)
        busy = sum(one.held for one in play.accounts if "/" not in one.path)
        assert 0.9 * world.gpus < busy <= world.gpus


def test_arrivals_come_at_the_time_of_the_day() -> None:
    """A day of the past repeats each day; half a day of it as well; what never ran does not."""
    jobs = [batch("one", HOUR, HOUR), batch("two", 3 * HOUR, 30 * HOUR)]
    engine = played(jobs, 12 * HOUR)
    past = look_back(engine.timeline, START, Instant(START + 12 * HOUR))
    found = again(past, Policy(), Instant(START + 12 * HOUR), Instant(START + 60 * HOUR))
    assert [(job.id, job.submit - START) for job in found] == [
        ("one~1", 25 * HOUR),
        ("two~1", 27 * HOUR),
        ("one~2", 49 * HOUR),
        ("two~2", 51 * HOUR),
    ]
    assert [job.work for job in found[:2]] == [HOUR, 30 * HOUR]
    assert again(NONE, Policy(), START, Instant(START + DAY)) == ()
    assert again(Past(START, Instant(START + DAY)), Policy(), START, Instant(START + DAY)) == ()
