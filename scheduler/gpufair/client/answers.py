"""The whole answers of the service's routes: what ``types`` and ``insight`` describe, as it lies in the JSON.

The service's OpenAPI document and the front end's types are made of these classes, so each has all the fields that are answered;
``marks`` has what their types do not say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpufair.client.insight import Plan
from gpufair.client.machines import NodeView
from gpufair.client.marks import one_of, parts, sometimes
from gpufair.client.types import CheckedCheckpoint, CheckpointView, PreflightView, Profile, Workload


@dataclass(frozen=True, slots=True)
class Problem:
    """An error, as problem+json (RFC 9457). ``error`` is the name of its kind, ``detail`` the sentence for people."""

    type: str
    title: str
    status: int
    detail: str
    error: str
    line: int | None = field(default=None, metadata=sometimes())  # of a budgets file


@dataclass(frozen=True, slots=True)
class Health:
    """The service answers."""

    ok: bool


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether work can be taken in; ``detail`` says why not."""

    ready: bool
    detail: str = field(default="", metadata=sometimes())


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What of a configuration that was read again is in use now (``changed``), and what needs a restart."""

    file: str
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Workloads:
    """Workloads in the order of submission. ``next`` is the ``cursor`` of the next page; null: there is none.

    Where ``fields`` were asked for, each has those alone.
    """

    workloads: tuple[Workload, ...] = field(metadata=parts())
    next: str | None = None


@dataclass(frozen=True, slots=True)
class QueuedWorkloads:
    """Queued workloads in the order in which they will be served; pages and ``fields`` as in ``Workloads``."""

    now_s: float
    workloads: tuple[Workload, ...] = field(metadata=parts())
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Nodes:
    """Machines by name. ``next`` is the ``cursor`` of the next page; null: there is none."""

    nodes: tuple[NodeView, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Profiles:
    """The named shapes that users start."""

    profiles: tuple[Profile, ...]


@dataclass(frozen=True, slots=True)
class Plans:
    """What is planned, the first first."""

    plans: tuple[Plan, ...]


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Checkpoints that are still there, newest first."""

    checkpoints: tuple[CheckpointView, ...]


@dataclass(frozen=True, slots=True)
class CheckedCheckpoints:
    """Checkpoints that were read from end to end, newest first."""

    checkpoints: tuple[CheckedCheckpoint, ...]


@dataclass(frozen=True, slots=True)
class Removed:
    """Ids of checkpoints that are gone now."""

    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of one cell, as the supervisor recorded it; ``outputs`` are notebook outputs."""

    msg_id: str
    cell_id: str | None
    code_sha256: str | None
    execution_count: int | None
    state: str = field(metadata=one_of("running", "done"))
    status: str | None = field(metadata=one_of("ok", "error", "interrupted"))
    started_s: float
    ended_s: float | None
    again_from: str | None
    outputs: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Executions:
    """Recorded executions, oldest first."""

    executions: tuple[Execution, ...]


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a kernel last said that a checkpoint would be like; null until it was asked."""

    preflight: PreflightView | None


@dataclass(frozen=True, slots=True)
class Conservation:
    """Where every GPU-millisecond went; ``error_gpu_ms`` is 0."""

    capacity_gpu_ms: int
    charged_gpu_ms: int
    unallocated_gpu_ms: int
    held_gpu_ms: int
    idle_gpu_ms: int
    unavailable_gpu_ms: int
    error_gpu_ms: int
    protected_preemptions: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Events and decisions, oldest first: ``at_s``, ``seq``, ``type``, ``kind`` and the fields of that kind.

    ``last`` is the last entry that was looked at; there are ``more`` behind it or not. What was before
    ``archived_until_s`` was moved to an archive file (null: nothing was).
    """

    records: tuple[dict[str, Any], ...]
    last: int
    more: bool
    archived_until_s: float | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole state after the journal's entry ``seq``."""

    seq: int
    at_s: float
    now_s: float
    version: str
    state: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Welcome:
    """To an agent: commands that it has had (``after``), and the workloads that it is expected to run.

    ``proof`` shows that the service knows the node's token. ``epoch``, here and below, is that of the leader: none that is
    lower than one heard before is to be obeyed.
    """

    after: int
    expected: tuple[tuple[str, int], ...]
    proof: str
    epoch: int


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """What `gpufair agent --check` asks for. ``proof`` as in ``Welcome``.

    ``known``: the node is in the configuration, as a remote one. ``heard``: an agent of it has said hello.
    """

    proof: str
    known: bool
    heard: bool
    version: str
    api_version: int
    now_s: float


@dataclass(frozen=True, slots=True)
class Commands:
    """What an agent is to do next."""

    commands: tuple[dict[str, Any], ...]
    epoch: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The number of the last report that is durable: an agent need not send it again."""

    acked: int
    epoch: int
