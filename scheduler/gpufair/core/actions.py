"""Decisions that leave the core, in the imperative. They are journalled beside the event that caused them, and a
restart applies them as recorded: it never decides again.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpufair.core.model import Held, Lease, Outcome, PreemptReason
from gpufair.core.units import CauseId, Instant, Millis, PoolName, WorkloadId


@dataclass(frozen=True, slots=True)
class Action:
    """Base of all actions."""

    cause: CauseId
    workload: WorkloadId


@dataclass(frozen=True, slots=True)
class Start(Action):
    """Start it on these leases; from ``checkpoint`` (an id) if one is named."""

    held: Held
    checkpoint: str | None
    why: str  # the deciding comparison, one sentence


@dataclass(frozen=True, slots=True)
class Reserve(Action):
    """Hold these GPUs for a queued workload while its victims release theirs. Nobody else gets them.

    ``ends`` is when its protection will have ended, where that matters: it must start early enough for that.
    """

    leases: tuple[Lease, ...]
    pool: PoolName
    victims: tuple[WorkloadId, ...]
    why: str
    debug: bool = False  # under the debug right: it counts against its bounds until it has left again
    ends: Instant | None = None


@dataclass(frozen=True, slots=True)
class Unreserve(Action):
    """The reservation is void (its owner was cancelled or parked, or its nodes were lost)."""


@dataclass(frozen=True, slots=True)
class GrantLanding(Action):
    """A blocked workload will start on these GPUs at ``at``, or earlier, and by ``start_by`` at the latest.

    Granted again when ``at`` can be earlier than it was. ``staying`` are those there, with their incarnations, who need not leave for it; ``grace`` is the longest that one
    who must leave may take.
    """

    leases: tuple[Lease, ...]
    pool: PoolName
    at: Instant
    start_by: Instant
    grace: Millis
    staying: tuple[tuple[WorkloadId, int], ...]
    why: str


@dataclass(frozen=True, slots=True)
class DropLanding(Action):
    """A landing that cannot come true: its start-by time does not hold."""

    why: str


@dataclass(frozen=True, slots=True)
class Extend(Action):
    """It is protected longer: until ``protected_until``, never less than before."""

    incarnation: int
    protected_until: Instant
    why: str


@dataclass(frozen=True, slots=True)
class BeginCheckpoint(Action):
    """Give notice: checkpoint and stop by ``deadline``. ``beneficiary`` is who starts on the freed GPUs."""

    incarnation: int
    deadline: Instant
    reason: PreemptReason
    beneficiary: WorkloadId | None
    why: str


@dataclass(frozen=True, slots=True)
class Stop(Action):
    """Stop it now, without (further) checkpoint: cancelled, or the deadline has passed."""

    incarnation: int
    why: str


@dataclass(frozen=True, slots=True)
class Requeue(Action):
    """Back into the queue, exactly once, with its first submission time."""

    why: str


@dataclass(frozen=True, slots=True)
class Park(Action):
    """A session rests without GPUs until its owner touches it."""

    why: str


@dataclass(frozen=True, slots=True)
class End(Action):
    """It is over."""

    outcome: Outcome
    why: str
