"""What a policy without a contract keeps of a workload."""

from __future__ import annotations

from dataclasses import dataclass

from gpufair.core.model import CheckpointRef, Held, Outcome, Phase, PreemptReason, WorkloadSpec
from gpufair.core.units import DAY, Instant, Millis, WorkloadId, after

# How long somebody is reckoned to need its GPUs who does not say it.
UNSAID = DAY


@dataclass(slots=True, eq=False)
class Item:
    """One workload. Only its scheduler changes it."""

    id: WorkloadId
    spec: WorkloadSpec
    submitted_at: Instant
    phase: Phase = Phase.QUEUED
    held: Held | None = None
    incarnation: int = 0
    busy: bool = False
    checkpoint: CheckpointRef | None = None
    deadline: Instant | None = None  # by which it must have left
    notice: PreemptReason | None = None  # why it was told to leave
    beneficiary: WorkloadId | None = None  # for whom
    active_at: Instant = Instant(0)  # when it came up, or was last reported busy or idle
    interrupted: bool = False  # somebody waits for it: it is queued again instead of being parked
    parking: bool = False  # its owner wants it parked
    cancelled: bool = False
    withheld: bool = False  # it rests because it must not be queued yet, and was not queued before
    restores: bool = True  # its next start is from its checkpoint
    failures: int = 0  # starts in a row that failed
    used: Millis = Millis(0)  # how long it held its GPUs in earlier starts, as far as that is not lost
    ended_at: Instant | None = None
    exit: tuple[Outcome, str] | None = None
    failure: str = ""  # of the start that has just failed

    @property
    def gpus(self) -> int:
        """GPUs it asked for."""
        return self.spec.shape.gpus

    @property
    def label(self) -> str:
        """What others are told about it."""
        return f"{self.spec.user}'s {self.id[:8]}"

    @property
    def needs(self) -> Millis:
        """How much longer it is reckoned to hold its GPUs from its next start on; at least a moment."""
        said = self.spec.expected
        return Millis(max(1, (UNSAID if said is None else said) - self.used))

    def idle_until(self) -> Instant | None:
        """When it gives its GPUs back if it stays idle; None if it is not idle, or need not."""
        limit = self.spec.idle_release
        if limit is None or self.busy or self.phase is not Phase.RUNNING or not self.gpus:
            return None
        return after(self.active_at, limit)
