"""P10 and P11 in worlds with a history: what a budget is worth to its neighbours, and what demand changes about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.facts import Facts
from gpufair.core.metrics import shares_of
from gpufair.core.model import Allocation, Node
from gpufair.core.owed import MICRO
from gpufair.core.share import Denominators, Shares
from gpufair.core.tree import ROOT, Tree
from gpufair.core.units import AllocationPath, Millis, NodeName, PoolName, WorkloadId
from tests.strategies import CLUSTERS, TREES, Script, begin, scripts, step
from tests.world import CAUSE, DEFAULT, FULL, SMALL, Delays, World

USUAL = ("submit",) * 6 + ("exit", "cancel", "idle", "lose", "join", "cordon")
DEEP = [tree for tree in TREES if any("/" in path for path, _ in tree)]
Shared = tuple[tuple[str, str], ...]


def played(script: Script) -> World:
    """A world with a history."""
    world = begin(script)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
    return world


def budgets(world: World, tree: Iterable[tuple[str, str]]) -> ev.BudgetsApplied:
    """An edit of the budgets as of now."""
    return ev.BudgetsApplied(world.now, CAUSE, tuple(Allocation(AllocationPath(path), share) for path, share in tree))


def resplit(tree: Shared, shares: list[int]) -> Shared:
    """Other shares two levels down; those of the top level, implied ones too, stay as they are."""
    return tuple(
        (path, str(shares[place % len(shares)]) if "/" in path else share) for place, (path, share) in enumerate(tree)
    )


def top(leaf: str) -> str:
    """The allocation at the top level to which a leaf belongs."""
    return leaf.split("/", maxsplit=1)[0]


def ranking(shares: Shares, parent: AllocationPath = ROOT) -> list[AllocationPath]:
    """Siblings, the one that comes first first."""
    return sorted(shares.tree[parent].children, key=lambda path: (shares.metric(path), path))


def queue_of(world: World) -> list[str]:
    """To which of the top level each allocated workload belongs that waits for GPUs of the first pool."""
    waiting = [world.state.workload(workload).spec for workload in world.state.queue()]
    return [top(one.allocation) for one in waiting if one.allocated and one.shape.gpus and one.pools == (DEFAULT,)]


@given(
    scripts(USUAL, least=8, trees=DEEP, policies=(SMALL, replace(FULL, banking=1.0))),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
)
def test_p10_a_split_changes_no_ranking_above_it_with_history(script: Script, shares: list[int]) -> None:
    """Metrics of the level above, to the bit, in every pool; and whose turn is when in the queue."""
    world = played(script)
    twin = world.state.copy().facts
    now = [(path, share) for path, share in ((one.path, one.share) for one in world.state.tree.allocations)]
    before = {pool: shares_of(world.state.facts, pool) for pool in twin.pools()}
    order = queue_of(world)
    twin.apply_budgets(Tree(budgets(world, resplit(tuple(now), shares)).allocations))
    for pool, old in before.items():
        new = shares_of(twin, pool)
        assert ranking(new) == ranking(old)
        assert all(new.metric(path) == old.metric(path) for path in old.tree[ROOT].children)
    # Once more as an event, where the pass that follows finds nothing to do.
    other = world.twin()
    if not other.feed(budgets(other, resplit(tuple(now), shares))):
        assert queue_of(other) == order


@given(
    st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 63)), min_size=6, max_size=24),
    st.sampled_from(DEEP),
    st.sampled_from(CLUSTERS[:4]),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
)
def test_p10_a_split_changes_no_decision_about_its_neighbours(
    asked: list[tuple[int, int]], tree: Shared, cluster: tuple[tuple[int, str, PoolName], ...], shares: list[int]
) -> None:
    """Whose branch gets the next GPUs and when, where nobody is preempted: victims are chosen among all leaves."""
    script = Script(tree, cluster, Delays(), ())
    world = begin(script)
    for number, (wait, leaf) in enumerate(asked):
        world.advance(wait)
        world.submit(f"w{number:02d}", world.state.tree.leaves[leaf % len(world.state.tree.leaves)], expected=4_500)
    plain, other = world.twin(), world.twin()
    for one, after in ((plain, tree), (other, resplit(tree, shares))):
        one.feed(budgets(one, after))
        one.advance(40_000)
    assert starts(plain) == starts(other)
    assert not any(isinstance(action, act.BeginCheckpoint) for one in (plain, other) for _, action in one.actions())


def starts(world: World) -> list[tuple[int, str]]:
    """When which branch was granted something."""
    return [
        (entry.event.at, top(world.state.workload(action.workload).spec.allocation))
        for entry, action in world.actions()
        if isinstance(action, act.Start)
    ]


def place(facts: Facts, pool: PoolName, path: AllocationPath) -> int:
    """How many siblings come before it."""
    shares = shares_of(facts, pool)
    parent = facts.tree[path].parent
    assert parent is not None
    return ranking(shares, parent).index(path)


@given(
    scripts(USUAL, least=8, policies=(FULL, replace(FULL, banking=0.0), replace(FULL, newcomer=Millis(0)))),
    st.integers(0, 9),
    st.integers(1, 40),
)
def test_p11_more_budget_never_worsens_the_rank_among_siblings(script: Script, which: int, more: int) -> None:
    """Below beta 1 too, in worlds with a history: what was owed until now stays as it was."""
    world = played(script)
    declared = [(one.path, one.share) for one in world.state.tree.allocations]
    path = AllocationPath(declared[which % len(declared)][0])
    richer = world.state.copy().facts
    edited = [(name, f"{float(share) + more:g}" if name == path else share) for name, share in declared]
    richer.apply_budgets(Tree(budgets(world, edited).allocations))
    for pool in richer.pools():
        assert place(richer, pool, path) <= place(world.state.facts, pool, path)


@given(
    scripts(USUAL, least=8, policies=(FULL, replace(FULL, banking=0.0), replace(FULL, half_life=Millis(9_000)))),
    st.integers(0, 9),
    st.integers(1, 200_000),
)
def test_p11_more_past_occupancy_never_improves_a_rank(script: Script, which: int, more: int) -> None:
    """At the same demand history, on every level above the leaf that has had more."""
    world = played(script)
    leaf = world.state.tree.leaves[which % len(world.state.tree.leaves)]
    facts, heavier = world.state.facts, world.state.copy().facts
    for pool in heavier.pools():
        # It held ``more`` GPUs for a millisecond, a moment ago.
        account = heavier.ledger(pool).account(leaf)
        account.change(heavier.now, more, world.policy.window)
        heavier.now = type(heavier.now)(heavier.now + 1)
        account.change(heavier.now, -more, world.policy.window)
        lighter = world.state.copy().facts
        lighter.now = heavier.now
        for path in facts.tree[leaf].lineage[1:]:
            assert place(lighter, pool, path) <= place(heavier, pool, path)


PAST = st.lists(st.tuples(st.integers(1, 9_000), st.integers(0, 6)), min_size=1, max_size=6)
SIBLING = st.tuples(st.integers(1, 50), st.integers(0, 10**6), PAST)


@given(st.lists(SIBLING, min_size=2, max_size=5), st.integers(0, 60), st.sampled_from((0.0, 0.1, 0.25, 0.9)))
def test_p11_more_budget_all_along_never_worsens_a_rank(
    siblings: list[tuple[int, int, list[tuple[int, int]]]], more: int, banking: float
) -> None:
    """Had it had the larger share from the beginning, with all demand and all occupancy as they were."""
    paths = [AllocationPath(chr(ord("a") + index)) for index in range(len(siblings))]
    shares = {path: share for path, (share, _, _) in zip(paths, siblings, strict=True)}
    for path in paths:
        ranks = [
            ranking(at_the_end(shares | {path: shares[path] + extra}, siblings, banking)).index(path)
            for extra in (0, more)
        ]
        assert ranks[1] <= ranks[0]


def at_the_end(
    shares: dict[AllocationPath, int], siblings: list[tuple[int, int, list[tuple[int, int]]]], banking: float
) -> Shares:
    """Metrics of leaves side by side after their demand histories in a pool of 8 GPUs."""
    tree, gpus, length = Tree(Allocation(path, str(share)) for path, share in shares.items()), 8, 60_000
    owed, demand, had = {ROOT: 0}, {ROOT: 0}, {ROOT: 0}
    for path, (_, occupancy, past) in zip(shares, siblings, strict=True):
        numerator, denominator = tree.ratio(path)
        ceiling = numerator * gpus * MICRO // denominator
        owed[path] = sum(span * min(wanted * MICRO, ceiling) for span, wanted in past)
        demand[path], had[path] = past[-1][1], occupancy
    due = Denominators(tree, banking, Millis(2_000), gpus, gpus * length, Millis(length), owed, demand)
    return Shares(tree, had, dict.fromkeys(had, 0), gpus, Millis(length), True, denominators=due)


def test_p10_below_beta_one_a_split_is_felt_outside() -> None:
    """The counterexample: share that moves to a leaf without demand is owed to nobody, and its parent falls behind.

    So it does although more budget went to a/x: among its siblings it never loses by it, above them it can.
    """
    halves = (("a/x", "1"), ("a/y", "1"), ("b", "1"))
    moved = (("a/x", "9"), ("a/y", "1"), ("b", "1"))
    metrics = {}
    for banking in (1.0, 0.25):
        for tree in (halves, moved):
            allocations = [Allocation(AllocationPath(path), share) for path, share in tree]
            world = World(replace(SMALL, banking=banking), Delays(0, 0, 0)).set_up(
                allocations, [Node(NodeName("n"), 4)]
            )
            world.submit("v", "a/y", gpus=2, min_runtime=20_000)
            world.submit("w", "b", gpus=2, min_runtime=20_000)
            world.advance(20_000)
            metrics[banking, tree] = {one.path: one.metric for one in world.state.budgets()}
    a, b = AllocationPath("a"), AllocationPath("b")
    assert metrics[1.0, halves][a] == metrics[1.0, moved][a] == metrics[1.0, moved][b]
    assert metrics[0.25, halves][a] < metrics[0.25, moved][a]
    assert metrics[0.25, halves][b] == metrics[0.25, moved][b] < metrics[0.25, moved][a]


def test_p11_demand_that_was_granted_is_owed_and_demand_that_was_taken_back_is_not() -> None:
    """The same wish, ended after it had started for a moment or before: that is another demand history.

    Whoever started has had more and stands better, because what he waited for is owed to him.
    """
    metrics = []
    for granted in (False, True):
        world = World(replace(SMALL, banking=0.0, newcomer=Millis(0)), Delays(0, 0, 0)).set_up(
            [Allocation(AllocationPath(path)) for path in "ab"], [Node(NodeName("n"), 2)]
        )
        world.submit("v", "a", gpus=1, min_runtime=20_000)
        world.submit("other", "b", gpus=1, min_runtime=10_000)
        world.advance(5_000)
        world.exit("v")
        world.feed(ev.NodeCordoned(world.now, CAUSE, NodeName("n")))
        world.submit("w", "a", gpus=1)
        world.advance(10_000)
        if granted:
            world.feed(ev.NodeUncordoned(world.now, CAUSE, NodeName("n")))
            world.advance(1)
        world.feed(ev.Cancelled(world.now, CAUSE, WorkloadId("w")))
        world.advance(100)
        metrics.append({one.path: one for one in world.state.budgets()}[AllocationPath("a")])
    assert metrics[0].occupancy < metrics[1].occupancy
    assert metrics[0].owed < metrics[1].owed
    assert metrics[0].metric > metrics[1].metric
