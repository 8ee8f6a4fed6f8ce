"""What somebody wants to run: a submission, and what would happen if it had its GPUs all the time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpufair.core.model import Outcome, WorkloadSpec
from gpufair.core.units import Instant, Millis, WorkloadId


class JobKind(StrEnum):
    """What a job is to whoever waits for it; waits are told apart by it."""

    DEBUG = "debug"  # short and small: somebody looks at the screen
    SESSION = "session"  # a notebook: cells, and thought between them
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Burst:
    """Cells that run, and then none: ``work`` on the GPUs, followed by ``thought`` of its user."""

    work: Millis
    thought: Millis


@dataclass(frozen=True, slots=True)
class Job:
    """A submission of the past, or a constructed one.

    Args:
        id: Unique in its scenario; it becomes the workload's id.
        submit: When it is submitted.
        work: How long it runs on its GPUs in all, queueing, launch, saving and restoring aside. Of a session: the sum
            of its bursts' work.
        spec: What is submitted.
        kind: For the figures.
        state_gib: Size of what a checkpoint must save, in GiB.
        bursts: Of a session: what its user does; the last one's thought ends it. Empty for everything else.
        outcome: How it ends when its work is done. A failed or cancelled job held its GPUs as well.
    """

    id: WorkloadId
    submit: Instant
    work: Millis
    spec: WorkloadSpec
    kind: JobKind = JobKind.BATCH
    state_gib: float = 1.0
    bursts: tuple[Burst, ...] = ()
    outcome: Outcome = Outcome.COMPLETED

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.spec.shape.gpus
