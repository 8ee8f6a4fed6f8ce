"""The same hours twice, as things are and changed: who gains, who loses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gpufair.core import events as ev
from gpufair.core.model import HOLDING, Allocation, Policy
from gpufair.core.state import State
from gpufair.core.tree import parent_of
from gpufair.core.units import AllocationPath, CauseId, GpuMillis, Instant, Millis, WorkloadId
from gpufair.sim.costs import USUAL, Costs
from gpufair.sim.job import Job
from gpufair.sim.scenario import Scenario
from gpufair.sim.story import Life, Story
from gpufair.sim.whatif.arrivals import NONE, again, underway
from gpufair.sim.whatif.past import Past
from gpufair.sim.whatif.resumed import Resumed

CAUSE: Final = CauseId("what-if")
NOTABLE: Final = 0.01  # of what it is delivered: less is neither a gain nor a loss


@dataclass(frozen=True, slots=True)
class Change:
    """What is tried. Nothing given: nothing changes.

    Args:
        allocations: The budget tree from now on; None: as it is.
        policy: The options from now on; None: as they are.
    """

    allocations: tuple[Allocation, ...] | None = None
    policy: Policy | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """What an allocation has in a play; an inner node's figures are the sums of its children's, waits aside.

    ``waits``: of each wait that was open in the play, how long it was, sorted; ``waiting``: how many of these are not
    over when the play ends (they are at least so long).
    """

    path: AllocationPath
    entitlement: float
    allocated: GpuMillis
    unallocated: GpuMillis
    held: float  # GPUs, on average
    waits: tuple[Millis, ...]
    waiting: int
    preemptions: int  # of its work
    metric: float  # when the play ends; the first pool's

    def wait(self, part: float) -> Millis | None:
        """The wait that this part of its waits does not exceed; None: nobody waited."""
        return self.waits[min(len(self.waits) - 1, int(part * len(self.waits)))] if self.waits else None


@dataclass(frozen=True)
class Play:
    """One of the two plays."""

    story: Story
    accounts: tuple[Account, ...]
    protected_preemptions: int


@dataclass(frozen=True)
class Comparison:
    """Both plays. ``protected``: how many workloads were protected at the beginning; ``kept``: as long as was granted."""

    now: Instant
    until: Instant
    before: Play
    after: Play
    arrivals: int
    protected: int
    kept: int

    def gain(self, path: AllocationPath) -> int:
        """1: the change gives it more GPU time or, of the same, sooner; -1: less or later; 0: neither."""
        was, becomes = (next(one for one in play.accounts if one.path == path) for play in (self.before, self.after))
        least = NOTABLE * max(was.allocated, becomes.allocated)
        if abs(becomes.allocated - was.allocated) > least:
            return 1 if becomes.allocated > was.allocated else -1
        waited, waits = sum(was.waits), sum(becomes.waits)
        if abs(waits - waited) > NOTABLE * max(waits, waited):
            return 1 if waits < waited else -1
        return 0


def whatif(
    state: State,
    change: Change,
    hours: float = 24.0,
    past: Past = NONE,
    *,
    costs: Costs = USUAL,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Comparison:
    """Play a state forward as it is and changed, with the same arrivals.

    Args:
        state: The present; it is left as it is.
        change: What is tried, at once.
        hours: How far.
        past: Whose submissions come again (``look_back``); ``NONE``: nobody submits anything.
        costs: How long nodes and workloads take.
        seed: Of what is drawn.
        progress: Told how many hours have been played, of twice ``hours``.

    Raises:
        GpufairError: The change makes no sense, or drops an allocation that has live workloads.
    """
    now, until = state.now, Instant(state.now + round(hours * 3_600_000))
    there = underway(state, past, seed)
    jobs = again(past, state.policy, now, until, seed)
    changes: list[ev.Event] = []
    if change.policy is not None:
        changes.append(ev.PolicyChanged(now, CAUSE, change.policy))
    if change.allocations is not None:
        changes.append(ev.BudgetsApplied(now, CAUSE, change.allocations))
    plays: list[Play] = []
    kept = 0
    for number, what in enumerate(([], changes)):
        copy = state.copy()
        scenario = _scenario(copy, jobs, until, costs, seed, change.allocations if what else None)
        engine = Resumed(scenario, copy, there, what)

        def told(at: Instant, number: int = number) -> None:
            if progress is not None:
                progress((at - now) / 3_600_000 + number * hours)

        story = engine.run(progress=told)
        plays.append(Play(story, _accounts(story, copy), copy.protected_preemptions - state.protected_preemptions))
        kept = _kept(state, story)
    return Comparison(now, until, plays[0], plays[1], len(jobs), len(_protected(state)), kept)


def _scenario(
    state: State,
    jobs: Sequence[Job],
    until: Instant,
    costs: Costs,
    seed: int,
    allocations: tuple[Allocation, ...] | None,
) -> Scenario:
    return Scenario(
        name="what if",
        nodes=tuple(view.node for view in state.nodes() if not view.lost),
        allocations=allocations if allocations is not None else state.tree.allocations,
        jobs=jobs,
        until=until,
        start=state.now,
        costs=costs,
        seed=seed,
        epoch_s=0.0,
    )


def _protected(state: State) -> dict[WorkloadId, Instant]:
    return {
        record.id: record.held.protected_until
        for record in state.facts.records.values()
        if record.phase in HOLDING and record.held is not None and record.held.protected_until > state.now
    }


def _kept(state: State, story: Story) -> int:
    """How many were not told to leave before the end of the protection that they had, a forced move aside."""
    kept = 0
    for workload, until in _protected(state).items():
        stint = story.lives[workload].stints[0]
        kept += stint.notice is None or stint.notice >= until or stint.notice <= state.now
    return kept


def _accounts(story: Story, state: State) -> tuple[Account, ...]:
    tree, span = state.tree, story.ended_at - story.scenario.start
    sums = {node.path: _Sum() for node in tree.nodes()}
    for life in story.lives.values():
        leaf = life.job.spec.allocation
        if leaf in tree and life.job.gpus:
            _add(sums, leaf, life, story)
    metrics = {figures.path: figures.metric for figures in reversed(state.budgets())}
    return tuple(
        Account(
            path=node.path,
            entitlement=float(node.entitlement),
            allocated=GpuMillis(sums[node.path].allocated),
            unallocated=GpuMillis(sums[node.path].unallocated),
            held=(sums[node.path].allocated + sums[node.path].unallocated) / span if span else 0.0,
            waits=tuple(sorted(sums[node.path].waits)),
            waiting=sums[node.path].waiting,
            preemptions=sums[node.path].preemptions,
            metric=metrics.get(node.path, 0.0),
        )
        for node in tree.nodes()
        if node.path
    )


class _Sum:
    """Of one node of the tree."""

    __slots__ = ("allocated", "preemptions", "unallocated", "waiting", "waits")

    def __init__(self) -> None:
        self.allocated = self.unallocated = self.waiting = self.preemptions = 0
        self.waits: list[Millis] = []


def _add(sums: dict[AllocationPath, _Sum], leaf: AllocationPath, life: Life, story: Story) -> None:
    """A workload's part, to its leaf and all above."""
    start, end = story.scenario.start, story.ended_at
    held = preempted = waiting = 0
    waits: list[Millis] = []
    for stint in life.stints:
        freed = end if stint.freed is None else min(end, stint.freed)
        held += max(0, freed - max(start, stint.granted)) * life.job.gpus
        if stint.granted > start or (stint.granted == start and stint.waited_since < start):
            waits.append(Millis(stint.granted - stint.waited_since))
        preempted += stint.beneficiary is not None and stint.notice is not None and stint.notice >= start
    if life.waiting_since is not None and not life.refused:
        waits.append(Millis((end if life.ended is None else life.ended) - life.waiting_since))
        waiting = int(life.ended is None)
    path = leaf
    while True:
        one = sums[path]
        if life.job.spec.allocated:
            one.allocated += held
        else:
            one.unallocated += held
        one.waits += waits
        one.waiting += waiting
        one.preemptions += preempted
        if not path:
            return
        path = parent_of(path)
