"""The half-life in place of the window: what counts, against numeric integration, and the same after every restart."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufair.core import events as ev
from gpufair.core.errors import InvalidSpec
from gpufair.core.fading import FINE, Fading, full_span
from gpufair.core.ledger import Account
from gpufair.core.model import Allocation, Node, Policy
from gpufair.core.owed import MICRO, Owed
from gpufair.core.snapshot import recover, replay, restore, snapshot
from gpufair.core.state import State
from gpufair.core.units import AllocationPath, Instant, Millis, NodeName, WorkloadId
from tests.owed_by_hand import Books
from tests.strategies import MACHINES, USERS, Script, begin, scripts, step
from tests.world import CAUSE, DEFAULT, FULL, SMALL, Audit, Delays, World

HALF = Millis(9_000)
SHORT = Millis(8_000)  # windows that slide past what happens, over and over
FADING = replace(FULL, half_life=HALF, window=SHORT)
CLASSIC = replace(SMALL, half_life=Millis(2_500))
FICKLE = ("submit",) * 6 + ("cancel",) * 3 + USERS + MACHINES

# Gauss and Legendre's five points: on a piece of at most two half-lives the error is below 1e-11 of it.
POINTS = (
    (0.0, 0.5688888888888889),
    (0.5384693101056831, 0.47862867049936647),
    (-0.5384693101056831, 0.47862867049936647),
    (0.9061798459386640, 0.23692688505618908),
    (-0.9061798459386640, 0.23692688505618908),
)


def integral(pieces: Iterable[tuple[int, int, int]], now: int, half_life: int) -> float:
    """Of rate x 2^(-age / half_life) over pieces (start, end, rate), by numeric quadrature."""
    parts = []
    for begun, end, rate in pieces:
        start = max(begun, now - 90 * half_life)  # what is older is less than any rounding
        if end <= start or not rate:
            continue
        count = -(-(end - start) // (2 * half_life))
        width = (end - start) / count
        for index in range(count):
            middle = start + (index + 0.5) * width
            at = [(middle + point * width / 2, weight) for point, weight in POINTS]
            parts += [rate * weight * width / 2 * 2.0 ** ((when - now) / half_life) for when, weight in at]
    return fsum(parts)


def near(found: int, expected: float) -> bool:
    """Within 1e-9 of it, where that is more than 2^-16 of a unit; ``found`` is rounded down to a whole one."""
    slack = 1e-9 * expected + 2**-16
    return expected - 1 - slack <= found <= expected + slack


def compare(world: World, known_since: int = 0) -> None:
    """Every account of every pool at this instant, with everything that counts from an instant on."""
    facts, now, half_life = world.state.facts, world.now, world.policy.half_life
    assert half_life is not None
    books, audit = Books.of(world.journal), Audit.of(world.journal)
    gone = {
        action.workload: entry.event.at - world.policy.window
        for entry, action in world.actions()
        if type(action).__name__ == "End" and action.workload in books.refused
    }
    # What lay further back than the window when an amended one started stays as it was counted, too.
    fixed = {workload: at - world.policy.window for workload, (at, _, _) in books.began.items()}
    cuts = sorted({*gone.values(), *fixed.values()})

    def check(found: int, pieces: Iterable[tuple[int, int, int]], what: object) -> None:
        clipped = [(max(start, known_since), end, rate) for start, end, rate in pieces]
        assert near(found, integral(clipped, now, half_life)), what

    for pool, ledger in facts.ledgers.items():
        spans = [(span.start, span.end, span.capacities.get(pool, 0)) for span in books.spans]
        check(ledger.capacity.occupancy(now, world.policy.window), spans, pool)
        for leaf, account in ledger.accounts.items():
            stays = [one for one in audit.stays if (one.pool, one.spec.allocation) == (pool, leaf)]
            charged = [one for one in stays if one.spec.allocated]
            check(
                account.occupancy(now, world.policy.window), [(one.start, one.end, one.gpus) for one in charged], leaf
            )
            for user in ledger.researchers[leaf]:
                mine = [(one.start, one.end, one.gpus) for one in charged if one.spec.user == user]
                check(ledger.occupancy_of(leaf, user, now, world.policy.window), mine, (leaf, user))
        for leaf, owed in ledger.owed.items():
            pieces: list[tuple[int, int, int]] = []
            for span in books.spans:
                entitled = span.tree[leaf].entitlement * span.capacities.get(pool, 0) * MICRO if leaf in span.tree else 0
                ends = [span.start, *(cut for cut in cuts if span.start < cut < span.end), span.end]
                for start, end in pairwise(ends):
                    wanted = sum(
                        gpus if start < fixed.get(workload, start) else books.counted(workload, leaf, gpus, span)
                        for workload, where, path, gpus in span.wanted
                        if (where, path) == (pool, leaf) and not (workload in gone and start >= gone[workload])
                    )
                    rate = min(wanted * MICRO, int(entitled))
                    merged = bool(pieces) and pieces[-1][1:] == (start, rate)
                    pieces.append((pieces.pop()[0] if merged else start, end, rate))
            check(owed.within(now, world.policy.window), pieces, (pool, leaf))


@given(
    st.one_of(scripts(FICKLE, policies=(FADING, CLASSIC)), scripts(FICKLE, least=12, policies=(FADING,))),
    st.lists(st.integers(1, 90_000), max_size=2),
)
def test_p08_what_fades_is_the_integral_with_a_half_life(script: Script, later: list[int]) -> None:
    """Charged, owed and capacity: numeric quadrature over the journal, during the script and long after it."""
    world = begin(script)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
        if index % 12 == 11:
            compare(world)
    compare(world)
    for pause in later:
        world.advance(pause)
        compare(world)


@given(scripts(FICKLE, least=6, policies=(SMALL, replace(SMALL, window=SHORT), replace(FULL, window=SHORT))), st.integers(0, 30), st.sampled_from((1_000, 9_000, 400_000)))
def test_p08_fading_begins_with_what_the_window_knows(script: Script, when: int, half_life: int) -> None:
    """Switched on while everything runs, and off again: then the window counts as if it had always done so."""
    world, since = begin(script), None
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
        if index == when % len(script.commands):
            since = world.now - world.policy.window
            world.policy = replace(script.policy, half_life=Millis(half_life))
            world.feed(ev.PolicyChanged(world.now, CAUSE, world.policy))
            compare(world, since)
    assert since is not None
    compare(world, since)
    world.policy = script.policy
    world.feed(ev.PolicyChanged(world.now, CAUSE, script.policy))
    books, start = Books.of(world.journal), world.now - script.policy.window
    for pool, ledger in world.state.facts.ledgers.items():
        assert ledger.capacity.occupancy(world.now, script.policy.window) == books.capacity(pool, start, world.now)
        for leaf, owed in ledger.owed.items():
            assert owed.within(world.now, script.policy.window) == books.owed(pool, leaf, start, world.now)


@given(scripts(FICKLE, least=4, policies=(FADING, CLASSIC, FULL)), st.lists(st.sampled_from((None, 700, 9_000)), max_size=4))
def test_p22_fading_is_the_same_to_the_byte_after_a_restart(script: Script, edits: list[int | None]) -> None:
    """Copied, restored, recovered and decided anew, with the option switched on the way."""
    world = begin(script)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
        if index % 4 == 3 and index // 4 < len(edits):
            half_life = edits[index // 4]
            changed = replace(script.policy, half_life=None if half_life is None else Millis(half_life))
            world.feed(ev.PolicyChanged(world.now, CAUSE, changed))
    plain = json.dumps(snapshot(world.state))
    journal = [(entry.event, entry.actions) for entry in world.journal]
    assert json.dumps(snapshot(recover(journal, policy=script.policy))) == plain
    assert json.dumps(snapshot(world.state.copy())) == plain
    again = restore(json.loads(plain), validate=True)
    assert json.dumps(snapshot(again)) == plain
    assert replay(journal, policy=script.policy).same
    then = Instant(world.now + 12_345)
    for state in (world.state, again):
        state.handle(ev.TimePassed(then, CAUSE))
    assert again.budgets() == world.state.budgets()
    assert json.dumps(snapshot(again)) == json.dumps(snapshot(world.state))


CHANGES = st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, 9)), min_size=1, max_size=20)


@given(CHANGES, st.integers(1, 10**10), st.integers(0, 10**6))
def test_p08_reading_it_changes_nothing_and_break_points_do_not_matter(
    changes: list[tuple[int, int]], half_life: int, pause: int
) -> None:
    """A rate that is told again is one rate: only the last bits of the accumulator can differ."""
    once, often, now, rate = Fading(Millis(half_life)), Fading(Millis(half_life)), 0, 0
    for span, after in changes:
        often.go_on(now + span // 3, rate)
        once.exactly(now + span // 2, rate)
        now += span
        once.go_on(now, rate)
        often.go_on(now, rate)
        rate = after
    found, other = (one.exactly(now + pause, rate) for one in (once, often))
    assert abs(found - other) <= 2 * len(changes) + 2
    assert once.exactly(now, rate) <= full_span(Policy(half_life=Millis(half_life))) * 9 + 9 << FINE


@given(CHANGES, st.integers(1, 10**9), st.data())
def test_p11_more_that_was_charged_or_owed_never_counts_for_less(
    changes: list[tuple[int, int]], half_life: int, data: st.DataObject
) -> None:
    """At the same break points, with more in some of the spans."""
    less, more = (Account(fading=Fading(Millis(half_life))) for _ in range(2))
    poor, rich = (Owed(fading=Fading(Millis(half_life))) for _ in range(2))
    window, now = Millis(60_000), 0
    for span, gpus in changes:
        now += span
        extra = data.draw(st.integers(0, 3))
        for account, wanted in ((less, gpus), (more, gpus + extra)):
            account.change(Instant(now), wanted - account.gpus, window)
        for owed, wanted in ((poor, gpus), (rich, gpus + extra)):
            owed.limit(Instant(now), 4 * MICRO, window)
            owed.want(Instant(now), wanted - owed.demand, window)
        assert less.occupancy(Instant(now), window) <= more.occupancy(Instant(now), window)
        assert poor.within(Instant(now), window) <= rich.within(Instant(now), window)
    later = Instant(now + 5_000)
    assert less.occupancy(later, window) <= more.occupancy(later, window)
    assert poor.within(later, window) <= rich.within(later, window)


def test_what_was_charged_one_half_life_ago_counts_half() -> None:
    """And the same rate for ever is worth half-life / ln 2 of it: that is the budget people see."""
    policy = replace(SMALL, half_life=Millis(10_000))
    tree = [Allocation(AllocationPath(path)) for path in "ab"]
    world = World(policy, Delays(0, 0, 0)).set_up(tree, [Node(NodeName("n"), 4)])
    world.submit("v", "a", gpus=2)
    world.advance(10_000)
    figures = {one.path: one for one in world.state.budgets() if one.pool == DEFAULT}
    had = figures[AllocationPath("a")].occupancy
    assert had == 14_426  # 2 x 10,000 / ln 2 x (1 - 1/2)
    assert figures[AllocationPath("a")].budget == 28_852  # 2 x 10,000 / ln 2, rounded down
    world.exit("v")
    world.advance(10_000)
    figures = {one.path: one for one in world.state.budgets() if one.pool == DEFAULT}
    assert figures[AllocationPath("a")].occupancy == had // 2


def test_after_the_window_fading_usage_still_ranks() -> None:
    """Where the window has forgotten who was served, the half-life has not."""
    orders = []
    for policy in (SMALL, replace(SMALL, half_life=Millis(20_000))):
        tree = [Allocation(AllocationPath(path)) for path in "ab"]
        world = World(policy, Delays(0, 0, 0)).set_up(tree, [Node(NodeName("n"), 1)])
        world.submit("v", "a")
        world.advance(5_000)
        world.exit("v")
        world.advance(policy.window + 1_000)
        world.feed(ev.NodeCordoned(world.now, CAUSE, NodeName("n")))
        world.submit("x", "a")
        world.submit("y", "b")
        orders.append(world.state.queue())
    assert orders == [("x", "y"), ("y", "x")]


@pytest.mark.parametrize("half_life", [0, -1])
def test_a_half_life_of_nothing_is_refused(half_life: int) -> None:
    """All would be forgotten at once."""
    with pytest.raises(InvalidSpec, match="half_life"):
        State(Policy(half_life=Millis(half_life)))


def test_finer_units_leave_what_fades_as_it_was() -> None:
    """An edit of the weights counts from then on; what had been charged is the same in halves of a GPU."""
    policy = replace(SMALL, half_life=Millis(10_000), banking=0.25)
    tree = [Allocation(AllocationPath(path)) for path in "ab"]
    world = World(policy, Delays(0, 0, 0)).set_up(tree, [Node(NodeName("n"), 4)])
    world.submit("v", "a", gpus=3)
    world.advance(4_000)
    world.submit("w", "a")
    world.advance(321)
    before = world.state.budgets()
    world.feed(ev.PolicyChanged(world.now, CAUSE, replace(policy, gpu_weights={"other": 0.5})))
    assert world.state.facts.weights.unit == 2
    for old, new in zip(before, world.state.budgets(), strict=True):
        assert (old.occupancy, old.owed) == (new.occupancy, new.owed)
        assert old.metric == pytest.approx(new.metric, rel=1e-3)


def test_what_never_started_is_taken_out_as_far_as_the_window_reaches() -> None:
    """It had waited for longer than that: what fades of the time before stays owed."""
    tree = [Allocation(AllocationPath(path)) for path in "ab"]
    world = World(FADING, Delays(0, 0, 0)).set_up(tree, [Node(NodeName("n"), 4)])
    world.submit("v", "a", gpus=4, min_runtime=20_000)
    world.submit("w", "b", gpus=4, min_runtime=20_000)
    world.advance(SHORT + 5_000)
    world.feed(ev.Cancelled(world.now, CAUSE, WorkloadId("w")))
    assert world.state.facts.ledger(DEFAULT).owed[AllocationPath("b")].within(world.now, SHORT) > 0
    compare(world)
