"""What the service answers, typed: the one definition that Jupyter, the CLI and tests share.

Instants are Unix seconds (``_s``), GPU time is GPU-seconds, sizes are bytes. Readers are lenient so that an older client
understands a newer service: unknown fields are dropped, absent ones take their default, but a field of the wrong type
is a ``BadAnswer`` that names it.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from gpufair.client.errors import BadAnswer

Answer = TypeVar("Answer")

LIVE_STATES = ("queued", "starting", "restoring", "running", "checkpointing", "stopping", "parked")


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
class ProgressView:
    """How far a step has come; ``fraction`` in [0, 1]."""

    step: str
    fraction: float = 0.0


@dataclass(frozen=True, slots=True)
class Workload:
    """A session or batch workload, as the service knows it now."""

    id: str
    state: str  # one of LIVE_STATES, or "ended"
    name: str = ""
    kind: str = "session"
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
    min_runtime_s: float = 0.0
    resumable: bool = True
    priority: int = 0
    expected_s: float | None = None  # how long it needs its GPUs in all, as its owner said
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
    position: int | None = None  # in the queue, from 1
    estimate_s: float | None = None  # when it may start: an estimate, not a promise
    waits_for: str = ""  # while queued: what stands in its way, and how it came to wait
    reason: str = ""  # what was last decided about it
    busy: bool = False
    beneficiary: str | None = None  # who gets its GPUs
    checkpoint: CheckpointView | None = None
    lost: tuple[tuple[str, str], ...] = ()  # what the last restore could not bring back
    restore_offered: bool = False
    serving: bool = False
    kernel_died: bool = False  # the kernel process of this generation died; `restart` is awaited
    outcome: str | None = None
    ended_s: float | None = None
    charged_gpu_s: float = 0.0
    notebook: str = ""  # absolute path
    kernel_name: str = ""
    progress: ProgressView | None = None

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
    mode: str = ""  # "embedded" | "shared"
    state_dir: str = ""
    user: str = ""  # whom the service takes the caller for
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
    metric: float | None = None
    gpus_held: int = 0
    gpus_queued: int = 0


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budget tree, parents before children, over the lookback window."""

    allocations: tuple[AllocationView, ...] = ()
    window_s: float = 0.0
    capacity_gpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeView:
    """A machine of the service."""

    name: str
    pool: str = "default"
    gpus: int = 0
    gpu_type: str = ""
    free_gpus: int = 0
    state: str = "ready"  # "ready" | "cordoned" | "lost"
    cordoned: bool = False
    workloads: tuple[str, ...] = ()
    last_seen_s: float | None = None
    labels: dict[str, str] = field(default_factory=dict)
    cpus: int | None = None  # None: not counted here
    memory_bytes: int | None = None


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
    cpus: int = 0  # per node, as is memory
    memory_bytes: int = 0
    within: str = ""  # a label of which all its nodes have one value
    exclude: tuple[str, ...] = ()  # nodes that it is never put on
    where: dict[str, str] = field(default_factory=dict)  # labels that its nodes have


@dataclass(frozen=True, slots=True)
class Side:
    """One side of the deciding comparison: metric = (occupancy + commitment) / budget."""

    allocation: str
    occupancy_gpu_s: float = 0.0
    commitment_gpu_s: float = 0.0
    budget_gpu_s: float = 0.0
    metric: float | None = None


@dataclass(frozen=True, slots=True)
class HolderView:
    """Who has GPUs that the asker could use, and until when they are protected."""

    workload: str
    user: str = ""
    allocation: str = ""
    gpus: int = 0
    leases: tuple[LeaseView, ...] = ()
    until_s: float | None = None
    protected: bool = False


@dataclass(frozen=True, slots=True)
class StartTime:
    """When it will start. ``kind`` "start_by" is binding, "estimate" is not."""

    kind: str = "estimate"
    at_s: float | None = None
    because: str = ""


@dataclass(frozen=True, slots=True)
class SmallestChange:
    """The least that would start it now: a sentence, and the fields of the submission to change."""

    text: str = ""
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a workload is where it is, computed from the same state as the decision."""

    workload: str
    sentence: str
    state: str = ""
    position: int | None = None
    queued: int | None = None  # how many are in the queue
    level: str | None = None  # the tree level that decided ("" is the root)
    mine: Side | None = None
    other: Side | None = None
    holders: tuple[HolderView, ...] = ()
    start: StartTime | None = None
    change: SmallestChange | None = None


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a workload's kernel. ``key`` is secret, so it is kept out of ``repr``."""

    key: str = field(repr=False, default="")
    generation: int = 0
    serving: bool = False
    connection: dict[str, Any] = field(default_factory=dict)


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    return get_type_hints(cls)


def read(cls: type[Answer], data: object) -> Answer:
    """``data`` as ``cls``.

    Raises:
        BadAnswer: It is no object, a required field is missing, or a field has the wrong type.
    """
    if not isinstance(data, dict):
        raise BadAnswer(f"{cls.__name__}: expected an object, got {type(data).__name__}")
    values: dict[str, Any] = {}
    hints = _hints(cls)  # type: ignore[arg-type]  # mypy doubts that a class is hashable
    for f in fields(cls):  # type: ignore[arg-type]  # every answer is a dataclass
        value = data.get(f.name)
        required = f.default is MISSING and f.default_factory is MISSING
        if value is None:
            if required:
                raise BadAnswer(f"{cls.__name__}: field {f.name!r} is missing")
            continue  # null and absent both mean "does not apply": the default says how that looks
        values[f.name] = _typed(f"{cls.__name__}.{f.name}", hints[f.name], value)
    return cls(**values)


def read_list(cls: type[Answer], data: object, key: str) -> tuple[Answer, ...]:
    """The objects in ``data[key]``."""
    if not isinstance(data, dict) or not isinstance(data.get(key), list):
        raise BadAnswer(f"expected an object with a list {key!r}, got {str(data)[:80]!r}")
    return tuple(read(cls, item) for item in data[key])


def _typed(where: str, hint: Any, value: object) -> object:
    if isinstance(hint, UnionType):
        return _union(where, hint, value)
    origin = get_origin(hint)
    if (hasattr(hint, "__dataclass_fields__") or origin is dict) and not isinstance(value, dict):
        raise BadAnswer(f"{where}: expected an object, got {type(value).__name__}")
    if hasattr(hint, "__dataclass_fields__"):
        return read(hint, value)
    if origin is tuple:
        return _tuple(where, get_args(hint), value)
    if origin is dict:
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise BadAnswer(f"{where}: expected {hint.__name__}, got {type(value).__name__}")
    return value


def _union(where: str, hint: UnionType, value: object) -> object:
    last = BadAnswer(f"{where}: unexpected {type(value).__name__}")
    for choice in get_args(hint):
        if choice is NoneType:
            continue
        try:
            return _typed(where, choice, value)
        except BadAnswer as err:
            last = err
    raise last


def _tuple(where: str, args: tuple[Any, ...], value: object) -> tuple[object, ...]:
    if not isinstance(value, list | tuple):
        raise BadAnswer(f"{where}: expected a list, got {type(value).__name__}")
    if args[-1] is Ellipsis:
        return tuple(_typed(f"{where}[{i}]", args[0], item) for i, item in enumerate(value))
    if len(value) != len(args):
        raise BadAnswer(f"{where}: expected {len(args)} items, got {len(value)}")
    return tuple(_typed(f"{where}[{i}]", arg, item) for i, (arg, item) in enumerate(zip(args, value, strict=True)))
