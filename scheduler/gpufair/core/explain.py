"""Why a workload is where it is, computed from the same state that decided."""

from __future__ import annotations

from dataclasses import dataclass

from gpufair.core.facts import Facts
from gpufair.core.model import Phase, Shape
from gpufair.core.order import queue
from gpufair.core.record import Record
from gpufair.core.share import Standing
from gpufair.core.units import AllocationPath, Instant, Millis, NodeName, WorkloadId


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody who holds GPUs that the workload could use."""

    workload: WorkloadId
    user: str
    allocation: AllocationPath
    node: NodeName
    gpus: int
    protected_until: Instant
    preemptible_now: bool  # by the workload that is explained


@dataclass(frozen=True, slots=True)
class Change:
    """A smaller wish that would start now: cancelling this workload and submitting it so starts it at once."""

    shape: Shape
    min_runtime: Millis
    sentence: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a workload is where it is. ``position`` counts from 1; None where it does not wait."""

    workload: WorkloadId
    phase: Phase
    position: int | None
    sentence: str
    level: tuple[AllocationPath, AllocationPath] | None = None  # the siblings that decided: mine, theirs
    mine: Standing | None = None
    theirs: Standing | None = None
    holders: tuple[Holder, ...] = ()
    estimate: Instant | None = None
    estimate_basis: str = ""
    binding: bool = False  # start-by times that hold come with landings
    smallest_change: Change | None = None


def explain(facts: Facts, record: Record) -> Explanation:
    """Explain one workload."""
    position = queue(facts).index(record.id) + 1 if record.phase is Phase.QUEUED else None
    return Explanation(record.id, record.phase, position, record.reason)
