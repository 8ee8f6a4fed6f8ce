"""What the service answers, typed: the one definition that Jupyter, the CLI and tests share.

Instants are Unix seconds (``_s``), GPU time is GPU-seconds, sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from gpufair.client.marks import one_of, sometimes

LIVE_STATES = ("queued", "starting", "restoring", "running", "checkpointing", "stopping", "parked")
STATES = (*LIVE_STATES, "ended")


@dataclass(frozen=True, slots=True)
class LeaseView:
    """GPUs held on one node."""

    node: str
    gpus: int


@dataclass(frozen=True, slots=True)
class CheckpointView:
    """A durable checkpoint. ``lost``: (variable, reason) pairs that it does not hold."""

    id: str
    sequence: int
    at_s: float
    size_bytes: int = 0
    duration_s: float = 0.0
    lost: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CheckedCheckpoint:
    """A checkpoint that was read from end to end; ``reason`` says what is wrong with one that is not ``ok``.

    ``stored_bytes``: its files, those that it shares with others included. ``torn``: why its values may not belong together.
    """

    id: str
    ok: bool
    reason: str = ""
    sequence: int = 0
    created_s: float = 0.0
    size_bytes: int = 0
    stored_bytes: int = 0
    saved: int = 0
    torn: str = ""
    encrypted: bool = False


@dataclass(frozen=True, slots=True)
class LogPage:
    """A piece of what a command wrote. ``after``: where the next one begins, in bytes of ``size_bytes``.

    ``ended``: the command had ended before this was read, so nothing is written any more.
    """

    text: str
    after: int
    size_bytes: int = 0
    ranks: tuple[int, ...] = ()  # of the nodes that wrote any
    ended: bool = False


@dataclass(frozen=True, slots=True)
class NotSaved:
    """Why the last checkpoint failed, where none came since."""

    at_s: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ProgressView:
    """How far a step has come; ``fraction`` in [0, 1]."""

    step: str
    fraction: float = 0.0


@dataclass(frozen=True, slots=True)
class UtilizationView:
    """How busy the GPUs of a workload were in the minute that ended at ``at_s``.

    ``fraction``: their mean. ``gpus``: (node, device, fraction) of each that was measured.
    """

    at_s: float
    fraction: float
    gpus: tuple[tuple[str, str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class VerdictView:
    """Of one variable: ``state`` is green (comes back), amber (look at the reason) or red (would be lost)."""

    name: str
    state: str
    kind: str = ""
    size_bytes: float = 0.0
    seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MoveView:
    """A session that is being moved to a CPU node, or (``failed`` says why) was asked to and stayed."""

    at_s: float
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class SuggestionView:
    """What its owner may want to do about a session."""

    kind: str  # "move_to_cpu": it holds GPUs and does not use them
    since_s: float
    text: str


@dataclass(frozen=True, slots=True)
class PreflightView:
    """What a checkpoint would be like; ``variables`` (the worst first) only where it is asked for by itself."""

    at_s: float
    parkable: bool
    reason: str = field(default="", metadata=sometimes())  # why nothing could be found out
    size_bytes: float = field(default=0.0, metadata=sometimes())
    seconds: float = field(default=0.0, metadata=sometimes())
    bytes_per_s: float = field(default=0.0, metadata=sometimes())
    measured: bool = field(default=False, metadata=sometimes())
    taken_s: float = field(default=0.0, metadata=sometimes())
    left_out: float = field(default=0.0, metadata=sometimes())
    variables: tuple[VerdictView, ...] | None = field(default=None, metadata=sometimes())


@dataclass(frozen=True, slots=True)
class Workload:
    """A session or batch workload, as the service knows it now."""

    id: str
    state: str = field(metadata=one_of(*STATES))
    name: str = ""
    kind: str = field(default="session", metadata=one_of("session", "batch"))
    user: str = ""
    allocation: str = ""
    gpus: int = 0  # per node
    nodes: int = 1
    gpu_type: str = ""
    cpus: int = 0  # per node, as is memory
    memory_bytes: int = 0
    within: str = ""  # a label of which all its nodes have one value
    exclude: tuple[str, ...] = ()  # nodes that it is never put on
    where: dict[str, str] = field(default_factory=dict)  # labels that its nodes have
    pools: tuple[str, ...] = ()  # that it accepts, in order
    pool: str | None = None  # where it has its place
    min_runtime_s: float = 0.0
    resumable: bool = True
    movable: bool = False  # its owner allows it to be moved off a node that is to be emptied, though it is protected
    priority: int = 0
    expected_s: float | None = None  # how long it needs its GPUs in all, as its owner said
    idle_release_s: float | None = None  # without a running cell for so long a session gives its GPUs back
    submitted_s: float = 0.0
    incarnation: int = 0  # count of its starts on a node
    generation: int = 0  # count of its kernel processes
    starts: int = 0
    preemptions: int = 0
    leases: tuple[LeaseView, ...] = ()
    devices: tuple[tuple[str, str], ...] = ()  # (node, device id)
    granted_s: float | None = None
    protected_until_s: float | None = None
    deadline_s: float | None = None  # of the checkpoint in progress
    leaving: str | None = None  # why it gives its GPUs back: park, idle, shutdown (its own wish), rank, landing, …
    position: int | None = None  # in the queue, from 1
    estimate_s: float | None = None  # when it may start: an estimate, not a promise
    start_by_s: float | None = None  # until when it starts at the latest: binding, since it owns a landing
    waits_for: str = ""  # while queued: what stands in its way, and how it came to wait
    attempt: int = 1  # the one that runs, or was the last one
    retries: int = 0  # how often it is started again when it fails
    retry_at_s: float | None = None  # it has failed, and is queued again then
    timeout_s: float | None = None  # how long it may run, over all of its starts
    after: tuple[str, ...] = ()  # workloads that have to end well before it is queued; those that have are left out
    after_any: tuple[str, ...] = ()  # and those that have to end in whatever way
    reason: str = ""  # what was last decided about it; while there is a remark, that
    remark: str = ""  # of its node: near its memory limit, killed, or a checkpoint not restored
    busy: bool = False
    beneficiary: str | None = None  # who gets its GPUs
    checkpoint: CheckpointView | None = None
    lost: tuple[tuple[str, str], ...] = ()  # what the last restore could not bring back
    restore_offered: bool = False
    serving: bool = False
    kernel_died: bool = False  # the kernel process of this generation died; `restart` is awaited
    outcome: str | None = field(default=None, metadata=one_of("completed", "failed", "cancelled", "timed out"))
    ended_s: float | None = None
    charged_gpu_s: float = 0.0
    notebook: str = ""  # absolute path
    kernel_name: str = ""
    on_cpu: bool = False  # it has no GPUs, and is open on a CPU node meanwhile
    not_saved: NotSaved | None = None
    move: MoveView | None = None  # to a CPU node, as its owner wished
    suggestion: SuggestionView | None = None
    progress: ProgressView | None = None
    utilization: UtilizationView | None = None  # unknown where it is not measured; events do not tell of it, answers do
    preflight: PreflightView | None = None
    warnings: tuple[str, ...] = field(default=(), metadata=sometimes())  # about the submission; only its answer has them

    @property
    def live(self) -> bool:
        """Not over yet."""
        return self.state != "ended"

    @property
    def total_gpus(self) -> int:
        """GPUs asked for, over all its nodes."""
        return self.gpus * self.nodes

    @property
    def label(self) -> str:
        """How people call it: its name, else its notebook's file, else the start of its id."""
        return self.name or PurePath(self.notebook).name or self.id[:8]


