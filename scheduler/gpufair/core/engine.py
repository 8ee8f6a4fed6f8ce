"""One event in, actions out, over the facts: what ``State.handle`` does, and what a trial on a copy does."""

from __future__ import annotations

from functools import partial

from gpufair.core.actions import Action
from gpufair.core.admission import check, is_stale
from gpufair.core.commit import commit
from gpufair.core.decide import Pass
from gpufair.core.events import Event, ExtensionRequested, TimePassed, UtilizationReported
from gpufair.core.facts import Facts
from gpufair.core.recording import record_event
from gpufair.core.sessions import judge_extension
from gpufair.core.wakeup import next_wakeup


def handle(facts: Facts, event: Event) -> list[Action]:
    """Write the event down, decide, and apply each decision.

    Time that passes at a moment that is not due decides nothing: decisions depend on what happened and on the grid, not
    on who looked at the clock in between. Nor does a measurement.

    Raises:
        GpufairError: The event is refused; the facts are unchanged.
    """
    check(event, facts)
    if is_stale(event, facts):
        return []
    if isinstance(event, ExtensionRequested):
        judge_extension(facts, facts.record(event.workload), event.min_runtime, event.at)
    due = not isinstance(event, TimePassed) or _is_due(facts, event)
    facts.advance(event.at)
    if not due:
        return []
    if isinstance(event, UtilizationReported):
        record_event(event, facts)
        return []
    return Pass(facts, event.cause, partial(commit, facts=facts)).run(record_event(event, facts))


def _is_due(facts: Facts, event: TimePassed) -> bool:
    moment = next_wakeup(facts)
    return moment is not None and moment <= event.at
