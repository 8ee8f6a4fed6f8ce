"""Hours that lie behind a service before it starts: a journal that was written by the same core, on a clock of its own."""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.model import Kind, Node, Outcome, Phase, Shape, WorkloadSpec
from gpufair.core.state import State
from gpufair.core.units import HOUR, MINUTE, SECOND, AllocationPath, CauseId, Instant, Millis, WorkloadId
from gpufair.paths import private_dir
from gpufair.service.runtime.recovery import SINCE_KEY
from gpufair.service.settings.budgets import parse_budgets
from gpufair.service.storage.store import Place, Store, sqlite_url
from gpufair.service.workloads.turn import Turn

CAUSE = CauseId("past")


@dataclass
class Past:
    """People who come and go, and nodes that answer at once."""

    turn: Turn  # one for all: it is written down at once
    _draw: random.Random = field(default_factory=lambda: random.Random(11))
    _coming: list[tuple[int, int, ev.Event]] = field(default_factory=list)
    _count: int = 0

    def at(self, instant: int, event: ev.Event) -> None:
        """This will happen then."""
        self._count += 1
        heapq.heappush(self._coming, (instant, self._count, replace(event, at=Instant(instant))))

    def play(self, until: int) -> None:
        """Let all happen that is due by then."""
        while True:
            due = self.turn.state.next_wakeup()
            coming = self._coming[0][0] if self._coming else None
            if coming is not None and coming <= until and (due is None or coming < due):
                self._happens(heapq.heappop(self._coming)[2])
            elif due is not None and due <= until:
                self._happens(ev.TimePassed(due, CAUSE))
            else:
                return

    def _happens(self, event: ev.Event) -> None:
        for action in self.turn.handle(event):
            if isinstance(action, act.Start):
                about = (action.workload, action.held.incarnation)
                runs = int(self._draw.expovariate(1 / (70 * MINUTE))) + 5 * MINUTE
                self.at(event.at + 5 * SECOND, ev.Started(event.at, CAUSE, *about))
                self.at(event.at + runs, ev.Exited(event.at, CAUSE, *about, Outcome.COMPLETED))
            elif isinstance(action, act.BeginCheckpoint | act.Stop):
                left = ev.Released(event.at, CAUSE, action.workload, action.incarnation, busy=True)
                self.at(event.at + 15 * SECOND, left)


def write_past(state_dir: Path, budgets: str, nodes: Sequence[Node], users: Sequence[tuple[str, str]], hours: int) -> None:
    """A journal of the last hours, at whose end nothing runs or waits.

    Args:
        state_dir: Of the service that will go on from there.
        budgets: The file.
        nodes: As that service has them.
        users: (who, allocation) of those who come.
        hours: How long.
    """
    private_dir(state_dir)
    now = int(time.time() * 1000)
    begin = now - hours * HOUR
    turn = Turn(Instant(begin), State(), {}, 1)
    past, draw = Past(turn), random.Random(5)
    past.at(begin, ev.BudgetsApplied(Instant(begin), CAUSE, parse_budgets(budgets.encode()).allocations))
    for node in nodes:
        past.at(begin, ev.NodeJoined(Instant(begin), CAUSE, node))
    for number, at in enumerate(range(begin + 1, now - 20 * MINUTE, 7 * MINUTE)):
        user, allocation = draw.choice(users)
        shape = Shape(draw.choice((1, 1, 1, 2, 4)))
        protected = Millis(draw.choice((0, 15 * MINUTE, 30 * MINUTE, HOUR)))
        spec = WorkloadSpec(AllocationPath(allocation), user, Kind.BATCH, shape, protected, launch={"type": "command"})
        past.at(at, ev.Submitted(Instant(at), CAUSE, WorkloadId(f"past-{number:04d}"), spec))
    past.play(now - MINUTE)
    for one in turn.state.facts.records.values():
        if one.phase is not Phase.ENDED:
            past.at(now - MINUTE, ev.Cancelled(Instant(now), CAUSE, one.id))
    past.play(now)
    store = Store(Place(sqlite_url(state_dir)), "past")
    store.set_meta(SINCE_KEY, "0")
    store.append(turn.entries, turn.durable_details(), (), turn.also())
    store.close()
