"""`gpufair budgets`: who is entitled to what, what was charged, and replacing the tree by a file."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpufair.cli import budget_requests
from gpufair.cli.exits import CommandError
from gpufair.cli.figures import delivered
from gpufair.cli.options import AsJson, StateDir, client
from gpufair.cli.output import Column, emit_json, line, table
from gpufair.cli.past import over_time
from gpufair.cli.words import clean, gpu_time, metric, percent, plural, span
from gpufair.wire import MAX_BODY_BYTES

if TYPE_CHECKING:
    from gpufair.client.types import AllocationView, Budgets

budgets = typer.Typer(help="Budgets: show, delivered, over-time, request, decide, set, apply, history.", no_args_is_help=True)
budgets.command("delivered")(delivered)
budgets.command("over-time")(over_time)
for name, command in (
    ("request", budget_requests.request),
    ("requests", budget_requests.requests),
    ("accept", budget_requests.accept),
    ("refuse", budget_requests.refuse),
    ("withdraw", budget_requests.withdraw),
    ("set", budget_requests.set_shares),
    ("history", budget_requests.history),
):
    budgets.command(name)(command)


class BudgetsRefused(CommandError):
    """The service refused a budgets file; ``line`` is where, if it said so. Nothing has changed."""

    def __init__(self, file: str, line: int | None, detail: str, error: str) -> None:
        super().__init__(file, line, detail)
        self.file, self.line, self.detail, self.error = file, line, detail, error

    def __str__(self) -> str:
        if self.line is None:
            return f"{self.file} was refused: {self.detail}; nothing has changed"
        return f"{self.file}:{self.line}: {self.detail.removeprefix(f'line {self.line}: ')}; nothing has changed"

    def facts(self) -> dict[str, Any]:
        """Where it is wrong."""
        return {"error": self.error, "file": self.file, "line": self.line}


class BudgetsFileTooLarge(CommandError):
    """A file this large is no budgets file."""


@budgets.command("show")
def show(as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Show the budget tree with what is charged in the lookback window."""
    with client(state_dir) as service:
        seen = service.budgets()
    if as_json:
        emit_json(seen)
        return
    columns = [
        Column("ALLOCATION"),
        Column("SHARE", 1, right=True),
        Column("ENTITLED", right=True),
        Column("BUDGET", 3, right=True),
        Column("OWED", 2, right=True),
        Column("CHARGED", 1, right=True),
        Column("COMMITTED", 3, right=True),
        Column("DUE", 3, right=True),
        Column("METRIC"),
        Column("HOLDS", 2, right=True),
        Column("QUEUED", 3, right=True),
        Column("MEMBERS", 4),
    ]
    rows = (
        (
            a.path,
            str(a.share),
            percent(a.entitlement),
            gpu_time(a.budget_gpu_s),
            gpu_time(a.owed_gpu_s),
            gpu_time(a.occupancy_gpu_s),
            gpu_time(a.commitment_gpu_s),
            gpu_time(a.due_gpu_s),
            metric(a.metric),
            plural(a.gpus_held, "GPU"),
            plural(a.gpus_queued, "GPU"),
            ", ".join(a.members),
        )
        for a in seen.allocations
        if a.path
    )
    if seen.window_s:
        line(f"Over the last {span(seen.window_s)}; the whole budget is {gpu_time(seen.capacity_gpu_s)}")
    table(columns, rows, "no allocation is defined; `gpufair budgets apply FILE` defines them")
    if len({one.pool for a in seen.allocations for one in a.pools}) > 1:
        line("\nEach pool has a ledger of its own; what is compared is the metric in a pool.")
        _in_pools(seen)


