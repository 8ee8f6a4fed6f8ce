"""What a simulated month costs if deciding were free: ``python -m tests.floor [DAYS]``.

The month of ``CASE=sim_month`` is played twice: once as it is, and once with what was decided then, handed to the same
core event by event to be written down only. What the second play takes is what no faster pass could save: events,
records, ledgers and nodes, when the next pass is due, and the world around the core.
"""

from __future__ import annotations

import json
import sys

from gpufair.core import COMPILED
from gpufair.core.actions import Action
from gpufair.core.errors import GpufairError
from gpufair.core.events import Event
from gpufair.core.state import State
from gpufair.sim import simulate
from tests.bench.simulation import month

Outcome = list[Action] | GpufairError


def main() -> None:
    """Print both plays as JSON, CPU time in seconds."""
    days = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    outcomes: list[Outcome] = []
    handle = State.handle

    def recorded(self: State, event: Event) -> list[Action]:
        try:
            actions = handle(self, event)
        except GpufairError as err:
            outcomes.append(err)
            raise
        outcomes.append(actions)
        return actions

    def read(self: State, event: Event) -> list[Action]:
        outcome = next(told)
        if isinstance(outcome, GpufairError):
            raise outcome
        self.recover(event, outcome)
        return outcome

    State.handle = recorded  # type: ignore[method-assign]
    made = simulate(month(days=days)).story
    told = iter(outcomes)
    State.handle = read  # type: ignore[method-assign]
    written = simulate(month(days=days)).story
    assert [life.ended for life in made.lives.values()] == [life.ended for life in written.lives.values()]
    figures = {
        "compiled": COMPILED,
        "days": days,
        "jobs": len(made.lives),
        "events": made.events,
        "decisions": made.decisions,
        "events_with_decisions": sum(bool(one) for one in outcomes if isinstance(one, list)),
        "cpu_s_deciding": made.cpu_s,
        "cpu_s_writing_down_only": written.cpu_s,
        "s_per_50000_jobs_deciding": made.cpu_s * 50_000 / len(made.lives),
        "s_per_50000_jobs_writing_down_only": written.cpu_s * 50_000 / len(made.lives),
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
