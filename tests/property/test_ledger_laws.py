"""The ledger adds up to the millisecond, and the window slides exactly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpufair.core.errors import UnknownWorkload
from gpufair.core.ledger import Account
from gpufair.core.record import Record
from gpufair.core.snapshot import snapshot
from gpufair.core.state import State
from gpufair.core.units import Instant, Millis, WorkloadId
from tests.strategies import Script, begin, run, scripts, step
from tests.world import Audit


@given(scripts())
def test_p07_every_gpu_millisecond_is_accounted_for_once(script: Script) -> None:
    """Charged is what the journal says, and the parts fill the capacity without a rest."""
    world = run(script)
    totals = world.state.conservation()
    assert totals.error == 0
    audit = Audit.of(world.journal)
    assert totals.charged == audit.charged(0, audit.end)
    assert totals.charged == sum(workload.charged for workload in world.state.workloads())
    free = sum(stay.within(0, audit.end) for stay in audit.stays if not stay.spec.allocated)
    assert totals.unallocated == free


@given(scripts())
def test_p07_a_parent_is_charged_what_its_children_are(script: Script) -> None:
    """Otherwise a level of the tree would have money of its own."""
    world = run(script, settle_ms=500)
    figures = {(one.pool, one.path): one for one in world.state.budgets()}
    for (pool, path), one in figures.items():
        children = world.state.tree[path].children
        if children:
            # Where no child has a share, the parent's entitlement is nobody's.
            shared = ("entitlement",) if any(figures[pool, child].share for child in children) else ()
            for name in ("occupancy", "commitment", "running_gpus", "queued_gpus", *shared):
                assert getattr(one, name) == sum(getattr(figures[pool, child], name) for child in children), name


@given(scripts(), st.lists(st.integers(1, 40_000), min_size=1, max_size=4))
def test_p08_occupancy_is_the_integral_over_the_window(script: Script, later: list[int]) -> None:
    """Brute force over the journal, during the script and long after it."""
    world = begin(script)
    window = world.policy.window
    pauses = [*(None for _ in script.commands), *later]
    for index, pause in enumerate(pauses):
        if pause is None:
            step(world, script, script.commands[index], index)
            if index % 5:
                continue
        else:
            world.advance(pause)
        audit = Audit.of(world.journal)
        for leaf in {path for path, _ in script.tree} | {""}:
            occupied = sum(one.occupancy for one in world.state.budgets() if one.path == leaf)
            assert occupied == audit.charged(world.now - window, world.now, leaf)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(-3, 5)), max_size=30),
    st.integers(1, 100),
    st.lists(st.integers(0, 80), max_size=5),
)
def test_p08_an_account_forgets_usage_after_exactly_one_window(
    changes: list[tuple[int, int]], window: int, later: list[int]
) -> None:
    """Second by second against a plain list."""
    account, history, now = Account(), [], 0
    for span, gpus in changes:
        history += [account.gpus] * span
        now += span
        account.change(Instant(now), max(gpus, -account.gpus), Millis(window))
        assert account.occupancy(Instant(now), Millis(window)) == sum(history[-window:])
        line = account.line(Instant(now), Millis(window))  # what a pass reads
        assert line.offset + line.slope * now == sum(history[-window:])
    for span in later:
        history += [account.gpus] * span
        now += span
        assert account.occupancy(Instant(now), Millis(window)) == sum(history[-window:])
        line = account.line(Instant(now), Millis(window))  # what a pass reads
        assert line.offset + line.slope * now == sum(history[-window:])
        assert account.charged(Instant(now)) == sum(history)


@given(scripts())
def test_p07_forgetting_ended_workloads_leaves_the_ledger_as_it_is(script: Script) -> None:
    """A name can be forgotten, a debt cannot."""
    world = run(script)
    before, figures = world.state.conservation(), world.state.budgets()
    live = {workload.id for workload in world.state.workloads() if workload.ended_at is None}
    gone = world.state.forgettable(Instant(world.now + 1))
    kept = {workload.id for workload in world.state.workloads()} - set(gone)
    world.state.forget(Instant(world.now + 1))
    world.state.validate()
    assert {workload.id for workload in world.state.workloads()} == kept
    assert kept >= live
    assert kept - live <= {other for one in live for other in named(world.state, one)}
    assert (world.state.conservation(), world.state.budgets()) == (before, figures)


@given(scripts(most=25))
def test_p07_what_is_forgotten_changes_no_decision(script: Script) -> None:
    """To the byte: a service that drops what has ended decides as a replay of its whole journal does; nor does recalling."""
    world = run(script)
    state, unit = State(world.policy, validate=True), 1
    away: list[Record] = []
    for number, entry in enumerate(world.journal):
        try:
            actions = state.handle(entry.event)
        except UnknownWorkload:
            assert not entry.actions
            continue
        assert tuple(actions) == entry.actions
        if number % 7 == 0:
            for record in away:
                state.recall(record, unit)
        away, unit = state.drop(state.forgettable(Instant(state.now + number % 3 - 1))), state.facts.weights.unit
    for record in away:
        state.recall(record, unit)
    whole, rest = snapshot(world.state), snapshot(state)
    known = {one["id"]: one for one in whole.pop("workloads")}
    assert all(known[one["id"]] == one for one in rest.pop("workloads"))
    assert rest == whole


def named(state: State, workload: WorkloadId) -> set[WorkloadId]:
    """Whom its decisions may be told with."""
    record = state.facts.record(workload)
    victims = record.reservation.victims if record.reservation is not None else ()
    staying = [other for other, _ in record.landing.staying] if record.landing is not None else []
    return {*victims, *staying, *([record.beneficiary] if record.beneficiary is not None else [])}
