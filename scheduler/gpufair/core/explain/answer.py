"""What an explanation consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gpufair.core.change import Change
from gpufair.core.model import Phase, PreemptReason
from gpufair.core.share import Standing
from gpufair.core.units import AllocationPath, GpuMillis, Instant, NodeName, WorkloadId


class Holder(NamedTuple):
    """Somebody who holds GPUs that the workload could use. A large cluster has a thousand of them."""

    workload: WorkloadId
    user: str
    allocation: AllocationPath
    node: NodeName
    gpus: int
    protected_until: Instant
    preemptible_now: bool  # by the workload that is explained, were this enough for it


@dataclass(frozen=True, slots=True)
class Threat:
    """The first of those who wait that could preempt a workload, as things are now, and by which right.

    Args:
        by: Who.
        right: By which right.
        earliest: When at the earliest: now, or at the end of the protection.
        loses: GPU time of work that the workload would lose then, if it could not save any more.
    """

    by: WorkloadId
    right: PreemptReason
    earliest: Instant
    loses: GpuMillis


@dataclass(frozen=True, slots=True)
class Preemption:
    """How a workload lost its GPUs the last time: for whom, by which right, and the sentence of the decision."""

    by: WorkloadId
    right: PreemptReason
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a workload is where it is. ``position`` counts from 1; None where it does not wait.

    ``mine`` counts what a start would promise the workload, as the rule of preemption does.
    """

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
    binding: bool = False
    smallest_change: Change | None = None
    threat: Threat | None = None
    preempted: Preemption | None = None
