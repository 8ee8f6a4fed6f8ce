"""What follows from the facts of one workload, whoever else waits: the part of a decision without any comparison."""

from __future__ import annotations

from typing import Final

from gpufair.core import words
from gpufair.core.actions import Action, BeginCheckpoint, End, Extend, Park, Requeue, Stop
from gpufair.core.facts import STAYING, Facts
from gpufair.core.model import HOLDING, Kind, Outcome, Phase, PreemptReason
from gpufair.core.record import Record
from gpufair.core.sessions import extended_until
from gpufair.core.units import CauseId

# A node that fails to start something is often broken; three more tries find another node or show that it is the spec.
MAX_START_FAILURES: Final = 3

MOVES: Final = frozenset({PreemptReason.FORCED, PreemptReason.MOVED, PreemptReason.CONSOLIDATION})


def settle(facts: Facts, record: Record, cause: CauseId) -> Action | None:
    """The one action that brings a workload's phase in line with its facts; None if it is."""
    phase = record.phase
    if phase in HOLDING:
        if record.held is None:
            return _after_release(facts, record, cause)
        return _while_holding(facts, record, cause)
    if phase is Phase.ENDED:
        return None
    if record.cancelled:
        why = record.cancelled_why or "cancelled before it held any GPUs"
        return End(cause, record.id, Outcome.CANCELLED, why)
    if phase is Phase.QUEUED and record.parking is not None:
        return Park(cause, record.id, "parked while it was waiting")
    if phase is Phase.PARKED and record.touched:
        why = "waiting for its turn" if record.withheld else "its owner wants it back"
        return Requeue(cause, record.id, why)
    return None


def _while_holding(facts: Facts, record: Record, cause: CauseId) -> Action | None:
    held = record.held
    assert held is not None
    if record.phase is Phase.STOPPING:
        return None
    if record.cancelled:
        return Stop(cause, record.id, held.incarnation, record.cancelled_why or "cancelled by its owner")
    if len(held.leases) < record.spec.shape.nodes:
        return Stop(cause, record.id, held.incarnation, "one of its nodes was lost; a gang starts and stops whole")
    if record.extension is not None and record.phase in STAYING:
        until = extended_until(facts, record, record.extension, facts.now)
        why = f"of those who wait and could use its GPUs nobody comes before {record.spec.allocation}"
        return Extend(cause, record.id, held.incarnation, until, why)
    if record.parking is None or record.phase is Phase.CHECKPOINTING:
        return None
    if record.phase is not Phase.RUNNING:
        return Stop(cause, record.id, held.incarnation, "parked before it was up; the last checkpoint stands")
    return BeginCheckpoint(
        cause,
        record.id,
        held.incarnation,
        facts.deadline(record),
        record.parking,
        None,
        "parked at its owner's wish",
    )


def _after_release(facts: Facts, record: Record, cause: CauseId) -> Action:
    if record.cancelled:
        return End(cause, record.id, Outcome.CANCELLED, record.cancelled_why or "cancelled by its owner")
    if record.exit is not None:
        outcome, why = record.exit
        if record.withheld:
            return Park(cause, record.id, why)
        return End(cause, record.id, outcome, why or f"it ended by itself: {outcome}")
    session = record.spec.kind is Kind.SESSION
    if session and record.parking is not None:
        return Park(cause, record.id, "checkpointed and parked; run a cell or resume it to queue it again")
    if record.failure and record.phase in STAYING:
        if record.start_failures > MAX_START_FAILURES:
            why = f"it failed to start {record.start_failures} times in a row: {record.failure}"
            return End(cause, record.id, Outcome.FAILED, why)
        return Requeue(cause, record.id, f"it failed to start ({record.failure}); queued again")
    went = _went(facts, record)
    # Who was moved did not idle away its GPUs: it goes on elsewhere, idle or not.
    if session and not record.interrupted and record.notice not in MOVES:
        return Park(cause, record.id, f"{went} while idle: parked; run a cell or resume it to queue it again")
    rest = ""
    if record.not_before is not None and record.not_before > facts.now:
        times = "once" if record.preemptions == 1 else f"{record.preemptions} times"
        rest = f", but not started before {words.moment(record.not_before)}, as it was preempted {times}"
    return Requeue(cause, record.id, f"{went}: queued again with its first submission time{rest}")


def _went(facts: Facts, record: Record) -> str:
    if record.notice is PreemptReason.CONSOLIDATION and record.beneficiary is not None:
        return f"moved to make room for {facts.label(record.beneficiary)}"
    if record.beneficiary is not None:
        return f"preempted for {facts.label(record.beneficiary)}"
    if record.notice is PreemptReason.IDLE:
        return "its GPUs given back"
    if record.notice in MOVES:
        return f"moved off its node ({record.notice_why})"
    if record.notice is not None:
        return f"told to leave ({record.notice})"
    return "its node was lost or let it go"


def overdue(facts: Facts, record: Record, cause: CauseId) -> Stop | None:
    """The end of the grace period: stop what has not left by its deadline."""
    late = record.phase is Phase.CHECKPOINTING and record.deadline is not None and record.deadline <= facts.now
    if not late or record.held is None:
        return None
    return Stop(cause, record.id, record.held.incarnation, f"its grace of {words.span(facts.grace(record))} has passed")
