"""Commands about how it came to be: `history`, `budgets over-time`."""

from __future__ import annotations

import math
import time
from itertools import cycle
from typing import TYPE_CHECKING, Annotated

import typer

from gpufair.cli.options import AsJson, StateDir, client, complete_allocation, seconds_of
from gpufair.cli.output import Column, console, emit_json, line, table
from gpufair.cli.words import NOTHING, clean, clock, gpu_time, percent, span

if TYPE_CHECKING:
    from gpufair.client.insight import Course, CoursesInPool, GpuHistory, NodeHistory, Stay

MOST_ROWS = 200  # GPUs that are drawn: who looks after more names a node, or reads the JSON
_WIDTH = 72  # moments that are drawn
_FREE = "·"
_PREEMPTED = "!"
# Beside letters, since colours alone tell nothing on paper and to some readers.
_COLOURS = ("blue", "yellow", "green", "magenta", "cyan", "red", "white")
_BARS = " ▁▂▃▄▅▆▇█"


def history(
    hours: Annotated[float, typer.Option("--hours", min=0.01, max=168.0, help="How far back to look.")] = 6.0,
    node: Annotated[str | None, typer.Option("--node", metavar="NAME", help="One node only.")] = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Draw who held which GPU when: a row for each GPU, a letter for each team, ! where somebody had to make room."""
    with client(state_dir) as service:
        seen = service.history(hours, node)
    if as_json:
        emit_json(seen)
        return
    nodes = [one for one in seen.nodes if one.gpus]
    if not nodes:
        line(f"there is no node {clean(node)}" if node else "there is no node with GPUs")
        return
    teams = sorted({_team(stay) for one in nodes for stay in one.stays})
    line(f"Who held which GPU, from {clock(seen.since_s, seen.now_s)} to {clock(seen.now_s, seen.now_s)}")
    if seen.since_s > seen.now_s - hours * 3600 + 1:
        line("(no more is known, or it is too much for one answer: name a --node)")
    _draw(seen, nodes, dict(zip(teams, cycle("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), strict=False)))


def over_time(
    allocation: Annotated[
        str | None, typer.Argument(help="One allocation; default: all.", autocompletion=complete_allocation)
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DURATION", help="How far back; default: the budgets' window.")
    ] = None,
    bins: Annotated[int, typer.Option("--bins", min=1, max=1000, help="In how many parts, of whole hours.")] = 28,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Show what each allocation was owed, and what it got, over time."""
    since_s = None if since is None else time.time() - seconds_of(since, "--since")
    with client(state_dir) as service:
        seen = service.budgets_over_time(allocation, since_s, bins=bins)
    if as_json:
        emit_json(seen)
        return
    now = time.time()
    for pool in seen.pools:
        line(
            f"Owed and charged in {clean(pool.pool)}, from {clock(pool.start_s, now)} to {clock(pool.end_s, now)}, "
            f"each part {span(pool.bin_s)}"
        )
        if allocation is None:
            _courses(pool)
        else:
            _course(pool, now)
        line("")


def _team(stay: Stay) -> str:
    return stay.allocation.partition("/")[0]


def _draw(seen: GpuHistory, nodes: list[NodeHistory], letters: dict[str, str]) -> None:
    from rich.text import Text  # noqa: PLC0415  # 40 ms that --json need not pay

    out = console()
    wide = max(len(clean(one.name)) for one in nodes) + len(str(max(one.gpus for one in nodes))) + 1
    step = (seen.now_s - seen.since_s) / _WIDTH or 1.0
    colours = dict(zip(letters.values(), cycle(_COLOURS), strict=False))
    drawn = 0
    for one in nodes:
        rows = [[_FREE] * _WIDTH for _ in range(one.gpus)]
        for stay in one.stays:
            _put(rows, stay, letters[_team(stay)], seen, step)
        for number, row in enumerate(rows[: MOST_ROWS - drawn]):
            text = Text(f"{clean(one.name)} {number}".ljust(wide) + " ")
            for mark in row:
                text.append(mark, "bold red" if mark == _PREEMPTED else colours.get(mark.upper(), ""))
            out.print(text)
        drawn += one.gpus
    if drawn > MOST_ROWS:
        line(f"… and {drawn - MOST_ROWS} more GPUs: name a --node, or use --json")
    for team, letter in letters.items():
        line(f"{letter}  {clean(team)}")
    line(f"{_FREE} free; small letters: may be interrupted; {_PREEMPTED} had to make room")


def _put(rows: list[list[str]], stay: Stay, letter: str, seen: GpuHistory, step: float) -> None:
    """A mark is what was so in the middle of its moment; a preemption is never left out."""
    for at in range(_WIDTH):
        middle = seen.since_s + (at + 0.5) * step
        if stay.from_s <= middle and (stay.to_s is None or middle < stay.to_s):
            safe = any(begin <= middle < end for begin, end in stay.protected)
            for row in stay.rows:
                if rows[row][at] != _PREEMPTED:
                    rows[row][at] = letter if safe else letter.lower()
    if stay.preempted_s is not None and stay.preempted_s >= seen.since_s:
        for row in stay.rows:
            rows[row][min(_WIDTH - 1, int((stay.preempted_s - seen.since_s) / step))] = _PREEMPTED


def _courses(pool: CoursesInPool) -> None:
    columns = [
        Column("ALLOCATION"),
        Column("OWED", right=True),
        Column("CHARGED", right=True),
        Column("CHARGED OVER TIME", 1),
    ]
    rows = [
        (one.path, gpu_time(sum(one.owed_gpu_s)), gpu_time(sum(one.charged_gpu_s)), _bars(one))
        for one in pool.allocations
    ]
    table(columns, rows, "no allocation is defined; `gpufair budgets apply FILE` defines them")


def _bars(one: Course) -> str:
    """A bar for each part, whole where most was charged; the smallest for whatever was charged at all."""
    most = max(one.charged_gpu_s, default=0.0) or 1.0
    return "".join(_BARS[math.ceil(8 * amount / most)] for amount in one.charged_gpu_s)


def _course(pool: CoursesInPool, now: float) -> None:
    columns = [
        Column("FROM"),
        Column("OWED", right=True),
        Column("CHARGED", right=True),
        Column("DELIVERED", right=True),
    ]
    rows = [
        (
            clock(pool.start_s + at * pool.bin_s, now),
            gpu_time(owed),
            gpu_time(charged),
            percent(charged / owed) if owed else NOTHING,
        )
        for one in pool.allocations
        for at, (owed, charged) in enumerate(zip(one.owed_gpu_s, one.charged_gpu_s, strict=False))
    ]
    table(columns, rows, "nothing is known of that time")
