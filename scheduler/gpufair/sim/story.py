"""What happened in a run: the raw material of figures and pictures."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpufair.core.model import Lease, Outcome, Policy, PreemptReason
from gpufair.core.units import AllocationPath, Instant, Millis, PoolName, WorkloadId
from gpufair.sim.job import Job
from gpufair.sim.scenario import Scenario


@dataclass(slots=True)
class Stint:
    """One holding of GPUs, from a grant until they are really free. Times are None while they have not come."""

    leases: tuple[Lease, ...]
    pool: PoolName
    granted: Instant
    protected_until: Instant
    waited_since: Instant  # submission, the touch of a parked session, or the moment it was queued again
    touched: bool = False  # it ended the wait of a parked session whose user came back
    up: Instant | None = None  # launched and restored
    notice: Instant | None = None  # it was told to leave
    reason: PreemptReason | None = None  # by which right; None if it ended by itself
    beneficiary: WorkloadId | None = None
    freed: Instant | None = None
    worked: Millis = Millis(0)  # work done in it, what was lost at its end included
    lost: Millis = Millis(0)  # of that, work that has to be done again
    switching: Millis = Millis(0)  # launching, restoring, saving, stopping
    failed: bool = False  # its node was lost


@dataclass(slots=True)
class Life:
    """What became of a job."""

    job: Job
    submitted: Instant | None = None  # None: its time did not come
    refused: str = ""  # why it was not admitted
    waiting_since: Instant | None = None  # for GPUs: as of a stint, but of a wait that has not ended, or never did
    touched: bool = False  # the same
    stints: list[Stint] = field(default_factory=list)
    ended: Instant | None = None
    outcome: Outcome | None = None


@dataclass(slots=True)
class Landed:
    """A landing that was granted, as it was granted first."""

    workload: WorkloadId
    leases: tuple[Lease, ...]
    granted: Instant
    at: Instant
    start_by: Instant
    over: Instant | None = None  # it started, ended, or lost its landing
    dropped: str = ""  # why the landing was lost, if it was


@dataclass(frozen=True, slots=True)
class Sample:
    """How the allocations of a pool stood at an instant, where the policy has a metric."""

    at: Instant
    pool: PoolName
    metric: tuple[tuple[AllocationPath, float], ...]  # by path, every node of the tree
    occupancy_gpu_s: tuple[tuple[AllocationPath, float], ...]


@dataclass
class Story:
    """One scenario under one policy."""

    scenario: Scenario
    policy: str
    options: Policy
    lives: dict[WorkloadId, Life] = field(default_factory=dict)  # in order of submission time, then id
    landings: list[Landed] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    ended_at: Instant = Instant(0)
    events: int = 0
    decisions: int = 0
    protected_preemptions: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
