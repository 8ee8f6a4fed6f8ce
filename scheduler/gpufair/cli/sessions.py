"""`gpufair sessions`: what runs, waits or rests, and what its owner can do with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from gpufair.cli.find import find
from gpufair.cli.options import AsJson, StateDir, Timeout, Wait, WorkloadId, client, seconds_of
from gpufair.cli.output import Column, emit_json, line, table
from gpufair.cli.waiting import over, wait_for
from gpufair.cli.words import NOTHING, ago, clean, moment, plural, protection, shape, size, span, what

if TYPE_CHECKING:
    from gpufair.client import Client
    from gpufair.client.types import Workload

sessions = typer.Typer(help="Sessions and batch workloads: list, save, park, resume, stop.", no_args_is_help=True)

_SHORT_S = 5.0  # a difference between two clocks is no refusal
_TIMEOUT = "10m"  # parking takes at most the grace period of 2 min; a resumed session may queue


@sessions.command("list")
def list_sessions(
    as_json: AsJson = False,
    state: Annotated[
        str | None, typer.Option("--state", help="Only those in this state, like queued or parked.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="Only those of this user.")] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Those that are over as well.")] = False,
    state_dir: StateDir = None,
) -> None:
    """List sessions and batch workloads, newest first."""
    with client(state_dir) as service:
        found = [w for w in service.workloads(state, user) if everything or state is not None or w.live]
    found.sort(key=lambda w: (-w.submitted_s, w.id))
    if as_json:
        emit_json({"workloads": found})
        return
    now = time.time()
    columns = [
        Column("ID"),
        Column("NAME", 1),
        Column("STATE"),
        Column("USER", 2),
        Column("ALLOCATION", 3),
        Column("GPUS"),
        Column("NODE", 2),
        Column("PROTECTED", 3),
        Column("SAVED", 4),
        Column("AGE", 4),
    ]
    rows = (
        (
            w.id[:8],
            w.label,
            what(w),
            w.user,
            w.allocation,
            shape(w),
            ", ".join(lease.node for lease in w.leases),
            protection(w, now),
            NOTHING if w.checkpoint is None else f"{ago(w.checkpoint.at_s, now)} ago",
            ago(w.submitted_s, now),
        )
        for w in found
    )
    table(
        columns,
        rows,
        "there are no workloads" if everything else "there are no live workloads (--all lists those that are over)",
    )


@sessions.command("checkpoint")
def checkpoint(
    workload: WorkloadId,
    wait: Wait = False,
    timeout: Timeout = _TIMEOUT,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Save a session's variables and let it go on."""
    until_s = seconds_of(timeout, "--timeout")
    with client(state_dir) as service:
        before = find(service, workload)
        number = before.checkpoint.sequence if before.checkpoint is not None else -1
        seen = service.checkpoint(before.id)

        def failed(now: Workload) -> str | None:
            if now.not_saved is not None and now.not_saved != before.not_saved:
                return f"{clean(now.label)} was not saved: {clean(now.not_saved.reason, 1000)}"
            return over(now)

        def saved(now: Workload) -> bool:
            return now.checkpoint is not None and now.checkpoint.sequence > number

        if wait:
            seen = wait_for(service, seen, "saved", saved, failed, until_s, quiet=as_json)
    _tell(seen, as_json, _saved(seen) if wait else "is being saved")


