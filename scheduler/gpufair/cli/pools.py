"""`gpufair pools`: clusters under one service, and taking a whole one out of service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpufair.cli.options import AsJson, Deadline, Force, StateDir, client, complete_pool, emptied_within_s
from gpufair.cli.output import Column, emit_json, line, table
from gpufair.cli.words import clean, plural

if TYPE_CHECKING:
    from gpufair.client.pools import PoolView

pools = typer.Typer(help="Pools (clusters): list, cordon, drain, uncordon.", no_args_is_help=True)
PoolName = Annotated[str, typer.Argument(metavar="POOL", help="As `list` shows it.", autocompletion=complete_pool)]


@pools.command("list")
def list_pools(as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """List the pools with their GPUs."""
    with client(state_dir) as service:
        found = service.pools()
    if as_json:
        emit_json({"pools": found})
        return
    columns = [
        Column("POOL"),
        Column("NODES"),
        Column("GPUS FREE"),
        Column("HELD", 1, right=True),
        Column("QUEUED", 1, right=True),
        Column("TYPES", 2),
        Column("BACKEND", 3),
    ]
    rows = (
        (
            one.name,
            _nodes(one),
            f"{one.free_gpus} of {one.gpus}",
            plural(one.held_gpus, "GPU"),
            plural(one.queued_gpus, "GPU"),
            ", ".join(one.gpu_types),
            one.backend,
        )
        for one in found
    )
    table(columns, rows, "there is no pool")


@pools.command("cordon")
def cordon(pool: PoolName, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Let nothing new start on any of its nodes; what runs there leaves as its protection ends."""
    with client(state_dir) as service:
        seen = service.cordon_pool(pool)
    _tell(seen, "is cordoned: nothing new starts there", as_json=as_json)


@pools.command("drain")
def drain(
    pool: PoolName,
    deadline: Deadline = None,
    force: Force = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Empty a whole pool by a deadline; what is protected beyond it stays, unless forced."""
    within_s = emptied_within_s(deadline, force=force)
    with client(state_dir) as service:
        seen = service.drain_pool(pool, within_s=within_s, force=force)
    _tell(seen, "is being drained: nothing new starts there", as_json=as_json)


@pools.command("uncordon")
def uncordon(pool: PoolName, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Let all of its nodes take workloads again."""
    with client(state_dir) as service:
        seen = service.uncordon_pool(pool)
    _tell(seen, "takes workloads again", as_json=as_json)


def _tell(seen: PoolView, what: str, *, as_json: bool) -> None:
    if as_json:
        emit_json(seen)
    else:
        held = f"; {plural(seen.held_gpus, 'GPU')} held" if seen.held_gpus else ""
        line(f"{clean(seen.name)} ({plural(seen.nodes, 'node')}) {what}{held}")


def _nodes(one: PoolView) -> str:
    closed = [f"{count} {word}" for count, word in ((one.cordoned, "cordoned"), (one.lost, "lost")) if count]
    return str(one.nodes) + (f" ({', '.join(closed)})" if closed else "")
