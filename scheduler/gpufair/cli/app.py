"""The `gpufair` command: which commands there are. What each does is in the module beside this one."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from gpufair.cli import (
    access,
    agent,
    amending,
    announcing,
    api_schema,
    budgets,
    checkpoints,
    cpu_pool,
    database,
    doctor,
    drill,
    figures,
    foresight,
    gallery,
    maintenance,
    nodes,
    past,
    pools,
    reloading,
    replaying,
    run,
    sessions,
    shadow,
    simulating,
    snapshots,
    submitting,
    sweeping,
    touring,
    watch,
    whatif,
)
from gpufair.cli.exits import EPILOG, Root
from gpufair.core import COMPILED

app = typer.Typer(
    cls=Root,
    name="gpufair",
    help="Fair sharing of GPUs between notebook sessions and batch work.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        compiled = " (compiled core)" if COMPILED else ""
        typer.echo(metadata.version("jupyter-gpufair") + compiled)
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Fair sharing of GPUs between notebook sessions and batch work."""


_LOOK, _CHANGE, _TRY, _RUN = "Look", "Change", "Try out", "Run"

app.command("status", rich_help_panel=_LOOK)(watch.status)
app.command("queue", rich_help_panel=_LOOK)(watch.queue)
app.command("why", rich_help_panel=_LOOK)(watch.why)
app.command("preview", rich_help_panel=_LOOK)(foresight.preview)
app.command("coach", rich_help_panel=_LOOK)(foresight.coach)
app.command("tour", rich_help_panel=_LOOK)(touring.tour)
app.command("pyramid", rich_help_panel=_LOOK)(figures.pyramid)
app.command("history", rich_help_panel=_LOOK)(past.history)
app.add_typer(watch.kernels, name="kernels", rich_help_panel=_LOOK)
app.command("submit", rich_help_panel=_CHANGE, cls=submitting.Submit)(submitting.submit)
app.command("drill", rich_help_panel=_TRY, cls=submitting.Submit)(drill.drill)
app.command("logs", rich_help_panel=_LOOK)(submitting.logs)
app.command("dashboard", rich_help_panel=_LOOK)(access.dashboard)
app.command("audit", rich_help_panel=_LOOK)(access.audit)
app.add_typer(access.tokens, name="tokens", rich_help_panel=_CHANGE)
app.command("gallery", rich_help_panel=_LOOK)(gallery.gallery)
app.add_typer(sessions.sessions, name="sessions", rich_help_panel=_CHANGE)
app.add_typer(checkpoints.checkpoints, name="checkpoints", rich_help_panel=_CHANGE)
app.command("amend", rich_help_panel=_CHANGE)(amending.amend)
app.command("extend", rich_help_panel=_CHANGE)(sessions.extend)
app.add_typer(budgets.budgets, name="budgets", rich_help_panel=_CHANGE)
app.add_typer(nodes.nodes, name="nodes", rich_help_panel=_CHANGE)
app.add_typer(pools.pools, name="pools", rich_help_panel=_CHANGE)
app.add_typer(maintenance.maintenance, name="maintenance", rich_help_panel=_CHANGE)
app.add_typer(announcing.announce, name="announce", rich_help_panel=_CHANGE)
app.add_typer(nodes.nodes, name="node", hidden=True)  # of one node people say it so
app.command("simulate", rich_help_panel=_TRY)(simulating.simulate)
app.command("compare", rich_help_panel=_TRY)(simulating.compare)
app.command("sweep", rich_help_panel=_TRY)(sweeping.sweep)
app.command("shadow", rich_help_panel=_TRY)(shadow.shadow)
app.command("replay", rich_help_panel=_TRY)(replaying.replay)
app.command("snapshot", rich_help_panel=_TRY)(snapshots.snapshot)
app.command("whatif", rich_help_panel=_TRY)(whatif.whatif)
app.add_typer(cpu_pool.cpu, name="cpu", rich_help_panel=_RUN)
app.command("agent", rich_help_panel=_RUN)(agent.agent)
app.command("doctor", rich_help_panel=_RUN)(doctor.doctor)
app.add_typer(database.database, name="db", rich_help_panel=_RUN)
app.command("reload", rich_help_panel=_CHANGE)(reloading.reload)
app.command("serve", rich_help_panel=_RUN)(run.serve)
app.command("demo", rich_help_panel=_RUN)(run.demo)
app.command("lab", rich_help_panel=_RUN)(run.lab)
app.command("api-schema", rich_help_panel=_RUN)(api_schema.api_schema)
