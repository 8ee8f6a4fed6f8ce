"""What the state keeps of each workload and node, and the frozen views of them that leave the core."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Final

from gpufair.core.model import (
    CheckpointRef,
    Drain,
    Held,
    Kind,
    Lease,
    Node,
    Outcome,
    Phase,
    PreemptReason,
    Shape,
    WorkloadSpec,
)
from gpufair.core.units import AllocationPath, GpuMillis, Instant, Millis, NodeName, PoolName, WorkloadId

# What a node has of something that it does not count: enough for anything. (As ``gpufair.core.lines.ENDLESS``.)
UNCOUNTED: Final = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class Reservation:
    """GPUs kept for a queued workload. ``pending``: victims that have not released theirs yet."""

    leases: tuple[Lease, ...]
    pool: PoolName
    victims: tuple[WorkloadId, ...]
    pending: tuple[WorkloadId, ...]
    order: int  # of reservation; the first comes first
    # When the protection of its owner will have ended if it starts in time. It counts for horizons; None: never.
    ends: Instant | None = None


@dataclass(frozen=True, slots=True)
class Landing:
    """Nodes and a time at which a blocked workload will start. ``staying`` are those there who need not leave for it."""

    leases: tuple[Lease, ...]
    pool: PoolName
    at: Instant  # T: until then others are there as guests, or take what it does not need
    granted_at: Instant
    start_by: Instant  # binding: T and the graces of those who leave
    grace: Millis  # the longest that anybody may take to leave for it
    staying: tuple[tuple[WorkloadId, int], ...]  # with their incarnations
    order: int  # of grants
    why: str  # how ``start_by`` came about


@dataclass(frozen=True, slots=True)
class Bound:
    """What a horizon of a node leaves to those who stay beyond it. See ``gpufair.core.horizon``."""

    at: Instant
    slack: int  # GPUs
    left: int  # the same, less what is kept for it already once its time has come
    owner: WorkloadId | None  # of the landing; None: maintenance
    gpus: int  # that the owner needs here
    fixed: frozenset[WorkloadId]  # who are there and need not leave for it


@dataclass(frozen=True, slots=True)
class Asked:
    """What a workload asked for before it was amended, and when it waited for that."""

    allocation: AllocationPath
    shape: Shape
    pools: tuple[PoolName, ...]
    waits: tuple[tuple[Instant, Instant], ...]


@dataclass(slots=True)
class Record:
    """A workload inside the state. Only ``Facts`` and the transitions change it."""

    id: WorkloadId
    spec: WorkloadSpec
    submitted_at: Instant
    phase: Phase = Phase.QUEUED
    queued_at: Instant = Instant(0)  # since when it waits, if it does
    waits: tuple[tuple[Instant, Instant], ...] = ()  # when it waited, kept until it starts for the first time
    earlier: tuple[Asked, ...] = ()  # what it waited for before it was amended, kept as long as these
    held: Held | None = None
    incarnation: int = 0
    busy: bool = False
    checkpoint: CheckpointRef | None = None
    starts: int = 0
    preemptions: int = 0
    start_failures: int = 0  # in a row
    devices: tuple[tuple[NodeName, str], ...] = ()
    lost: tuple[tuple[str, str], ...] = ()
    deadline: Instant | None = None  # of the notice, then of the stop
    notice: PreemptReason | None = None
    notice_why: str = ""  # the sentence of that decision, kept as the beneficiary is
    beneficiary: WorkloadId | None = None  # kept until the next start, so that its owner can be told
    reservation: Reservation | None = None
    debug: bool = False  # it starts, or runs, under the debug right
    landing: Landing | None = None
    reason: str = ""
    outcome: Outcome | None = None
    ended_at: Instant | None = None
    resume_from_checkpoint: bool = True
    active_at: Instant = Instant(0)  # when it came up, or last ran a cell as far as was reported
    not_before: Instant | None = None  # it rests until then, for it was preempted too often
    safe_at: Instant | None = None  # when it last said that it was at a safe point
    restored_in: Millis | None = None  # how long its last restore took
    extension: Millis | None = None  # asked for, and granted, but not applied yet
    slice: Millis | None = None  # the next start asks for no more protection than this
    settles_until: Instant | None = None  # the end of the protection in which it was moved: until then not again
    cancelled: bool = False
    cancelled_why: str = ""  # if it was not its owner
    withheld: bool = False  # it rests because it must not be queued yet
    parking: PreemptReason | None = None  # its owner wants it parked, once it has released its GPUs
    touched: bool = False  # its owner wants a parked session back
    failure: str = ""  # why the last start failed, until that is settled
    interrupted: bool = False  # somebody waits for it: queue it again instead of parking it
    exit: tuple[Outcome, str] | None = None
    weight: int = 1  # of a GPU that it asks for, in units of ``weights``; of any type: 1 GPU
    rate: int = 0  # what it is charged for at present, in the same units
    cpu_part: int = 0  # what it counts as in ``gpufair.core.cpu_use``, while it holds CPUs without GPUs
    settled: GpuMillis = GpuMillis(0)  # in these units: charged until ``settled_at``
    settled_at: Instant = Instant(0)
    measured: GpuMillis = GpuMillis(0)  # GPU time over which nodes measured how busy its GPUs were
    worked: GpuMillis = GpuMillis(0)  # and for how much of it they were

    def copy(self) -> Record:
        """One with the same values, which never change in themselves. A sixth of what ``replace`` takes: it is often done."""
        return Record(*_VALUES(self))

    @property
    def label(self) -> str:
        """What others are told about it: whose it is and the start of its id. Names of notebooks are their owner's."""
        kind = "session" if self.spec.kind is Kind.SESSION else "batch run"
        return f"{self.spec.user}'s {kind} {self.id[:8]}"

    @property
    def gpus(self) -> int:
        """GPUs it asked for."""
        return self.spec.shape.gpus

    @property
    def min_runtime(self) -> Millis:
        """The protection that its next start asks for: that of its spec, or a slice of it."""
        asked = self.spec.min_runtime
        return asked if self.slice is None else min(self.slice, asked)

    @property
    def commitment(self) -> GpuMillis:
        """Weighted GPU time that its next start promises it."""
        return GpuMillis(self.gpus * self.weight * self.min_runtime)

    def lands(self, now: Instant) -> bool:
        """Whether the time of its landing has come, and nothing else is kept for it."""
        return self.landing is not None and self.landing.at <= now and self.reservation is None

    def charged(self, now: Instant) -> GpuMillis:
        """Charged over its whole life, until ``now``, in units of ``weights``."""
        return GpuMillis(self.settled + self.rate * (now - self.settled_at))


