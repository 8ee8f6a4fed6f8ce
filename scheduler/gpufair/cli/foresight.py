"""Commands that look ahead: `preview`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpufair.cli.options import AsJson, StateDir, client
from gpufair.cli.output import Column, emit_json, line, table
from gpufair.cli.words import NOTHING, clean, localised, moment, span

if TYPE_CHECKING:
    from gpufair.client.insight import ForeseenStep


def preview(
    hours: Annotated[float, typer.Option("--hours", min=0.01, max=168.0, help="How far to look.")] = 8.0,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Say who runs next and who is preempted when, if nothing new arrives. Nothing of it is a promise."""
    with client(state_dir) as service:
        seen = service.preview(hours)
    if as_json:
        emit_json(seen)
        return
    now = seen.now_s
    columns = [
        Column("AT"),
        Column("ID"),
        Column("USER", 2),
        Column("ALLOCATION", 3),
        Column("WHAT"),
        Column("GPUS", 1, right=True),
        Column("NODES", 3),
        Column("FOR", 1),
        Column("UNTIL", 2),
        Column("BECAUSE", 4),
    ]
    rows = [
        (
            moment(step.at_s, now),
            step.workload[:8],
            step.user,
            step.allocation,
            step.what,
            str(step.gpus),
            ", ".join(step.nodes),
            step.beneficiary[:8] if step.beneficiary else NOTHING,
            _until(step, now),
            localised(step.why, now),
        )
        for step in seen.steps
    ]
    table(columns, rows, f"if nothing new arrives, nothing changes in the next {span(hours * 3600)}")
    if rows:
        line(f"Of those who wait now, {len(seen.starts)} start by {moment(seen.until_s, now)} if nothing new arrives.")
    if seen.cut:
        line(f"The preview was {localised(clean(seen.cut), now)}.")


def _until(step: ForeseenStep, now: float) -> str:
    return NOTHING if step.until_s is None else moment(step.until_s, now)
