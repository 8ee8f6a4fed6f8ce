"""Slurm's accounting: the output of ``sacct --parsable2``, as it is or with ``--parsable`` or ``--noheader``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gpufair.core.units import Millis, since
from gpufair.sim.traces import fields
from gpufair.sim.traces.csv_table import Memo, Table, split_at_bars
from gpufair.sim.traces.fields import Wrong, shown
from gpufair.sim.traces.row import NEVER_RAN, NO_GPUS, NO_RUN, Row, Trace
from gpufair.sim.traces.source import Source
from gpufair.sim.traces.tally import Tally

FIELDS: Final = tuple(
    "JobID,Submit,Start,End,Elapsed,State,AllocTRES,User,Account,NNodes,Partition,Priority,Timelimit".split(",")  # noqa: SIM905  # as in the command
)
NEEDED: Final = ("jobid|jobidraw", "submit", "elapsed|elapsedraw|end", "alloctres|reqtres|allocgres")
STEP: Final = "job steps"
EARLIER: Final = "earlier runs of the same job"
_NO_LIMIT: Final = fields.NONE | {"unlimited", "partition_limit", "invalid"}
_GPUS: Final = re.compile(r"gres/gpu(?::([^=:]+))?=(\d{1,9})|gpu(?::([^=:]+))?:(\d{1,9})", re.ASCII)
_WHICH: Final = re.compile(r"\([^)]*\)")  # GPUs of a node, or its sockets
_JOB: Final = re.compile(r"\d+(?:_(?:\d+|\[.*\]))?(?:\+\d+)?(?:\.\S+)?", re.ASCII)


def looks_like_sacct(line: str) -> bool:
    """Whether the first line of a file is one of ``sacct``'s, be it a header or, with the usual fields, a job."""
    cells = split_at_bars(line)
    names = {cell.strip().lower() for cell in cells}
    return bool(names & {"jobid", "jobidraw"} and "submit" in names) or (
        len(cells) >= len(FIELDS) and _JOB.fullmatch(cells[0]) is not None
    )


def read_sacct(source: Source, *, strict: bool = False) -> Trace:
    """Read what Slurm says about jobs.

    Steps are passed over; each task of an array and each part of a heterogeneous job is a job. Of several runs of one
    job (``--duplicates``) the last one counts, from the first submission. Slurm's priorities are not taken over: they are
    the ranks that its own policy worked out, not wishes. Times are the cluster's own and taken as if they were UTC.

    Raises:
        TraceError: It can't be read, or (``BadRows``) it is to be read strictly and has bad rows.
    """
    table = Table(source, NEEDED, header=_header(source), cells=split_at_bars)
    tally = Tally(source, "sacct", strict=strict)
    runs = Memo[list[Row]](lambda _: [])
    job_of = _Reader(table)
    for line, cells in table.rows(tally.bad):
        try:
            row = job_of(line, cells)
            if isinstance(row, str):
                tally.leave_out(row)
            else:
                runs[row.job_id].append(row)
        except Wrong as wrong:
            tally.bad(line, str(wrong))
    for each in runs.values():
        for _ in each[:-1]:
            tally.leave_out(EARLIER)
    # Slurm resets the time of submission when it queues a job again.
    first = ((each[-1].line, each[-1]._replace(submit=min(run.submit for run in each))) for each in runs.values())
    tally.take(first, lambda _line, row: row)
    tally.remark("times without a zone are taken as UTC")
    return tally.trace(dated=True)


def _header(source: Source) -> Sequence[str]:
    """The fields of output that has no header; none if it has one."""
    _, first = next(source.lines(), (1, ""))
    cells = split_at_bars(first)
    if _JOB.fullmatch(cells[0]) is None:
        return ()
    known = [*(source.options.sacct_fields or FIELDS)]
    # `--parsable` ends each line with a bar, and with it an empty cell.
    return [*known, ""] if len(cells) == len(known) + 1 and not cells[-1] else known


