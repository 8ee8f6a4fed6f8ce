"""The points of a sweep: what was varied, and the figures that people sweep for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from gpufair.cli.scenarios import VARIED
from gpufair.cli.words import NOTHING, span

if TYPE_CHECKING:
    from gpufair.sim import Figures, Run


class Point:
    """All seeds of one combination of values."""

    def __init__(self, values: dict[str, Any], runs: Sequence[Run]) -> None:
        self.values, self.runs = values, runs

    def mean(self, figure: Figure) -> float | None:
        """Over the seeds, of those in which it is known."""
        known = [value for run in self.runs if (value := figure.of(run.figures)) is not None]
        return fmean(known) if known else None

    def worst(self, figure: Figure) -> float | None:
        """Of the seeds."""
        known = [value for run in self.runs if (value := figure.of(run.figures)) is not None]
        return (min(known) if figure.higher else max(known)) if known else None


class Figure:
    """A figure that people sweep for. ``higher``: the more of it the better."""

    def __init__(self, name: str, unit: str, of: Callable[[Figures], float | None], *, higher: bool) -> None:
        self.name, self.unit, self.of, self.higher = name, unit, of, higher

    def said(self, value: float | None) -> str:
        """As people read it."""
        if value is None:
            return NOTHING
        return f"{100 * value:.1f} %" if self.unit == "%" else span(value) if self.unit == "s" else f"{value:,.0f}"


def _wait(kind: str, name: str) -> Callable[[Figures], float | None]:
    def of(figures: Figures) -> float | None:
        value = getattr(figures.waits.by_class[kind], name)
        return None if value is None else value / 1000

    return of


FIGURES: Final = (
    Figure("capped", "%", lambda one: one.delivered.capped, higher=True),
    Figure("worst", "%", lambda one: one.delivered.worst.delivered if one.delivered.worst else None, higher=True),
    Figure("net", "%", lambda one: one.delivered.net, higher=True),
    Figure("occupancy", "%", lambda one: one.time.of_available(one.time.held), higher=True),
    Figure("debug p90", "s", _wait("debug", "p90"), higher=False),
    Figure("batch p50", "s", _wait("batch", "p50"), higher=False),
    Figure("gang max", "s", _wait("largest_gang", "longest"), higher=False),
    Figure(
        "resume p90",
        "s",
        lambda one: None if one.waits.resumed.p90 is None else one.waits.resumed.p90 / 1000,
        higher=False,
    ),
    Figure("lost", "%", lambda one: one.time.of_available(one.time.lost), higher=False),
    Figure("switching", "%", lambda one: one.time.of_available(one.time.switching), higher=False),
    Figure("preemptions", "", lambda one: float(sum(one.counts.preemptions.values())), higher=False),
)


def points_of(runs: Iterable[Run]) -> list[Point]:
    """The runs by what was varied, in their order."""
    by_values: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        by_values.setdefault(tuple(run.values.items()), []).append(run)
    return [Point(dict(values), found) for values, found in by_values.items()]


def shown(name: str, value: Any) -> str:
    """A value of what was varied as it is written in a configuration."""
    if name in VARIED:
        return f"{value:g}"
    from gpufair.service.settings.policy_options import written_option  # noqa: PLC0415  # the service is not needed by other commands

    return written_option(name, value)
