"""`gpufair doctor`: is everything as it should be, and if not, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from gpufair.cli.checkup import Patient, examine
from gpufair.cli.exits import FAILED
from gpufair.cli.node_findings import Finding
from gpufair.cli.options import AsJson, StateDir, client
from gpufair.cli.output import console, emit_json
from gpufair.cli.words import clean, plural
from gpufair.paths import state_dir as find_state_dir

_SIGNS = {"ok": ("✓", "green"), "note": ("·", ""), "warning": ("!", "yellow"), "problem": ("✗", "red")}


def doctor(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Configuration to check; else the usual places.")
    ] = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Look at configuration, journal, service, clocks, nodes, GPUs and front end; exit with 1 if there is a problem."""
    with client(state_dir) as service:
        report(examine(Patient(find_state_dir(state_dir), config, service=service)), as_json=as_json)


def report(findings: Iterable[Finding], *, as_json: bool) -> None:
    """Show each finding as it comes, and the sum; exit with 1 if one is a problem."""
    from rich.text import Text  # noqa: PLC0415  # 40 ms that --help need not pay

    out = console()
    found = []
    for finding in findings:
        found.append(finding)
        if as_json:
            continue
        sign, style = _SIGNS[finding.level]
        out.print(Text(f"{sign} {finding.about}: {clean(finding.said, 2000)}", style=style), soft_wrap=True)
        if finding.advice:
            out.print(Text(f"    {finding.advice}"), soft_wrap=True)
    problems = sum(one.level == "problem" for one in found)
    warnings = sum(one.level == "warning" for one in found)
    if as_json:
        emit_json({"healthy": not problems, "findings": found})
    else:
        out.print(f"{plural(problems, 'problem')}, {plural(warnings, 'warning')}")
    if problems:
        raise typer.Exit(FAILED)
