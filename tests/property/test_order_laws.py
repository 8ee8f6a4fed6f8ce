"""The order of the queue: total, indifferent to names and scale, isolated between branches, monotone."""

from __future__ import annotations

import heapq
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.commit import commit
from gpufair.core.errors import GpufairError
from gpufair.core.facts import Facts
from gpufair.core.model import Allocation
from gpufair.core.preemption import loss
from gpufair.core.recording import record_event
from gpufair.core.share import Shares
from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath, GpuMillis, Millis, PoolName, WorkloadId
from tests.strategies import CLUSTERS, TREES, Script, begin, run, scripts, step
from tests.world import CAUSE, DEFAULT, Delays, World

QUIET = ("submit", "submit", "exit", "cancel", "park", "resume", "busy", "cordon", "lose", "join")


def schedule(world: World) -> list[tuple[int, act.Action]]:
    """What was decided and when, without the sentences."""
    return [(entry.event.at, _plain(action)) for entry, action in world.actions()]


def _plain(action: act.Action) -> act.Action:
    return replace(action, why="") if hasattr(action, "why") else action  # type: ignore[call-arg]


INNER = (("a/x", "1"), ("a/y", "3"), ("b", "1"))

# An implied parent has share 1 whatever its siblings' are scaled by, so all siblings must be declared.
DECLARED = [tree for tree in TREES if tree != INNER]


@given(scripts(QUIET, trees=DECLARED), st.fractions(min_value=Fraction(1, 9), max_value=9).filter(lambda one: one > 0))
def test_p09_scaled_shares_give_the_same_schedule(script: Script, factor: Fraction) -> None:
    """A share is a weight among siblings, never an amount."""
    scaled = replace(script, tree=tuple((path, str(Fraction(share) * factor)) for path, share in script.tree))
    assert schedule(run(script)) == schedule(run(scaled))


@given(scripts(QUIET), st.randoms(use_true_random=False))
def test_p09_the_order_in_which_things_were_declared_does_not_matter(script: Script, random) -> None:
    """Files are edited by people who sort them differently."""
    world = begin(script)
    tree, nodes = list(script.allocations()), list(script.nodes())
    random.shuffle(tree)
    random.shuffle(nodes)
    other = World(policy=script.policy, delays=script.delays).set_up(tree, nodes)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
        step(other, script, command, index)
    assert schedule(world) == schedule(other)


@given(scripts(QUIET, trees=[tree for tree in TREES if all("/" not in path for path, _ in tree)]))
def test_p09_renamed_allocations_give_the_same_schedule(script: Script) -> None:
    """Names that sort alike are only names."""
    names = {"a": "kant", "b": "leibniz", "c": "mill"}
    renamed = replace(script, tree=tuple((names[path], share) for path, share in script.tree))
    assert schedule(run(script)) == schedule(run(renamed))


ASKED = st.tuples(
    st.integers(1, 3_000),  # wait: no two come at the same moment
    st.integers(0, 63),
    st.sampled_from((1, 1, 2, 3)),
    st.sampled_from((0, 1_000, 3_000, 7_000)),
    st.integers(0, 1),
)


def tied(world: World) -> bool:
    """Whether an id ever decided: two who might leave cost the same."""
    facts = Facts(world.policy)
    for entry in world.journal:
        facts.advance(entry.event.at)
        record_event(entry.event, facts)
        for action in entry.actions:
            if isinstance(action, act.Reserve):
                costs = [(loss(facts, one), facts.grace(one)) for one in facts.holding.values() if facts.exposed(one)]
                if len(set(costs)) < len(costs):
                    return True
            commit(action, facts)
    return False


@dataclass
class Renamed(World):
    """Nodes that answer at one instant in the same order, whatever the workloads are called."""

    names: dict[str, str] = field(default_factory=dict)

    def _reply(self, delay, event) -> None:
        self._count += 1
        name = WorkloadId(self.names[event.workload])
        heapq.heappush(self._replies, (self.now + delay, name, self._count, event))


@given(
    st.lists(ASKED, min_size=4, max_size=16),
    st.sampled_from(TREES),
    st.sampled_from(CLUSTERS[:4]),
    st.randoms(use_true_random=False),
)
def test_p09_permuted_ids_give_the_same_schedule(asked, tree, cluster, random) -> None:
    """An id breaks a tie and does nothing else."""
    script = Script(tree, cluster, Delays(), ())
    nodes, allocations = script.nodes(), script.allocations()
    names = [f"w{number:02d}" for number in range(len(asked))]
    other = random.sample(names, len(names))
    schedules = []
    for ids in (names, other):
        back = dict(zip(ids, names, strict=True))
        world = Renamed(validate=False, names=back).set_up(allocations, nodes)
        for number, (wait, leaf, gpus, min_runtime, priority) in enumerate(asked):
            world.advance(wait)
            leaves = world.state.tree.leaves
            with suppress(GpufairError):
                world.submit(ids[number], leaves[leaf % len(leaves)], gpus, min_runtime, priority=priority)
        world.advance(60_000)
        assume(not tied(world))
        schedules.append([(at, _renamed(action, back)) for at, action in schedule(world)])
    assert schedules[0] == schedules[1]


