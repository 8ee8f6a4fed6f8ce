"""The simulator's own format: CSV with one job per line, in seconds since the trace's zero.

Needed columns: ``job_id, submit_s, duration_s, gpus``. Known beside them: ``user, project, kind, status, nodes,
min_runtime_s, priority, resumable, gpu_type, requested_s``; an empty cell was not published. Others are passed over.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from gpufair.core.units import Millis
from gpufair.sim.traces import fields
from gpufair.sim.traces.csv_table import Memo, Table, optional
from gpufair.sim.traces.errors import TraceError
from gpufair.sim.traces.fields import Wrong, shown
from gpufair.sim.traces.row import KINDS, NEVER_RAN, Row, Trace
from gpufair.sim.traces.source import Source
from gpufair.sim.traces.tally import Tally

NEEDED: Final = ("job_id", "submit_s", "duration_s", "gpus")
USUAL: Final = (*NEEDED, "user", "project", "kind", "status")
OPTIONAL: Final = ("nodes", "min_runtime_s", "priority", "resumable", "gpu_type", "requested_s")
WAITING: Final = frozenset({"pending", "waiting", "queued"})  # a job that ended there never ran


def read_csv(source: Source, *, strict: bool = False) -> Trace:
    """Read a trace of the simulator's own format.

    Raises:
        TraceError: It can't be read, or (``BadRows``) it is to be read strictly and has bad rows.
    """
    table, tally = Table(source, NEEDED), Tally(source, "csv", strict=strict)
    row_of, unknown = _row_reader(table)
    tally.take(table.rows(tally.bad), row_of)
    if unknown:
        kinds = ", ".join(shown(kind) for kind in sorted(unknown)[:5])
        tally.remark(f"the kinds {kinds} are not known here and count as not published; known: debug, session, batch")
    return tally.trace()


def _row_reader(table: Table) -> tuple[Callable[[int, list[str]], Row | str], set[str]]:
    """How to read a line, and the kinds that nobody knows, as they are met."""
    at = table.at
    job, submit, duration, gpus, user = at("job_id"), at("submit_s"), at("duration_s"), at("gpus"), at("user")
    project, kind, status, nodes, min_runtime = (
        at("project"),
        at("kind"),
        at("status"),
        at("nodes"),
        at("min_runtime_s"),
    )
    priority, resumable, gpu_type, requested = at("priority"), at("resumable"), at("gpu_type"), at("requested_s")
    unknown: set[str] = set()

    def kind_of(text: str) -> str:
        word = fields.name(text, "kind").lower()
        if word in KINDS:
            return word
        unknown.add(word)
        return ""

    gpu_counts = Memo(_some_gpus)
    users, projects = Memo(lambda text: fields.name(text, "user")), Memo(lambda text: fields.name(text, "project"))
    kinds, statuses = Memo(kind_of), Memo(lambda text: fields.name(text, "status").lower())
    node_counts, priorities = Memo(optional(fields.nodes)), Memo(optional(fields.priority))
    min_runtimes = Memo(optional(lambda text: fields.millis(text, "min_runtime_s")))
    requests = Memo(optional(lambda text: fields.millis(text, "requested_s")))
    booleans, types = Memo(_boolean), Memo(lambda text: fields.name(text, "gpu_type"))

    def row_of(line: int, cells: list[str]) -> Row | str:
        job_id, ended = fields.name(cells[job], "job_id"), statuses[cells[status]]
        if not job_id:
            raise Wrong("job_id is empty")
        if ended in WAITING and cells[duration].strip() in {"", "0"}:
            return NEVER_RAN
        ran = fields.millis(cells[duration], "duration_s")
        if not ran:
            raise Wrong(f"duration_s is {shown(cells[duration])}: a job that held its GPUs held them longer")
        return Row(
            line,
            job_id,
            fields.millis(cells[submit], "submit_s"),
            ran,
            gpu_counts[cells[gpus]],
            users[cells[user]],
            projects[cells[project]],
            kinds[cells[kind]],
            ended,
            node_counts[cells[nodes]],
            min_runtimes[cells[min_runtime]],
            priorities[cells[priority]],
            booleans[cells[resumable]],
            types[cells[gpu_type]],
            requests[cells[requested]],
        )

    return row_of, unknown


def _some_gpus(text: str) -> float:
    if not (gpus := fields.gpu_count(text)):
        raise Wrong(f"gpus is {shown(text)}: a job without GPUs takes no part")
    return gpus


def _boolean(text: str) -> bool | None:
    word = text.strip().lower()
    if word and word not in fields.BOOLEANS:
        raise Wrong(f"resumable is {shown(text)}: neither true nor false")
    return fields.BOOLEANS[word] if word else None


def write_csv(trace: Trace | Iterable[Row], path: Path) -> None:
    """Write rows so that ``read_trace`` gives the same ones (lines are counted anew); packed if the name ends in ``.gz``.

    Columns that no row has a value for are left out, the eight usual ones aside.

    Raises:
        TraceError: It can't be written.
    """
    rows = trace.rows if isinstance(trace, Trace) else tuple(trace)
    values = [_cells(row) for row in rows]
    columns = [*USUAL, *(name for name in OPTIONAL if any(cells[name] for cells in values))]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cells[name] for name in columns] for cells in values)
    data = text.getvalue().encode()
    try:
        # mtime=0: equal traces are equal files.
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    except OSError as err:
        raise TraceError(str(path), f"it cannot be written ({err.strerror or err})") from err


def _cells(row: Row) -> dict[str, str]:
    return {
        "job_id": row.job_id,
        "submit_s": _seconds(row.submit),
        "duration_s": _seconds(row.duration),
        "gpus": f"{row.gpus:.0f}" if row.gpus == int(row.gpus) else repr(row.gpus),
        "user": row.user,
        "project": row.project,
        "kind": row.kind,
        "status": row.status,
        "nodes": _plain(row.nodes),
        "min_runtime_s": _seconds(row.min_runtime),
        "priority": _plain(row.priority),
        "resumable": _plain(row.resumable).lower(),
        "gpu_type": row.gpu_type,
        "requested_s": _seconds(row.requested),
    }


def _plain(value: float | None) -> str:
    return "" if value is None else str(value)


def _seconds(span: Millis | None) -> str:
    if span is None:
        return ""
    seconds, rest = divmod(span, 1000)
    return f"{seconds}.{rest:03d}".rstrip("0") if rest else str(seconds)
