"""Why a workload or an allocation is where it is, as the service answers it.

Instants are Unix seconds (``_s``), GPU time is GPU-seconds, sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpufair.client.marks import one_of
from gpufair.client.types import LeaseView


@dataclass(frozen=True, slots=True)
class Side:
    """One side of the deciding comparison: metric = (occupancy + commitment) / due."""

    allocation: str
    occupancy_gpu_s: float = 0.0
    commitment_gpu_s: float = 0.0
    budget_gpu_s: float = 0.0
    owed_gpu_s: float = 0.0
    due_gpu_s: float = 0.0  # what it was entitled to, as far as it asked for it (see `banking`)
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
    preemptible_now: bool = False


@dataclass(frozen=True, slots=True)
class StartTime:
    """When it will start. ``kind`` "start_by" is binding, "estimate" is not."""

    kind: str = field(default="estimate", metadata=one_of("estimate", "start_by"))
    at_s: float | None = None
    because: str = ""


@dataclass(frozen=True, slots=True)
class SmallestChange:
    """The least that would start it now: a sentence, and the fields of the whole wish as it would be then.

    ``amend`` is what ``Client.amend`` has to be given to make it, ``at_s`` when it would start at the latest, and
    ``costs`` what its owner would give up.
    """

    text: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    amend: dict[str, Any] = field(default_factory=dict)
    at_s: float | None = None
    costs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ThreatView:
    """Who of those that wait could preempt it first, by which right, from when on, and the work it would lose."""

    by: str
    right: str = ""
    earliest_s: float | None = None
    loses_gpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PreemptionView:
    """For whom it lost its GPUs the last time, by which right, and the sentence of the decision."""

    by: str
    right: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a workload is where it is, computed from the same state as the decision."""

    workload: str
    sentence: str
    pool: str = ""  # where it has its place, or is tried first; "" where there is only one
    state: str = ""
    position: int | None = None
    queued: int | None = None  # how many are in the queue
    level: str | None = None  # the tree level that decided ("" is the root)
    mine: Side | None = None
    other: Side | None = None
    holders: tuple[HolderView, ...] = ()
    start: StartTime | None = None
    change: SmallestChange | None = None
    threat: ThreatView | None = None
    preempted: PreemptionView | None = None


@dataclass(frozen=True, slots=True)
class LevelView:
    """A step of the walk from the root: the children of ``parent``, the most under-served first."""

    parent: str
    path: str  # the one on the way
    place: int = 1
    siblings: tuple[Side, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolStanding:
    """How an allocation stands in one pool."""

    pool: str
    sentence: str = ""
    levels: tuple[LevelView, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocationExplanation:
    """How an allocation stands among its siblings, from the root down to it."""

    allocation: str
    pools: tuple[PoolStanding, ...] = ()
