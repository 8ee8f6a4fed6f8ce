"""A workload as pages show it: the same in a Jupyter server's panels and on the service's own pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpufair.client.marks import one_of
from gpufair.client.types import STATES, Workload


@dataclass(frozen=True, slots=True)
class Saved:
    """The last checkpoint of a session."""

    id: str
    at_s: float
    size_bytes: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class Hint:
    """What the service suggests to its owner."""

    kind: str
    since_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Missing:
    """A variable that did not come back."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Card:
    """One of somebody's sessions and runs, wherever it was begun. What does not apply is null."""

    workload_id: str
    name: str
    kind: str = field(metadata=one_of("session", "batch"))
    notebook: str
    state: str = field(metadata=one_of(*STATES))
    allocation: str
    gpus: int
    gpu_type: str | None
    node: str | None
    device_ids: tuple[str, ...]
    protected_until_s: float | None
    deadline_s: float | None
    leaving: str | None
    utilization: float | None
    position: int | None
    estimate_s: float | None
    start_by_s: float | None
    reason: str
    withheld: str
    progress: float | None
    checkpoint: Saved | None
    restore_offered: bool
    resumable: bool
    on_cpu: bool
    moving: bool
    suggestion: Hint | None
    not_moved: str | None
    lost: tuple[Missing, ...]


@dataclass(frozen=True, slots=True)
class Cards:
    """The live ones of a user, the newest first."""

    user: str
    sessions: tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class OpenAllocations:
    """Leaves of the budget tree where a user may submit, in its order."""

    user: str
    allocations: tuple[str, ...]


def workload_view(workload: Workload) -> dict[str, Any]:
    """What the service says of a session, in the same words."""
    saved, told = workload.checkpoint, workload.suggestion
    return {
        "workload_id": workload.id,
        "allocation": workload.allocation,
        "gpus": workload.total_gpus,
        "gpu_type": workload.gpu_type or None,
        "node": workload.leases[0].node if workload.leases else None,
        "device_ids": [device for _, device in workload.devices],
        "protected_until_s": workload.protected_until_s,
        "deadline_s": workload.deadline_s,
        "leaving": workload.leaving,
        "utilization": workload.utilization.fraction if workload.utilization is not None else None,
        "position": workload.position,
        "estimate_s": workload.estimate_s,
        "start_by_s": workload.start_by_s,
        "reason": workload.waits_for or workload.reason,
        "withheld": withheld(workload),
        "progress": workload.progress.fraction if workload.progress is not None else None,
        "checkpoint": saved
        and {"id": saved.id, "at_s": saved.at_s, "size_bytes": saved.size_bytes, "duration_s": saved.duration_s},
        "restore_offered": workload.restore_offered,
        "resumable": workload.resumable,
        "on_cpu": workload.on_cpu,
        "moving": moves(workload),
        "suggestion": told and {"kind": told.kind, "since_s": told.since_s, "text": told.text},
        "not_moved": workload.move.failed if workload.move is not None else None,
        "lost": [{"name": name, "reason": reason} for name, reason in workload.lost],
    }


def card(workload: Workload) -> dict[str, Any]:
    """As ``Card``."""
    about = {"state": workload.state, "name": workload.label, "kind": workload.kind, "notebook": workload.notebook}
    return workload_view(workload) | about


def withheld(workload: Workload) -> str:
    """What keeps it out of the queue: others, or the pause before its next attempt; "" if nothing does."""
    if awaited := workload.after + workload.after_any:
        return f"waiting for {awaited[0][:8] if len(awaited) == 1 else f'{len(awaited)} others'} to end"
    if workload.retry_at_s is not None:
        return f"failed, attempt {workload.attempt + 1} of {workload.retries + 1} follows"
    return ""


def moves(workload: Workload) -> bool:
    """Whether it is being moved to a CPU node."""
    return workload.move is not None and workload.move.failed is None
