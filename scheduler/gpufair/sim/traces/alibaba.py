"""Alibaba's two GPU traces: the task table of PAI (2020), joined with its job table, and the pod list "openb" (2023)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpufair.core.units import Millis
from gpufair.sim.traces import fields
from gpufair.sim.traces.csv_table import Memo, Table, split
from gpufair.sim.traces.fields import Wrong, shown
from gpufair.sim.traces.row import NEVER_RAN, NO_GPUS, NO_RUN, Row, Trace
from gpufair.sim.traces.source import Source
from gpufair.sim.traces.tally import Tally

# The published tables have no header line; their columns are in files of their own.
TASKS: Final = "job_name task_name inst_num status start_time end_time plan_cpu plan_mem plan_gpu gpu_type".split()  # noqa: SIM905
JOBS: Final = "job_name inst_id user status start_time end_time".split()  # noqa: SIM905
PODS: Final = ("name", "num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time")
_STATUSES: Final = frozenset({"Terminated", "Failed", "Running", "Waiting"})


def looks_like_tasks(line: str) -> bool:
    """Whether the first line of a file is one of PAI's task table."""
    cells = _cells(line)
    return cells[:2] == TASKS[:2] or (len(cells) == len(TASKS) and cells[3] in _STATUSES)


def looks_like_jobs(line: str) -> bool:
    """Whether the first line of a file is one of PAI's job table, which says nothing about GPUs."""
    cells = _cells(line)
    return cells[:2] == JOBS[:2] or (len(cells) == len(JOBS) and cells[3] in _STATUSES)


def _cells(line: str) -> list[str]:
    try:
        return split(line)
    except Wrong:
        return []


@dataclass(slots=True)
class _Job:
    """What the tasks of a job add up to, as far as they are on GPUs."""

    line: int = 0
    gpus: float = 0.0
    began: Millis | None = None  # the first of them
    ended: Millis | None = None  # the last of them
    unended: bool = False
    gpu_type: str | None = None  # "" if they have several
    status: str = ""

    def ran(self, began: Millis, ended: Millis | None, gpu_type: str) -> None:
        """One of them did, at least for a while."""
        self.began = began if self.began is None else min(self.began, began)
        if ended is None:
            self.unended = True
        else:
            self.ended = ended if self.ended is None else max(self.ended, ended)
        self.gpu_type = gpu_type if self.gpu_type in {None, gpu_type} else ""


@dataclass(frozen=True, slots=True)
class _Launch:
    """What the job table says of a job."""

    user: str
    status: str
    submit: Millis | None


def read_pai(source: Source, *, strict: bool = False) -> Trace:
    """Read PAI's task table, one row for each job with tasks on GPUs, from its first start to its last end.

    Who submitted a job and when is in the job table: that of ``Options.pai_jobs``, or the file beside this one whose
    name has "job" in place of "task". Without it a job counts as submitted when it first ran.

    Raises:
        TraceError: It can't be read, or (``BadRows``) it is to be read strictly and has bad rows.
    """
    tally = Tally(source, "pai", strict=strict)
    jobs = Memo[_Job](lambda _: _Job())
    table = _table(source, TASKS)
    add = _task_reader(table, jobs)
    tally.take(table.rows(tally.bad), add)
    launches = _launches(source, tally)
    tally.take(
        ((job.line, (name, job)) for name, job in jobs.items()),
        lambda _, item: _row_of(*item, launches.get(item[0], _Launch("", "", None))),
    )
    if not launches:
        tally.remark(
            "there is no job table beside it: users are not known, and jobs count as submitted when they started"
        )
    return tally.trace(dated=True)


def _table(source: Source, columns: list[str]) -> Table:
    _, first = next(source.lines(), (1, ""))
    headless = _cells(first)[:2] != columns[:2]
    return Table(source, columns, header=columns if headless else ())


def _task_reader(table: Table, jobs: Memo[_Job]) -> Callable[[int, list[str]], None]:
    name, count, status, gpus = (table.at(each) for each in ("job_name", "inst_num", "status", "plan_gpu"))
    start, end, gpu_type = (table.at(each) for each in ("start_time", "end_time", "gpu_type"))
    names = Memo(lambda text: fields.name(text, "a name"))

    def add(line: int, cells: list[str]) -> None:
        job_name = fields.name(cells[name], "job_name")
        if not job_name:
            raise Wrong("job_name is empty")
        percent = fields.gpu_count(cells[gpus], "plan_gpu") if cells[gpus].strip() else 0.0
        instances = fields.number(cells[count], "inst_num") if cells[count].strip() else 1.0
        wanted = percent / 100 * instances
        if not 0 <= wanted <= fields.MOST_GPUS or instances < 0:
            raise Wrong(
                f"inst_num is {shown(cells[count])} with a plan_gpu of {shown(cells[gpus])}: not a number of GPUs"
            )
        began, ended = _time(cells[start], "start_time"), _time(cells[end], "end_time")
        if began is not None and ended is not None and ended < began:
            raise Wrong(f"end_time {shown(cells[end])} is before start_time {shown(cells[start])}")
        job = jobs[job_name]
        job.line = job.line or line
        ended_as = names[cells[status]].lower()
        job.status = ended_as if not job.status or ended_as == "failed" else job.status
        job.gpus += wanted
        if wanted and began is not None:
            job.ran(began, ended, names[cells[gpu_type]])

    return add


