"""Work that is started again when it has failed: later each time, as often as its owner allows.

Between two attempts the core withholds it, as it does with what waits for other work. When it goes on is in its detail,
committed with the failure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from gpufair.core import events as ev
from gpufair.core import words
from gpufair.core.model import Outcome, Phase, WorkloadSpec
from gpufair.core.record import Workload
from gpufair.core.settle import MAX_START_FAILURES
from gpufair.core.units import Instant, Millis, after
from gpufair.service.workloads.details import Detail

if TYPE_CHECKING:
    from gpufair.service.workloads.turn import Turn

KEY, PAUSE_KEY = "retries", "retry_after_s"  # in a launch
USUAL_PAUSE_S = 30.0
LONGEST = Millis(600_000)  # a first pause that is longer stays as it is
MOST = 100
_MOST_DOUBLINGS = 20


def allowed(spec: WorkloadSpec) -> int:
    """How often it is started again."""
    found = spec.launch.get(KEY)
    return found if isinstance(found, int) else 0


def pause(spec: WorkloadSpec, failures: int) -> Millis:
    """How long it rests after its n-th failure: twice as long each time, up to ten minutes."""
    first = spec.launch.get(PAUSE_KEY)
    first_ms = round((first if isinstance(first, int | float) else USUAL_PAUSE_S) * 1000)
    return Millis(max(first_ms, min(LONGEST, first_ms * 2 ** min(failures - 1, _MOST_DOUBLINGS))))


def end(turn: Turn, workload: Workload, event: ev.Event) -> None:
    """Feed the event that ends a start; where it is a failure and there are attempts left, it is not the end of all."""
    detail, record = turn.detail(workload.id), turn.state.facts.records[workload.id]
    reason = None
    if isinstance(event, ev.Exited) and event.outcome is Outcome.FAILED:
        reason = event.reason or "it failed"
    elif isinstance(event, ev.StartFailed) and record.start_failures >= MAX_START_FAILURES:
        reason = f"it could not be started: {event.reason}"
    if reason is None or record.cancelled or detail.retries >= allowed(workload.spec):
        turn.handle(event)
        return
    failures = detail.retries + 1
    until = after(turn.now, pause(workload.spec, failures))
    head = (event.at, event.cause, workload.id, workload.incarnation)
    turn.handle(ev.Exited(*head, Outcome.FAILED, f"{reason}; it is started again", withheld=True))
    if turn.state.workload(workload.id).phase is Phase.PARKED:
        turn.set_detail(workload.id, replace(turn.detail(workload.id), retries=failures, retry_at_ms=until))


def next_due(resting: Iterable[Detail]) -> Instant | None:
    """When the first of these goes on."""
    return min((Instant(one.retry_at_ms) for one in resting if one.retry_at_ms), default=None)


def go_on(turn: Turn) -> None:
    """Queue those whose pause is over."""
    for workload in sorted(one for one in turn.waiting() if 0 < turn.detail(one).retry_at_ms <= turn.now):
        turn.handle(ev.ResumeRequested(turn.now, turn.cause(), workload))


def waits_for(spec: WorkloadSpec, detail: Detail) -> str:
    """What a failed workload rests for, in words; "" for all others."""
    if not detail.retry_at_ms:
        return ""
    return f"its attempt {detail.retries + 1} of {allowed(spec) + 1}, at {words.moment(Instant(detail.retry_at_ms))}"