_VALUES: Final = attrgetter(*(each.name for each in fields(Record)))


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload as others see it."""

    id: WorkloadId
    spec: WorkloadSpec
    phase: Phase
    submitted_at: Instant
    held: Held | None
    incarnation: int
    busy: bool
    checkpoint: CheckpointRef | None
    starts: int
    preemptions: int
    devices: tuple[tuple[NodeName, str], ...]
    lost: tuple[tuple[str, str], ...]
    deadline: Instant | None
    beneficiary: WorkloadId | None
    reason: str
    outcome: Outcome | None
    ended_at: Instant | None
    charged: GpuMillis
    resume_from_checkpoint: bool
    measured: GpuMillis  # how much of its GPU time was measured; the rest is unknown
    worked: GpuMillis  # for how much of that its GPUs were busy


def view(record: Record, now: Instant, unit: int) -> Workload:
    """The frozen view of a record; what it was charged is counted in parts of a GPU, of which ``unit`` are a whole."""
    return Workload(
        id=record.id,
        spec=record.spec,
        phase=record.phase,
        submitted_at=record.submitted_at,
        held=record.held,
        incarnation=record.incarnation,
        busy=record.busy,
        checkpoint=record.checkpoint,
        starts=record.starts,
        preemptions=record.preemptions,
        devices=record.devices,
        lost=record.lost,
        deadline=record.deadline,
        beneficiary=record.beneficiary,
        reason=record.reason,
        outcome=record.outcome,
        ended_at=record.ended_at,
        charged=GpuMillis(record.charged(now) // unit),
        resume_from_checkpoint=record.resume_from_checkpoint,
        measured=record.measured,
        worked=record.worked,
    )


@dataclass(slots=True)
class NodeRecord:
    """A node inside the state. ``free``, ``room`` and ``bounds`` follow from the rest; ``Facts.touch`` keeps them."""

    node: Node
    cordoned: bool = False
    lost: bool = False
    drain: Drain | None = None  # how it is to be emptied, while it is cordoned
    holders: dict[WorkloadId, int] = field(default_factory=dict)
    claims: dict[WorkloadId, int] = field(default_factory=dict)  # reserved leases, by their owner
    landings: dict[WorkloadId, int] = field(default_factory=dict)  # GPUs needed from a landing's time on, by its owner
    closes_at: Instant | None = None  # a maintenance is planned for then
    bounds: tuple[Bound, ...] = ()  # what these horizons leave, the earliest first
    free: int = 0  # GPUs that nobody holds and that are kept for nobody, were it only for a while
    room: int = 0  # of these, what somebody could have who stays for ever
    cpus_left: int = UNCOUNTED  # beside the room; kept by ``Facts.touch`` too
    memory_left: int = UNCOUNTED
    uses: tuple[int, ...] = ()  # its part of the pool's rates, as last counted
    counted_in: PoolName | None = None

    @property
    def open(self) -> bool:
        """Whether something may start here."""
        return not self.cordoned and not self.lost


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as others see it. ``holders`` are (workload, GPUs), ``reserved`` the same for GPUs kept for somebody."""

    node: Node
    cordoned: bool
    lost: bool
    free: int  # GPUs that a workload could start on now
    holders: tuple[tuple[WorkloadId, int], ...]
    reserved: tuple[tuple[WorkloadId, int], ...]
    drain: Drain | None = None
    protected: tuple[tuple[WorkloadId, Instant], ...] = ()  # who is protected here, and until when
    empty_by: Instant | None = None  # when a cordoned node is empty at the latest, if nobody overstays its grace
    landings: tuple[tuple[WorkloadId, int, Instant], ...] = ()  # who needs how many GPUs from when on
    closes_at: Instant | None = None  # when a planned maintenance begins
    guests: int = 0  # GPUs that only those could start on who are done before a landing or a maintenance