def _renamed(action: act.Action, names: dict[str, str]) -> str:
    return re.sub(r"w\d\d", lambda found: names[found[0]], repr(action))


@given(scripts())
def test_p09_the_queue_is_a_total_order_of_who_waits(script: Script) -> None:
    """Everybody who waits is in it once, and asking does not change it."""
    world = begin(script)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
        queue = world.state.queue()
        waiting = {workload.id for workload in world.state.workloads() if workload.phase == "queued"}
        assert sorted(queue) == sorted(waiting)
        assert world.state.queue() == queue


A = AllocationPath("a")


@given(
    scripts(QUIET, trees=[INNER]),
    st.integers(1, 9),
    st.integers(0, 9),
)
def test_p10_a_split_inside_a_branch_changes_nothing_outside_it(script: Script, x: int, y: int) -> None:
    """A programme may divide its budget as it likes; its neighbours never notice."""
    world = run(script, settle_ms=300)
    before = {(one.pool, one.path): one.metric for one in world.state.budgets()}
    shares = (("a/x", str(x)), ("a/y", str(y)), ("b", "1"))
    world.feed(ev.BudgetsApplied(world.now, CAUSE, tuple(Allocation(AllocationPath(p), s) for p, s in shares)))
    after = {(one.pool, one.path): one.metric for one in world.state.budgets()}
    # The pass that follows the edit may grant something, and what it grants counts.
    if not world.journal[-1].actions:
        for (pool, path), metric in before.items():
            if path in {"a", "b", ""}:
                assert after[pool, path] == metric


def test_p10_usage_survives_the_division_of_an_allocation() -> None:
    """Dividing a leaf must not wipe out what it has had."""
    world = run(Script((("a", "1"), ("b", "1")), ((1, "", DEFAULT),), delays=World().delays, commands=()))
    world.submit("v", "a")
    world.advance(7_000)
    world.exit("v")
    before = {one.path: one.occupancy for one in world.state.budgets()}
    tree = tuple(Allocation(AllocationPath(path)) for path in ("a/x", "a/y", "b"))
    world.feed(ev.BudgetsApplied(world.now, CAUSE, tree))
    after = {one.path: one.occupancy for one in world.state.budgets()}
    assert before[A] == after[A] == 7_000
    assert after[AllocationPath("a/x")] == after[AllocationPath("a/y")] == 0


def test_p10_usage_survives_the_merging_of_allocations() -> None:
    """What the parts have had, their whole has had: a leaf that is gone counts where it was, and nowhere else."""
    tree = (("a/x", "1"), ("a/y", "1"), ("b", "1"))
    world = run(Script(tree, ((1, "", DEFAULT),), delays=World().delays, commands=()))
    world.submit("v", "a/x")
    world.advance(7_000)
    world.exit("v")
    world.feed(ev.BudgetsApplied(world.now, CAUSE, tuple(Allocation(AllocationPath(path)) for path in "ab")))
    assert {one.path: one.occupancy for one in world.state.budgets()} == {"": 7_000, "a": 7_000, "b": 0}


AMOUNTS = st.integers(0, 10**9)


def _rank(shares: Shares, path: AllocationPath) -> int:
    siblings = sorted(shares.tree[AllocationPath("")].children, key=lambda one: (shares.metric(one), one))
    return siblings.index(path)


def _shares(tree: Tree, occupancy: dict[AllocationPath, int]) -> Shares:
    usage = {node.path: GpuMillis(0) for node in tree.nodes()}
    usage |= {path: GpuMillis(amount) for path, amount in occupancy.items()}
    return Shares(tree, usage, dict.fromkeys(usage, 0), capacity=8, window=Millis(60_000), count_commitment=True)


@given(
    st.lists(st.tuples(st.integers(1, 99), AMOUNTS), min_size=2, max_size=6),
    st.integers(0, 99),
    AMOUNTS,
)
def test_p11_more_budget_never_worsens_and_more_usage_never_improves_a_rank(
    siblings: list[tuple[int, int]], more_share: int, more_usage: int
) -> None:
    """Otherwise people would give budget away to be served earlier."""
    paths = [AllocationPath(chr(ord("a") + index)) for index in range(len(siblings))]
    usage = {path: used for path, (_, used) in zip(paths, siblings, strict=True)}
    shares = {path: share for path, (share, _) in zip(paths, siblings, strict=True)}
    for path in paths:
        plain = _rank(_shares(_tree(shares), dict(usage)), path)
        richer = _rank(_shares(_tree(shares | {path: shares[path] + more_share}), dict(usage)), path)
        heavier = _rank(_shares(_tree(shares), usage | {path: usage[path] + more_usage}), path)
        assert richer <= plain <= heavier


def _tree(shares: dict[AllocationPath, int]) -> Tree:
    return Tree(Allocation(path, str(share)) for path, share in shares.items())


@given(scripts())
def test_the_sentences_name_no_python(script: Script) -> None:
    """Reasons are read by people."""
    world = run(script)
    for _, action in world.actions():
        why = getattr(action, "why", "x")
        assert why
        assert not re.search(r"[<>{}]|None|Phase\.", why), why
    assert PoolName("default") == DEFAULT