class _Reader:
    """Makes a row of the cells of a line; or says why it is left out."""

    def __init__(self, table: Table) -> None:
        at = table.at
        self._job, self._submit, self._start, self._end = at("jobid", "jobidraw"), at("submit"), at("start"), at("end")
        self._elapsed, self._raw, self._state = at("elapsed"), at("elapsedraw"), at("state")
        self._resources = [at(name) for name in ("alloctres", "allocgres", "reqtres")]
        self._user, self._account, self._nodes = at("user"), at("account"), at("nnodes", "allocnodes", "nodes")
        self._limit = at("timelimit")
        self._began = table.has("start")
        self._names = Memo(lambda text: fields.name(text, "a name"))
        self._states = Memo(_state)
        self._gpus = Memo(_gpus)

    def __call__(self, line: int, cells: list[str]) -> Row | str:
        """Raises ``Wrong``."""
        job_id = fields.name(cells[self._job], "JobID")
        if not job_id:
            raise Wrong("JobID is empty")
        if "." in job_id:
            return STEP
        if self._began and cells[self._start].strip().lower() in fields.NONE:
            return NEVER_RAN
        duration = self._duration(cells)
        if duration is None:
            return NO_RUN
        if not duration:
            return NEVER_RAN
        gpus, gpu_type = next((found for at in self._resources if (found := self._gpus[cells[at]])[0]), (0.0, ""))
        if not gpus:
            return NO_GPUS
        nodes, limit = cells[self._nodes], cells[self._limit]
        return Row(
            line=line,
            job_id=job_id,
            submit=Millis(fields.instant(cells[self._submit], "Submit")),
            duration=duration,
            gpus=gpus,
            user=self._names[cells[self._user]],
            project=self._names[cells[self._account]],
            status=self._states[cells[self._state]],
            nodes=None if nodes.strip() in {"", "0"} else fields.nodes(nodes, "NNodes"),
            gpu_type=gpu_type,
            requested=None if limit.strip().lower() in _NO_LIMIT else fields.elapsed(limit, "Timelimit"),
        )

    def _duration(self, cells: list[str]) -> Millis | None:
        if cells[self._raw].strip():
            return fields.millis(cells[self._raw], "ElapsedRaw")
        if cells[self._elapsed].strip():
            return fields.elapsed(cells[self._elapsed], "Elapsed")
        if not self._began or cells[self._end].strip().lower() in fields.NONE:
            return None
        ran = since(fields.instant(cells[self._end], "End"), fields.instant(cells[self._start], "Start"))
        if ran < 0:
            raise Wrong(f"End {shown(cells[self._end])} is before Start {shown(cells[self._start])}")
        return ran


def _state(text: str) -> str:
    """``CANCELLED by 1000`` and the cut ``CANCELLED+`` are both cancelled."""
    words = fields.name(text, "State").lower().split()
    return words[0].rstrip("+") if words else ""


def _gpus(text: str) -> tuple[float, str]:
    """GPUs and their type in ``cpu=8,gres/gpu=4,gres/gpu:a100=4`` or, of older versions, in ``gpu:a100:4``."""
    found: list[tuple[str, str]] = []
    for part in _WHICH.sub("", text).split(","):
        if re.fullmatch(r"\s*(?:gres/)?gpu(?:[:=].*)?", part):
            match = _GPUS.fullmatch(part.strip())
            if match is None:
                raise Wrong(f"{shown(part)} names no number of GPUs")
            found.append((match[1] or match[3] or "", match[2] or match[4]))
    typed = {kind: int(count) for kind, count in found if kind and int(count)}
    total = sum(int(count) for kind, count in found if not kind) or sum(typed.values())
    if total > fields.MOST_GPUS:
        raise Wrong(f"{shown(text)} names too many GPUs")
    return float(total), fields.name(next(iter(typed)), "the GPU type") if len(typed) == 1 else ""
