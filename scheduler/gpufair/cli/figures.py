"""Commands about a period that is over: `pyramid`, `budgets delivered`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from gpufair.cli.options import AsJson, StateDir, client, seconds_of
from gpufair.cli.output import Column, emit_json, line, table
from gpufair.cli.words import NOTHING, clean, clock, gpu_time, percent, span

if TYPE_CHECKING:
    from gpufair.client.insight import DeliveredInPool, Level, PyramidOfPool

Since = Annotated[
    str | None,
    typer.Option("--since", metavar="DURATION", help="How far back, like 24h or 30d; default: the budgets' window."),
]


def pyramid(since: Since = None, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Show where GPU time went, from what is installed to what computed."""
    since_s = _begin(since)
    with client(state_dir) as service:
        seen = service.pyramid(since_s)
    if as_json:
        emit_json(seen)
        return
    now = time.time()
    for pool in seen.pools:
        line(_period("Where GPU time went", pool, now))
        columns = [
            Column("LEVEL"),
            Column("RATIO", right=True),
            Column("KEPT", 1, right=True),
            Column("OF", 1, right=True),
            Column("THE REST", 2),
        ]
        table(columns, _levels(pool), "")
        line(
            f"Of what was held {gpu_time(pool.charged_gpu_s)} were charged, {gpu_time(pool.unallocated_gpu_s)} "
            f"unallocated; {gpu_time(pool.switching_gpu_s)} went into starting, saving and restoring.\n"
        )


def delivered(
    since: Since = None,
    users: Annotated[bool, typer.Option("--users", help="What each researcher was charged as well.")] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Show what each allocation was owed, and what it got of it."""
    since_s = _begin(since)
    with client(state_dir) as service:
        seen = service.delivered(since_s)
    if as_json:
        emit_json(seen)
        return
    now = time.time()
    for pool in seen.pools:
        line(_period("Delivered", pool, now))
        line(
            f"Capped {_ratio(pool.capped)} of what was owed, uncapped {_ratio(pool.uncapped)}, hour by hour "
            f"{_ratio(pool.capped_hourly)}{_worst(pool)}"
        )
        columns = [
            Column("ALLOCATION"),
            Column("ENTITLED", 1, right=True),
            Column("OWED", right=True),
            Column("CHARGED", right=True),
            Column("CAPPED", 2, right=True),
            Column("DELIVERED", right=True),
        ]
        rows: list[tuple[str, ...]] = []
        for a in pool.allocations:
            figures = (gpu_time(a.owed_gpu_s), gpu_time(a.charged_gpu_s), gpu_time(a.capped_gpu_s), _ratio(a.ratio))
            rows.append((a.path, percent(a.entitlement), *figures))
            named = a.researchers if users else ()
            rows.extend((f"  {one.user}", "", "", gpu_time(one.charged_gpu_s), "", "") for one in named)
        table(columns, rows, "no allocation is defined; `gpufair budgets apply FILE` defines them")
        line("")


def _begin(since: str | None) -> float | None:
    return None if since is None else time.time() - seconds_of(since, "--since")


def _period(what: str, pool: PyramidOfPool | DeliveredInPool, now: float) -> str:
    # Whole hours, so not exactly what was asked for: say which.
    return f"{what} in {clean(pool.pool)}, from {clock(pool.start_s, now)} to {clock(pool.end_s, now)} ({span(pool.end_s - pool.start_s)})"


def _levels(pool: PyramidOfPool) -> list[tuple[str, ...]]:
    rows = [
        (name, _ratio(level.ratio), gpu_time(level.kept_gpu_s), gpu_time(level.of_gpu_s), _losses(level))
        for name, level in (
            ("availability", pool.availability),
            ("occupancy", pool.occupancy),
            ("impact", pool.impact),
        )
    ]
    used = pool.utilization
    if used.ratio is None:
        return [*rows, ("utilization", "unknown", NOTHING, NOTHING, "no node has measured it")]
    measured = f"measured on {percent(used.coverage or 0.0)} of what was held"
    return [*rows, ("utilization", _ratio(used.ratio), gpu_time(used.kept_gpu_s), gpu_time(used.of_gpu_s), measured)]


def _losses(level: Level) -> str:
    return ", ".join(f"{gpu_time(loss.gpu_s)} {clean(loss.cause)}" for loss in level.losses if loss.gpu_s)


def _ratio(value: float | None) -> str:
    return NOTHING if value is None else percent(value)


def _worst(pool: DeliveredInPool) -> str:
    return f"; least to {clean(pool.worst.path)}: {_ratio(pool.worst.ratio)}" if pool.worst is not None else ""
