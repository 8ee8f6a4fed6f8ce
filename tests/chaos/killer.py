"""Kills parts of a lab at random moments."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.lab import KINDS, Lab, kill

PAUSE = (0.02, 0.4)  # of the time that the lab took to start: on a slow machine things take longer to happen
BURST = 0.15  # of the kills follow the one before at once: recovery is broken, too
YOUNG = 0.2  # of the services that are not up yet are killed; if all were, nothing else would ever happen
NOTHING_S = 120.0


@dataclass(frozen=True, slots=True)
class Kill:
    """One that was carried out."""

    at_s: float
    kind: str
    workload: str
    incarnation: int


class Killer:
    """``count`` kills; each kind comes up as often as the others, in an order that is drawn."""

    def __init__(self, lab: Lab, draw: random.Random, count: int) -> None:
        self._lab, self._draw, self.count = lab, draw, count
        self.kills: list[Kill] = []
        self._due: list[str] = []

    @property
    def by_kind(self) -> dict[str, int]:
        """How many there were of each kind."""
        found = Counter(one.kind for one in self.kills)
        return {kind: found[kind] for kind in KINDS}

    def run(self, told: Callable[[int], None], healthy: Callable[[], bool]) -> None:
        """Kill until it is done or something is wrong. ``told`` after each one."""
        last_s = time.monotonic()
        while len(self.kills) < self.count and healthy() and time.monotonic() - last_s < NOTHING_S:
            if self._draw.random() >= BURST:
                time.sleep(self._draw.uniform(*PAUSE) * self._lab.started_in_s)
            if self._one():
                last_s = time.monotonic()
                told(len(self.kills))

    def _one(self) -> bool:
        if not self._due:
            self._due = list(KINDS)
            self._draw.shuffle(self._due)
        kind = self._due.pop()
        there = [part for part in self._lab.parts(kind) if part.first]
        part = self._draw.choice(there) if there else None
        spared = kind == "service" and self._draw.random() >= YOUNG
        if part is None or (spared and not self._lab.answers(part)) or not kill(part):
            self._due.insert(0, kind)  # later, then
            return False
        self.kills.append(Kill(time.time(), kind, part.workload, part.incarnation))
        return True
