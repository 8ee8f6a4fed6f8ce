"""`gpufair tour`: a few workloads of the last week, and why each waited, ran or was preempted."""

from __future__ import annotations

import time

from gpufair.cli.options import AsJson, StateDir, client
from gpufair.cli.output import emit_json, line
from gpufair.cli.words import clean, clock, localised


def tour(as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Walk through the last week: why these workloads waited, ran or were preempted, as it was recorded. Yours first."""
    with client(state_dir) as service:
        seen = service.tour()
    if as_json:
        emit_json(seen)
        return
    now = time.time()
    line(localised(clean(seen.about, 1000), now))
    for number, step in enumerate(seen.steps, 1):
        line(f"\n{number}. {clean(step.title, 500)}")
        who = f"{clean(step.name)}, {clean(step.label)}" if step.name else clean(step.label)
        line(f"   {who}; {clean(step.allocation)} pays")
        for one in step.lines:
            line(f"   {clock(one.at_s, now)}  {localised(clean(one.text, 1000), now)}")
    if seen.missing:
        line(f"\n{' '.join(clean(text) for text in seen.missing)}")
    for term, said in seen.terms.items():
        line(f"\n{clean(term)}: {clean(str(said.get('means', '')), 500)} ({clean(str(said.get('where', '')))})")
