"""One event in, actions out, over the facts: what ``State.handle`` does, and what a trial on a copy does."""

from __future__ import annotations

from functools import partial

from gpufair.core.actions import Action
from gpufair.core.admission import check, is_stale
from gpufair.core.commit import commit
from gpufair.core.decide import Pass
from gpufair.core.events import Event
from gpufair.core.facts import Facts
from gpufair.core.recording import record_event


def handle(facts: Facts, event: Event) -> list[Action]:
    """Write the event down, decide, and apply each decision.

    Raises:
        GpufairError: The event is refused; the facts are unchanged.
    """
    check(event, facts)
    if is_stale(event, facts):
        return []
    facts.advance(event.at)
    return Pass(facts, event.cause, partial(commit, facts=facts)).run(record_event(event, facts))
