"""Tables of jobs with dates, as Helios and Philly were published (or turned into) as CSV.

Columns, of which each may have one of several names: job (``job_id, jobid``), GPUs (``gpu_num, num_gpus, gpus``), submission
(``submit_time, submitted_time``), and ``duration`` in seconds or ``start_time`` and ``end_time``; beside them user, virtual
cluster (``vc, project``), machines (``node_num, num_nodes, nodes``), ``state`` or ``status``, ``gpu_type``. Times are dates
or seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpufair.core.units import Millis, since
from gpufair.sim.traces import fields
from gpufair.sim.traces.csv_table import Memo, Table
from gpufair.sim.traces.fields import Wrong, shown
from gpufair.sim.traces.row import NEVER_RAN, NO_GPUS, NO_RUN, Row, Trace
from gpufair.sim.traces.source import Source
from gpufair.sim.traces.tally import Tally

JOB: Final = ("job_id", "jobid")
GPUS: Final = ("gpu_num", "num_gpus", "gpus")
SUBMIT: Final = ("submit_time", "submitted_time")
NEEDED: Final = ("|".join(JOB), "|".join(GPUS), "|".join(SUBMIT), "duration|end_time")


def looks_like_cluster_log(columns: set[str]) -> bool:
    """Whether a header is one of this kind."""
    return all(columns.intersection(name.split("|")) for name in NEEDED)


def read_cluster_log(source: Source, *, strict: bool = False, form: str = "helios") -> Trace:
    """Read such a table, ``form`` being what it is called. Times without a zone are taken as if they were UTC.

    Raises:
        TraceError: It can't be read, or (``BadRows``) it is to be read strictly and has bad rows.
    """
    table, tally = Table(source, NEEDED), Tally(source, form, strict=strict)
    tally.take(table.rows(tally.bad), _row_reader(table))
    tally.remark("times without a zone are taken as UTC")
    return tally.trace(dated=True)


def _row_reader(table: Table) -> Callable[[int, list[str]], Row | str]:
    at = table.at
    job, gpus, submit, user, project = at(*JOB), at(*GPUS), at(*SUBMIT), at("user"), at("vc", "project")
    nodes, state, gpu_type = at("node_num", "num_nodes", "nodes"), at("state", "status"), at("gpu_type")
    start, end, duration = at("start_time"), at("end_time"), at("duration")
    names, gpu_counts = Memo(lambda text: fields.name(text, "a name")), Memo(fields.gpu_count)

    def run_of(cells: list[str]) -> Millis | None:
        if cells[duration].strip().lower() not in fields.NONE:
            return fields.millis(cells[duration], "duration")
        if cells[start].strip().lower() in fields.NONE:
            return Millis(0)
        if cells[end].strip().lower() in fields.NONE:
            return None
        ran = since(fields.instant(cells[end], "end_time"), fields.instant(cells[start], "start_time"))
        if ran < 0:
            raise Wrong(f"end_time {shown(cells[end])} is before start_time {shown(cells[start])}")
        return ran

    def row_of(line: int, cells: list[str]) -> Row | str:
        job_id = fields.name(cells[job], "job_id")
        if not job_id:
            raise Wrong("job_id is empty")
        if not gpu_counts[cells[gpus]]:
            return NO_GPUS
        if not (ran := run_of(cells)):
            return NO_RUN if ran is None else NEVER_RAN
        return Row(
            line=line,
            job_id=job_id,
            submit=Millis(fields.instant(cells[submit], "the time of submission")),
            duration=ran,
            gpus=gpu_counts[cells[gpus]],
            user=names[cells[user]],
            project=names[cells[project]],
            status=names[cells[state]].lower(),
            nodes=fields.nodes(cells[nodes]) if cells[nodes].strip() else None,
            gpu_type=names[cells[gpu_type]],
        )

    return row_of
