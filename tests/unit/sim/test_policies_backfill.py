"""EASY: who is first has a reservation, and others start where they do not delay it."""

from __future__ import annotations

from gpufair.core import events as ev
from gpufair.core.model import Allocation, Node
from gpufair.core.units import AllocationPath, Instant, NodeName, PoolName
from gpufair.sim.policies.registry import contender
from tests.contest import CAUSE, Contest, contest, told
from tests.world import DEFAULT, Delays

NONE = Delays(0, 0, 0)


def blocked() -> Contest:
    """Two nodes of four: one is used for ten minutes, of the other one half for an hour. w2 wants a whole node."""
    world = contest("fifo-backfill", (4, 4), delays=NONE)
    world.submit("w0", gpus=4, expected=600_000)
    world.submit("w1", gpus=2, expected=3_600_000)
    assert world.submit("w2", gpus=4, expected=600_000) == []
    return world


def test_who_does_not_touch_the_reserved_node_starts_however_long_he_stays() -> None:
    world = blocked()
    assert told(world.submit("w3", gpus=2, expected=86_400_000)) == [("Start", "w3")]
    assert world.where("w3") == ("n1",)
    assert told(world.exit("w0")) == [("End", "w0"), ("Start", "w2")]


def test_on_the_reserved_node_starts_who_is_gone_in_time() -> None:
    """The reservation is for all of a node that is half free; w3 would outstay it by a second, w4 is just done."""
    world = contest("fifo-backfill", (4,), delays=NONE)
    world.submit("w0", gpus=2, expected=600_000)
    world.submit("w1", gpus=4, expected=600_000)
    assert world.submit("w3", gpus=2, expected=601_000) == []
    assert told(world.submit("w4", gpus=2, expected=600_000)) == [("Start", "w4")]
    assert told(world.exit("w4")) == [("End", "w4")]
    assert told(world.exit("w0")) == [("End", "w0"), ("Start", "w1")]


def test_what_the_first_will_not_need_is_anybodys() -> None:
    """Of the four GPUs of its node w1 needs three: one stays for whoever outstays it, and no second one."""
    world = contest("fifo-backfill", (4,), delays=NONE)
    world.submit("w0", gpus=2, expected=600_000)
    world.submit("w1", gpus=3, expected=600_000)
    assert told(world.submit("w2", expected=86_400_000)) == [("Start", "w2")]
    assert world.submit("w3", expected=86_400_000) == []
    assert told(world.exit("w0")) == [("End", "w0"), ("Start", "w1")]


def test_who_does_not_say_how_long_is_taken_to_need_a_day() -> None:
    world = contest("fifo-backfill", (4,), delays=NONE)
    world.submit("w0", gpus=2, expected=86_400_000)
    world.submit("w1", gpus=4)
    assert told(world.submit("w2", gpus=1)) == [("Start", "w2")]
    world.advance(1)
    assert world.submit("w3", gpus=1) == []


def test_an_early_end_brings_the_reservation_forward() -> None:
    """w0 leaves after a minute instead of ten: w1 can have the node when w2 has left, so w3 comes too late for it."""
    world = contest("fifo-backfill", (4,), delays=NONE)
    world.submit("w0", gpus=2, expected=600_000)
    world.submit("w2", gpus=1, expected=120_000)
    world.submit("w1", gpus=4, expected=600_000)
    world.advance(60_000)
    assert told(world.exit("w0")) == [("End", "w0")]
    assert world.submit("w3", gpus=1, expected=120_000) == []
    assert told(world.submit("w4", gpus=1, expected=60_000)) == [("Start", "w4")]


def test_a_run_that_overstays_is_given_some_more_time() -> None:
    """w0 said ten minutes and goes on. A minute later the reservation is made anew: two minutes from now."""
    world = contest("fifo-backfill", (4,), delays=NONE)
    world.submit("w0", gpus=2, expected=600_000)
    world.submit("w1", gpus=4, expected=600_000)
    world.advance(600_000)
    assert world.submit("w2", gpus=1, expected=1_000) == []
    world.advance(59_999)
    assert world.holding() == ("w0",)
    world.advance(1)
    assert world.holding() == ("w0", "w2")
    assert world.decider.next_wakeup() == 600_000 + 60_000 + 60_000 + 60_000


def test_a_lost_node_moves_the_reservation() -> None:
    world = blocked()
    world.feed(ev.NodeLost(Instant(world.now), CAUSE, NodeName("n0")))
    # w0 comes before w2, and both wait for n1: w0 has the reservation, for when w1 has left.
    assert world.submit("w3", gpus=2, expected=3_600_001) == []
    assert told(world.submit("w4", gpus=2, expected=3_600_000)) == [("Start", "w4")]


def test_who_can_start_nowhere_reserves_nothing() -> None:
    world = contest("fifo-backfill", (4, 4), delays=NONE)
    world.feed(ev.NodeLost(Instant(world.now), CAUSE, NodeName("n0")))
    world.submit("w0", gpus=4, nodes=2, expected=1_000)
    assert told(world.submit("w1", gpus=4, expected=86_400_000)) == [("Start", "w1")]
    assert world.decider.next_wakeup() is None


def test_the_reservation_goes_with_its_owner() -> None:
    world = blocked()
    world.submit("w3", gpus=4, expected=600_000)
    world.submit("w4", gpus=1, expected=86_400_000)
    world.feed(ev.Cancelled(Instant(world.now), CAUSE, world.waiting()[0]))
    assert told(world.exit("w0")) == [("End", "w0"), ("Start", "w3")]


def test_each_pool_has_its_own_first() -> None:
    other = PoolName("other")
    nodes = (Node(NodeName("n0"), 2), Node(NodeName("n1"), 2, pool=other))
    world = Contest(contender("fifo-backfill"), delays=NONE).set_up([Allocation(AllocationPath("a"))], nodes)
    world.submit("w0", gpus=1, expected=600_000)
    world.submit("w1", gpus=2, expected=600_000)
    assert told(world.submit("w2", gpus=2, pools=(other,), expected=60_000)) == [("Start", "w2")]
    assert told(world.submit("w3", gpus=1, pools=(DEFAULT, other), expected=60_000)) == [("Start", "w3")]
    assert world.submit("w4", gpus=2, pools=(DEFAULT, other), expected=60_000) == []
    assert told(world.exit("w2")) == [("End", "w2"), ("Start", "w4")]
    assert world.where("w4") == ("n1",)
