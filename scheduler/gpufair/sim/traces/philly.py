"""Microsoft's Philly traces: ``cluster_job_log``, a JSON list of jobs, each with the attempts that were made to run it."""

from __future__ import annotations

from typing import Any, Final

from gpufair.core.units import Millis, since
from gpufair.sim.traces import fields
from gpufair.sim.traces.cluster_log import read_cluster_log
from gpufair.sim.traces.fields import Wrong
from gpufair.sim.traces.json_items import Item, items, list_of, text_of
from gpufair.sim.traces.row import NEVER_RAN, NO_GPUS, NO_RUN, Row, Trace
from gpufair.sim.traces.source import Source
from gpufair.sim.traces.tally import Tally

MOST_ATTEMPTS: Final = 10_000


def read_philly(source: Source, *, strict: bool = False) -> Trace:
    """Read a job log of Philly, or one of the tables that were made of it.

    A job has the shape of its last attempt that got GPUs; its run time is that of all attempts, so weighted that its
    GPU time is theirs. Times are the cluster's own and taken as if they were UTC.

    Raises:
        TraceError: It can't be read, or (``BadRows``) it is to be read strictly and has bad rows.
    """
    if not source.head().lstrip().startswith((b"[", b"{")):
        return read_cluster_log(source, strict=strict, form="philly")
    tally = Tally(source, "philly", strict=strict)
    tally.take(items(source), _row_of)
    tally.remark("times without a zone are taken as UTC")
    return tally.trace(dated=True)


def _row_of(line: int, job: Item) -> Row | str:
    job_id = text_of(job, "jobid")
    if not job_id:
        raise Wrong("it has no jobid")
    gpus = nodes = gpu_millis = 0
    unknown = False
    for attempt in list_of(job, "attempts")[:MOST_ATTEMPTS]:
        if not isinstance(attempt, dict):
            raise Wrong("an attempt is not an object")
        machines = [_machine(machine) for machine in list_of(attempt, "detail")]
        start, end = text_of(attempt, "start_time"), text_of(attempt, "end_time")
        if not sum(machines) or start.lower() in fields.NONE:
            continue
        gpus, nodes = sum(machines), len(machines)
        if end.lower() in fields.NONE:
            unknown = True
            continue
        ran = since(fields.instant(end, "end_time"), fields.instant(start, "start_time"))
        if ran < 0:
            raise Wrong(f"an attempt ends at {end} before it starts at {start}")
        gpu_millis += gpus * ran
    if not gpus:
        return NO_GPUS if any(list_of(attempt, "detail") for attempt in list_of(job, "attempts")) else NEVER_RAN
    if not gpu_millis:
        return NO_RUN if unknown else NEVER_RAN
    return Row(
        line=line,
        job_id=job_id,
        submit=Millis(fields.instant(text_of(job, "submitted_time"), "submitted_time")),
        duration=Millis(max(1, round(gpu_millis / gpus))),
        gpus=float(gpus),
        user=text_of(job, "user"),
        project=text_of(job, "vc"),
        status=text_of(job, "status").lower(),
        nodes=nodes,
    )


def _machine(machine: Any) -> int:
    if not isinstance(machine, dict):
        raise Wrong("the detail of an attempt is not a list of objects")
    return len(list_of(machine, "gpus"))
