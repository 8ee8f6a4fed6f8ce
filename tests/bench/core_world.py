"""A cluster of the size that the core is measured at: full, with a long queue, and with people who come and go.

CPU time is taken, not wall time: other things run on the machine.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.model import Allocation, Kind, Node, Outcome, Shape, WorkloadSpec
from gpufair.core.state import State
from gpufair.core.units import HOUR, MINUTE, AllocationPath, CauseId, Instant, Millis, NodeName, WorkloadId
from tests.bench.result import CALIBRATED_S

CAUSE = CauseId("bench")
NODES, QUEUED = 128, 10_000
SHAPES = (
    (Shape(1), 50),
    (Shape(2), 15),
    (Shape(3), 2),
    (Shape(4), 12),
    (Shape(8), 12),
    (Shape(4, 2), 1),
    (Shape(8, 2), 5),
    (Shape(8, 4), 2),
    (Shape(8, 8), 1),
)
MIN_RUNTIMES = ((0, 1), (15 * MINUTE, 3), (HOUR, 4), (4 * HOUR, 2), (8 * HOUR, 1))


def cpu_scale(rounds: int = 9) -> float:
    """How much slower a CPU second is now than on the machine of the reference: CALIBRATED_S for the same loop.

    The loop is ``total += number * number % 7`` 200,000 times, as in ``tests.bench.result``, timed in CPU time.
    """
    times = []
    for _ in range(rounds):
        begun = time.process_time()
        total = 0
        for number in range(200_000):
            total += number * number % 7
        times.append(time.process_time() - begun)
    return sorted(times)[rounds // 2] / CALIBRATED_S


def tree(draw: random.Random) -> tuple[Allocation, ...]:
    """Three levels, 5 x 4 x 5 = 100 leaves."""
    paths = [f"o{a}" for a in range(5)]
    paths += [f"o{a}/p{b}" for a in range(5) for b in range(4)]
    paths += [f"o{a}/p{b}/t{c}" for a in range(5) for b in range(4) for c in range(5)]
    return tuple(Allocation(AllocationPath(path), str(draw.randint(1, 9))) for path in paths)


@dataclass
class Bench:
    """The state, nodes that answer promptly, and the CPU time of each event with the question when the next is due."""

    nodes: int = NODES
    queued: int = QUEUED
    state: State = field(default_factory=State)
    taken: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._draw = random.Random(7)
        self._due: Instant | None = None
        self._coming: list[tuple[int, int, ev.Event]] = []
        self._count = 0
        self.submitted = 0
        self.feed(ev.BudgetsApplied(Instant(0), CAUSE, tree(self._draw)))
        for number in range(self.nodes):
            self.feed(ev.NodeJoined(Instant(0), CAUSE, Node(NodeName(f"n{number:03d}"), 8)))

    def spec(self) -> WorkloadSpec:
        """A workload of somebody."""
        draw = self._draw
        return WorkloadSpec(
            allocation=draw.choice(self.state.tree.leaves),
            user=f"u{draw.randrange(8)}",
            kind=draw.choice((Kind.BATCH, Kind.BATCH, Kind.SESSION)),
            shape=draw.choices([one for one, _ in SHAPES], [weight for _, weight in SHAPES])[0],
            min_runtime=Millis(draw.choices([one for one, _ in MIN_RUNTIMES], [weight for _, weight in MIN_RUNTIMES])[0]),
            resumable=draw.random() < 0.8,
            priority=draw.choice((0, 0, 0, 0, 1)),
        )

    def submit(self) -> None:
        """Somebody comes."""
        self.submitted += 1
        self.feed(ev.Submitted(self.state.now, CAUSE, WorkloadId(f"{self.submitted:08x}-w"), self.spec()))

    def fill(self) -> None:
        """Submit until the queue is as long as it is to be."""
        while self.state.facts.waiting.length < self.queued:
            self.submit()

    def feed(self, event: ev.Event) -> list[act.Action]:
        """Handle an event; the nodes answer later. Returns what was decided."""
        begun = time.process_time()
        actions = self.state.handle(event)
        self._due = self.state.next_wakeup()
        self.taken.append(time.process_time() - begun)
        for action in actions:
            if isinstance(action, act.Start):
                about = (action.workload, action.held.incarnation)
                self._later(500, ev.Started(Instant(0), CAUSE, *about))
                runs = int(self._draw.expovariate(1 / (3 * HOUR))) + MINUTE
                self._later(runs, ev.Exited(Instant(0), CAUSE, *about, Outcome.COMPLETED))
            elif isinstance(action, act.BeginCheckpoint | act.Stop):
                self._later(5_000, ev.Released(Instant(0), CAUSE, action.workload, action.incarnation, busy=True))
        return actions

    def step(self) -> None:
        """The next thing happens; for each that ends a new one is submitted."""
        if self._due is not None and (not self._coming or self._due <= self._coming[0][0]):
            self.feed(ev.TimePassed(self._due, CAUSE))
            return
        at, _, event = heappop(self._coming)
        self.feed(replace(event, at=Instant(at)))
        self.fill()

    def _later(self, delay: int, event: ev.Event) -> None:
        self._count += 1
        heappush(self._coming, (self.state.now + delay, self._count, event))
