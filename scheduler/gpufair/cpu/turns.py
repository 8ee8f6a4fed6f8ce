"""Whose task runs next in a pool that several users share: the rule, and the books that it looks at. No clock, no I/O.

The allocation that is furthest below its share of the worker time in the window comes first; of its users the one who
had least; then who came first. Worker time of tasks that run counts at once, as the core counts commitment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

CHARGED_FILE = "charged.json"  # in the folder of the pool, which keeps its books there for the next one and for whoever asks
STEPS = 168  # of a window: hours of a week
EXPECTED_MS = 500  # how long a task is taken to run, by who has had none yet


class Whom(NamedTuple):
    """For whom a task runs. ``leaf`` "": they did not say, or have no allocation, and come after all who have one."""

    leaf: str
    user: str


class Charged:
    """Worker time of each in a sliding window, in ms, kept in steps: what lies a window back leaves with its step.

    Args:
        window_ms: > 0.
    """

    def __init__(self, window_ms: int) -> None:
        if window_ms <= 0:
            raise ValueError(f"a window of {window_ms} ms counts nothing; give more than 0")
        self.window_ms = window_ms
        self.step_ms = max(1, -(-window_ms // STEPS))
        self._steps: dict[Whom, dict[int, int]] = {}
        self._totals: dict[Whom, int] = {}
        self._left = -1  # the last step that has left

    def add(self, whom: Whom, start_ms: int, end_ms: int) -> None:
        """A thread worked for them in [start, end)."""
        while start_ms < end_ms:
            until = min(end_ms, (start_ms // self.step_ms + 1) * self.step_ms)
            self._put(whom, start_ms, until - start_ms)
            start_ms = until

    def _put(self, whom: Whom, at_ms: int, ms: int) -> None:
        steps, step = self._steps.setdefault(whom, {}), at_ms // self.step_ms
        steps[step] = steps.get(step, 0) + ms
        self._totals[whom] = self._totals.get(whom, 0) + ms

    def totals(self, now_ms: int) -> Mapping[Whom, int]:
        """What counts now."""
        oldest = (now_ms - self.window_ms) // self.step_ms
        if oldest > self._left:
            self._left = oldest
            for whom, steps in list(self._steps.items()):
                for step in [step for step in steps if step <= oldest]:
                    self._totals[whom] -= steps.pop(step)
                if not steps:
                    del self._steps[whom], self._totals[whom]
        return self._totals

    def dump(self) -> list[list[str | int]]:
        """For ``load``, as JSON: leaf, user, instant, ms."""
        return [
            [whom.leaf, whom.user, step * self.step_ms, ms]
            for whom, steps in self._steps.items()
            for step, ms in steps.items()
        ]

    def load(self, dumped: Iterable[Iterable[object]]) -> None:
        """Take up what another process wrote down, whatever its window was.

        Raises:
            ValueError: It is damaged; a part may have been taken up.
        """
        for leaf, user, at_ms, ms in dumped:
            if not (isinstance(leaf, str) and isinstance(user, str) and isinstance(at_ms, int) and isinstance(ms, int)):
                raise ValueError("it names nobody's worker time")
            self._put(Whom(leaf, user), at_ms, max(0, ms))
        self._left = -1  # some of it may be older


def next_turn(
    waiting: Mapping[Whom, int],
    charged: Mapping[Whom, int],
    running: Mapping[Whom, int],
    shares: Mapping[str, Fraction],
    quota: int = 0,
) -> Whom | None:
    """Whose first task runs on the next free thread; None where nobody may have it.

    Args:
        waiting: Who has tasks that could run, and when the first of them came (any order that grows).
        charged: Worker time in the window, in ms, with what running tasks are taken to need.
        running: How many tasks of each run.
        shares: The entitlement of each leaf; 0 for one that is not named: it has what nobody else wants.
        quota: Tasks of a user that may run at once, in all allocations together; 0: any number.
    """
    busy, had = Counter[str](), Counter[str]()
    for whom, tasks in running.items():
        busy[whom.user] += tasks
    for whom, ms in charged.items():
        had[whom.leaf] += ms

    def rank(whom: Whom) -> tuple[bool, Fraction, int, int]:
        share = shares.get(whom.leaf, Fraction(0))
        return not share, had[whom.leaf] / (share or Fraction(1)), charged.get(whom, 0), waiting[whom]

    return min((whom for whom in waiting if not quota or busy[whom.user] < quota), key=rank, default=None)
