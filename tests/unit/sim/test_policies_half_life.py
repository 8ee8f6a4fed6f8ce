"""A fair tree with decayed usage: ranks of every five minutes, and nobody is preempted."""

from __future__ import annotations

from dataclasses import replace

from gpufair.core import events as ev
from gpufair.core.model import Allocation
from gpufair.core.units import AllocationPath, Instant, Millis
from tests.contest import CAUSE, Contest, contest, told
from tests.world import SMALL, Delays

MINUTE = 60_000
NONE = Delays(0, 0, 0)


def had(*used: tuple[str, str, int], leaves: tuple[tuple[str, str], ...] = (("a", "1"), ("b", "1"))) -> Contest:
    """One node of eight, on which each (leaf, user, GPUs) ran for ten minutes and left; the rest is held by ``z``."""
    policy = replace(SMALL, half_life=Millis(60 * MINUTE))
    world = contest("half-life", (8,), (*leaves, ("z", "1")), policy, NONE)
    for leaf, user, gpus in used:
        world.submit(f"{leaf}-{user}".replace("/", "-"), leaf, gpus, user=user, expected=10 * MINUTE)
    left = 8 - sum(gpus for _, _, gpus in used)
    if left:
        world.submit("rest", "z", left, expected=10 * MINUTE)
    world.advance(10 * MINUTE)
    world.submit("all", "z", 8, expected=10 * MINUTE)
    for holder in world.holding():
        world.exit(holder)
    assert world.holding() == ("all",)
    return world


def test_less_usage_per_share_comes_first() -> None:
    world = had(("a", "u", 2), ("b", "u", 1))
    world.submit("a1", "a")
    world.submit("b1", "b")
    world.submit("c1", "a", 7)
    assert told(world.exit("all")) == [("End", "all"), ("Start", "b1"), ("Start", "a1")]


def test_shares_weigh_usage() -> None:
    world = had(("a", "u", 2), ("b", "u", 1), leaves=(("a", "4"), ("b", "1")))
    world.submit("b1", "b", 8)
    world.submit("a1", "a", 8)
    assert told(world.exit("all")) == [("End", "all"), ("Start", "a1")]


def test_all_of_a_better_sibling_come_before_any_of_a_worse_one() -> None:
    """b/y has had nothing, but b has had more than a."""
    world = had(("a/x", "u", 1), ("b/x", "u", 2), leaves=(("a/x", "1"), ("a/y", "1"), ("b/x", "1"), ("b/y", "1")))
    world.submit("b1", "b/y", 8)
    world.submit("a1", "a/x", 8)
    assert told(world.exit("all")) == [("End", "all"), ("Start", "a1")]


def test_in_a_leaf_the_researcher_with_less_usage_comes_first() -> None:
    world = had(("a", "ada", 2), ("a", "bob", 1))
    world.submit("a1", "a", 8, user="ada")
    world.submit("b1", "a", 8, user="bob")
    assert told(world.exit("all")) == [("End", "all"), ("Start", "b1")]


def test_ranks_stand_for_five_minutes() -> None:
    """What has started since the last refresh does not count before the next one."""
    world = contest("half-life", (2,), (("a", "1"), ("b", "1")), delays=NONE)
    world.advance(MINUTE)
    for name, leaf in (("a0", "a"), ("b0", "b"), ("a1", "a"), ("b1", "b"), ("a2", "a")):
        world.submit(name, leaf, expected=3_600_000)
    assert world.holding() == ("a0", "b0")
    world.advance(MINUTE)
    assert told(world.exit("b0")) == [("End", "b0"), ("Start", "a1")]
    world.advance(MINUTE)
    assert told(world.exit("a1")) == [("End", "a1"), ("Start", "a2")]
    world.advance(3 * MINUTE)
    world.submit("a3", "a", expected=3_600_000)
    # b has had one minute of a GPU, a two and more.
    assert told(world.exit("a2")) == [("End", "a2"), ("Start", "b1")]


def test_usage_halves() -> None:
    """a had twice as much as b, and then nothing for a half-life, in which b had as much again as a had left."""
    policy = replace(SMALL, half_life=Millis(60 * MINUTE))
    world = contest("half-life", (2,), (("a", "1"), ("b", "1")), policy, NONE)
    world.submit("a0", "a", 2, expected=60 * MINUTE)
    world.advance(60 * MINUTE)
    world.submit("b0", "b", 2, expected=60 * MINUTE)
    world.exit("a0")
    for _ in range(12):
        world.advance(5 * MINUTE)
        world.submit(f"x{world.now}", "b", 2)  # somebody waits, so that ranks are needed
    world.submit("a1", "a", 2)
    assert told(world.exit("b0"))[1] == ("Start", "a1")


def test_nobody_is_preempted_and_unallocated_work_comes_last() -> None:
    world = contest("half-life", (2,), delays=NONE)
    world.submit("free", "a", 2, min_runtime=0)
    world.submit("a-free", "b", 2, min_runtime=0)
    world.submit("b1", "b", 2)
    world.advance(60 * MINUTE)
    assert world.holding() == ("free",)
    assert told(world.exit("free")) == [("End", "free"), ("Start", "b1")]


def test_new_shares_count_at_once() -> None:
    world = had(("a", "u", 2), ("b", "u", 1))
    world.submit("a1", "a", 8)
    world.submit("b1", "b", 8)
    shares = (("a", "100"), ("b", "1"), ("z", "1"))
    budgets = tuple(Allocation(AllocationPath(path), share) for path, share in shares)
    world.feed(ev.BudgetsApplied(Instant(world.now), CAUSE, budgets))
    assert told(world.exit("all")) == [("End", "all"), ("Start", "a1")]


def test_it_looks_at_ranks_only_while_somebody_waits() -> None:
    world = contest("half-life", (2,), delays=NONE)
    world.submit("a0", "a", 2)
    assert world.decider.next_wakeup() is None
    world.submit("a1", "a", 2)
    assert world.decider.next_wakeup() == 5 * MINUTE
