"""Nouns of the scheduler: allocations, nodes, workloads and what they hold.

Everything here is frozen; the state replaces values and never edits them in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from gpufair.core.units import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    AllocationPath,
    GpuMillis,
    Instant,
    Millis,
    NodeName,
    PoolName,
    WorkloadId,
    since,
)

DEFAULT_POOL = PoolName("default")
_HASH: Final = (1 << 60) - 1  # no hash is larger


class Kind(StrEnum):
    """What a workload is to its owner: a session is parked when idle, a batch workload is queued again."""

    SESSION = "session"
    BATCH = "batch"


class Phase(StrEnum):
    """Where a workload is in its life. Phases from STARTING to STOPPING hold GPUs."""

    QUEUED = "queued"
    STARTING = "starting"  # granted; the node starts it from nothing
    RESTORING = "restoring"  # granted; the node starts it from a checkpoint
    RUNNING = "running"
    CHECKPOINTING = "checkpointing"  # notice given; GPUs are held until they are really free
    STOPPING = "stopping"  # told to stop without (or after) a checkpoint; GPUs are held until really free
    PARKED = "parked"  # a session without GPUs that its owner can resume, or a workload that is not to start yet
    ENDED = "ended"


HOLDING = frozenset({Phase.STARTING, Phase.RESTORING, Phase.RUNNING, Phase.CHECKPOINTING, Phase.STOPPING})


class Outcome(StrEnum):
    """How a workload ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"  # it ran for as long as its owner allows


@dataclass(frozen=True, slots=True)
class Allocation:
    """One declared node of the budget tree. Parents that are not declared are implied with share 1.

    ``share`` is a weight >= 0 among siblings, written as a decimal string or int by users and kept exact
    (numerator, denominator are reduced by ``fractions.Fraction`` where it is used).
    ``members`` are the users who may submit here and below; empty = inherited, and open where no ancestor names any.
    """

    path: AllocationPath
    share: str = "1"
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Capacity:
    """What workloads could have of a machine that others use, too, if these held nothing; in the units of ``Node``."""

    gpus: int
    cpus: int | None = None
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A machine with ``gpus`` identical GPUs. A CPU node has 0.

    ``cpus`` (cores) and ``memory`` (bytes) are what workloads may have of it; None = not counted here: anything fits.
    ``capacity`` is more than that where others hold a part of it now; None = nobody else does. It only says what could
    ever fit.
    """

    name: NodeName
    gpus: int
    gpu_type: str = ""
    pool: PoolName = DEFAULT_POOL
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    cpus: int | None = None
    memory: int | None = None
    capacity: Capacity | None = None


@dataclass(frozen=True, slots=True)
class Drain:
    """How a cordoned node is to be emptied: by when, and whether protections are cut then."""

    deadline: Instant | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Nodes that will be closed at an instant: until then only what is done by then starts there."""

    id: str
    nodes: tuple[NodeName, ...]
    at: Instant


@dataclass(frozen=True, slots=True)
class Lease:
    """GPUs granted on one node. Device ids are an outcome that the node reports, not a decision."""

    node: NodeName
    gpus: int


