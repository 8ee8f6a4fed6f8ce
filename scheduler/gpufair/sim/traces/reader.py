"""Reading a trace of any format that is known here: which one it is, is seen by its content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from gpufair.sim.traces.alibaba import PODS, looks_like_jobs, looks_like_tasks, read_openb, read_pai
from gpufair.sim.traces.cluster_log import looks_like_cluster_log, read_cluster_log
from gpufair.sim.traces.csv_reader import NEEDED, read_csv
from gpufair.sim.traces.csv_table import column_names
from gpufair.sim.traces.errors import TraceError
from gpufair.sim.traces.fields import shown
from gpufair.sim.traces.journal import looks_like_journal, read_journal
from gpufair.sim.traces.options import USUAL, Options
from gpufair.sim.traces.philly import read_philly
from gpufair.sim.traces.row import Trace
from gpufair.sim.traces.sacct import looks_like_sacct, read_sacct
from gpufair.sim.traces.source import SQLITE, Progress, Source
from gpufair.sim.traces.swf import looks_like_swf, read_swf

FORMATS: Final[Mapping[str, tuple[Callable[..., Trace], str]]] = MappingProxyType(
    {
        "csv": (read_csv, "CSV with the columns job_id,submit_s,duration_s,gpus"),
        "sacct": (read_sacct, "Slurm's sacct --parsable2"),
        "swf": (read_swf, "the Standard Workload Format"),
        "philly": (read_philly, "Philly's cluster_job_log in JSON, or such a log in CSV"),
        "helios": (read_cluster_log, "Helios' cluster_log.csv, or another one with dates"),
        "pai": (read_pai, "PAI's task table"),
        "openb": (read_openb, "Alibaba's pod list openb"),
        "journal": (read_journal, "the service's journal.sqlite or timeline"),
    }
)


JOURNAL: Final = "journal.sqlite"  # in the state folder of a service


class UnknownFormat(TraceError):
    """A file is of no format that is known here."""


def read_trace(
    path: Path | str,
    fmt: str = "auto",
    *,
    strict: bool = False,
    progress: Progress | None = None,
    options: Options = USUAL,
) -> Trace:
    """Read the jobs of a trace, packed with gzip or not.

    Args:
        path: The file, or the state folder of a service.
        fmt: One of ``FORMATS``, or "auto": by its content.
        strict: Refuse a file with bad rows, in place of skipping and counting them.
        progress: Told now and then how many bytes of how many were read.
        options: What the format leaves open, and limits.

    Raises:
        TraceError: It can't be read, or it is of no known format (``UnknownFormat``), exceeds a limit
            (``TraceTooLarge``), or is to be read strictly and has bad rows (``BadRows``).
    """
    path = Path(path)
    if (path / JOURNAL).is_file():
        path /= JOURNAL
    source = Source(path, options, progress)
    if fmt != "auto" and fmt not in FORMATS:
        raise UnknownFormat(str(path), f"the format {fmt!r} is not known; {_known()}")
    found = _format_of(source) if fmt == "auto" else fmt
    return FORMATS[found][0](source, strict=strict)


def _known() -> str:
    return "known formats: " + "; ".join(f"{name} ({about})" for name, (_, about) in FORMATS.items())


def _format_of(source: Source) -> str:
    """What the beginning of a file looks like."""
    start = source.head()
    if start.startswith(SQLITE):
        return "journal"
    if start[257:262] == b"ustar":
        raise source.error("it is an archive of files; unpack it and name one of them")
    head = start.decode(errors="replace").removeprefix("\ufeff").lstrip()
    if head.startswith(("[", "{")):
        if '"attempts"' in head or '"jobid"' in head:
            return "philly"
        if looks_like_journal(head):
            return "journal"
    if not head:
        raise source.error("it is empty")
    lines = head.splitlines()
    if found := _format_of_line(next((line for line in lines if not line.lstrip().startswith(";")), "")):
        return found
    if looks_like_jobs(next(iter(lines), "")):
        raise source.error(
            "it is PAI's job table, which says nothing about GPUs; name the task table, which is joined with it"
        )
    if head.startswith(";"):
        return "swf"
    first = next(iter(lines), "")
    if first.startswith("JobID "):
        raise source.error("it looks like the table that sacct prints for people; print it with --parsable2")
    raise UnknownFormat(str(source.path), f"its format is not known; it begins with {shown(first, 120)}; {_known()}")


def _format_of_line(line: str) -> str:
    columns = set(column_names(line))
    if columns.issuperset(NEEDED):
        return "csv"
    if columns.issuperset(PODS):
        return "openb"
    if looks_like_cluster_log(columns):
        return "helios"
    if looks_like_tasks(line):
        return "pai"
    if looks_like_sacct(line):
        return "sacct"
    return "swf" if looks_like_swf(line) else ""
