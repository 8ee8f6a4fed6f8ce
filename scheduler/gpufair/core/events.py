"""Facts that enter the core, in past tense. ``at`` is the only time the core knows; ``cause`` names what led to the event.

Everything that happens to a started workload carries its ``incarnation`` (the count of its starts), so that a late
report about an earlier start changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpufair.core.model import (
    Allocation,
    CheckpointRef,
    Maintenance,
    Node,
    Outcome,
    Policy,
    PreemptReason,
    Shape,
    Utilization,
    WorkloadSpec,
)
from gpufair.core.units import AllocationPath, CauseId, Instant, Millis, NodeName, PoolName, WorkloadId


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""

    at: Instant
    cause: CauseId


@dataclass(frozen=True, slots=True)
class TimePassed(Event):
    """A scheduled moment came (``State.next_wakeup``): an expiry, a deadline or the grid."""


@dataclass(frozen=True, slots=True)
class PolicyChanged(Event):
    """New options. A granted protection is never shortened."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class BudgetsApplied(Event):
    """The whole budget tree anew. Refused (``BudgetError``) while it drops an allocation that has live workloads."""

    allocations: tuple[Allocation, ...]


@dataclass(frozen=True, slots=True)
class NodeJoined(Event):
    """A node is there (again), with this inventory; if it is ``closed``, cordoned from the beginning."""

    node: Node
    closed: bool = False


@dataclass(frozen=True, slots=True)
class NodeLost(Event):
    """A node is gone; what ran there is gone with it."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class NodeRemoved(Event):
    """A lost node will not come back: it is known no longer. One of its name that joins later is a new one."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class NodeCordoned(Event):
    """Nothing new starts there; what runs leaves as its protection ends. A deadline set earlier is dropped."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class NodeDrained(Event):
    """A cordon with a deadline. What is protected beyond it stays, unless ``force``, which needs a deadline."""

    node: NodeName
    deadline: Instant | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class NodeUncordoned(Event):
    """The node takes workloads again; a drain is over."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class MaintenancePlanned(Event):
    """Nodes will be closed at ``plan.at``. Until then only guests start there; then they are cordoned."""

    plan: Maintenance


@dataclass(frozen=True, slots=True)
class MaintenanceCancelled(Event):
    """A plan whose time has not come is off. Nodes that are closed already are opened with ``NodeUncordoned``."""

    plan: str


@dataclass(frozen=True, slots=True)
class Submitted(Event):
    """A workload was asked for. A ``withheld`` one waits for something outside: it rests until ``ResumeRequested``."""

    workload: WorkloadId
    spec: WorkloadSpec
    withheld: bool = False


@dataclass(frozen=True, slots=True)
class Amended(Event):
    """Its owner asks for this instead, before it runs. It keeps its id and its place."""

    workload: WorkloadId
    allocation: AllocationPath
    shape: Shape
    min_runtime: Millis
    pools: tuple[PoolName, ...]
    priority: int = 0

    def of(self, spec: WorkloadSpec) -> WorkloadSpec:
        """The wish as it is from now on."""
        return replace(
            spec,
            allocation=self.allocation,
            shape=self.shape,
            min_runtime=self.min_runtime,
            pools=self.pools,
            priority=self.priority,
        )


@dataclass(frozen=True, slots=True)
class Cancelled(Event):
    """Its owner ended it, or ``why`` says what did; no checkpoint is taken."""

    workload: WorkloadId
    why: str = ""


@dataclass(frozen=True, slots=True)
class ParkRequested(Event):
    """Checkpoint a session and give its GPUs back (a queued one is simply parked)."""

    workload: WorkloadId
    reason: PreemptReason = PreemptReason.PARK


@dataclass(frozen=True, slots=True)
class ResumeRequested(Event):
    """A parked session was touched: queue it again. ``from_checkpoint`` False starts it from nothing.

    ``slice`` is how much protection the next start asks for, where that is less than the spec's: little is had sooner.
    """

    workload: WorkloadId
    from_checkpoint: bool = True
    slice: Millis | None = None


@dataclass(frozen=True, slots=True)
class UtilizationReported(Event):
    """A node measured, for ``span`` until now, how busy GPUs were. What it could not measure is left out: unknown is
    not 0. Nothing is decided by it."""

    node: NodeName
    span: Millis
    samples: tuple[Utilization, ...]


@dataclass(frozen=True, slots=True)
class ExtensionRequested(Event):
    """A workload that runs asks to be protected for ``min_runtime`` from now on, judged as a submission of this moment."""

    workload: WorkloadId
    min_runtime: Millis


@dataclass(frozen=True, slots=True)
class SafePointReached(Event):
    """A workload says that now is a good moment to move it: it would lose little of what it has done so far."""

    workload: WorkloadId
    incarnation: int


@dataclass(frozen=True, slots=True)
class ActivityReported(Event):
    """A session began (busy) or ended (idle) running cells. Another idle one says that it was active in between."""

    workload: WorkloadId
    incarnation: int
    busy: bool


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The node has it up: started, or restored. ``devices``: (node, device id) pairs, for people to read."""

    workload: WorkloadId
    incarnation: int
    devices: tuple[tuple[NodeName, str], ...] = ()
    lost: tuple[tuple[str, str], ...] = ()  # what the restore could not bring back


@dataclass(frozen=True, slots=True)
class StartFailed(Event):
    """The node could not start it; its GPUs are free. It is queued again up to a limit, then ended as failed."""

    workload: WorkloadId
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointDone(Event):
    """A checkpoint is durable. An older one than the last good one is ignored."""

    workload: WorkloadId
    incarnation: int
    checkpoint: CheckpointRef


@dataclass(frozen=True, slots=True)
class CheckpointFailed(Event):
    """A checkpoint could not be made; the last good one stands."""

    workload: WorkloadId
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Released(Event):
    """All its processes are gone and its GPUs are really free."""

    workload: WorkloadId
    incarnation: int
    busy: bool = False  # a cell was interrupted: queue it again instead of parking it


@dataclass(frozen=True, slots=True)
class Exited(Event):
    """It ended by itself and its GPUs are free. A ``withheld`` one is to be started again, after ``ResumeRequested``."""

    workload: WorkloadId
    incarnation: int
    outcome: Outcome
    reason: str = ""
    withheld: bool = False