@dataclass(frozen=True, slots=True)
class Shape:
    """``nodes`` x ``gpus_per_node``, all or nothing. ``gpu_type`` "" accepts any type.

    The rest are demands beside GPUs; a shape without any is cheaper to look for. ``cpus_per_node`` and
    ``memory_per_node`` (bytes) are taken on nodes that count them; 0 = does not care. ``within`` names a label: all
    nodes of the gang must have one value of it ("" = wherever; of one node nothing is demanded). Nodes in ``exclude``
    are never taken. ``where`` are labels that each node must have. Both are sorted and name nothing twice, so that
    equal wishes are equal.
    """

    gpus_per_node: int
    nodes: int = 1
    gpu_type: str = ""
    cpus_per_node: int = 0
    memory_per_node: int = 0
    within: str = ""
    exclude: tuple[NodeName, ...] = ()
    where: tuple[tuple[str, str], ...] = ()

    def __hash__(self) -> int:
        # The fields that differ most often, and plain sums: shapes are keys of the dictionaries that a pass looks into.
        return (self.gpus_per_node + 1009 * self.nodes + 7919 * self.cpus_per_node + self.memory_per_node) & _HASH

    def __eq__(self, other: object) -> bool:
        # Written out: what ``dataclass`` makes is not compiled.
        if self is other:
            return True
        return (
            isinstance(other, Shape)
            and self.gpus_per_node == other.gpus_per_node
            and self.nodes == other.nodes
            and self.gpu_type == other.gpu_type
            and self.cpus_per_node == other.cpus_per_node
            and self.memory_per_node == other.memory_per_node
            and self.within == other.within
            and self.exclude == other.exclude
            and self.where == other.where
        )

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.nodes * self.gpus_per_node

    @property
    def demanding(self) -> bool:
        """Whether it asks for anything but GPUs."""
        return bool(self.cpus_per_node or self.memory_per_node or self.within or self.exclude or self.where)

    @property
    def counted(self) -> bool:
        """Whether it takes CPUs or memory."""
        return bool(self.cpus_per_node or self.memory_per_node)

    @property
    def block(self) -> str:
        """The label of which all its nodes must have one value; "" if there is none."""
        return self.within if self.nodes > 1 else ""


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """What a user asked for. ``min_runtime`` 0 = unallocated (free, unprotected) unless the shape has no GPUs."""

    allocation: AllocationPath
    user: str
    kind: Kind
    shape: Shape
    min_runtime: Millis
    resumable: bool = True
    priority: int = 0
    pools: tuple[PoolName, ...] = (DEFAULT_POOL,)
    name: str = ""
    grace: Millis | None = None  # None = the policy's grace for this kind
    idle_release: Millis | None = None  # a session that runs no cell for so long gives its GPUs back; None = never
    expected: Millis | None = None  # how long it needs its GPUs in all; None = unknown
    movable: bool = False  # its owner allows it to be moved to another node, though it is protected
    # How to run it: opaque to the core, read by the node. JSON-able; holds no secret.
    launch: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def allocated(self) -> bool:
        """Charged and protected, as opposed to unallocated."""
        return self.min_runtime > 0


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """A durable checkpoint. ``sequence`` grows by one with each checkpoint of a workload and never goes back."""

    id: str
    sequence: int
    at: Instant
    size_bytes: int
    duration: Millis
    lost: tuple[tuple[str, str], ...] = ()  # (variable, reason)


class Hungry(StrEnum):
    """When a leaf with allocated work queued counts as hungry, for the take limit."""

    METRIC = "metric"  # m < 1: it has had less than it is entitled to
    ENTITLEMENT = "entitlement"  # it holds less than its part of the pool now


