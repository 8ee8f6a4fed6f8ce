"""The mirror of shadow mode: what a cluster's users submit, gathered again and again, the last days of it kept in a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpufair.core.units import DAY, Instant, Millis
from gpufair.sim.traces import TraceError, read_trace, write_csv
from gpufair.sim.traces.row import Row, Trace

MOST_JOBS: Final = 1_000_000
KEPT: Final = Millis(35 * DAY)


@dataclass
class Mirror:
    """Jobs by id, their submissions as Unix times in milliseconds.

    Args:
        kept: How long a submission is remembered after the newest one.
        most: Jobs that are remembered at most; the oldest go first.
    """

    kept: Millis = KEPT
    most: int = MOST_JOBS
    jobs: dict[str, Row] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path, kept: Millis = KEPT, most: int = MOST_JOBS) -> Mirror:
        """What an earlier mirror saved; an empty one, if there is no such file.

        Raises:
            TraceError: The file is damaged.
        """
        mirror = cls(kept, most)
        if path.exists():
            mirror.take(read_trace(path, "csv", strict=True))
        return mirror

    def take(self, trace: Trace) -> int:
        """Take in what was seen; of a job that is known already its newest state. Returns how many were new or changed.

        Raises:
            TraceError: The trace has no dates, so nobody knows when its jobs were submitted.
        """
        if trace.epoch_s is None:
            raise TraceError(trace.name, "its submissions have no dates; shadow mode needs to know when they were")
        zero, changed = round(trace.epoch_s * 1000), 0
        for row in trace.rows:
            dated = row._replace(line=0, submit=Millis(row.submit + zero))
            if (known := self.jobs.get(row.job_id)) != dated:
                # A journal read from its middle on may know less of a job than was seen before.
                if known is not None and known.duration > dated.duration and known.submit == dated.submit:
                    continue
                self.jobs[row.job_id] = dated
                changed += 1
        self._prune()
        return changed

    def _prune(self) -> None:
        rows = self._sorted()
        if not rows:
            return
        begin = rows[-1].submit - self.kept
        self.jobs = {row.job_id: row for row in rows[-self.most :] if row.submit >= begin}

    def _sorted(self) -> list[Row]:
        return sorted(self.jobs.values(), key=lambda row: (row.submit, row.job_id))

    def save(self, path: Path) -> None:
        """Write it, whole or not at all; the file is a trace itself.

        Raises:
            TraceError: It can't be written.
        """
        fresh = path.with_name(f".{path.name}.new{path.suffix}")
        write_csv(self._sorted(), fresh)
        try:
            fresh.replace(path)
        except OSError as err:
            raise TraceError(str(path), f"it cannot be written ({err.strerror or err})") from err

    def recent(self, span: Millis, now: Instant | None = None, name: str = "shadow") -> Trace | None:
        """The submissions of the last days as a trace that begins when they do; None: there is none.

        Args:
            span: How far back.
            now: Their end; None: the newest submission.
            name: What reports call it.
        """
        rows = self._sorted()
        end = now if now is not None else (rows[-1].submit if rows else 0)
        rows = [row for row in rows if end - span <= row.submit <= end]
        if not rows:
            return None
        zero = rows[0].submit
        return Trace(name, "shadow", tuple(_since(rows, zero)), epoch_s=zero / 1000)


def _since(rows: Iterable[Row], zero: Millis) -> Iterable[Row]:
    for line, row in enumerate(rows, 1):
        yield row._replace(line=line, submit=Millis(row.submit - zero))