@sessions.command("park")
def park(
    workload: WorkloadId,
    wait: Wait = False,
    timeout: Timeout = _TIMEOUT,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Save a session's variables and give its GPUs back."""
    until_s = seconds_of(timeout, "--timeout")

    def asked(service: Client, workload_id: str) -> Workload:
        return service.park(workload_id)

    def parked(seen: Workload) -> bool:
        return seen.state == "parked"

    _change(
        workload,
        asked,
        "parked",
        parked,
        state_dir,
        wait=wait,
        until_s=until_s,
        as_json=as_json,
        begun="is being parked",
    )


@sessions.command("resume")
def resume(
    workload: WorkloadId,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start from nothing instead of the last checkpoint.")] = False,
    part: Annotated[
        str | None,
        typer.Option(
            "--slice", metavar="DURATION", help="Ask for so much protection only, like 15m: little is had sooner."
        ),
    ] = None,
    on_cpu: Annotated[
        bool,
        typer.Option(
            "--on-cpu",
            help="Open it on a CPU node, free of charge, until it has GPUs again; one that runs is moved there.",
        ),
    ] = False,
    wait: Wait = False,
    timeout: Timeout = _TIMEOUT,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Queue a parked session again; it resumes where it was. With --on-cpu also one that runs: it keeps all its variables."""
    if on_cpu and (fresh or part is not None):
        raise typer.BadParameter("it opens with its variables and asks for no GPUs: leave --fresh and --slice out")
    until_s = seconds_of(timeout, "--timeout")
    slice_s = None if part is None else seconds_of(part, "--slice")

    def asked(service: Client, workload_id: str) -> Workload:
        if on_cpu:
            return service.open_on_cpu(workload_id)
        return service.resume(workload_id, from_checkpoint=not fresh, slice_s=slice_s)

    def running(seen: Workload) -> bool:
        return seen.state == "running" and seen.on_cpu == on_cpu

    def stayed(seen: Workload) -> str | None:
        if on_cpu and seen.move is not None and seen.move.failed is not None:
            return f"{clean(seen.label)} stays where it is: {clean(seen.move.failed, 1000)}"
        return over(seen)

    goal = "open on a CPU node" if on_cpu else "running"
    _change(
        workload,
        asked,
        goal,
        running,
        state_dir,
        wait=wait,
        until_s=until_s,
        as_json=as_json,
        begun="",
        failed=stayed,
    )


@sessions.command("dismiss")
def dismiss(workload: WorkloadId, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Leave a session on its GPUs, though it does not use them: nothing more is suggested until it starts anew."""
    with client(state_dir) as service:
        seen = service.dismiss(find(service, workload).id)
    _tell(seen, as_json, f"is {what(seen)}")


@sessions.command("extend")
def extend(
    workload: WorkloadId,
    duration: Annotated[str, typer.Argument(metavar="DURATION", help="How long from now on, like 1h.")],
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Have what runs protected longer: granted if nobody who waits comes first; never beyond a promise to others."""
    span_s = seconds_of(duration, "DURATION")
    with client(state_dir) as service:
        seen = service.extend(find(service, workload).id, span_s)
    now = time.time()
    until = seen.protected_until_s
    short = until is not None and until < now + span_s - _SHORT_S
    because = ": others were promised its GPUs from then on" if short else ""
    _tell(seen, as_json, f"is protected until {moment(until, now)}{because}")


@sessions.command("stop")
def stop(workload: WorkloadId, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """End a session or batch workload for good, without a checkpoint."""
    with client(state_dir) as service:
        found = find(service, workload)
        seen = service.stop(found.id) or service.workload(found.id)
    _tell(seen, as_json, "has ended" if not seen.live else "is being stopped")


def _change(
    workload: str,
    asked: Callable[[Client, str], Workload],
    goal: str,
    done: Callable[[Workload], bool],
    state_dir: StateDir,
    *,
    wait: bool,
    until_s: float,
    as_json: bool,
    begun: str,
    failed: Callable[[Workload], str | None] = over,
) -> None:
    with client(state_dir) as service:
        seen = asked(service, find(service, workload).id)
        if wait:
            seen = wait_for(service, seen, goal, done, failed, until_s, quiet=as_json)
    _tell(seen, as_json, f"is {what(seen)}{_lost(seen)}" if wait or not begun or done(seen) else begun)


def _tell(seen: Workload, as_json: bool, sentence: str) -> None:
    if as_json:
        emit_json(seen)
    else:
        line(f"{clean(seen.label)} ({seen.id[:8]}) {sentence}")


def _saved(seen: Workload) -> str:
    point = seen.checkpoint
    if point is None:  # the wait ended with one
        return "is saved"
    lost = f"; not saved: {', '.join(clean(name, 60) for name, _ in point.lost[:8])}" if point.lost else ""
    return f"is saved: {size(point.size_bytes)} in {span(point.duration_s)}{lost}"


def _lost(seen: Workload) -> str:
    if not seen.lost or seen.state != "running":
        return ""
    return f"; {plural(len(seen.lost), 'variable')} could not be restored: {', '.join(clean(name, 60) for name, _ in seen.lost[:8])}"
