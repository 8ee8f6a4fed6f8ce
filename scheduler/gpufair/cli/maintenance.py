"""`gpufair maintenance`: close nodes at a time that everybody knows before."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from gpufair.cli.exits import NoSuch
from gpufair.cli.options import (
    AsJson,
    StateDir,
    client,
    complete_node,
    complete_plan,
    complete_pool,
    instant_of,
    seconds_of,
)
from gpufair.cli.output import Column, emit_json, line, table
from gpufair.cli.words import clean, moment, plural

if TYPE_CHECKING:
    from gpufair.client.insight import Plan

maintenance = typer.Typer(help="Planned maintenance: list, plan, cancel.", no_args_is_help=True)


@maintenance.command("list")
def list_plans(as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """List what is planned."""
    with client(state_dir) as service:
        found = service.maintenance()
    if as_json:
        emit_json({"plans": found})
        return
    now = time.time()
    columns = [Column("PLAN"), Column("CLOSES"), Column("NODES")]
    table(columns, [(p.id, moment(p.at_s, now), ", ".join(p.nodes)) for p in found], "no maintenance is planned")


@maintenance.command("plan")
def plan(
    nodes: Annotated[
        list[str] | None, typer.Argument(metavar="NODE...", help="Which nodes.", autocompletion=complete_node)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All nodes.")] = False,
    pool: Annotated[
        str | None, typer.Option("--pool", metavar="NAME", help="All nodes of a cluster.", autocompletion=complete_pool)
    ] = None,
    within: Annotated[str | None, typer.Option("--in", metavar="DURATION", help="When, from now: 8h, 2d.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="When, in local time: 08:00, or 2027-01-31T08:00.")
    ] = None,
    name: Annotated[str | None, typer.Option("--id", help="How to call the plan; default: made up.")] = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Close nodes at a time: until then only what is done by then starts there, then nothing."""
    if bool(nodes) + every + (pool is not None) != 1:
        raise typer.BadParameter("name the nodes, a --pool of them, or --all", param_hint="NODE")
    at_s = _when(within, at, time.time())
    with client(state_dir) as service:
        wanted = list(nodes or ()) or [node.name for node in service.nodes() if pool in (None, node.pool)]
        if not wanted:
            raise NoSuch(f"there is no node in a pool {pool!r}; `gpufair pools list` shows which there are")
        before = {p.id for p in service.maintenance()}
        found = service.plan_maintenance(wanted, at_s, name)
    made = next(p for p in found if p.id not in before)
    if as_json:
        emit_json(made)
    else:
        line(
            f"{clean(made.id)}: {_closing(made)} {moment(made.at_s, time.time())}; until then only what is done by then starts there"
        )


@maintenance.command("cancel")
def cancel(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="As `list` shows it.", autocompletion=complete_plan)],
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Take a plan back. Nodes that it has closed already are opened with `gpufair nodes uncordon`."""
    with client(state_dir) as service:
        found = service.cancel_maintenance(plan)
    if as_json:
        emit_json({"plans": found})
    else:
        line(f"{clean(plan)} is off; {plural(len(found), 'plan')} left")


def _closing(made: Plan) -> str:
    verb = "closes" if len(made.nodes) == 1 else "close"
    shown = ", ".join(clean(node) for node in made.nodes[:8]) + (", …" if len(made.nodes) > 8 else "")
    return f"{shown} {verb}"


def _when(within: str | None, at: str | None, now: float) -> float:
    if (within is None) == (at is None):
        raise typer.BadParameter("say when: either --in 8h or --at 08:00", param_hint="--in")
    if within is not None:
        return now + seconds_of(within, "--in")
    assert at is not None
    return instant_of(at, "--at", now)