@dataclass(frozen=True, slots=True)
class GpuCount:
    """GPUs of all nodes that are there."""

    total: int = 0
    free: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """The service about itself."""

    version: str
    api_version: int = 1
    pid: int = 0
    started_s: float = 0.0
    now_s: float = 0.0
    mode: str = field(default="", metadata=one_of("embedded", "shared"))
    state_dir: str = ""
    user: str = ""  # whom the service takes the caller for
    operator: bool = False
    nodes: int = 0
    gpus: GpuCount = field(default_factory=GpuCount)
    counts: dict[str, int] = field(default_factory=dict)  # workloads by state
    holders: int = 0  # Jupyter servers connected
    linger_s: float | None = None
    linger_until_s: float | None = None  # when an embedded service that nobody holds parks everything and ends


@dataclass(frozen=True, slots=True)
class Queue:
    """Queued workloads in the order in which they will be served."""

    workloads: tuple[Workload, ...] = ()
    now_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AllocationInPool:
    """The part of an ``AllocationView`` in one pool, which has a ledger of its own; ``metric`` is what it is compared by."""

    pool: str
    budget_gpu_s: float = 0.0
    occupancy_gpu_s: float = 0.0
    commitment_gpu_s: float = 0.0
    owed_gpu_s: float = 0.0
    due_gpu_s: float = 0.0
    metric: float | None = None
    gpus_held: int = 0
    gpus_queued: int = 0
    gpus_wanted: int = 0


@dataclass(frozen=True, slots=True)
class AllocationView:
    """A node of the budget tree. ``entitlement`` is a fraction of the whole; ``metric`` < 1 is under-served."""

    path: str
    share: str | float = "1"
    members: tuple[str, ...] = ()
    leaf: bool = True
    entitlement: float = 0.0
    budget_gpu_s: float = 0.0
    occupancy_gpu_s: float = 0.0
    commitment_gpu_s: float = 0.0
    owed_gpu_s: float = 0.0
    due_gpu_s: float = 0.0
    metric: float | None = None
    gpus_held: int = 0
    gpus_queued: int = 0
    gpus_wanted: int = 0  # that run, and that wait and could be started
    pools: tuple[AllocationInPool, ...] = ()


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budget tree, parents before children, over the lookback window."""

    allocations: tuple[AllocationView, ...] = ()
    window_s: float = 0.0
    banking: float = 1.0  # how much of the time that nobody asked for is kept as credit
    capacity_gpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """A named shape that users start; each one is a kernelspec in Jupyter."""

    name: str
    display_name: str = ""
    gpus: int = 0
    nodes: int = 1
    gpu_type: str = ""
    allocation: str = ""
    min_runtime_s: float = 0.0
    kind: str = "session"
    priority: int = 0
    expected_s: float | None = None
    idle_release_s: float | None = None  # without a running cell for so long a session gives its GPUs back
    movable: bool = False  # its owner allows it to be moved off a node that is to be emptied, though it is protected
    cpus: int = 0  # per node, as is memory
    memory_bytes: int = 0
    within: str = ""  # a label of which all its nodes have one value
    exclude: tuple[str, ...] = ()  # nodes that it is never put on
    where: dict[str, str] = field(default_factory=dict)  # labels that its nodes have
    pools: tuple[str, ...] = ()  # that it accepts, in order; none: all that could hold it


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a workload's kernel. ``key`` is secret, so it is kept out of ``repr``."""

    key: str = field(repr=False, default="")
    incarnation: int = 0
    generation: int = 0
    serving: bool = False
    connection: dict[str, Any] = field(default_factory=dict)
