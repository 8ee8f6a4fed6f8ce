"""What the service knows of a workload beside the core's facts: nothing here is a reason for any decision.

Kept in the journal's database and committed with the entry that changed it, so that a restarted service can tell at once
where a running kernel listens. Holds no secret.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from gpufair.core.model import CheckpointRef, Outcome

KEPT_CHECKPOINTS = 20
QUEUED_AGAIN: Final = "; it is queued again"  # how a word about the loss of a node ends


@dataclass(frozen=True, slots=True)
class Pending:
    """A user's command that no report has answered yet. It is sent again to an agent that comes back."""

    kind: str  # "save" | "hold" | "restart" | "restore"
    incarnation: int
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Move:
    """The wish to have a session on a CPU node; see ``moving``. ``failed``: why it stayed where it was; "" as long as it holds."""

    at_ms: int
    pools: tuple[str, ...]  # of nodes that may take it
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Busy:
    """How busy one GPU was in the minute that ended at ``at_ms``: a fraction."""

    node: str
    device: str
    fraction: float
    at_ms: int


@dataclass(frozen=True, slots=True)
class Parts:
    """What the nodes of a gang have said of one start: it is up when all are, and gone when all are.

    Kept durably: their agents forget what was acknowledged, and would not say it to the next service again.
    """

    incarnation: int
    up: dict[str, tuple[str, ...]] = field(default_factory=dict)  # node -> devices
    gone: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)  # node -> kind and body of its last report
    # node -> the same of one whose processes have ended, but whose GPUs are not free yet
    said: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether one is gone without which the others only wait. Where one has timed out they are leaving by themselves."""
        return any(kind != "exited" or body["outcome"] == Outcome.FAILED for kind, body in self.gone.values())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Parts:
        """Back from JSON."""
        up = {node: tuple(devices) for node, devices in data["up"].items()}
        gone, said = (
            {node: (str(kind), dict(body)) for node, (kind, body) in data.get(key, {}).items()} for key in ("gone", "said")
        )
        return cls(int(data["incarnation"]), up, gone, said)


@dataclass(frozen=True, slots=True)
class Detail:
    """Of one workload. ``generation`` counts kernel processes within an incarnation."""

    generation: int = 0
    serving: bool = False
    kernel_died: bool = False  # by itself; a restart is awaited
    warning: str = ""  # of its node, about what it does there: it is near its memory limit
    died_of: str = ""  # why its node killed its kernel, until there is another one
    not_restored: str = ""  # why the checkpoint that its owner chose was not loaded, until one is, or another kernel serves
    connection: dict[str, Any] | None = None
    restore_offered: bool = False  # the kernel serves without a checkpoint that exists
    progress: dict[str, Any] | None = None  # {"step", "fraction"}; not durable
    preflight: dict[str, Any] | None = None  # the last answer of its kernel, with "at_s"; not durable
    not_saved: dict[str, Any] | None = None  # {"at_s", "reason"}: the last checkpoint failed, and none came since
    unsaved: tuple[tuple[str, str], ...] = ()  # (cell, reason): what the last stay did and no checkpoint holds
    stand_in: str = ""  # the workload that last ran its kernel on a CPU node; see ``standin``
    move: Move | None = None  # its owner wants it on a CPU node
    unused_since_ms: int = 0  # since when nobody has touched its GPUs; 0: they are used, or nothing is known; not durable
    busy: tuple[Busy, ...] = ()  # the last that was measured of each of its GPUs; not durable
    stays: bool = False  # its owner wants no suggestion to move until it starts anew
    up_at_ms: int = 0  # since when it is up in this start; 0: it is not
    retries: int = 0  # how often it was started again after a failure
    retry_at_ms: int = 0  # when that is due next; see ``retries``
    ran_ms: int = 0  # how long it was up in the starts that are over
    after: tuple[str, ...] = ()  # workloads that have to end well before it is queued; see ``dependencies``
    after_any: tuple[str, ...] = ()  # those that have to end
    pending: tuple[Pending, ...] = ()
    parts: Parts | None = None  # of a gang that is coming up, or ending
    checkpoints: tuple[dict[str, Any], ...] = ()  # as in the API, oldest first

    @property
    def awaited(self) -> tuple[str, ...]:
        """All that have to end before it is queued."""
        return self.after + self.after_any

    @property
    def remark(self) -> str:
        """What its owner should know of how it fares on its node."""
        return self.died_of or self.not_restored or self.warning

    @property
    def rests(self) -> bool:
        """Whether it is withheld from the queue."""
        return bool(self.awaited or self.retry_at_ms)

    @property
    def moves(self) -> bool:
        """Whether it is to be moved to a CPU node."""
        return self.move is not None and not self.move.failed

    def to_dict(self) -> dict[str, Any]:
        """What is kept durably."""
        kept = asdict(self)
        kept["progress"] = kept["preflight"] = None
        kept["unused_since_ms"] = 0
        kept["busy"] = ()
        return kept

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Detail:
        """Back from ``to_dict``; fields of other versions are left out."""
        known = {f.name for f in fields(cls)}
        values = {key: value for key, value in data.items() if key in known}
        values["pending"] = tuple(Pending(**item) for item in values.get("pending") or ())
        if (move := values.get("move")) is not None:
            values["move"] = Move(int(move["at_ms"]), tuple(move["pools"]), str(move["failed"]))
        if (parts := values.get("parts")) is not None:
            values["parts"] = Parts.from_dict(parts)
        values["unsaved"] = tuple((str(cell), str(reason)) for cell, reason in values.get("unsaved") or ())
        for key in ("checkpoints", "after", "after_any"):
            values[key] = tuple(values.get(key) or ())
        values["busy"] = ()
        return cls(**values)


def checkpoint_dict(checkpoint: CheckpointRef) -> dict[str, Any]:
    """A checkpoint as the API shows it."""
    return {
        "id": checkpoint.id,
        "sequence": checkpoint.sequence,
        "at_s": checkpoint.at / 1000,
        "size_bytes": checkpoint.size_bytes,
        "duration_s": checkpoint.duration / 1000,
        "lost": [list(pair) for pair in checkpoint.lost],
    }
