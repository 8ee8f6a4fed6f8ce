"""The history adds up: hour by hour, level by level of the tree, and from what is installed to what is busy."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from hypothesis import example, given
from hypothesis import strategies as st

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.hours import Hours, Kept
from gpufair.core.model import Utilization
from gpufair.core.snapshot import restore, snapshot
from gpufair.core.units import GpuMillis, Instant, Millis, WorkloadId
from tests.owed_by_hand import Books
from tests.strategies import RESEARCHERS, Script, begin, scripts, step
from tests.world import CAUSE, FULL, Audit, Entry, World

STEP = 7_000
HOURLY = replace(FULL, history_step=Millis(STEP), history=Millis(60_000))
FICKLE = ("submit",) * 6 + ("cancel", "cancel", "exit", "park", "resume", "lose", "join", "cordon", "budgets", "fail")


@dataclass
class Switching(Books):
    """GPU time of workloads that hold GPUs and do not run, by pool."""

    running: set[WorkloadId] = field(default_factory=set)
    leaving: set[WorkloadId] = field(default_factory=set)
    switching: dict[str, int] = field(default_factory=dict)

    def _until(self, at: int) -> None:
        for workload, (pool, _, leases) in self.held.items():
            if workload not in self.running:
                self.switching[pool] = self.switching.get(pool, 0) + sum(leases.values()) * max(0, at - self.now)
        super()._until(at)

    def take(self, entry: Entry) -> None:
        super().take(entry)
        event = entry.event
        if isinstance(event, ev.Started) and event.workload in self.held:
            _, incarnation, _ = self.held[event.workload]
            if incarnation == event.incarnation and event.workload not in self.leaving:
                self.running.add(event.workload)
        for action in entry.actions:
            if isinstance(action, act.BeginCheckpoint | act.Stop):
                self.running.discard(action.workload)
                self.leaving.add(action.workload)
            elif isinstance(action, act.Start):
                self.running.discard(action.workload)
                self.leaving.discard(action.workload)


def whole_steps(world: World) -> range:
    """The steps that lie in the window, so that all that was taken back was taken out of them."""
    return range(-(-max(0, world.now - world.policy.window) // STEP), world.now // STEP + 1)


@given(scripts(FICKLE, least=8, policies=(HOURLY,)), st.integers(0, 50_000))
def test_p08_each_hour_knows_what_was_owed_and_charged_in_it(script: Script, later: int) -> None:
    """Brute force over the journal, for leaves, researchers and capacity."""
    world = begin(script)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
    world.advance(later)
    books, audit = Books.of(world.journal), Audit.of(world.journal)
    for pool, ledger in world.state.facts.ledgers.items():
        here = replace(audit, stays=tuple(stay for stay in audit.stays if stay.pool == pool))
        for number in whole_steps(world):
            start, end = number * STEP, (number + 1) * STEP
            assert ledger.capacity.in_step(number, world.now) == books.capacity(pool, start, end)
            for leaf, owed in ledger.owed.items():
                assert owed.in_step(number, world.now) == books.owed(pool, leaf, start, end)
            for leaf, account in ledger.accounts.items():
                assert account.in_step(number, world.now) == here.charged(start, end, leaf)
                for user in RESEARCHERS:
                    part = ledger.researchers[leaf].get(user)
                    had = part.in_step(number, world.now) if part is not None else 0
                    assert had == here.charged(start, end, leaf, user)


@given(scripts(FICKLE, least=8, policies=(HOURLY,)), st.integers(0, 20_000), st.integers(0, 60_000))
def test_p07_the_pyramid_adds_up_at_each_level(script: Script, back: int, later: int) -> None:
    """Whatever the period: nothing is lost between two levels, and a parent has what its children have."""
    world = begin(script)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
    world.advance(later)
    before = snapshot(world.state)
    for one in world.state.pyramid(Instant(max(0, world.now - back)), world.now):
        installed, available, held = one.availability.of, one.availability.kept, one.occupancy.kept
        assert installed == available + sum(lost for _, lost in one.availability.losses)
        assert available == one.occupancy.of == held + sum(lost for _, lost in one.occupancy.losses)
        assert held == one.charged + one.unallocated == one.utilization.held
        assert 0 <= one.switching <= held
        assert one.charged == one.delivery.whole.charged
        assert one.utilization.ratio is None
        by_path = {each.path: each for each in one.delivery.allocations}
        for each in by_path.values():
            children = [by_path[child] for child in world.state.tree[each.path].children]
            assert each.capped_hourly <= each.capped <= min(each.charged, each.owed) + 1
            if each.leaf:
                assert each.charged == sum(had for _, had in each.researchers)
            elif children:
                assert each.charged == sum(child.charged for child in children)
                # Each is rounded down from millionths for itself.
                assert 0 <= each.owed - sum(child.owed for child in children) < len(children)
    assert snapshot(world.state) == before


@given(scripts(FICKLE, least=5, policies=(HOURLY,)))
def test_p07_switching_is_what_is_held_and_does_not_run(script: Script) -> None:
    """Starting, restoring, saving and stopping, worked out from the journal."""
    world = begin(script)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
    world.advance(3_000)
    books = Switching.of(world.journal)
    assert books.now == world.now
    for pool in world.state.conservation().pools:
        assert pool.switching == books.switching.get(pool.pool, 0)


@given(scripts(FICKLE, least=5, policies=(HOURLY,)), st.integers(0, 24))
def test_p22_the_history_survives_a_restart(script: Script, cut: int) -> None:
    """To the last step of it, and it goes on as it would have."""
    world, other = begin(script), begin(script)
    for index, command in enumerate(script.commands):
        if index == cut:
            other.state = restore(json.loads(json.dumps(snapshot(other.state))), validate=True)
        step(world, script, command, index)
        step(other, script, command, index)
    assert world.state.pyramid(Instant(0), world.now) == other.state.pyramid(Instant(0), other.now)
    assert snapshot(world.state) == snapshot(other.state)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60), st.integers(1, 5)), max_size=20),
    st.integers(1, 13),
    st.integers(1, 80),
)
def test_p07_hours_are_sums_of_milliseconds(added: list[tuple[int, int, int]], length: int, span: int) -> None:
    """Against a plain list; what is forgotten is forgotten from the far end only."""
    hours, plain, now = Hours(Kept(Millis(length), Millis(span))), [0] * 3_000, 0
    for pause, duration, rate in added:
        hours.add(now + pause, now + pause + duration, rate)
        for moment in range(now + pause, now + pause + duration):
            plain[moment] += rate
        now += pause + duration
    last = (now - 1) // length
    for number in range(max(0, last - hours.kept.steps), last + 1):
        kept = number >= hours.first
        assert hours.at(number) == (sum(plain[number * length : (number + 1) * length]) if kept else 0)
    assert len(hours.amounts) <= hours.kept.steps + 1
    assert all(hours.at(number) == 0 for number in range(last + 1, last + 5))


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 90), st.integers(0, 1_000)), min_size=1, max_size=9))
@example([(0, 14, 1), (1, 1, 1)])
def test_p07_what_is_spread_over_hours_adds_up(samples: list[tuple[int, int, int]]) -> None:
    """Rounded parts of a measurement are still the measurement."""
    hours = Hours(Kept(Millis(13), Millis(10_000)))
    for start, span, amount in sorted(samples):
        hours.spread(start, start + span, amount)
    assert sum(hours.amounts) == sum(amount for _, _, amount in samples)


@given(scripts(("submit",), least=3, policies=(HOURLY,)), st.integers(1, 2_000), st.integers(0, 100))
def test_utilization_is_measured_or_unknown_and_decides_nothing(script: Script, span: int, busy: int) -> None:
    """A node that cannot measure must not make its users look idle."""
    world = begin(script)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
    world.advance(3_000)
    assert all(one.utilization.ratio is None for one in world.state.pyramid(Instant(0), world.now))
    queue, measured = world.state.queue(), 0
    for node in world.state.nodes():
        samples = tuple(
            Utilization(holder, GpuMillis(gpus * span), GpuMillis(gpus * span * busy // 100))
            for holder, gpus in node.holders[:1]
        )
        measured += sum(sample.measured for sample in samples)
        assert world.feed(ev.UtilizationReported(world.now, CAUSE, node.node.name, Millis(span), samples)) == []
    assert world.state.queue() == queue
    pools = world.state.pyramid(Instant(0), world.now)
    assert sum(one.utilization.measured for one in pools) == measured
    assert sum(workload.measured for workload in world.state.workloads()) == measured
    for one in pools:
        ratio, coverage = one.utilization.ratio, one.utilization.coverage
        assert (ratio is None) == (not one.utilization.measured)
        assert ratio is None or abs(ratio - busy / 100) <= (len(world.state.nodes()) + 1) / one.utilization.measured
        assert coverage is None or one.utilization.measured == round(coverage * one.utilization.held)
