"""The life of a workload: which phase may follow which, and what changes with each step.

The table is the only way from one phase to another; a pair that is not in it is a bug.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from gpufair.core.demand import first_started, never_started
from gpufair.core.errors import Inconsistent
from gpufair.core.facts import Facts
from gpufair.core.model import Phase
from gpufair.core.record import Record

Transition = Callable[[Facts, Record], None]


def move(facts: Facts, record: Record, to: Phase) -> None:
    """Take a workload to another phase.

    Raises:
        Inconsistent: No such step exists.
    """
    step = TRANSITIONS.get((record.phase, to))
    if step is None:
        raise Inconsistent(f"workload {record.id!r} cannot go from {record.phase} to {to}")
    before = record.phase
    step(facts, record)
    record.phase = to
    facts.switched(record, before)


def _queued_to_granted(facts: Facts, record: Record) -> None:
    facts.dequeue(record)
    first_started(facts, record)
    record.incarnation += 1
    record.starts += 1
    record.busy = record.interrupted = False
    record.parking = record.slice = record.safe_at = record.extension = None
    record.devices, record.lost = (), ()
    record.deadline = record.notice = record.beneficiary = record.exit = None
    record.notice_why = ""


def _granted_to_running(facts: Facts, record: Record) -> None:
    record.start_failures = 0


def _staying_to_leaving(facts: Facts, record: Record) -> None:
    # Somebody waits for a session that runs a cell, and for one that has not come up yet.
    record.interrupted = record.interrupted or record.busy or record.phase is not Phase.RUNNING
    facts.told_to_leave(record)


def _checkpointing_to_stopping(facts: Facts, record: Record) -> None:
    """Nothing but the phase changes: the GPUs are held until they are really free."""


def _released_to_queued(facts: Facts, record: Record) -> None:
    _require_released(record)
    _rest(facts, record)
    facts.enqueue(record)


def _released_to_parked(facts: Facts, record: Record) -> None:
    _require_released(record)
    _rest(facts, record)
    facts.unreserve(record)


def _released_to_ended(facts: Facts, record: Record) -> None:
    _require_released(record)
    _rest(facts, record)
    facts.unreserve(record)
    record.ended_at = facts.now


def _queued_to_parked(facts: Facts, record: Record) -> None:
    facts.dequeue(record)
    record.slice = None
    _rest(facts, record)


def _queued_to_ended(facts: Facts, record: Record) -> None:
    facts.dequeue(record)
    never_started(facts, record)
    _rest(facts, record)
    record.ended_at = facts.now


def _parked_to_queued(facts: Facts, record: Record) -> None:
    record.touched = False
    if record.withheld:
        # It could not run until now: its place is that of this moment, or holding work back would buy an early one.
        record.withheld, record.submitted_at = False, facts.now
    facts.enqueue(record)


def _parked_to_ended(facts: Facts, record: Record) -> None:
    never_started(facts, record)
    record.ended_at = facts.now


def _require_released(record: Record) -> None:
    if record.held is not None:
        raise Inconsistent(f"workload {record.id!r} still holds GPUs on {record.held.leases}")


def _rest(facts: Facts, record: Record) -> None:
    facts.count_as_debug(record, False)
    record.busy = record.interrupted = record.touched = False
    record.parking = record.deadline = record.exit = None
    record.failure = ""


def _table() -> dict[tuple[Phase, Phase], Transition]:
    table: dict[tuple[Phase, Phase], Transition] = {
        (Phase.QUEUED, Phase.STARTING): _queued_to_granted,
        (Phase.QUEUED, Phase.RESTORING): _queued_to_granted,
        (Phase.QUEUED, Phase.PARKED): _queued_to_parked,
        (Phase.QUEUED, Phase.ENDED): _queued_to_ended,
        (Phase.PARKED, Phase.QUEUED): _parked_to_queued,
        (Phase.PARKED, Phase.ENDED): _parked_to_ended,
        (Phase.STARTING, Phase.RUNNING): _granted_to_running,
        (Phase.RESTORING, Phase.RUNNING): _granted_to_running,
        (Phase.CHECKPOINTING, Phase.STOPPING): _checkpointing_to_stopping,
    }
    for staying in (Phase.STARTING, Phase.RESTORING, Phase.RUNNING):
        table[staying, Phase.CHECKPOINTING] = _staying_to_leaving
        table[staying, Phase.STOPPING] = _staying_to_leaving
    for holding in (Phase.STARTING, Phase.RESTORING, Phase.RUNNING, Phase.CHECKPOINTING, Phase.STOPPING):
        table[holding, Phase.QUEUED] = _released_to_queued
        table[holding, Phase.PARKED] = _released_to_parked
        table[holding, Phase.ENDED] = _released_to_ended
    return table


TRANSITIONS: Final[Mapping[tuple[Phase, Phase], Transition]] = MappingProxyType(_table())
