"""Applying an action: the one way in which a decision, fresh or recorded, changes the state."""

from __future__ import annotations

from functools import singledispatch

from gpufair.core import actions as act
from gpufair.core.backoff import preempted
from gpufair.core.facts import Facts, left_of
from gpufair.core.model import Phase, PreemptReason
from gpufair.core.record import Landing, Record, Reservation
from gpufair.core.transitions import move
from gpufair.core.units import Millis

PREEMPTIONS = frozenset(
    {
        PreemptReason.UNALLOCATED,
        PreemptReason.RANK,
        PreemptReason.PRIORITY,
        PreemptReason.TAKE_LIMIT,
        PreemptReason.DEBUG,
        PreemptReason.LANDING,
    }
)


@singledispatch
def commit(action: act.Action, facts: Facts) -> None:
    """Apply a decision.

    Raises:
        Inconsistent: It does not fit the state: a bug, or a journal of something else.
    """
    raise NotImplementedError(type(action).__name__)


@commit.register
def _start(action: act.Start, facts: Facts) -> None:
    record = facts.record(action.workload)
    move(facts, record, Phase.RESTORING if action.checkpoint is not None else Phase.STARTING)
    facts.grant(record, action.held)
    record.reason = action.why


@commit.register
def _reserve(action: act.Reserve, facts: Facts) -> None:
    record = facts.record(action.workload)
    facts.reserve(
        record,
        Reservation(action.leases, action.pool, action.victims, action.victims, 0, action.ends),
    )
    if action.debug:
        facts.count_as_debug(record)
    record.reason = action.why


@commit.register
def _unreserve(action: act.Unreserve, facts: Facts) -> None:
    record = facts.record(action.workload)
    facts.unreserve(record)
    facts.count_as_debug(record, False)
    record.reason = "the GPUs kept for it cannot be had any more; waiting for its turn"


@commit.register
def _grant_landing(action: act.GrantLanding, facts: Facts) -> None:
    record = facts.record(action.workload)
    facts.land(
        record,
        Landing(
            leases=action.leases,
            pool=action.pool,
            at=action.at,
            granted_at=record.landing.granted_at if record.landing is not None else facts.now,
            start_by=action.start_by,
            grace=action.grace,
            staying=action.staying,
            order=0,
            why=action.why,
        ),
    )
    record.reason = action.why


@commit.register
def _drop_landing(action: act.DropLanding, facts: Facts) -> None:
    record = facts.record(action.workload)
    facts.drop_landing(record)
    record.reason = action.why


@commit.register
def _extend(action: act.Extend, facts: Facts) -> None:
    record = facts.record(action.workload)
    facts.extend(record, action.protected_until)
    record.extension = None
    # It was judged by rank, so it is not under the debug right any more.
    facts.count_as_debug(record, False)


@commit.register
def _begin_checkpoint(action: act.BeginCheckpoint, facts: Facts) -> None:
    record = facts.record(action.workload)
    if action.reason in PREEMPTIONS:
        record.preemptions += 1
        preempted(record, facts.policy, facts.now)
        if record.spec.allocated and record.held is not None and facts.now < record.held.protected_until:
            # Counted here, apart from the rules that decide, so that a broken rule shows (invariant P1).
            facts.protected_preemptions += 1
    if action.reason is PreemptReason.IDLE:
        facts.idle_releases += 1
    elif action.reason is PreemptReason.FORCED:
        facts.forced_moves += 1
    elif action.reason is PreemptReason.MOVED:
        facts.allowed_moves += 1
    elif action.reason is PreemptReason.CONSOLIDATION:
        facts.consolidation_moves += 1
        _keep_protection(record, facts)
    move(facts, record, Phase.CHECKPOINTING)
    record.notice, record.notice_why, record.deadline = action.reason, action.why, action.deadline
    record.beneficiary = action.beneficiary
    record.reason = action.why


def _keep_protection(record: Record, facts: Facts) -> None:
    """Where it is moved to it has what is left of its protection, and it stays there for that long."""
    held = record.held
    if held is not None:
        record.slice = Millis(left_of(facts, record))
        record.settles_until = held.protected_until


@commit.register
def _stop(action: act.Stop, facts: Facts) -> None:
    record = facts.record(action.workload)
    move(facts, record, Phase.STOPPING)
    record.deadline = facts.stop_deadline(record)
    record.reason = action.why


@commit.register
def _requeue(action: act.Requeue, facts: Facts) -> None:
    record = facts.record(action.workload)
    move(facts, record, Phase.QUEUED)
    record.reason = action.why


@commit.register
def _park(action: act.Park, facts: Facts) -> None:
    record = facts.record(action.workload)
    move(facts, record, Phase.PARKED)
    record.reason = action.why


@commit.register
def _end(action: act.End, facts: Facts) -> None:
    record = facts.record(action.workload)
    move(facts, record, Phase.ENDED)
    record.outcome = action.outcome
    record.reason = action.why
