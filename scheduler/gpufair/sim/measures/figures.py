"""What is known of a run once it is measured. Times are exact integers; ratios are made of them when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from gpufair.core.model import PreemptReason
from gpufair.core.units import AllocationPath, GpuMillis, Instant, Millis, WorkloadId
from gpufair.sim.measures.period import Period


def ratio(part: int, whole: int) -> float | None:
    """A part of a whole; None if there is nothing."""
    return part / whole if whole else None


@dataclass(frozen=True, slots=True)
class Run:
    """The whole run, its warm-up included.

    Args:
        jobs: Submitted until its end.
        gpus: Of the cluster at its beginning.
        span: How much time was simulated.
        wall_s: How long that took.
        cpu_s: The same in CPU time.
        events: Facts that the policy was told.
        decisions: Its answers.
        protected_preemptions: Of workloads whose protection had not ended; must be 0.
    """

    jobs: int
    gpus: int
    span: Millis
    wall_s: float
    cpu_s: float
    events: int
    decisions: int
    protected_preemptions: int


@dataclass(frozen=True, slots=True)
class Counts:
    """How often something happened within the period.

    Args:
        submitted: Submissions.
        refused: Of these, not admitted.
        starts: Grants of GPUs.
        completions: Jobs that had GPUs and came to their own end, whatever that was.
        preemptions: Notices to make room for somebody else, by the right that was used.
        notices: All other notices (idle sessions, drains, moves), by reason.
        failures: Stints that ended because a node was lost.
        most_restarts: Starts of one job after its first, touched sessions aside.
    """

    submitted: int
    refused: int
    starts: int
    completions: int
    preemptions: Mapping[PreemptReason, int]
    notices: Mapping[PreemptReason, int]
    failures: int
    most_restarts: int


@dataclass(frozen=True, slots=True)
class GpuTime:
    """Where the GPU time of the period went. GPUs count as they are, not weighted.

    Args:
        installed: Of all nodes, lost or not.
        away: Of that, lost nodes.
        cordoned: Of that, free GPUs of nodes that took nobody new.
        allocated: Held by allocated work.
        unallocated: Held by unallocated work.
        switching: Of what was held: launching, restoring, saving and stopping.
        lost: Of what was held: work that has to be done again.
        lost_for_good: Of that, work that could not be saved, because it is not resumable.
        useful: Of what was held: work that has not.
        fragmented: Free while somebody waited for no more GPUs than were free, but of whose shape no placement was
            free.
        withheld: Free while somebody waited of whose shape a placement was free: it was kept for a landing or for a
            beneficiary, or a limit or the next pass was in between. The two may overlap.
    """

    installed: GpuMillis
    away: GpuMillis
    cordoned: GpuMillis
    allocated: GpuMillis
    unallocated: GpuMillis
    switching: GpuMillis
    lost: GpuMillis
    lost_for_good: GpuMillis
    useful: GpuMillis
    fragmented: GpuMillis
    withheld: GpuMillis

    @property
    def available(self) -> GpuMillis:
        """What could have been held."""
        return GpuMillis(self.installed - self.away - self.cordoned)

    @property
    def held(self) -> GpuMillis:
        """What was."""
        return GpuMillis(self.allocated + self.unallocated)

    def of_available(self, part: GpuMillis) -> float | None:
        """A part of the available GPU time."""
        return ratio(part, self.available)


@dataclass(frozen=True, slots=True)
class Account:
    """One node of the budget tree over the period, in weighted GPU time; of inner nodes the sums of their leaves.

    Args:
        path: "" is the root.
        leaf: Whether work is charged to it.
        entitled: The integral of its entitlement.
        owed: The integral of the lesser of its entitlement and its demand.
        charged: Held by its allocated work.
        capped: Charged, but no more than owed.
        hourly: The same hour by hour.
        lost: Of charged: work that has to be done again.
        switching: Of charged: launching, restoring, saving and stopping.
        useful: Of charged: work that has not to be done again.
        net: Charged less lost and switching, but no more than owed.
        unallocated: Held by its unallocated work.
        granule: The largest gang x min_runtime that was submitted: one grant more or less. Of an inner node the largest.
    """

    path: AllocationPath
    leaf: bool
    entitled: GpuMillis
    owed: GpuMillis
    charged: GpuMillis
    capped: GpuMillis
    hourly: GpuMillis
    lost: GpuMillis
    switching: GpuMillis
    useful: GpuMillis
    net: GpuMillis
    unallocated: GpuMillis
    granule: GpuMillis

    @property
    def depth(self) -> int:
        """0 is the root."""
        return self.path.count("/") + 1 if self.path else 0

    @property
    def delivered(self) -> float | None:
        """Charged / owed."""
        return ratio(self.charged, self.owed)

    @property
    def delivered_net(self) -> float | None:
        """The same without what was lost and spent on switching."""
        return ratio(self.charged - self.lost - self.switching, self.owed)

    @property
    def granularity(self) -> float | None:
        """One granule of what was owed: no policy can come closer for certain."""
        return ratio(self.granule, self.owed)


@dataclass(frozen=True, slots=True)
class Deliveries:
    """What was delivered of what was owed.

    Args:
        accounts: The root first, parents before children.
        worst: Of the leaves entitled to at least 8 GPUs the one with the smallest ratio.
    """

    accounts: tuple[Account, ...]
    worst: Account | None

    @property
    def whole(self) -> Account:
        """The root."""
        return self.accounts[0]

    @property
    def leaves(self) -> tuple[Account, ...]:
        """Those that work is charged to, by path."""
        return tuple(one for one in self.accounts if one.leaf)

    @property
    def capped(self) -> float | None:
        """The headline: the sum of min(charged, owed) over the leaves / the sum of owed."""
        return ratio(self.whole.capped, self.whole.owed)

    @property
    def uncapped(self) -> float | None:
        """The sum of charged / the sum of owed."""
        return self.whole.delivered

    @property
    def hourly(self) -> float | None:
        """Capped hour by hour."""
        return ratio(self.whole.hourly, self.whole.owed)

    @property
    def net(self) -> float | None:
        """Capped, without what was lost and spent on switching."""
        return ratio(self.whole.net, self.whole.owed)


def worst_of(accounts: tuple[Account, ...], period: Period, least_gpus: int) -> Account | None:
    """The leaf with the smallest charged / owed of those entitled to so many GPUs on average."""
    large = [one for one in accounts if one.leaf and one.owed and one.entitled >= least_gpus * period.length]
    return min(large, key=lambda one: (Fraction(one.charged, one.owed), one.path), default=None)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Waits, by nearest rank: the p-th percentile of n waits is the one at place ceil(p/100 x n) in their order.

    A wait that had not ended when the run did (or when its owner gave up) takes part with the time that is known.

    Args:
        count: How many, the unfinished ones included.
        unfinished: How many are known to be at least so long only.
        p50, p90, p99, longest: None if there are none.
        at_least: Names of those that can only be larger, because of unfinished ones.
    """

    count: int
    unfinished: int
    p50: Millis | None = None
    p90: Millis | None = None
    p99: Millis | None = None
    longest: Millis | None = None
    at_least: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Waits:
    """From a submission in the period to the first grant, and what is waited for after that.

    Args:
        by_class: "all", "debug", "session", "batch", "allocated", "unallocated", "largest_gang".
        by_size: By GPUs: "1", "2", "3-4", "5-8", ...
        by_allocation: By leaf.
        largest_gang: How many GPUs that is.
        resumed: From the touch of a parked session to its grant.
        requeued: From the end of a stint to the next grant, where nobody touched it.
        unfinished: Of all of these who still waited when the run ended: for how long by then.
    """

    by_class: Mapping[str, Quantiles]
    by_size: Mapping[str, Quantiles]
    by_allocation: Mapping[AllocationPath, Quantiles]
    largest_gang: int
    resumed: Quantiles
    requeued: Quantiles
    unfinished: Quantiles


@dataclass(frozen=True, slots=True)
class Landings:
    """Landings that were granted in the period, and what became of them.

    Args:
        granted: How many.
        kept: Of these, whose owners started.
        late: Of these, who started after their start-by time, or have not by the end of the run though it is past.
        dropped: Lost (a node went, budgets were edited), by why.
        open: Whose owners still waited when the run ended, or were over before.
        worst_lateness: The largest start - start-by; 0 if nobody was late.
        longest: The longest from the grant of a landing to the start.
        longest_wait: The longest from the beginning of the wait to the start, of those who started.
        longest_of: Whose that is.
        longest_start_by: And by when it was to start.
        bound: M + 2 x the longest grace: what ``longest`` may be at most.
    """

    granted: int
    kept: int
    late: int
    dropped: Mapping[str, int]
    open: int
    worst_lateness: Millis
    longest: Millis | None
    longest_wait: Millis | None
    longest_of: WorkloadId | None
    longest_start_by: Instant | None
    bound: Millis


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that is measured of one scenario under one policy."""

    scenario: str
    policy: str
    period: Period
    begun: Instant  # when the run began, for times that are counted from there
    run: Run
    counts: Counts
    time: GpuTime
    delivered: Deliveries
    waits: Waits
    landings: Landings
