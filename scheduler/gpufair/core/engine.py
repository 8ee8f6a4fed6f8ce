"""One event in, actions out, over the facts: what ``State.handle`` does, and what a trial on a copy does."""

from __future__ import annotations

from typing import Final

from gpufair.core import events as ev
from gpufair.core.actions import Action
from gpufair.core.admission import check, is_stale
from gpufair.core.commit import commit
from gpufair.core.decide import Pass
from gpufair.core.events import Event, ExtensionRequested
from gpufair.core.facts import Facts
from gpufair.core.recording import record_event
from gpufair.core.sessions import judge_extension
from gpufair.core.wakeup import next_wakeup

# What changes neither who holds GPUs nor who asks for some.
REPORTS: Final[frozenset[type[Event]]] = frozenset(
    {
        ev.TimePassed,
        ev.Started,
        ev.ActivityReported,
        ev.CheckpointDone,
        ev.CheckpointFailed,
        ev.SafePointReached,
        ev.UtilizationReported,
    }
)
# Of these, what does not change when the next pass is due either.
ASIDE: Final[frozenset[type[Event]]] = frozenset(
    {ev.CheckpointDone, ev.CheckpointFailed, ev.SafePointReached, ev.UtilizationReported}
)


def handle(facts: Facts, event: Event) -> list[Action]:
    """Write the event down, decide, and apply each decision.

    A report that changes neither who holds GPUs nor who asks for some decides nothing by itself, and nor does time that
    passes at a moment that is not due: decisions depend on what happened to GPUs and queue and on the grid, not on who
    said something in between.

    Raises:
        GpufairError: The event is refused; the facts are unchanged.
    """
    check(event, facts)
    if is_stale(event, facts):
        return []
    if isinstance(event, ExtensionRequested):
        judge_extension(facts, facts.record(event.workload), event.min_runtime, event.at)
    kind = type(event)
    decides = kind not in REPORTS or _is_due(facts, event)
    if decides or kind not in ASIDE:
        facts.wakeup_known = False
    facts.advance(event.at)
    touched = record_event(event, facts)
    return Pass(facts, event.cause, lambda action: commit(action, facts)).run(touched) if decides else []


def _is_due(facts: Facts, event: Event) -> bool:
    moment = next_wakeup(facts)
    return moment is not None and moment <= event.at
