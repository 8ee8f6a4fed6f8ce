"""`gpufair cpu`: the CPU pool of this machine that outlives kernels."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gpufair.cli.options import AsJson, bytes_of
from gpufair.cli.output import emit_json, line, pairs
from gpufair.cli.words import plural, span

if TYPE_CHECKING:
    from gpufair.client.machines import CpuPool
    from gpufair.cpu.resident import Resident

cpu = typer.Typer(help="A pool of this machine's cores for notebooks, which outlives them: start, status, stop.", no_args_is_help=True)
_PAGES = "<address of your Jupyter server>/gpufair/cpu-pool/dashboard/"
AtGateway = Annotated[bool, typer.Option("--gateway", help="Not the one of this machine, but those that notebooks started at a dask-gateway.")]
Folder = Annotated[
    Path | None,
    typer.Option("--state-dir", metavar="FOLDER", file_okay=False, help="Where its key lies; beats $GPUFAIR_STATE_DIR."),
]


@cpu.command("start")
def start(
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Processes at most; default: one per core.")] = None,
    memory: Annotated[
        str | None, typer.Option("--memory", metavar="SIZE", help="Of each worker at most, like 4GiB; default: a core's share.")
    ] = None,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="With pages that show what it does, at your Jupyter server.")] = False,
    as_json: AsJson = False,
    state_dir: Folder = None,
) -> None:
    """Start the pool, unless it runs already. Notebooks of yours on this machine find it by themselves."""
    from gpufair.cpu import resident  # noqa: PLC0415 - only this needs it

    memory_bytes = None if memory is None else _size(memory)
    made, fresh = resident.start(state_dir, workers=workers, memory_bytes=memory_bytes, pages=dashboard)
    if as_json:
        emit_json({**resident.told(made), "started": fresh})
        return
    if fresh:
        line(f"the CPU pool runs at {made.address} with up to {plural(made.workers, 'worker')}; `gpufair cpu stop` ends it")
    else:
        line(f"a CPU pool runs already, at {made.address} with up to {plural(made.workers, 'worker')}; nothing was changed")
    if made.dashboard:
        line(f"its dashboard is at {_PAGES}")
    elif dashboard:
        line("it has no dashboard; `gpufair cpu stop`, then start it again")


@cpu.command("status")
def status(gateway: AtGateway = False, as_json: AsJson = False, state_dir: Folder = None) -> None:
    """Show the pool and what it does, and which pool notebooks use."""
    from gpufair.cpu import resident, served  # noqa: PLC0415 - as above

    if gateway:
        _clusters("started", state_dir, as_json)
        return
    living = resident.found(state_dir)
    used, kept = served.chosen(state_dir)
    now = None if living is None else resident.figures(living)
    if as_json:
        own = {} if living is None else {**resident.told(living), "now": now, "log": str(resident.place(state_dir, "log"))}
        emit_json({"running": living is not None, **own, "notebooks_use": used, "service": None if kept is None else _told(kept)})
        return
    rows = [("notebooks use", _used(used, kept))]
    if used == "service" and kept is not None and any(one.worker_s for one in kept.usage):
        had = (f"{one.allocation} {span(one.worker_s)} (share {one.share:.0%})" for one in kept.usage if one.worker_s or one.share)
        rows.append(("worker time", f"in the last {span(kept.window_s)}: {', '.join(had)}"))
    if living is None:
        rows.insert(0, ("pool", "none of your own runs on this machine; `gpufair cpu start` starts one"))
    else:
        rows[:0] = _about(living, now or {}, str(resident.place(state_dir, "log")))
    pairs(rows)


def _about(living: Resident, now: dict[str, Any], log: str) -> list[tuple[str, str]]:
    doing = "it does not answer; `gpufair cpu stop`, then start it again"
    if now["workers"] is not None:
        doing = f"{plural(now['workers'], 'worker')} of up to {living.workers}, {plural(now['tasks'], 'task')}, {plural(now['clients'], 'notebook')}"
    return [
        ("pool", living.address),
        ("process", f"pid {living.pid}, up {span(time.time() - living.started_s)}"),
        ("now", doing),
        ("dashboard", _PAGES if living.dashboard else "none; `gpufair cpu start --dashboard` starts a pool with one"),
        ("memory", f"{living.memory_bytes / 2**30:.1f} GiB for each worker"),
        ("log", log),
    ]


def _used(used: str, kept: CpuPool | None) -> str:
    """Which pool notebooks use, in words."""
    if used == "address":
        return f"the one at {os.environ['GPUFAIR_CPU_POOL']} ($GPUFAIR_CPU_POOL)"
    if used == "own":
        return "this pool"
    if used == "service" and kept is not None:
        where = {
            "stopped": "it starts when a notebook first asks",
            "starting": "it is starting",
        }.get(kept.state, kept.address + (f", up to {plural(kept.workers, 'worker')}" if kept.workers else ""))
        quota = f"; at most {plural(kept.tasks_per_user, 'task')} of each user at once" if kept.tasks_per_user else ""
        return f"that of the scheduler service: {where}{quota}"
    why = f" (that of the scheduler service has failed: {kept.reason})" if kept is not None and kept.reason else ""
    return f"workers of their own, which end with them{why}"


def _told(kept: CpuPool) -> dict[str, Any]:
    """What others may see of it."""
    return {name: value for name, value in asdict(kept).items() if name not in {"ca", "certificate", "key", "allocation", "user"}}


@cpu.command("stop")
def stop(gateway: AtGateway = False, as_json: AsJson = False, state_dir: Folder = None) -> None:
    """End the pool, with the tasks that it runs and the results that it holds."""
    from gpufair.cpu import resident  # noqa: PLC0415 - as above

    if gateway:
        _clusters("stop", state_dir, as_json)
        return
    ended = resident.stop(state_dir)
    if as_json:
        emit_json({"stopped": ended is not None})
    else:
        line("no CPU pool of your own runs on this machine" if ended is None else f"the CPU pool at {ended.address} has ended")


def _clusters(what: Literal["started", "stop"], state_dir: Path | None, as_json: bool) -> None:
    """Look at, or end, the clusters of notebooks at gateways."""
    from gpufair.cpu import gateway  # noqa: PLC0415 - as above

    found = getattr(gateway, what)(state_dir)
    if as_json:
        emit_json([{name: value for name, value in vars(each).items() if name != "security"} for each in found])
        return
    for each in found:
        line(f"{each.name} at {each.gateway}: {'stopped' if what == 'stop' else each.status}")
        if what == "started" and each.dashboard:
            line(f"  dashboard {each.dashboard}")
    if not found:
        line("no cluster of your notebooks runs at a gateway")


def _size(text: str) -> int:
    size = bytes_of(text, "--memory")
    if size < 1 << 26:
        raise typer.BadParameter(f"{text} is less than Python and Dask need (64MiB)", param_hint="--memory")
    return size