def _in_pools(seen: Budgets) -> None:
    columns = [
        Column("ALLOCATION"),
        Column("POOL"),
        Column("BUDGET", 2, right=True),
        Column("OWED", 2, right=True),
        Column("CHARGED", 1, right=True),
        Column("COMMITTED", 3, right=True),
        Column("METRIC"),
        Column("HOLDS", 2, right=True),
        Column("QUEUED", 3, right=True),
    ]
    rows = (
        (
            a.path,
            one.pool,
            gpu_time(one.budget_gpu_s),
            gpu_time(one.owed_gpu_s),
            gpu_time(one.occupancy_gpu_s),
            gpu_time(one.commitment_gpu_s),
            metric(one.metric),
            plural(one.gpus_held, "GPU"),
            plural(one.gpus_queued, "GPU"),
        )
        for a in seen.allocations
        for one in a.pools
    )
    table(columns, rows, "")


@budgets.command("apply")
def apply(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="TOML with [[allocation]] tables; - reads standard input.")
    ],
    why: budget_requests.Why = "",
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Replace the budget tree by a file; the service validates it, and nothing changes if it is not valid."""
    content = _content(file)
    from gpufair.client.errors import Refused  # noqa: PLC0415  # brings the client's modules

    with client(state_dir) as service:
        before = service.budgets()
        try:
            after = service.apply_budgets(content, why)
        except Refused as err:
            if err.status in {401, 403, 404}:
                raise
            raise _refused(file, err.detail, err.body) from err
    changes = difference(before, after)
    if as_json:
        emit_json({"changes": changes, "budgets": asdict(after)})
        return
    rows = [(c["path"], c["change"], c["field"], c["before"], c["after"]) for c in changes]
    columns = [Column("ALLOCATION"), Column("CHANGE"), Column("FIELD", 1), Column("BEFORE"), Column("AFTER")]
    table(columns, rows, f"applied {file}: it changes nothing")
    if rows:
        line(f"applied {file}: {plural(len({c['path'] for c in changes}), 'allocation')} changed")


def difference(before: Budgets, after: Budgets) -> list[dict[str, Any]]:
    """What differs between two trees: one row for each allocation added or removed, and for each field changed."""
    old, new = {a.path: a for a in before.allocations}, {a.path: a for a in after.allocations}
    rows: list[dict[str, Any]] = []
    for path in sorted(old.keys() | new.keys()):
        was, now = old.get(path), new.get(path)
        if was is None and now is not None:
            rows.append(_row(path, "added", "share", "", _share(now)))
        elif now is None and was is not None:
            rows.append(_row(path, "removed", "share", _share(was), ""))
        elif was is not None and now is not None:
            fields = (
                ("share", str(was.share), str(now.share)),
                ("members", ", ".join(was.members), ", ".join(now.members)),
                ("entitled", percent(was.entitlement), percent(now.entitlement)),
            )
            rows += [_row(path, "changed", name, first, second) for name, first, second in fields if first != second]
    return rows


def _row(path: str, change: str, field: str, before: str, after: str) -> dict[str, Any]:
    return {"path": path, "change": change, "field": field, "before": before, "after": after}


def _share(allocation: AllocationView) -> str:
    return f"{allocation.share} ({percent(allocation.entitlement)})"


def _content(file: str) -> bytes:
    if file == "-":
        data = sys.stdin.buffer.read(MAX_BODY_BYTES + 1)
    else:
        try:
            with Path(file).open("rb") as source:
                data = source.read(MAX_BODY_BYTES + 1)
        except OSError as err:
            raise typer.BadParameter(f"{file} cannot be read: {err.strerror or err}", param_hint="FILE") from err
    if len(data) > MAX_BODY_BYTES:
        raise BudgetsFileTooLarge(f"{file} is larger than {MAX_BODY_BYTES:,} bytes; is it a budgets file?")
    return data


def _refused(file: str, detail: str, problem: dict[str, Any]) -> BudgetsRefused:
    number = problem.get("line")
    return BudgetsRefused(
        file,
        number if isinstance(number, int) else None,
        clean(detail, 1000),
        str(problem.get("error") or "BudgetError"),
    )
