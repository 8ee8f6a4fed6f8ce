"""`gpufair amend`: what waits asks for something else, and keeps its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpufair.cli.exits import CommandError
from gpufair.cli.find import find
from gpufair.cli.options import (
    AsJson,
    StateDir,
    bytes_of,
    client,
    complete_allocation,
    complete_pool,
    complete_workload,
    seconds_of,
)
from gpufair.cli.output import emit_json, line
from gpufair.cli.words import clean, what

if TYPE_CHECKING:
    from gpufair.client import Client


def amend(
    workloads: Annotated[
        list[str],
        typer.Argument(metavar="ID...", help="Ids, the first 4 characters or more, or names.", autocompletion=complete_workload),
    ],
    gpus: Annotated[int | None, typer.Option("--gpus", min=0, help="GPUs on each node.")] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, help="On how many nodes at once.")] = None,
    gpu_type: Annotated[str | None, typer.Option("--gpu-type", help='Only GPUs of this type; "" for any.')] = None,
    min_runtime: Annotated[
        str | None,
        typer.Option("--min-runtime", metavar="DURATION", help="For how long it is not preempted; 0s: unallocated."),
    ] = None,
    allocation: Annotated[
        str | None, typer.Option("--allocation", help="Who pays.", autocompletion=complete_allocation)
    ] = None,
    pool: Annotated[
        list[str] | None,
        typer.Option("--pool", metavar="NAME", help="Only in this cluster; may be repeated, the first is tried first.", autocompletion=complete_pool),
    ] = None,
    cpus: Annotated[int | None, typer.Option("--cpus", min=0, help="CPUs that are kept for it on each node.")] = None,
    memory: Annotated[
        str | None, typer.Option("--memory", metavar="SIZE", help="Memory that is kept for it on each node, like 16GiB.")
    ] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="Inside its allocation; higher comes first.")] = None,
    suggested: Annotated[
        bool, typer.Option("--suggested", help="The smallest change that would start it now, as `gpufair why` names it.")
    ] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Have what waits or rests ask for something else: fewer GPUs, say. It keeps its place; what runs is not touched.

    What is not named stays. Several workloads, those of an array for instance, are amended one after the other.
    """
    wish: dict[str, Any] = {
        "gpus": gpus,
        "nodes": nodes,
        "gpu_type": gpu_type,
        "pools": pool,
        "min_runtime_s": None if min_runtime is None else seconds_of(min_runtime, "--min-runtime"),
        "allocation": allocation,
        "cpus": cpus,
        "memory_bytes": None if memory is None else bytes_of(memory, "--memory"),
        "priority": priority,
    }
    wish = {name: value for name, value in wish.items() if value is not None}
    if suggested == bool(wish):
        raise typer.BadParameter("say what to change, like --gpus 2, or --suggested; not both")
    seen = []
    with client(state_dir) as service:
        for found in [find(service, text) for text in workloads]:
            asked = _suggested(service, found.id) if suggested else wish
            seen.append(service.amend(found.id, **asked))
            if not as_json:
                line(f"{clean(seen[-1].label)} ({found.id[:8]}) is {what(seen[-1])}")
    if as_json:
        emit_json(seen[0] if len(seen) == 1 else {"workloads": seen})


def _suggested(service: Client, workload: str) -> dict[str, Any]:
    change = service.why(workload).change
    if change is None or not change.amend:
        raise CommandError(f"no change is known that would start {workload[:8]} now; `gpufair why {workload[:8]}` says why")
    return change.amend
