"""Commands that look ahead: `preview`, `coach`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpufair.cli.options import AsJson, StateDir, client, complete_allocation, complete_pool, complete_profile, usual
from gpufair.cli.output import Column, emit_json, line, table
from gpufair.cli.words import NOTHING, clean, gpu_time, localised, moment, percent, span

if TYPE_CHECKING:
    from gpufair.client.insight import Choice, ForeseenStep

# What happens between the news: who starts, who is told to leave, who ends.
_BETWEEN = frozenset({"kept", "given up", "releases", "stopped"})


def preview(
    hours: Annotated[float, typer.Option("--hours", min=0.01, max=168.0, help="How far to look.")] = 8.0,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Every step, as when GPUs are kept for somebody and become free.")
    ] = False,
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
        if everything or step.what not in _BETWEEN
    ]
    table(columns, rows, f"if nothing new arrives, nothing changes in the next {span(hours * 3600)}")
    if rows:
        line(f"Of those who wait now, {len(seen.starts)} start by {moment(seen.until_s, now)} if nothing new arrives.")
    if seen.cut:
        line(f"The preview was {localised(clean(seen.cut), now)}.")


def _until(step: ForeseenStep, now: float) -> str:
    return NOTHING if step.until_s is None else moment(step.until_s, now)


def coach(
    profile: Annotated[
        str | None, typer.Option("--profile", help="What to begin with.", autocompletion=complete_profile)
    ] = None,
    allocation: Annotated[
        str | None, typer.Option("--allocation", help="Who pays.", autocompletion=complete_allocation)
    ] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", min=0, help="GPUs on each node; 1 without a profile.")] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, help="On how many nodes at once.")] = None,
    gpu_type: Annotated[str | None, typer.Option("--gpu-type", help="Only GPUs of this type.")] = None,
    min_runtime: Annotated[
        str | None, typer.Option("--min-runtime", metavar="DURATION", help="Protection to ask for; 1h without a profile.")
    ] = None,
    pool: Annotated[
        list[str] | None,
        typer.Option("--pool", metavar="NAME", help="Only in this cluster; may be repeated, the first is tried first.", autocompletion=complete_pool),
    ] = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Say what asking for less protection or fewer GPUs would mean for the wait. Nothing is submitted."""
    gpus, span_s = usual(profile, gpus, min_runtime)
    with client(state_dir) as service:
        seen = service.coach(
            profile=profile, allocation=allocation, gpus=gpus, nodes=nodes, gpu_type=gpu_type, pools=pool, min_runtime_s=span_s
        )
    if as_json:
        emit_json(seen)
        return
    now = seen.now_s
    columns = [
        Column("GPUS"),
        Column("PROTECTED"),
        Column("STARTS"),
        Column("COMMITS", 1, right=True),
        Column("OF BUDGET", 2, right=True),
    ]
    rows = [
        (
            f"{_shape(choice)}{' (asked)' if _same(choice, seen.asked) else ''}",
            span(choice.min_runtime_s) if choice.min_runtime_s else "unallocated",
            _starts(choice, now),
            gpu_time(choice.committed_gpu_s) if choice.committed_gpu_s else NOTHING,
            percent(choice.of_budget) if choice.of_budget is not None and choice.committed_gpu_s else NOTHING,
        )
        for choice in ([] if any(_same(one, seen.asked) for one in seen.choices) else [seen.asked]) + [*seen.choices]
    ]
    table(columns, rows, "")
    line(f"\n{localised(clean(seen.advice, 1000), now)}")
    for warning in seen.warnings:
        line(f"Take care: {clean(warning, 1000)}.")


def _shape(choice: Choice) -> str:
    count = str(choice.gpus) if choice.nodes == 1 else f"{choice.nodes} × {choice.gpus}"
    return f"{count} {choice.gpu_type}".strip()


def _same(one: Choice, other: Choice) -> bool:
    key = ("gpus", "nodes", "gpu_type", "min_runtime_s")
    return all(getattr(one, name) == getattr(other, name) for name in key)


def _starts(choice: Choice, now: float) -> str:
    if choice.outlook == "now":
        return "now"
    if choice.outlook == "refused":
        return "never: refused"
    if choice.at_s is None:
        return "not known"
    about = {"estimated": "about ", "start by": "by "}.get(choice.outlook, "by ")
    room = ", others leave for it" if choice.outlook == "makes room" else ""
    return f"{about}{moment(choice.at_s, now)}{room}"
