"""Several policies side by side: the figures that people compare, as rows for tables and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpufair.sim.measures.figures import Figures, Quantiles


class Better(StrEnum):
    """Which of two values of a figure is the better one."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = ""  # it describes; it does not judge


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of each policy.

    Args:
        name: What it is, in words.
        unit: "", "%", "s" or "GPU-h".
        better: See there.
        values: In the order of the policies; None: unknown. Percentages are out of 100.
        marks: As many: "≥" where a value can only be larger, because waits had not ended.
    """

    name: str
    unit: str
    better: Better
    values: tuple[float | None, ...]
    marks: tuple[str, ...]

    @property
    def best(self) -> tuple[int, ...]:
        """Where the best values stand; none, if all are equal, nothing is better, or it is not known which is."""
        known = [value for value in self.values if value is not None]
        if self.better is Better.NEITHER or len(set(known)) < 2:
            return ()
        best = max(known) if self.better is Better.HIGHER else min(known)
        found = tuple(index for index, value in enumerate(self.values) if value == best)
        return () if any(self.marks[index] for index in found) else found


Value = Callable[[Figures], float | None]


def compare(figures: Sequence[Figures]) -> tuple[Row, ...]:
    """The rows, for policies in this order. Figures that no policy has are left out."""
    rows = [*_ratios(figures), *_waits(figures), *_others(figures)]
    return tuple(row for row in rows if any(value is not None for value in row.values))


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _ratios(figures: Sequence[Figures]) -> Iterable[Row]:
    shown: tuple[tuple[str, Better, Value], ...] = (
        ("delivered of owed, capped", Better.HIGHER, lambda one: one.delivered.capped),
        ("the same, hour by hour", Better.HIGHER, lambda one: one.delivered.hourly),
        ("the same, net of lost and switching", Better.HIGHER, lambda one: one.delivered.net),
        (
            "worst allocation (entitled to 8 GPUs or more)",
            Better.HIGHER,
            lambda one: one.delivered.worst.delivered if one.delivered.worst else None,
        ),
        ("delivered of owed, uncapped", Better.NEITHER, lambda one: one.delivered.uncapped),
        ("occupancy of available GPU time", Better.HIGHER, lambda one: one.time.of_available(one.time.held)),
        (
            "unallocated, of held GPU time",
            Better.NEITHER,
            lambda one: one.time.unallocated / one.time.held if one.time.held else None,
        ),
        ("lost to preemption and failures", Better.LOWER, lambda one: one.time.of_available(one.time.lost)),
        (
            "the same, of work that is not resumable",
            Better.LOWER,
            lambda one: one.time.of_available(one.time.lost_for_good),
        ),
        ("switching", Better.LOWER, lambda one: one.time.of_available(one.time.switching)),
        ("useful work", Better.HIGHER, lambda one: one.time.of_available(one.time.useful)),
        ("free, but scattered", Better.LOWER, lambda one: one.time.of_available(one.time.fragmented)),
        ("free, but kept", Better.LOWER, lambda one: one.time.of_available(one.time.withheld)),
    )
    for name, better, value in shown:
        values = tuple(_percent(value(one)) for one in figures)
        yield Row(name, "%", better, values, ("",) * len(values))


def _waits(figures: Sequence[Figures]) -> Iterable[Row]:
    for kind in ("all", "debug", "session", "batch", "largest_gang"):
        name = "largest gangs" if kind == "largest_gang" else f"{kind} jobs" if kind != "all" else "all"
        yield from _quantiles([one.waits.by_class[kind] for one in figures], f"wait of {name}")
    yield from _quantiles([one.waits.resumed for one in figures], "wait of touched sessions")


def _quantiles(found: Sequence[Quantiles], name: str) -> Iterable[Row]:
    columns = (
        ("p50", [one.p50 for one in found]),
        ("p90", [one.p90 for one in found]),
        ("p99", [one.p99 for one in found]),
        ("max", [one.longest for one in found]),
    )
    for column, values in columns:
        yield Row(
            f"{name}, {column}",
            "s",
            Better.LOWER,
            tuple(None if value is None else value / 1000 for value in values),
            tuple("≥" if column in one.at_least else "" for one in found),
        )


def _others(figures: Sequence[Figures]) -> Iterable[Row]:
    counted: tuple[tuple[str, Better, Value], ...] = (
        ("still waiting at the end", Better.LOWER, lambda one: one.waits.unfinished.count),
        ("jobs that came to their end", Better.HIGHER, lambda one: one.counts.completions),
        ("preemptions", Better.LOWER, lambda one: sum(one.counts.preemptions.values())),
        ("preemptions of protected work", Better.LOWER, lambda one: one.run.protected_preemptions),
        ("most restarts of one job", Better.LOWER, lambda one: one.counts.most_restarts),
        ("landings", Better.NEITHER, lambda one: one.landings.granted or None),
        (
            "starts after their start-by time",
            Better.LOWER,
            lambda one: one.landings.late if one.landings.granted else None,
        ),
    )
    for name, better, value in counted:
        values = tuple(value(one) for one in figures)
        yield Row(name, "", better, values, ("",) * len(values))
