"""`gpufair sweep`: what a figure depends on, over options of the policy, demand and seeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gpufair.cli.exits import CommandError
from gpufair.cli.options import settings_of
from gpufair.cli.output import Column, line, table
from gpufair.cli.progress import progress
from gpufair.cli.results import STDOUT, check_writable, write_text
from gpufair.cli.scenarios import VARIED, Asked, complete_policy, with_scenario
from gpufair.cli.simulating import Jobs, JsonFile
from gpufair.cli.sweep_page import page
from gpufair.cli.sweep_points import FIGURES, Figure, Point, points_of, shown
from gpufair.cli.words import clean, plural

if TYPE_CHECKING:
    from gpufair.sim import Run

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
    check_writable({"--json": json_file, "--report": report}, asked.files)
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
        kind = "whole numbers" if name == "closed_loop" else "numbers"
        raise typer.BadParameter(f"{text[:80]!r}: {name} takes {kind}, like {name}=1,2", param_hint="--vary") from err


def _option(name: str, value: str) -> Any:
    from gpufair.core.model import Policy  # noqa: PLC0415  # the core is not needed by other commands

    return getattr(settings_of([f"{name}={value}"], Policy(), "--vary"), name)


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
