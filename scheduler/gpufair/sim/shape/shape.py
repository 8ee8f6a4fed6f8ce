"""From a trace to a scenario: what was recorded, on another cluster, at another demand, with what nobody recorded drawn."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final, Literal

from gpufair.core.model import Allocation
from gpufair.core.tree import Tree
from gpufair.core.units import DAY, HOUR, AllocationPath, Instant, Millis
from gpufair.sim.assumptions import Assumptions, millis, usual
from gpufair.sim.cluster import Cluster
from gpufair.sim.errors import ScenarioError
from gpufair.sim.habits import Crowd, Habits
from gpufair.sim.incidents import failures
from gpufair.sim.job import Job, JobKind
from gpufair.sim.scenario import Scenario
from gpufair.sim.shape.budgets import drawn, match
from gpufair.sim.shape.drafts import Draft, Oversize, choose_unallocated, lay_out, tell_apart
from gpufair.sim.shape.scale import Placed, scale
from gpufair.sim.traces.row import Row, Trace

MOST_DEMAND: Final = 1_000.0
MOST_JOBS: Final = 5_000_000
WINDOW: Final = Millis(7 * DAY)
CAP: Final = Millis(8 * HOUR)


def shape(
    trace: Trace,
    cluster: Cluster,
    *,
    budgets: Sequence[Allocation] | None = None,
    demand: float | None = None,
    days: float | None = None,
    skip_days: float = 0.0,
    window: Millis = WINDOW,
    max_min_runtime: Millis = CAP,
    assumptions: Assumptions | None = None,
    seed: int = 0,
    outstanding: int | None = None,
    unallocated_share: float = 0.0,
    debug_share: float | None = None,
    session_share: float = 0.0,
    users: Literal["trace", "drawn"] = "trace",
    levels: Literal[1, 2] = 1,
    equal: bool = False,
    oversize: Oversize = "refuse",
    warm_up: Millis | None = None,
) -> Scenario:
    """A trace as a scenario.

    Args:
        trace: What was recorded.
        cluster: Where it is played.
        budgets: The tree. Projects are its leaves by path or by last name; a leaf ``other`` takes those that are not
            named. None: drawn from the trace, each project a leaf with a share in proportion to its GPU time.
        demand: GPU time asked for per GPU time of the cluster: jobs are left out, or repeated by further users at other
            hours, until it is reached in each week; durations stay. None: as recorded.
        days: How many of the trace are played. None: all; without ``demand`` it goes on for a while after the last
            submission, so that what was submitted can end.
        skip_days: How many are left out before.
        window: Of the policy: as much of the beginning is no part of the figures, if the run is twice as long.
        max_min_runtime: Of the policy: nobody declares more; what was recorded above it is cut to it.
        assumptions: What is drawn where nothing was recorded. None: the usual ones.
        seed: Of all that is drawn.
        outstanding: Closed loop, so many unfinished jobs of one user at most. None: open loop.
        unallocated_share: Part of the GPU time asked for that runs unallocated, where the trace does not say.
        debug_share: Part of the short and small jobs that are debug runs, if the trace names none. None: as assumed.
        session_share: Part of the long and small jobs that are sessions, if the trace names none.
        users: "trace": as recorded, drawn where it names none. "drawn": all anew.
        levels: Of a drawn tree.
        equal: Entitlements of a drawn tree are the same for all.
        oversize: What to do about jobs that never fit: "refuse" the trace, "clip" them to the largest that fits, or
            "skip" them.
        warm_up: How much of the beginning is no part of the figures, if not a window.

    Raises:
        ScenarioError: An argument makes no sense for this trace.
        UnknownProjects: Some are no leaf of ``budgets``.
        TooLarge: Some jobs never fit.
        BudgetError: ``budgets`` are not valid.
    """
    assumptions = assumptions or usual()
    debug_share = assumptions.debug.share if debug_share is None else debug_share
    _check(demand, days, skip_days, outstanding, max_min_runtime, (unallocated_share, debug_share, session_share))
    notes = list(trace.notes)
    rows, begin, span = _cut(trace, days, skip_days)
    drafts = lay_out(rows, begin, cluster, oversize, notes)
    habits = Habits(assumptions, max_min_runtime, seed)
    tell_apart(drafts, habits, debug_share, session_share, seed, notes)
    allocations, leaves = _tree(drafts, budgets, levels, equal, notes)
    capacity = cluster.gpus * span
    recorded = sum(draft.held for draft in drafts)
    if demand is None:
        placed = [Placed(draft, 0, draft.submit) for draft in drafts]
    else:
        if demand * capacity / max(1, recorded) * len(drafts) > MOST_JOBS:
            raise ScenarioError(
                f"a demand of {demand:g} on {cluster} would take more than {MOST_JOBS:,} jobs of this trace; "
                "take fewer days or a smaller cluster"
            )
        placed = scale(drafts, round(demand * capacity), span, seed)
    placed.sort(key=lambda one: (one.submit, one.draft.row.line, one.copy))
    free = _unallocated(placed, leaves, allocations, unallocated_share, seed)
    jobs = _Jobs(habits, leaves, assumptions, users == "drawn", seed).make(placed, free)
    notes += _figures(placed, free, span, capacity, recorded, demand)
    until = span if days is not None or demand is not None else _until_done(placed, span, cluster.gpus)
    if warm_up is None:
        warm_up = window if until >= 2 * window else Millis(0)
    nodes = cluster.nodes()
    return Scenario(
        name=trace.name,
        nodes=nodes,
        allocations=allocations,
        jobs=jobs,
        until=Instant(until),
        warm_up=warm_up,
        incidents=tuple(failures(nodes, Instant(0), Instant(until), assumptions.nodes, seed)),
        costs=assumptions.costs.engine(),
        outstanding=outstanding,
        think=millis(assumptions.users.think_s),
        seed=seed,
        epoch_s=None if trace.epoch_s is None else trace.epoch_s + begin / 1000,
        notes=tuple(notes),
    )


def _check(
    demand: float | None,
    days: float | None,
    skip_days: float,
    outstanding: int | None,
    max_min_runtime: Millis,
    shares: tuple[float, ...],
) -> None:
    if demand is not None and not 0 < demand <= MOST_DEMAND:
        raise ScenarioError(f"a demand of {demand:g} times the cluster is none; use one above 0, like 2.5, and at most {MOST_DEMAND:,g}")
    if days is not None and not (isfinite(days) and days > 0):
        raise ScenarioError(f"{days:g} days are no time to play; use more than 0")
    if not (isfinite(skip_days) and skip_days >= 0):
        raise ScenarioError(f"{skip_days:g} days cannot be left out; use 0 or more")
    if outstanding is not None and outstanding < 1:
        raise ScenarioError(f"with {outstanding} outstanding jobs nobody ever submits; use 1 or more, or none at all")
    if max_min_runtime <= 0:
        raise ScenarioError("max_min_runtime has to be longer than 0")
    for share in shares:
        if not 0 <= share <= 1:
            raise ScenarioError(f"a share of {share:g} is no part of something; use one from 0 to 1")


def _cut(trace: Trace, days: float | None, skip_days: float) -> tuple[Sequence[Row], Millis, Millis]:
    """The rows of the days that are played, when they begin, and how long they are."""
    rows = trace.rows
    if not rows:
        raise ScenarioError(f"{trace.name} has no jobs to play")
    begin = Millis(round(skip_days * DAY))
    # Up to the end of the hour of the last submission.
    whole = Millis((rows[-1].submit // HOUR + 1) * HOUR - begin)
    span = whole if days is None else Millis(round(days * DAY))
    if whole <= 0 or span > whole + DAY:
        raise ScenarioError(
            f"{trace.name} has submissions of {rows[-1].submit / DAY:.1f} days, not of {(begin + span) / DAY:.1f}; "
            "take fewer days" + (", or skip fewer" if begin else "")
        )
    first = bisect_left(rows, begin, key=lambda row: row.submit)
    last = bisect_left(rows, begin + span, key=lambda row: row.submit)
    if first == last:
        raise ScenarioError(f"{trace.name} has no submission in the days that were asked for; take others")
    return rows[first:last], begin, span


def _tree(
    drafts: list[Draft], budgets: Sequence[Allocation] | None, levels: int, equal: bool, notes: list[str]
) -> tuple[tuple[Allocation, ...], dict[str, AllocationPath]]:
    usage: Counter[str] = Counter()
    for draft in drafts:
        usage[draft.project] += draft.shape.gpus * draft.row.duration
    if budgets is not None:
        return tuple(budgets), match(budgets, sorted(usage))
    allocations, leaves = drawn(usage, levels, equal)
    rule = "equal ones" if equal else "in proportion to its GPU time in the trace"
    notes.append(f"budgets are drawn: each project ({len(leaves):,}) is a leaf, with shares {rule}")
    return allocations, leaves


def _unallocated(
    placed: list[Placed],
    leaves: dict[str, AllocationPath],
    allocations: tuple[Allocation, ...],
    share: float,
    seed: int,
) -> set[int]:
    """Which of the jobs run unallocated: those recorded so, those of leaves without a share, and as many as are wanted."""
    tree = Tree(allocations)
    unfunded = {leaf for leaf in tree.leaves if not tree[leaf].entitlement}
    free = {
        at for at, one in enumerate(placed) if one.draft.row.min_runtime == 0 or leaves[one.draft.project] in unfunded
    }
    if not share:
        return free
    may_be = [
        at not in free and one.draft.kind is JobKind.BATCH and one.draft.row.min_runtime is None
        for at, one in enumerate(placed)
    ]
    held = [one.draft.held for one in placed]
    left = max(0.0, share - sum(held[at] for at in free) / max(1, sum(held)))
    return free | choose_unallocated(held, may_be, [one.draft.project for one in placed], left, seed)


@dataclass
class _Jobs:
    """Makes the jobs; ids and users of repetitions are marked by ``~2`` and so on."""

    habits: Habits
    leaves: dict[str, AllocationPath]
    assumptions: Assumptions
    anew: bool
    seed: int

    def make(self, placed: list[Placed], free: set[int]) -> tuple[Job, ...]:
        """All jobs, sorted by submission, then id."""
        crowds: dict[str, Crowd] = {}
        jobs = []
        for at, one in enumerate(placed):
            row, draft = one.draft.row, one.draft
            mark = f"~{one.copy + 1}" if one.copy else ""
            user = row.user
            if self.anew or not user:
                crowd = draft.project + mark
                if crowd not in crowds:
                    crowds[crowd] = Crowd(crowd, self.assumptions, self.seed)
                user = crowds[crowd].somebody()
            else:
                user += mark
            job = self.habits.job(
                row.job_id + mark,
                one.submit,
                row.duration,
                kind=draft.kind,
                leaf=self.leaves[draft.project],
                user=user,
                shape=draft.shape,
                bursts=draft.bursts,
                min_runtime=Millis(0) if at in free else row.min_runtime,
                priority=row.priority,
                resumable=row.resumable,
                expected=row.requested,
                outcome=row.outcome,
            )
            jobs.append(job)
        jobs.sort(key=lambda job: (job.submit, job.id))
        return tuple(jobs)


def _figures(
    placed: list[Placed], free: set[int], span: Millis, capacity: int, recorded: int, demand: float | None
) -> list[str]:
    held = sum(one.draft.held for one in placed)
    inside = sum(min(one.draft.held, one.draft.shape.gpus * (span - one.submit)) for one in placed)
    unallocated = sum(placed[at].draft.held for at in free)
    text = f"demand is {held / capacity:.3f} of the GPU time there is"
    if demand is not None:
        text += f" ({demand:g} was asked for, {recorded / capacity:.3f} recorded)"
    text += (
        f", {unallocated / capacity:.3f} of it unallocated; {inside / capacity:.3f} could be served before the run ends"
    )
    if demand is None:
        return [text]
    copies = sum(1 for one in placed if one.copy)
    return [text, f"{len(placed):,} jobs, {copies:,} of them repetitions by further users; durations are as recorded"]


def _until_done(placed: list[Placed], span: Millis, gpus: int) -> Millis:
    """Long enough for a small trace to end after its last submission; a long one is not played for weeks without load."""
    longest = max(one.submit + one.draft.row.duration for one in placed) - span
    work = sum(one.draft.held for one in placed) // gpus
    return Millis(span + max(0, min(longest + 2 * work + HOUR, max(DAY, span // 20))))
