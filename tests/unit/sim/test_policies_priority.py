"""The old way: urgency, preemption, and opting out of it up to a limit per team."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.model import Kind, Phase, Shape, WorkloadSpec
from gpufair.core.units import AllocationPath, Instant, Millis, NodeName, WorkloadId
from gpufair.sim.policies.levels import Level, level_of, opts_out
from tests.contest import CAUSE, Contest, contest, told
from tests.world import Delays

SPEC = WorkloadSpec(AllocationPath("a"), "u", Kind.BATCH, Shape(1), Millis(1))


def ids(wants_out: bool, count: int, start: str) -> list[str]:
    """Ids of workloads that want to opt out, or do not."""
    names = (f"{start}{number}" for number in range(10_000))
    return [name for name in names if opts_out(WorkloadId(name), SPEC) == wants_out][:count]


STAY, GO = ids(True, 4, "stay"), ids(False, 4, "go")
LOW, HIGH, URGENT = -1, 10, 100


def test_who_says_nothing_asks_for_high_and_opts_out() -> None:
    """The tragedy: what costs nothing is asked for. Drawn from the id, so that it is the same everywhere."""
    names = [WorkloadId(f"job{number}") for number in range(10_000)]
    levels = Counter(level_of(name, SPEC) for name in names)
    assert abs(levels[Level.URGENT] - 1_000) < 150
    assert abs(levels[Level.HIGH] - 6_000) < 200
    assert abs(levels[Level.NORMAL] - 2_500) < 200
    assert abs(sum(opts_out(name, SPEC) for name in names) - 9_000) < 150
    both = sum(opts_out(name, SPEC) and level_of(name, SPEC) is Level.HIGH for name in names)
    assert abs(both - 5_400) < 200, "one draw would decide the other"


def test_who_says_something_is_believed_and_unallocated_work_is_low() -> None:
    said = {-1: Level.LOW, 1: Level.HIGH, 10: Level.HIGH, 100: Level.URGENT}
    for priority, level in said.items():
        assert level_of(WorkloadId("w"), replace(SPEC, priority=priority)) is level
        free = replace(SPEC, priority=priority, min_runtime=Millis(0))
        assert level_of(WorkloadId("w"), free) is Level.LOW
        assert not opts_out(WorkloadId(STAY[0]), free)


def test_the_more_urgent_starts_first() -> None:
    world = contest("priority", (1,))
    world.submit(STAY[0])
    world.submit("w1", priority=LOW)
    world.submit("w2", priority=HIGH)
    world.submit("w3", priority=HIGH)
    assert told(world.exit(STAY[0])) == [("End", STAY[0]), ("Start", "w2")]


def test_the_less_urgent_leaves_and_what_it_leaves_is_kept() -> None:
    world = contest("priority", (4,))
    world.submit(GO[0], gpus=2, priority=HIGH)
    world.submit(GO[1], gpus=2, priority=LOW)
    world.advance(1_000)
    actions = world.submit("w1", gpus=2, priority=HIGH)
    assert told(actions) == [("Reserve", "w1"), ("BeginCheckpoint", GO[1])]
    assert isinstance(actions[1], act.BeginCheckpoint)
    assert actions[1].beneficiary == "w1"
    # Whoever is more urgent than w1 does not take what is kept for it, but makes room for itself.
    assert told(world.submit("w2", gpus=1, priority=URGENT)) == [("Reserve", "w2"), ("BeginCheckpoint", GO[0])]
    world.advance(400)
    assert world.where("w1") == world.where("w2") == ("n0",)
    assert world.phase(GO[1]) is Phase.QUEUED


def test_who_has_opted_out_is_not_preempted_up_to_the_limit_of_its_team() -> None:
    """Of eight GPUs a team of half the cluster may keep four: the fifth is anybody's."""
    world = contest("priority", (8,))
    for name in STAY:
        world.submit(name, gpus=2, priority=HIGH)
    assert len(world.holding()) == 4
    actions = world.submit("w1", "b", gpus=4, priority=URGENT)
    assert told(actions) == [("Reserve", "w1"), ("BeginCheckpoint", STAY[3]), ("BeginCheckpoint", STAY[2])]
    assert world.submit("w2", "b", gpus=2, priority=URGENT) == []
    assert world.decider.protected_preemptions == 0


