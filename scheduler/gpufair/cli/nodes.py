"""`gpufair nodes`: the machines, and taking one out of service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from gpufair.cli.options import AsJson, NodeName, StateDir, client
from gpufair.cli.output import Column, emit_json, line, table
from gpufair.cli.words import ago, clean, clock, plural

if TYPE_CHECKING:
    from gpufair.client.types import NodeView

nodes = typer.Typer(help="Machines: list, cordon, uncordon.", no_args_is_help=True)


@nodes.command("list")
def list_nodes(as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """List the machines with their GPUs."""
    with client(state_dir) as service:
        found = service.nodes()
    if as_json:
        emit_json({"nodes": found})
        return
    now = time.time()
    columns = [
        Column("NODE"),
        Column("STATE"),
        Column("GPUS FREE"),
        Column("TYPE", 1),
        Column("POOL", 3),
        Column("WORKLOADS", 2),
        Column("LANDINGS", 3),
        Column("SEEN", 2),
    ]
    rows = (
        (
            n.name,
            _state(n),
            f"{n.free_gpus} of {n.gpus}" if n.gpus else "cpu",
            n.gpu_type,
            n.pool,
            ", ".join(workload[:8] for workload in n.workloads),
            ", ".join(f"{one.workload[:8]} by {clock(one.start_by_s, now)}" for one in n.landings),
            f"{ago(n.last_seen_s, now)} ago" if n.last_seen_s is not None else "",
        )
        for n in found
    )
    table(columns, rows, "no node has joined yet")


@nodes.command("cordon")
def cordon(node: NodeName, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Let nothing new start on a node; what runs there leaves as its protection ends."""
    with client(state_dir) as service:
        seen = service.cordon(node)
    if as_json:
        emit_json(seen)
        return
    leaving = len(seen.workloads)
    after = f"; {plural(leaving, 'workload')} will leave as protection ends" if leaving else "; it is empty"
    line(f"{clean(seen.name)} is cordoned: nothing new starts there{after}")


@nodes.command("uncordon")
def uncordon(node: NodeName, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Let a node take workloads again."""
    with client(state_dir) as service:
        seen = service.uncordon(node)
    if as_json:
        emit_json(seen)
    else:
        line(f"{clean(seen.name)} takes workloads again ({seen.free_gpus} of {plural(seen.gpus, 'GPU')} free)")


def _state(node: NodeView) -> str:
    if node.state == "lost" and node.cordoned:
        return "lost, cordoned"
    return node.state
