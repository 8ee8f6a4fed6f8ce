"""GPU types with cost factors: exact in the ledger, neutral where all are 1, and the same after a restart."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufair.core import events as ev
from gpufair.core.errors import InvalidSpec
from gpufair.core.model import Allocation, Node, Policy
from gpufair.core.snapshot import recover, restore, snapshot
from gpufair.core.state import State
from gpufair.core.units import AllocationPath, NodeName
from tests.owed_by_hand import Books
from tests.property.test_reference_laws import run_compared
from tests.strategies import MACHINES, USERS, Script, begin, run, scripts, step
from tests.world import CAUSE, DEFAULT, FULL, SMALL, Audit, Delays, World

WEIGHED = replace(FULL, gpu_weights={"t": 2.5, "s": 0.5})
UNITS = {"t": 5, "s": 1, "": 2}  # halves of a GPU
TYPED = (
    ((2, "t", DEFAULT), (2, "s", DEFAULT), (0, "", DEFAULT)),
    ((4, "t", DEFAULT), (1, "", DEFAULT), (4, "s", DEFAULT)),
)
FICKLE = ("submit",) * 7 + ("cancel",) * 2 + USERS + MACHINES


@given(scripts(FICKLE, least=6, clusters=TYPED, policies=(WEIGHED,)))
def test_p08_weighted_time_is_charged_and_owed_exactly(script: Script) -> None:
    """Brute force over the journal, in halves of a GPU, for leaves and for workloads."""
    world = begin(script)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
    books, audit, facts = Books.of(world.journal, UNITS), Audit.of(world.journal), world.state.facts
    start = world.now - world.policy.window
    joined = [entry.event.node for entry in world.journal if isinstance(entry.event, ev.NodeJoined)]
    types = {node.name: node.gpu_type for node in joined}  # the state forgets those that are gone for good
    assert facts.weights.unit == 2
    for pool, ledger in facts.ledgers.items():
        assert ledger.capacity.occupancy(world.now, world.policy.window) == books.capacity(pool, start, world.now)
        for leaf, owed in ledger.owed.items():
            assert owed.within(world.now, world.policy.window) == books.owed(pool, leaf, start, world.now)
    for one in world.state.budgets():
        stays = [stay for stay in audit.stays if stay.spec.allocated and stay.pool == one.pool]
        here = [stay for stay in stays if one.path in world.state.tree[stay.spec.allocation].lineage]
        charged = sum(stay.within(start, world.now) * UNITS[types[stay.node]] for stay in here)
        assert one.occupancy == charged // 2
    for workload in world.state.workloads():
        mine = [stay for stay in audit.stays if stay.workload == workload.id and stay.spec.allocated]
        assert workload.charged == sum(stay.within(0, world.now) * UNITS[types[stay.node]] for stay in mine) // 2


@given(scripts(clusters=TYPED, policies=(WEIGHED,)))
def test_weighted_worlds_are_decided_as_by_the_plain_pass(script: Script) -> None:
    """Ranks and commitments count weights too."""
    run_compared(script)


@given(scripts(FICKLE, least=5, policies=(SMALL, FULL)))
def test_weights_of_one_change_nothing(script: Script) -> None:
    """Who does not use them sees the figures that he would see without."""
    plain = run(script)
    ones = run(replace(script, policy=replace(script.policy, gpu_weights={"t": 1.0, "s": 1.0})))
    assert [entry.actions for entry in plain.journal] == [entry.actions for entry in ones.journal]
    assert plain.state.budgets() == ones.state.budgets()
    assert plain.state.workloads() == ones.state.workloads()


@given(
    scripts(FICKLE, least=8, clusters=TYPED, policies=(SMALL, FULL)),
    st.lists(st.sampled_from(({"t": 3.0}, {"t": 0.25, "s": 1.5}, {}, {"s": 0.125})), min_size=8, max_size=25),
)
def test_p07_an_edit_of_the_weights_counts_from_then_on(script: Script, edits: list[dict[str, float]]) -> None:
    """All invariants hold on the way, what was charged stays charged, and a restart finds the same."""
    world = begin(script)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
        if index < len(edits) and index % 3 == 0:
            before = {one.id: one.charged for one in world.state.workloads()}
            world.feed(ev.PolicyChanged(world.now, CAUSE, replace(script.policy, gpu_weights=edits[index])))
            assert {one.id: one.charged for one in world.state.workloads()} == before
            assert world.state.conservation().error == 0
    journal = [(entry.event, entry.actions) for entry in world.journal]
    assert snapshot(recover(journal, policy=script.policy)) == snapshot(world.state)
    again = restore(json.loads(json.dumps(snapshot(world.state))), validate=True)
    again.validate()
    assert again.budgets() == world.state.budgets()


def test_a_policy_with_weights_has_a_hash() -> None:
    """The service keeps digests of policies by it."""
    assert hash(WEIGHED) == hash(replace(WEIGHED)) == hash(FULL)
    assert WEIGHED != FULL


def test_dear_gpus_use_up_a_budget_faster() -> None:
    """An hour of a GPU that counts double is two hours."""
    policy = replace(SMALL, gpu_weights={"dear": 2.0})
    nodes = [Node(NodeName("n"), 1, "dear"), Node(NodeName("m"), 1, "cheap")]
    world = World(policy, Delays(0, 0, 0)).set_up([Allocation(AllocationPath(path)) for path in "ab"], nodes)
    world.submit("v", "a", gpu_type="dear")
    world.submit("w", "b", gpu_type="cheap")
    world.advance(1_000)
    figures = {one.path: one for one in world.state.budgets()}
    assert (figures[AllocationPath("a")].occupancy, figures[AllocationPath("b")].occupancy) == (2_000, 1_000)
    assert figures[AllocationPath("")].budget == 3 * policy.window
    assert world.state.conservation().charged == 2_000


@pytest.mark.parametrize("weight", [0.0, -1.0, 0.0005, float("nan"), 2_000.0])
def test_a_weight_that_cannot_be_counted_is_refused(weight: float) -> None:
    """It would have to be rounded in every ledger."""
    with pytest.raises(InvalidSpec, match="gpu_weights"):
        State(Policy(gpu_weights={"t": weight}))
