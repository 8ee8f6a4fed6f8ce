"""Every decision of a few worlds, a line each, and what became of each job: ``python -m tests.decisions FILE``.

Prints whether the core was compiled.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from gpufair.core import COMPILED
from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.codec import encode
from gpufair.core.model import Policy
from gpufair.core.state import State
from gpufair.core.units import Instant
from gpufair.sim.cluster import Cluster
from gpufair.sim.engine import play
from gpufair.sim.policies.contender import Contender
from gpufair.sim.worlds import Setting, world
from tests.long.hand import explore
from tests.world import World


class Recorded:
    """A scheduler that writes down what it decides."""

    def __init__(self, options: Policy, out: TextIO) -> None:
        self._state, self._out = State(options), out

    def handle(self, event: ev.Event) -> Sequence[act.Action]:
        actions = self._state.handle(event)
        write(self._out, event, actions)
        return actions

    def next_wakeup(self) -> Instant | None:
        return self._state.next_wakeup()

    def forget(self, before: Instant) -> None:
        self._state.forget(before)

    @property
    def protected_preemptions(self) -> int:
        return self._state.protected_preemptions


def write(out: TextIO, event: ev.Event, actions: Sequence[act.Action]) -> None:
    """What was decided at an event, with its reasons."""
    out.write(json.dumps([type(event).__name__, event.at, [encode(action) for action in actions]]) + "\n")


def main() -> None:
    """Large worlds of the simulator, in which metrics are long fractions; small ones, in which everything happens."""
    with Path(sys.argv[1]).open("w", encoding="utf-8") as out:
        for name in ("steady", "drain"):
            scenario = world(name).make(Setting(Cluster.parse("12x8"), days=0.5, seed=3))
            story = play(scenario, Contender(name, "", lambda options: Recorded(options, out)))
            for life in story.lives.values():
                stints = [(one.up, one.notice, one.freed, one.worked, one.lost, one.switching) for one in life.stints]
                out.write(json.dumps([life.job.id, life.ended, life.outcome, stints]) + "\n")

        feed = World.feed

        def recorded(self: World, event: ev.Event) -> list[act.Action]:
            actions = feed(self, event)
            write(out, event, actions)
            return actions

        World.feed = recorded  # type: ignore[method-assign]
        for seed in range(6):
            found = explore(seed, 250)
            out.write(json.dumps([seed, found["broken"]]) + "\n")
    print("compiled" if COMPILED else "plain")


if __name__ == "__main__":
    main()
