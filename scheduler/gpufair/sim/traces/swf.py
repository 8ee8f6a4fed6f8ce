"""The Standard Workload Format of the Parallel Workloads Archive: 18 numbers per line, -1 where one is not known."""

from __future__ import annotations

import re
from typing import Final

from gpufair.sim.traces import fields
from gpufair.sim.traces.fields import Wrong, shown
from gpufair.sim.traces.row import NEVER_RAN, NO_GPUS, NO_RUN, Row, Trace
from gpufair.sim.traces.source import Source
from gpufair.sim.traces.tally import Tally

WIDTH: Final = 18
PART: Final = "parts of jobs that are listed as a whole"
_STATUS: Final = {"0": "failed", "1": "completed", "5": "cancelled"}
_PARTS: Final = frozenset("234")
_HEADER: Final = re.compile(r";\s*(\w+)\s*:\s*(.*)", re.ASCII)


def looks_like_swf(line: str) -> bool:
    """Whether the first line of a file that is no comment is one of this format."""
    values = line.split()
    return len(values) == WIDTH and all(value.lstrip("-").replace(".", "", 1).isdecimal() for value in values)


def read_swf(source: Source, *, strict: bool = False) -> Trace:
    """Read a log of the archive. Its processors are taken as GPUs, see ``Options.processors_per_gpu``.

    Raises:
        TraceError: It can't be read, or (``BadRows``) it is to be read strictly and has bad rows.
    """
    tally = Tally(source, "swf", strict=strict)
    per_gpu = source.options.processors_per_gpu
    if not 0 < per_gpu <= fields.MOST_GPUS:
        raise source.error(f"processors_per_gpu is {per_gpu:g}; give a number above 0")
    header: dict[str, str] = {}

    def row_of(line: int, text: str) -> Row | str:
        values = text.split()
        if len(values) != WIDTH:
            raise Wrong(f"it has {len(values)} values; this format has {WIDTH}")
        (job, submit, _, run, allocated, _, _, asked, requested, _, status, user, group, *_) = values
        if status in _PARTS:
            return PART
        ran = _known(run, "run time (4)")
        if ran is None:
            return NEVER_RAN if status == "5" else NO_RUN
        duration = fields.millis(run, "run time (4)")
        if not duration:
            return NEVER_RAN
        processors = _known(allocated, "allocated processors (5)") or _known(asked, "requested processors (8)")
        if not processors:
            return NO_GPUS
        limit = _known(requested, "requested time (9)")
        return Row(
            line=line,
            job_id=fields.name(job, "job number (1)"),
            submit=fields.millis(submit, "submit time (2)"),
            duration=duration,
            gpus=_at_most(processors / per_gpu),
            user=_name(user, "user (12)"),
            project=_name(group, "group (13)"),
            status=_STATUS.get(status, ""),
            requested=None if not limit else fields.millis(requested, "requested time (9)"),
        )

    def jobs(line: int, text: str) -> Row | str | None:
        if not text.lstrip().startswith(";"):
            return row_of(line, text)
        if match := _HEADER.match(text.strip()):
            header.setdefault(match[1].lower(), match[2].strip())
        return None

    tally.take(source.lines(), jobs)
    each = "each processor counts as a GPU" if per_gpu == 1 else f"{per_gpu:g} processors count as a GPU"
    size = f"; the machine had {shown(header['maxprocs'])} processors" if header.get("maxprocs") else ""
    tally.remark(each + size)
    return tally.trace(epoch_s=_epoch_s(header.get("unixstarttime", "")))


def _epoch_s(text: str) -> float | None:
    try:
        return fields.millis(text, "UnixStartTime") / 1000 or None
    except Wrong:
        return None


def _known(text: str, what: str) -> float | None:
    """A value that may be -1: not known."""
    value = fields.number(text, what)
    if value == -1:
        return None
    if value < 0:
        raise Wrong(f"{what} is {shown(text)}: negative")
    return value


def _name(text: str, what: str) -> str:
    return "" if text == "-1" else fields.name(text, what)


def _at_most(gpus: float) -> float:
    if gpus > fields.MOST_GPUS:
        raise Wrong(f"{gpus:,.0f} processors are too many")
    return gpus
