"""Commands that only look: `status`, `queue`, `why`, `kernels list`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from gpufair.cli import announcing
from gpufair.cli.exits import NoSuch
from gpufair.cli.explained import print_explanation, print_standing
from gpufair.cli.find import find
from gpufair.cli.options import AsJson, StateDir, client, complete_workload_or_allocation
from gpufair.cli.output import Column, emit_json, pairs, table
from gpufair.cli.words import NOTHING, localised, moment, plural, shape, span, starts

if TYPE_CHECKING:
    from gpufair.client import Client
    from gpufair.client.types import Status

kernels = typer.Typer(help="Kernels that Jupyter offers: the profiles of the service.", no_args_is_help=True)


def status(as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Say how the service is: nodes, free GPUs, workloads."""
    with client(state_dir) as service:
        seen = service.status()
        url = service.endpoint().url
        told = [] if as_json else _news(service, seen.now_s or time.time())
    if as_json:
        emit_json(seen)
        return
    now = seen.now_s or time.time()
    pairs(
        [
            ("service", f"{seen.version} at {url}, {seen.mode or 'running'}"),
            ("process", f"pid {seen.pid}, up {span(now - seen.started_s)}" if seen.started_s else f"pid {seen.pid}"),
            ("you are", seen.user or NOTHING),
            ("GPUs", f"{seen.gpus.free} free of {seen.gpus.total} on {plural(seen.nodes, 'node')}"),
            ("workloads", ", ".join(f"{count} {state}" for state, count in seen.counts.items() if count) or "none"),
            *_linger(seen, now),
            *told,
        ]
    )


def _news(service: Client, now: float) -> list[tuple[str, str]]:
    """What operators tell everybody; an older service has nothing of the kind."""
    from gpufair.client import NotFound  # noqa: PLC0415  # it brings the HTTP stack

    try:
        return announcing.news(service.announcements(), now)
    except NotFound:
        return []


def _linger(seen: Status, now: float) -> list[tuple[str, str]]:
    if seen.mode != "embedded":
        return []
    if seen.holders:
        return [("held by", plural(seen.holders, "Jupyter server"))]
    if seen.linger_until_s is not None:
        return [
            ("ends", f"{moment(seen.linger_until_s, now)}: no Jupyter server is connected; sessions are parked then")
        ]
    return [("ends", "once idle: no Jupyter server is connected")]


def queue(as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """List what waits for GPUs, in the order in which it will be served."""
    with client(state_dir) as service:
        seen = service.queue()
    if as_json:
        emit_json(seen)
        return
    now = seen.now_s or time.time()
    several = len({pool for w in seen.workloads for pool in w.pools}) > 1
    columns = [
        Column("#", right=True),
        Column("ID"),
        Column("NAME", 1),
        Column("USER", 3),
        Column("ALLOCATION", 2),
        Column("GPUS"),
        *([Column("POOLS", 2)] if several else []),
        Column("WAITED", 3),
        Column("STARTS", 1),
        Column("BECAUSE", 4),
    ]
    rows = (
        (
            str(w.position or at),
            w.id[:8],
            w.label,
            w.user,
            w.allocation,
            shape(w),
            *([", ".join(w.pools)] if several else []),
            span(max(0.0, now - w.submitted_s)),
            starts(w, now),
            localised(w.waits_for or w.reason, now),
        )
        for at, w in enumerate(seen.workloads, 1)
    )
    table(columns, rows, "nothing is queued")


def why(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A workload (as elsewhere), or an allocation by its path.",
            autocompletion=complete_workload_or_allocation,
        ),
    ],
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Explain why a workload waits, runs or was preempted, and what would start it now; or how an allocation stands."""
    with client(state_dir) as service:
        try:
            workload = find(service, subject)
        except NoSuch:
            if subject not in {allocation.path for allocation in service.budgets().allocations}:
                raise
            standing = service.budgets_why(subject)
            if as_json:
                emit_json(standing)
            else:
                print_standing(standing)
            return
        explanation = service.why(workload.id)
        others = {} if as_json else {w.id: w for w in service.workloads()}
    if as_json:
        emit_json(explanation)
    else:
        print_explanation(explanation, others, time.time())


@kernels.command("list")
def kernels_list(as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """List the profiles; Jupyter offers a kernel for each."""
    with client(state_dir) as service:
        found = service.profiles()
    if as_json:
        emit_json({"profiles": found})
        return
    columns = [
        Column("PROFILE"),
        Column("SHOWN AS", 1),
        Column("GPUS"),
        Column("ALLOCATION", 1),
        Column("PROTECTED", 2),
        Column("KIND", 3),
    ]
    rows = (
        (
            p.name,
            p.display_name,
            _profile_shape(p.gpus, p.nodes, p.gpu_type),
            p.allocation,
            _protected(p.min_runtime_s, p.gpus),
            p.kind,
        )
        for p in found
    )
    table(columns, rows, "the service has no profiles; add a [[profile]] to its configuration")


def _profile_shape(gpus: int, nodes: int, gpu_type: str) -> str:
    if not gpus:
        return "cpu"
    return f"{gpus if nodes == 1 else f'{nodes} × {gpus}'} {gpu_type}".strip()


def _protected(min_runtime_s: float, gpus: int) -> str:
    if min_runtime_s:
        return span(min_runtime_s)
    return "unallocated: free, preemptible at once" if gpus else NOTHING
