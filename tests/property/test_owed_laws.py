"""What is owed and the demand-aware metric: exact at any instant, whatever is taken back later."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gpufair.core.model import HOLDING
from gpufair.core.owed import MICRO, Owed
from gpufair.core.units import AllocationPath, Instant, Millis
from tests.owed_by_hand import Books
from tests.strategies import MACHINES, USERS, Script, begin, scripts, step
from tests.world import FULL, SMALL, World

# Wishes that are taken back, and nodes that come and go under them.
FICKLE = ("submit",) * 6 + ("cancel",) * 3 + USERS + MACHINES


def compare(world: World) -> None:
    """Every leaf of every pool, and the pools themselves, at this instant."""
    books, window = Books.of(world.journal), world.policy.window
    facts, start = world.state.facts, world.now - window
    for pool, ledger in facts.ledgers.items():
        assert ledger.capacity.occupancy(world.now, window) == books.capacity(pool, start, world.now)
        for leaf in {*facts.tree.leaves, *ledger.owed}:
            owed = ledger.owed.get(leaf, Owed()).within(world.now, window)
            assert owed == books.owed(pool, leaf, start, world.now), (pool, leaf)


@given(st.one_of(scripts(FICKLE, policies=(SMALL, FULL)), scripts(FICKLE, least=15, policies=(FULL,))), st.lists(st.integers(1, 40_000), max_size=3))
def test_p08_owed_is_the_integral_of_the_lesser_of_demand_and_entitlement(script: Script, later: list[int]) -> None:
    """Brute force over the journal, to the last millionth of a GPU-millisecond, during the script and long after it."""
    world = begin(script)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
        if index % 4 == 0:
            compare(world)
    compare(world)
    for pause in later:
        world.advance(pause)
        compare(world)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5), st.integers(0, 5 * MICRO)), min_size=1, max_size=25),
    st.integers(1, 100),
    st.data(),
)
def test_p08_demand_that_is_taken_out_was_never_owed(
    changes: list[tuple[int, int, int]], window: int, data: st.DataObject
) -> None:
    """Millisecond by millisecond against plain lists, with some of the demand taken back."""
    owed, now = Owed(), 0
    demand: list[int] = []
    ceilings: list[int] = []
    wishes: list[tuple[int, int]] = []
    for span, gpus, ceiling in changes:
        demand += [owed.demand] * span
        ceilings += [owed.ceiling] * span
        now += span
        owed.limit(Instant(now), ceiling, Millis(window))
        owed.want(Instant(now), gpus, Millis(window))
        wishes.append((now, gpus))
    for begun, gpus in data.draw(st.lists(st.sampled_from(wishes), unique=True, max_size=4)):
        owed.want(Instant(now), -gpus, Millis(window))
        owed.take_out(begun, now, gpus)
        demand[begun:now] = [one - gpus for one in demand[begun:now]]
    expected = sum(min(one * MICRO, most) for one, most in zip(demand[-window:], ceilings[-window:], strict=True))
    assert owed.within(Instant(now), Millis(window)) == expected
    line = owed.line(Instant(now), Millis(window))  # what a pass reads
    assert line.offset + line.slope * now == expected


@given(scripts(FICKLE, least=10, policies=(FULL,)))
def test_p08_the_metric_is_the_fraction_that_the_policy_page_names(script: Script) -> None:
    """O, K, Cap and owed from the journal and the views, put together by hand."""
    world = begin(script)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
    books, window, tree = Books.of(world.journal), world.policy.window, world.state.tree
    beta = Fraction(str(FULL.banking))
    for one in world.state.budgets():
        start = world.now - window
        leaves = [leaf for leaf in tree.leaves if one.path in tree[leaf].lineage]
        owed = Fraction(sum(books.owed(one.pool, leaf, start, world.now) for leaf in leaves), MICRO)
        wanted = any(
            workload.spec.allocated and workload.spec.allocation in leaves
            for workload in world.state.workloads()
            if workload.phase in HOLDING or workload.phase == "queued"
        )
        entitled = one.entitlement * books.capacity(one.pool, start, world.now)
        newcomer = one.entitlement * max(1, world.state.facts.capacity(one.pool)) * FULL.newcomer
        if not one.entitlement or (not owed and wanted):
            continue
        due = beta * entitled + (1 - beta) * (owed or entitled) + newcomer
        assert one.metric == float((one.occupancy + one.commitment) / due)
        assert one.owed == int(owed)
        assert AllocationPath(one.path) in tree