def test_who_wants_to_opt_out_has_done_so_as_soon_as_the_limit_allows() -> None:
    world = contest("priority", (6,))
    for name in STAY[:3]:
        world.submit(name, gpus=2, priority=HIGH)
    world.exit(STAY[0])
    world.submit("w0", "b", gpus=2, priority=LOW, min_runtime=0)
    # Three GPUs are the limit, so of the two one more has opted out than before: none is left but w0.
    world.exit(STAY[1])
    world.submit("w1", "b", gpus=2, priority=LOW, min_runtime=0)
    assert told(world.submit("w2", "b", gpus=6, priority=URGENT)) == []


def test_nobody_leaves_in_vain() -> None:
    """The last to start leave, but not who turns out not to be needed."""
    world = contest("priority", (4,))
    world.submit(GO[0], gpus=1, priority=LOW)
    world.advance(1_000)
    world.submit(GO[1], gpus=2, priority=LOW)
    world.advance(1_000)
    world.submit(GO[2], gpus=1, priority=LOW)
    world.advance(1_000)
    assert told(world.submit("w1", gpus=3, priority=HIGH))[1:] == [
        ("BeginCheckpoint", GO[2]),
        ("BeginCheckpoint", GO[1]),
    ]
    world = contest("priority", (4,))
    world.submit(GO[1], gpus=3, priority=LOW)
    world.advance(1_000)
    world.submit(GO[2], gpus=1, priority=LOW)
    assert told(world.submit("w1", gpus=3, priority=HIGH))[1:] == [("BeginCheckpoint", GO[1])]


def test_of_a_gang_all_leave_or_nobody() -> None:
    world = contest("priority", (4, 4))
    world.submit(GO[0], gpus=4, nodes=2, priority=LOW)
    world.advance(1_000)
    assert told(world.submit("w1", gpus=1, priority=HIGH)) == [("Reserve", "w1"), ("BeginCheckpoint", GO[0])]
    world.advance(400)
    assert world.holding() == ("w1",)


def test_the_large_wait_for_the_small() -> None:
    """Nothing is kept for who cannot make room: this is how gangs starved."""
    world = contest("priority", (4,))
    world.submit(STAY[0], gpus=2, priority=HIGH)
    assert world.submit("w1", gpus=4, priority=URGENT) == []
    assert told(world.submit("w2", gpus=2, priority=LOW)) == [("Start", "w2")]


def test_what_is_kept_is_free_again_if_it_cannot_come_true() -> None:
    world = contest("priority", (2, 2), delays=Delays(release=-1))
    world.submit(GO[0], gpus=2, priority=LOW)
    world.submit(GO[1], gpus=2, priority=LOW)
    world.advance(1_000)
    world.submit("w1", gpus=2, priority=HIGH)
    victim = next(name for name in GO[:2] if world.phase(name) is Phase.CHECKPOINTING)
    node = NodeName(world.where(victim)[0])
    answer = told(world.feed(ev.NodeCordoned(Instant(world.now), CAUSE, node)))
    assert answer[:2] == [("Unreserve", "w1"), ("Reserve", "w1")]
    world.feed(ev.Cancelled(Instant(world.now), CAUSE, WorkloadId("w1")))
    world.feed(ev.NodeUncordoned(Instant(world.now), CAUSE, node))
    for name in GO[:2]:
        world.feed(ev.Released(Instant(world.now), CAUSE, WorkloadId(name), 1))
    assert world.holding() == tuple(sorted(GO[:2]))


def sessions(busy: bool) -> Contest:
    """A session that was preempted."""
    world = contest("priority", (1,))
    world.submit("s", kind=Kind.SESSION, priority=LOW)
    world.advance(1_000)
    world.feed(ev.ActivityReported(Instant(world.now), CAUSE, WorkloadId("s"), 1, busy=busy))
    world.submit("w1", "b", priority=HIGH)
    world.advance(500)
    return world


def test_an_idle_session_is_parked_and_a_busy_one_is_queued_again() -> None:
    assert sessions(busy=False).phase("s") is Phase.PARKED
    assert sessions(busy=True).phase("s") is Phase.QUEUED
