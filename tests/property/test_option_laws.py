"""The options by which policies are compared: flattened, plain, and what they leave as it is."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpufair.core.model import Allocation, Node, Policy
from gpufair.core.tree import ROOT, Tree
from gpufair.core.units import AllocationPath, Millis, NodeName
from tests.property.test_reference_laws import run_compared, wide
from tests.strategies import TREES, Script, begin, crowds, scripts, step
from tests.world import DEFAULT, FULL, SMALL, Delays, World

FLAT = replace(FULL, flattened=True)
FADING = replace(FULL, half_life=Millis(9_000))
PLAIN = replace(
    Policy.plain(),
    **{name: getattr(SMALL, name) for name in ("window", "max_min_runtime", "grid", "grid_checkpoint")},
    grace_session=SMALL.grace_session,
    grace_batch=SMALL.grace_batch,
)


@given(st.one_of(scripts(policies=(FLAT, PLAIN, FADING)), crowds((FLAT, PLAIN, FADING))))
def test_the_options_are_decided_as_by_the_plain_pass(script: Script) -> None:
    """Word for word, with every invariant checked on the way."""
    run_compared(script)


@given(st.integers(0, 10**9))
def test_wide_worlds_are_flattened_as_by_the_plain_pass(seed: int) -> None:
    """Three levels, of which the comparison looks at none."""
    run_compared(wide(seed, FLAT), validate=False)


@given(scripts(policies=(FLAT,), trees=[tree for tree in TREES if any("/" in path for path, _ in tree)]))
def test_p09_flattened_the_queue_goes_by_the_metric_of_leaves_alone(script: Script) -> None:
    """All of a better leaf's workloads come before any of a worse one's, wherever they hang."""
    world = begin(script)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
        metrics = {one.path: one.metric for one in world.state.budgets() if one.pool == DEFAULT}
        waiting = [
            spec.allocation
            for spec in (world.state.workload(workload).spec for workload in world.state.queue())
            if spec.allocated and spec.shape.gpus and spec.pools == (DEFAULT,)
        ]
        reserved = {record.spec.allocation for record in world.state.facts.reserved.values()}
        order = [leaf for leaf in waiting if leaf not in reserved]
        assert order == sorted(order, key=lambda leaf: (metrics[leaf], leaf))


def test_flattening_compares_what_the_tree_keeps_apart() -> None:
    """a/x is better off than its sibling and worse off than b: the tree asks its parent, flattening does not."""
    tree = [Allocation(AllocationPath(path)) for path in ("a/x", "a/y", "b")]
    orders = []
    for policy in (SMALL, replace(SMALL, flattened=True)):
        world = World(policy, Delays(0, 0, 0)).set_up(tree, [Node(NodeName("n"), 4)])
        world.submit("y", "a/y", gpus=3, min_runtime=10_000)
        world.submit("b1", "b", gpus=1, min_runtime=10_000)
        world.submit("b2", "b")
        world.submit("x", "a/x")
        orders.append(world.state.queue())
    assert orders == [("b2", "x"), ("x", "b2")]


@given(st.sampled_from(TREES))
def test_a_flat_tree_has_the_same_leaves_and_entitlements(paths: tuple[tuple[str, str], ...]) -> None:
    """It is another view of the same budgets."""
    tree = Tree(Allocation(AllocationPath(path), share) for path, share in paths)
    flat = tree.flat
    assert flat.leaves == tree.leaves == flat[ROOT].children
    for leaf in tree.leaves:
        assert flat[leaf].entitlement == tree[leaf].entitlement
        assert flat[leaf].lineage == (ROOT, leaf)
        assert all(flat.diverge(leaf, other) == (leaf, other) for other in tree.leaves if other != leaf)
