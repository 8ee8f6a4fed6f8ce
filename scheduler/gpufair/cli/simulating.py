"""`gpufair simulate` and `gpufair compare`: play a trace or a world under policies, and tell what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpufair.cli.exits import CommandError
from gpufair.cli.output import Column, line, table
from gpufair.cli.progress import bars
from gpufair.cli.results import STDOUT, check_writable, whole, write_text
from gpufair.cli.scenarios import Asked, complete_policy, with_scenario
from gpufair.cli.words import NOTHING, clean, span

if TYPE_CHECKING:
    from gpufair.sim import Result, Scenario
    from gpufair.sim.measures import Row

JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="OUT", help="Write the figures as JSON; - is standard output.")
]
ReportFile = Annotated[
    Path | None,
    typer.Option("--report", metavar="OUT.html", dir_okay=False, help="Write a report: one HTML file with pictures."),
]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, max=256, help="So many runs at once.")]
Policies = Annotated[
    list[str] | None,
    typer.Option("--policy", "-p", metavar="NAME", help="May be repeated.", autocompletion=complete_policy),
]


@with_scenario
def simulate(
    asked: Asked,
    policy: Policies = None,
    json_file: JsonFile = None,
    report: ReportFile = None,
    jobs: Jobs = 1,
) -> None:
    """Play past or constructed submissions through the scheduler, on any cluster and at any demand.

    By default under fair-share, the policy of the service itself. Figures, pictures and JSON say what was delivered of
    what was owed, who waited how long, and what preemption cost.
    """
    run(asked, policy or ["fair-share"], json_file, report, jobs)


@with_scenario
def compare(
    asked: Asked,
    policy: Policies = None,
    json_file: JsonFile = None,
    report: ReportFile = None,
    jobs: Jobs = 1,
) -> None:
    """Play the same submissions under several policies side by side; by default under all there are."""
    from gpufair.sim import CONTENDERS  # noqa: PLC0415  # the simulator is not needed by other commands

    run(asked, policy or list(CONTENDERS), json_file, report, jobs)


def run(asked: Asked, policies: Sequence[str], json_file: Path | None, report: Path | None, jobs: int) -> None:
    """Play, and write what was asked for."""
    from gpufair.sim import compare as play_all  # noqa: PLC0415  # as above
    from gpufair.sim import sampling, write_report  # noqa: PLC0415  # as above
    from gpufair.sim.policies.registry import contender  # noqa: PLC0415  # as above

    for name in policies:
        contender(name)
    if twice := [name for name in dict.fromkeys(policies) if policies.count(name) > 1]:
        raise CommandError(f"--policy {twice[0]} is there twice; name each once")
    check_writable({"--json": json_file, "--report": report}, asked.files)
    source = asked.source()
    scenario = source()
    with bars(dict.fromkeys(policies, 1.0)) as advance:
        results = play_all(
            scenario,
            policies,
            source.options,
            sample_every=sampling(scenario) if report is not None else None,
            jobs=jobs,
            progress=advance,
        )
    answer = as_json(asked, scenario, results)
    if json_file == STDOUT:
        typer.echo(json.dumps(answer, indent=2))
    else:
        tell(scenario, results)
        if json_file is not None:
            write_text(json_file, json.dumps(answer, indent=2) + "\n")
    if report is not None:
        stories, figures = [one.story for one in results.values()], [one.figures for one in results.values()]
        with whole(report) as fresh:
            size = write_report(stories, fresh, title(scenario), figures=figures)
        typer.echo(f"report: {report} ({size / 1e6:.1f} MB)", err=True)


def title(scenario: Scenario) -> str:
    """The heading of a report."""
    return f"{scenario.name} on {scenario.gpus:,} GPUs"


def as_json(asked: Asked, scenario: Scenario, results: Mapping[str, Result]) -> dict[str, Any]:
    """What `--json` writes."""
    return {
        "trace": scenario.name,
        "scenario": {
            "cluster": asked.cluster,
            "gpus": scenario.gpus,
            "nodes": len(scenario.nodes),
            "jobs": len(scenario.jobs),
            "span_s": (scenario.until - scenario.start) / 1000,
            "warm_up_s": scenario.warm_up / 1000,
            "demand": asked.demand,
            "closed_loop": scenario.outstanding,
            "seed": scenario.seed,
            "settings": list(asked.setting or ()),
            "window": asked.window,
            "max_min_runtime": asked.max_min_runtime,
            "notes": list(scenario.notes),
        },
        "policies": {name: one.as_json() for name, one in results.items()},
    }


def tell(scenario: Scenario, results: Mapping[str, Result]) -> None:
    """The figures as a table, a column for each policy."""
    from gpufair.sim.measures import compare as side_by_side  # noqa: PLC0415  # as above

    warm_up = f"; the first {span(scenario.warm_up / 1000)} are left out of the figures" if scenario.warm_up else ""
    line(
        f"{clean(scenario.name)}: {scenario.gpus:,} GPUs on {len(scenario.nodes):,} nodes, "
        f"{span((scenario.until - scenario.start) / 1000)}, {len(scenario.jobs):,} jobs{warm_up}"
    )
    for note in scenario.notes:
        line(f"- {clean(note, 500)}")
    line("")
    columns = [Column("FIGURE"), *(Column(name.upper(), right=True) for name in results)]
    rows = side_by_side([one.figures for one in results.values()])
    table(columns, [_cells(row) for row in rows], "")


def _cells(row: Row) -> list[str]:
    return [
        row.name,
        *(f"{mark} {_said(value, row.unit)}".strip() for value, mark in zip(row.values, row.marks, strict=True)),
    ]


def _said(value: float | None, unit: str) -> str:
    if value is None:
        return NOTHING
    if unit == "%":
        return f"{value:.1f} %"
    if unit == "s":
        return span(value)
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"
