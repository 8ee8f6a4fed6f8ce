"""What the routes under ``/gpufair/`` answer, where it is not the service's own answer: the front end's types are made of these.

Instants are Unix seconds (``_s``), sizes are bytes; null means that it does not apply.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpufair.client.answers import Execution
from gpufair.client.marks import one_of
from gpufair.client.overview import Hint, Missing, Saved
from gpufair.client.types import STATES


@dataclass(frozen=True, slots=True)
class Session:
    """A kernel of the scheduler: of REST, of events, and of ``gpufair`` in Jupyter's own kernel models."""

    kernel_id: str
    workload_id: str
    state: str = field(metadata=one_of(*STATES))
    allocation: str
    gpus: int  # on all nodes
    gpu_type: str | None
    node: str | None
    device_ids: tuple[str, ...]
    protected_until_s: float | None  # until then nobody may take the GPUs away
    deadline_s: float | None  # until then it has to have given its GPUs back, while it does
    leaving: str | None  # why: `park`, `idle` and `shutdown` are no surprise, `rank`, `landing`, `drain` and others are
    utilization: float | None  # how busy its GPUs were in the last minute, from 0 to 1; null where nobody measured it
    position: int | None  # in the queue, from 1
    estimate_s: float | None  # when it is expected to start
    start_by_s: float | None  # by when it starts at the latest: a promise, where there is one
    reason: str  # one sentence: why it waits, or what happened
    withheld: str  # a few words: what keeps it out of the queue
    held_cells: int  # sent while no kernel ran; they run when one does
    progress: float | None  # from 0 to 1, how far it has come with what it is doing
    checkpoint: Saved | None
    restore_offered: bool
    resumable: bool  # its variables can be saved when it has to make room
    on_cpu: bool  # it has no GPUs, and is open on a CPU node meanwhile
    moving: bool  # to a CPU node: it is saved, and opened there
    suggestion: Hint | None
    not_moved: str | None  # why not, though its owner asked for it
    lost: tuple[Missing, ...]


@dataclass(frozen=True, slots=True)
class MySession(Session):
    """A live session or run of the reader's, of any server. ``path``: of its notebook, below this server's root."""

    name: str
    kind: str = field(metadata=one_of("session", "batch"))
    notebook: str  # absolute, where it is
    here: bool  # this server has its kernel
    path: str | None


@dataclass(frozen=True, slots=True)
class MySessions:
    """The newest first."""

    sessions: tuple[MySession, ...]


@dataclass(frozen=True, slots=True)
class Outputs:
    """What the supervisor recorded under a notebook's cells, in the order in which they were sent."""

    executions: tuple[Execution, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that is not answered yet, whoever sent it."""

    msg_id: str
    cell_id: str | None
    state: str = field(metadata=one_of("sent", "held"))


@dataclass(frozen=True, slots=True)
class Cells:
    """In the order in which they run."""

    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Trace(Saved):
    """A checkpoint that is still there, with what it does not hold."""

    lost: tuple[Missing, ...]


@dataclass(frozen=True, slots=True)
class Traces:
    """The newest first."""

    checkpoints: tuple[Trace, ...]


@dataclass(frozen=True, slots=True)
class Log:
    """The end of what was written. `after` is to be asked for the next time.

    `text` begins at `start`: where that is not what was asked for, it takes the place of all that was had.
    """

    text: str
    start: int
    after: int
    ended: bool


@dataclass(frozen=True, slots=True)
class PlayedWaits:
    """How long workloads waited: half of them no longer than ``p50``. Null where nobody waited."""

    p50: float | None
    p90: float | None
    max: float | None


@dataclass(frozen=True, slots=True)
class PlayedFigures:
    """How an allocation fares in hours that are played."""

    entitlement: float
    gpus_held: float
    delivered_gpu_s: float
    unallocated_gpu_s: float
    wait_s: PlayedWaits
    waits: int
    still_waiting: int
    preemptions: int
    metric: float | None


@dataclass(frozen=True, slots=True)
class PlayedAllocation:
    """As it is and as it would be; ``after`` is null where the allocation would be none any more."""

    path: str
    verdict: str = field(metadata=one_of("gains", "loses", ""))
    before: PlayedFigures
    after: PlayedFigures | None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Hours that were played twice: as it is, and with other budgets."""

    now_s: float
    until_s: float
    arrivals: int
    protected: int
    protections_kept: int
    protected_preemptions: int  # while it was played: none, or there is a bug
    allocations: tuple[PlayedAllocation, ...]