def _row_of(name: str, job: _Job, launch: _Launch) -> Row | str:
    if not job.gpus:
        return NO_GPUS
    if job.began is None or job.ended == job.began:
        return NEVER_RAN
    if job.unended or job.ended is None:
        return NO_RUN
    return Row(
        line=job.line,
        job_id=name,
        submit=job.began if launch.submit is None else min(launch.submit, job.began),
        duration=Millis(job.ended - job.began),
        gpus=job.gpus,
        user=launch.user,
        status=launch.status or job.status,
        gpu_type=job.gpu_type or "",
    )


def _launches(source: Source, tally: Tally) -> dict[str, _Launch]:
    path = source.options.pai_jobs or _beside(source.path)
    if path is None:
        return {}
    table = _table(Source(path, source.options), JOBS)
    name, user, status, start = (table.at(each) for each in ("job_name", "user", "status", "start_time"))
    users = Memo(lambda text: fields.name(text, "user"))
    launches: dict[str, _Launch] = {}

    def add(_line: int, cells: list[str]) -> None:
        submit = _time(cells[start], "start_time")
        launches[cells[name].strip()] = _Launch(users[cells[user]], users[cells[status]].lower(), submit)

    bad: list[int] = []
    for line, cells in table.rows(lambda line, _: bad.append(line)):
        try:
            add(line, cells)
        except Wrong:
            bad.append(line)
    if bad:
        tally.remark(f"{path.name}: {len(bad):,} lines of the job table make no sense, the first is line {bad[0]}")
    return launches


def _beside(path: Path) -> Path | None:
    folder, name = path.parent, path.name.replace("task", "job")
    plain = name.removesuffix(".gz")
    candidates = [folder / each for each in (name, plain, plain + ".gz") if each != path.name]
    return next((each for each in candidates if each.is_file()), None)


def read_openb(source: Source, *, strict: bool = False) -> Trace:
    """Read a pod list. A pod runs on one machine, from when it was scheduled until it was deleted.

    Raises:
        TraceError: It can't be read, or (``BadRows``) it is to be read strictly and has bad rows.
    """
    table, tally = Table(source, PODS), Tally(source, "openb", strict=strict)
    tally.take(table.rows(tally.bad), _pod_reader(table))
    return tally.trace(dated=True)


def _pod_reader(table: Table) -> Callable[[int, list[str]], Row | str]:
    name, gpus, milli, created, deleted, scheduled = (table.at(each) for each in PODS)
    phase, spec = table.at("pod_phase"), table.at("gpu_spec")
    names = Memo(lambda text: fields.name(text, "a name"))

    def row_of(line: int, cells: list[str]) -> Row | str:
        count = fields.gpu_count(cells[gpus], "num_gpu")
        if not count:
            return NO_GPUS
        if count == 1 and cells[milli].strip():
            count = fields.gpu_count(cells[milli], "gpu_milli") / 1000
            if not 0 < count <= 1:
                raise Wrong(f"gpu_milli is {shown(cells[milli])}: not a part of a GPU")
        began, ended = _time(cells[scheduled], "scheduled_time"), _time(cells[deleted], "deletion_time")
        if began is None:
            return NEVER_RAN
        if ended is None:
            return NO_RUN
        if ended < began:
            raise Wrong(f"deletion_time {shown(cells[deleted])} is before scheduled_time {shown(cells[scheduled])}")
        if ended == began:
            return NEVER_RAN
        types = [] if cells[spec].strip().lower() in fields.NONE else cells[spec].split("|")
        job_id = fields.name(cells[name], "name")
        if not job_id:
            raise Wrong("name is empty")
        return Row(
            line=line,
            job_id=job_id,
            submit=fields.millis(cells[created], "creation_time"),
            duration=Millis(ended - began),
            gpus=count,
            status=names[cells[phase]].lower(),
            nodes=1,
            gpu_type=names[types[0]] if len(types) == 1 else "",
        )

    return row_of


def _time(text: str, what: str) -> Millis | None:
    return None if text.strip().lower() in fields.NONE else fields.millis(text, what)
