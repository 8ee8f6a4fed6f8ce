"""Inside a leaf: priority, then the researcher who has had less, then submission, then id."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from gpufair.core.model import Allocation, Node, Phase
from gpufair.core.record import Workload
from gpufair.core.snapshot import restore, snapshot
from gpufair.core.units import AllocationPath, NodeName, WorkloadId
from tests.strategies import RESEARCHERS, Script, begin, crowds, run, scripts, step
from tests.world import DEFAULT, Audit, Delays, World

LEAF = AllocationPath("a")


def had_by_hand(world: World, leaf: str, user: str) -> int:
    """O + K of a researcher in a leaf of the default pool, from the journal and the views."""
    stays = [stay for stay in Audit.of(world.journal).stays if stay.pool == DEFAULT and stay.spec.allocated]
    charged = sum(
        stay.within(world.now - world.policy.window, world.now)
        for stay in stays
        if (stay.spec.allocation, stay.spec.user) == (leaf, user)
    )
    return charged + sum(_promised(world, one) for one in world.state.workloads() if _of(one, leaf, user))


def _of(workload: Workload, leaf: str, user: str) -> bool:
    return (workload.spec.allocation, workload.spec.user) == (leaf, user) and workload.spec.allocated


def _promised(world: World, workload: Workload) -> int:
    reservation = world.state.facts.record(workload.id).reservation
    if reservation is not None and reservation.pool == DEFAULT:
        return workload.spec.shape.gpus * workload.spec.min_runtime
    staying = workload.phase in {Phase.STARTING, Phase.RESTORING, Phase.RUNNING}
    if not staying or workload.held is None or workload.held.pool != DEFAULT:
        return 0
    return workload.spec.shape.gpus * max(0, workload.held.protected_until - world.now)


@given(st.one_of(crowds(), scripts()))
def test_p09_in_a_leaf_who_has_had_less_comes_first_if_priorities_are_equal(script: Script) -> None:
    """The whole rule, by hand, after every event."""
    world = begin(script)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
        lines: dict[str, list[Workload]] = {}
        for workload in map(world.state.workload, world.state.queue()):
            spec = workload.spec
            reserved = workload.id in world.state.facts.reserved
            if spec.allocated and spec.shape.gpus and spec.pools[0] == DEFAULT and not reserved:
                lines.setdefault(spec.allocation, []).append(workload)
        for leaf, line in lines.items():
            had = {user: had_by_hand(world, leaf, user) for user in {one.spec.user for one in line}}
            ranks = [(-one.spec.priority, had[one.spec.user], one.submitted_at, one.id) for one in line]
            assert ranks == sorted(ranks)


@given(scripts())
def test_p08_the_researchers_of_a_leaf_were_charged_what_it_was(script: Script) -> None:
    """Each of them by brute force over the journal; together they are the leaf."""
    world = run(script, settle_ms=700)
    window = world.policy.window
    audit = Audit.of(world.journal)
    for leaf in world.state.tree.leaves:
        parts = []
        for user in RESEARCHERS:
            parts.append(
                sum(ledger.occupancy_of(leaf, user, world.now, window) for ledger in world.state.facts.ledgers.values())
            )
            assert parts[-1] == audit.charged(world.now - window, world.now, leaf, user)
        assert sum(parts) == audit.charged(world.now - window, world.now, leaf)


def one_leaf(gpus: int) -> World:
    return World(delays=Delays(0, 0, 0)).set_up([Allocation(LEAF)], [Node(NodeName("n"), gpus)])


@given(gpus=st.integers(1, 4), burst=st.integers(5, 12), late=st.integers(1, 9_000), asked=st.integers(1, 9_000))
def test_a_burst_of_one_researcher_does_not_starve_another(gpus: int, burst: int, late: int, asked: int) -> None:
    """Whoever comes later with nothing so far gets the very next GPU of the leaf."""
    world = one_leaf(gpus)
    for number in range(burst):
        world.submit(f"ada{number:02d}", LEAF, min_runtime=5_000, user="ada")
    world.advance(late)
    world.submit("bob", LEAF, min_runtime=asked, user="bob")
    assert world.phase("bob") is Phase.QUEUED
    world.advance(0)
    world.exit(next(one.id for one in world.state.workloads() if one.phase is Phase.RUNNING))
    assert world.phase("bob") is Phase.STARTING


@given(count=st.integers(2, 8), spans=st.tuples(st.integers(1, 9_000), st.integers(1, 9_000)))
def test_two_bursts_share_a_leaf(count: int, spans: tuple[int, int]) -> None:
    """Whoever has had less is next, whatever each start promises."""
    world = one_leaf(1)
    for user, span in zip(("ada", "bob"), spans, strict=True):
        for number in range(count):
            world.submit(f"{user}{number}", LEAF, min_runtime=span, user=user)
    world.advance(0)
    while running := [one for one in world.state.workloads() if one.phase is Phase.RUNNING]:
        waiting = {one.spec.user for one in world.state.workloads() if one.phase is Phase.QUEUED}
        world.exit(running[0].id)
        had = {user: had_by_hand(world, LEAF, user) for user in ("ada", "bob")}
        started = [one for one in world.state.workloads() if one.phase is Phase.STARTING]
        for one in started:
            had[one.spec.user] -= _promised(world, one)
            assert had[one.spec.user] == min(had[user] for user in waiting)
        assert bool(started) == bool(waiting)
        world.advance(1_000)
    assert all(one.phase is Phase.ENDED for one in world.state.workloads())


def test_priority_goes_before_what_a_researcher_has_had() -> None:
    """And who has had less, before submission."""
    world = one_leaf(1)
    world.submit("first", LEAF, user="ada")
    world.submit("second", LEAF, user="ada")
    world.submit("third", LEAF, user="bob")
    world.submit("urgent", LEAF, user="ada", priority=1)
    assert world.state.queue() == ("urgent", "third", "second")
    told = world.state.explain(WorkloadId("second"))
    assert told.position == 3
    assert "In a bob comes before ada" in told.sentence
    assert "comes before" not in world.state.explain(WorkloadId("third")).sentence


def test_a_pass_counts_what_it_has_granted_itself() -> None:
    """Otherwise one researcher would get everything that becomes free in one moment."""
    world = one_leaf(4)
    world.submit("holder", LEAF, gpus=4, user="eve")
    for user in ("ada", "bob"):
        for number in range(3):
            world.submit(f"{user}{number}", LEAF, user=user)
    world.exit("holder")
    world.advance(1)
    assert [name for name in ("ada0", "ada1", "ada2", "bob0", "bob1", "bob2") if world.phase(name) is Phase.QUEUED] == [
        "ada2",
        "bob2",
    ]


@given(scripts(least=8))
def test_a_snapshot_without_researchers_is_still_read(script: Script) -> None:
    """It was written before there were any: they are equals at that moment, and are charged from there on."""
    world = run(script, settle_ms=500)
    old = json.loads(json.dumps(snapshot(world.state)))
    for ledger in old["ledgers"].values():
        del ledger["researchers"]
    state = restore(old, validate=True)
    state.validate()
    for leaf in state.tree.leaves:
        for user in RESEARCHERS:
            for ledger in state.facts.ledgers.values():
                assert ledger.occupancy_of(leaf, user, state.now, state.policy.window) == 0
    world.state = state
    world.advance(30_000)
