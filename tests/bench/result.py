"""What one measurement says, and how fast this machine is while it is taken."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Result:
    """A figure beside its limit.

    ``limit`` is an upper bound, or a lower one where ``at_least`` is set (throughput). ``notes`` go into the JSON
    beside the figure: what it was compared with, how often it was taken, its spread.
    """

    value: float
    unit: str
    limit: float
    at_least: bool = False
    notes: dict[str, float | str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def as_dict(self) -> dict[str, object]:
        return {"value": self.value, "unit": self.unit, "limit": self.limit, "ok": self.ok, **self.notes}

    def __str__(self) -> str:
        bound = "at least" if self.at_least else "at most"
        verdict = "ok" if self.ok else "MISSED"
        return f"{self.value:10.3f} {self.unit} ({bound} {self.limit:g}) {verdict}"


def _spin() -> float:
    """Seconds of wall time for a fixed amount of plain Python."""
    begun = time.perf_counter()
    total = 0
    for number in range(200_000):
        total += number * number % 7
    return time.perf_counter() - begun


def calibration(rounds: int = 9) -> float:
    """How long this machine takes now for a fixed amount of work, in seconds (median).

    An absolute limit means little on a busy machine: a case with one may scale it by
    ``calibration() / CALIBRATED_S``, and then says so in its notes.
    """
    return statistics.median(_spin() for _ in range(rounds))


# 0.0111 s: median of 5 x 9 rounds on an idle core, Python 3.11.
CALIBRATED_S = 0.0111
