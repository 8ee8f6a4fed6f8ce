"""`gpufair sweep`: what a figure depends on, over options of the policy, demand and seeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gpufair.cli.exits import CommandError
from gpufair.cli.options import settings_of, write_text
from gpufair.cli.output import Column, line, table
from gpufair.cli.progress import progress
from gpufair.cli.scenarios import VARIED, Asked, complete_policy, with_scenario
from gpufair.cli.simulating import STDOUT, Jobs, JsonFile, check_writable
from gpufair.cli.words import NOTHING, clean, plural, span

if TYPE_CHECKING:
    from gpufair.sim import Figures, Run

MOST_RUNS: Final = 10_000


def complete_vary(incomplete: str) -> list[tuple[str, str]]:
    """What can be varied."""
    from gpufair.cli.options import complete_setting  # noqa: PLC0415  # as in there

    own = [(f"{name}=", "of the scenario") for name in VARIED if name.startswith(incomplete)]
    return [*own, *complete_setting(incomplete)]


@with_scenario
def sweep(
    asked: Asked,
    vary: Annotated[
        list[str],
        typer.Option(
            "--vary",
            metavar="NAME=A,B,…",
            help=f"Values of an option of the policy, or of {', '.join(VARIED)}; may be repeated: then every combination.",
            autocompletion=complete_vary,
        ),
    ],
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, max=1000, help="How many seeds, from --seed on, at each point.")
    ] = 1,
    policy: Annotated[
        str, typer.Option("--policy", "-p", metavar="NAME", help="Under which.", autocompletion=complete_policy)
    ] = "fair-share",
    json_file: JsonFile = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="OUT.html", dir_okay=False, help="Write tables and charts as one HTML file."),
    ] = None,
    jobs: Jobs = 1,
) -> None:
    """Play a trace or a world at every combination of values, and show what the figures depend on.

    The table shows means over the seeds, with the worst seed's value in brackets.
    """
    from gpufair.sim import sweep as play_all  # noqa: PLC0415  # the simulator is not needed by other commands
    from gpufair.sim.policies.registry import contender  # noqa: PLC0415  # as above

    contender(policy)
    check_writable(json_file, report)
    varied = dict(_values(text) for text in vary)
    if len(varied) < len(vary):
        raise CommandError("--vary names something twice; give all its values in one, like --vary banking=0,0.25,1")
    count = seeds
    for values in varied.values():
        count *= len(values)
    if count > MOST_RUNS:
        raise CommandError(f"these are {count:,} runs; vary less, so that they are {MOST_RUNS:,} at most")
    source = asked.source()
    with progress(plural(count, "run"), 1.0) as advance:
        runs = play_all(
            source,
            varied,
            seeds=range(asked.seed, asked.seed + seeds),
            policy=policy,
            options=source.options,
            jobs=jobs,
            progress=advance,
        )
    answer = as_json(runs, policy)
    if json_file == STDOUT:
        typer.echo(json.dumps(answer, indent=2))
    else:
        tell(runs, list(varied), seeds)
        if json_file is not None:
            write_text(json_file, json.dumps(answer, indent=2) + "\n")
    if report is not None:
        from gpufair.cli.sweep_page import page  # noqa: PLC0415  # as above

        about = f"{clean(runs[0].figures.scenario)} on {runs[0].figures.run.gpus:,} GPUs under {policy}"
        write_text(report, page(about, list(varied), points_of(runs)))
        typer.echo(f"report: {report}", err=True)


def _values(text: str) -> tuple[str, list[Any]]:
    """``banking=0,0.25,1`` as a name and the values of its type."""
    name, equals, given = (part.strip() for part in text.partition("="))
    values = [one.strip() for one in given.split(",") if one.strip()]
    if not equals or not values:
        raise typer.BadParameter(f"{text[:80]!r} is no NAME=A,B,…, like banking=0,0.25,1", param_hint="--vary")
    name = name.replace("-", "_")
    if len(set(values)) < len(values):
        raise typer.BadParameter(f"{text[:80]!r} names a value twice", param_hint="--vary")
    if name not in VARIED:
        return name, [_option(name, value) for value in values]
    try:
        return name, [int(value) if name == "closed_loop" else float(value) for value in values]
    except ValueError as err:
        raise typer.BadParameter(f"{text[:80]!r}: {err}", param_hint="--vary") from err


def _option(name: str, value: str) -> Any:
    from gpufair.core.model import Policy  # noqa: PLC0415  # the core is not needed by other commands

    return getattr(settings_of([f"{name}={value}"], Policy()), name)


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


def tell(runs: Sequence[Run], varied: Sequence[str], seeds: int) -> None:
    """Means, and the worst of the seeds in brackets."""
    points = points_of(runs)
    figures = [one for one in FIGURES if any(point.mean(one) is not None for point in points)]
    line(
        f"{clean(runs[0].figures.scenario)}: {runs[0].figures.run.gpus:,} GPUs, {plural(len(points), 'point')}"
        + (f", means over {seeds} seeds (the worst one in brackets)" if seeds > 1 else "")
        + "\n"
    )
    columns = [
        *(Column(name) for name in varied),
        *(Column(one.name.upper(), rank, right=True) for rank, one in enumerate(figures)),
    ]
    rows = [
        [*(shown(name, point.values[name]) for name in varied), *(_cell(one, point, seeds) for one in figures)]
        for point in points
    ]
    table(columns, rows, "")


def _cell(figure: Figure, point: Point, seeds: int) -> str:
    mean, worst = figure.said(point.mean(figure)), figure.said(point.worst(figure))
    return f"{mean} ({worst})" if seeds > 1 else mean


def shown(name: str, value: Any) -> str:
    """A value of what was varied as it is written in a configuration."""
    if name in VARIED:
        return f"{value:g}"
    from gpufair.service.settings.policy_options import written_option  # noqa: PLC0415  # as above

    return written_option(name, value)


def as_json(runs: Sequence[Run], policy: str) -> dict[str, Any]:
    """All runs with all their figures."""
    from gpufair.sim import as_json as written  # noqa: PLC0415  # as above

    return {
        "trace": runs[0].figures.scenario,
        "policy": policy,
        "runs": [
            {
                "values": {name: shown(name, value) for name, value in run.values.items()},
                "seed": run.seed,
                "figures": written(run.figures),
            }
            for run in runs
        ],
    }