@dataclass(frozen=True, slots=True)
class Policy:
    """Options of the scheduler; defaults are those of docs/policy.md."""

    window: Millis = Millis(7 * DAY)
    max_min_runtime: Millis = Millis(8 * HOUR)
    hysteresis: float = 0.02
    # Leaves whose metric is within this part of the most over-served one's are equals as victims: the loss decides.
    victim_band: float = 0.25
    grid: Millis = MINUTE
    grid_checkpoint: Millis = Millis(10 * SECOND)  # the grid of a pool in which a checkpoint is in flight, if finer
    grace_session: Millis = Millis(120 * SECOND)
    grace_batch: Millis = Millis(20 * SECOND)
    blocks: tuple[str, ...] = ("nvlink", "rack")  # labels of which a gang's nodes should have one value, the best first
    landings: bool = True  # blocked gangs own a time and a place
    landing_share: float = 0.5  # of a pool's GPUs, that all landings together may hold
    consolidation: bool = True  # move sessions that can be restored to join free GPUs for a blocked workload
    consolidate_batch: bool = False  # batch runs as well
    consolidation_rest: Millis = HOUR  # nobody is moved sooner after his last start
    commitment: bool = True  # count K in the metric
    # The debug right: for workloads of at most so much protection and so many GPUs (0: off); the GPUs that run under it
    # stay within min(most * C, max(debug_gpus, share * C)) of a pool, those of a leaf within debug_gpus.
    debug_min_runtime: Millis = Millis(15 * MINUTE)
    debug_gpus: int = 8
    debug_share: float = 0.01
    debug_most: float = 0.125
    # Unallocated work rests for backoff, 2, 4, ... times as long after each preemption, up to backoff_most. 0: off.
    backoff: Millis = MINUTE
    backoff_most: Millis = HOUR
    # While another leaf is hungry a leaf holds at most max(take_least, take_limit * a * C) GPUs at once. None: off.
    take_limit: float | None = 2.0
    take_least: int = 8
    hungry: Hungry = Hungry.METRIC
    banking: float = 0.25  # beta: how much of the time that an allocation did not ask for it keeps as credit
    newcomer: Millis = Millis(30 * MINUTE)  # entitlement that every allocation starts from, where beta < 1
    # What was charged and owed this long ago counts half, in place of a window after which it counts nothing. None: off.
    half_life: Millis | None = None
    # Cost factor of GPUs by type, 1 where none is named; at most three decimals.
    # (Mappings have no hash; policies that differ in it alone are rare.)
    gpu_weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    flattened: bool = False  # compare leaves directly by their metric, without a walk down the tree
    history: Millis = Millis(35 * DAY)  # for how long it is kept what was owed and charged hour by hour
    history_step: Millis = HOUR

    @classmethod
    def plain(cls) -> Policy:
        """Fair share and nothing else, for comparisons: no commitment, the classic metric, and no right beside rank."""
        return cls(
            commitment=False,
            banking=1.0,
            debug_min_runtime=Millis(0),
            take_limit=None,
            landings=False,
            consolidation=False,
        )


@dataclass(frozen=True, slots=True)
class Utilization:
    """How busy the GPUs of a workload were on one node: of ``measured`` GPU time they were busy for ``busy``."""

    workload: WorkloadId
    measured: GpuMillis
    busy: GpuMillis


class PreemptReason(StrEnum):
    """By which right a victim was preempted, or why else it was told to checkpoint."""

    UNALLOCATED = "unallocated"
    RANK = "rank"
    PRIORITY = "priority"
    TAKE_LIMIT = "take-limit"  # its leaf holds more than the take limit and another one is hungry
    DEBUG = "debug"  # the debug right, where rank alone would not do
    LANDING = "landing"  # it was ready for a landing whose time has come
    IDLE = "idle"  # it ran no cell for as long as its idle release allows
    PARK = "park"  # its owner asked
    DRAIN = "drain"
    FORCED = "forced"  # off a node whose drain has reached its deadline, by order of an operator, though protected
    MOVED = "moved"  # off a node that is to be emptied, as its owner allows, though protected
    CONSOLIDATION = "consolidation"  # to another node of its pool, to join free GPUs for somebody else
    SHUTDOWN = "shutdown"  # the embedded service parks everything before it ends


@dataclass(frozen=True, slots=True)
class Held:
    """Where a workload's GPUs are and until when they are protected. ``incarnation`` counts starts from 1.

    The protection is what was granted; the spec says what was asked for, and a start may have been granted less.
    """

    leases: tuple[Lease, ...]
    pool: PoolName
    incarnation: int
    granted_at: Instant
    protected_until: Instant

    @property
    def granted(self) -> Millis:
        """The protection granted, from the start on."""
        return since(self.protected_until, self.granted_at)


__all__ = [
    "DEFAULT_POOL",
    "HOLDING",
    "Allocation",
    "Capacity",
    "CheckpointRef",
    "Drain",
    "Held",
    "Hungry",
    "Kind",
    "Lease",
    "Node",
    "Outcome",
    "Phase",
    "Policy",
    "PreemptReason",
    "Shape",
    "WorkloadId",
    "WorkloadSpec",
]
