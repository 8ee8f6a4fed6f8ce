"""What has been read of a trace so far: rows, and what was left out and why."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from gpufair.core.units import Millis
from gpufair.sim.traces.errors import BadRows
from gpufair.sim.traces.fields import Wrong
from gpufair.sim.traces.row import BAD, BadRow, Row, Trace
from gpufair.sim.traces.source import Source

LONGEST: Final = Millis(10 * 366 * 86_400_000)


class Tally:
    """Collects the rows of one trace.

    Args:
        source: Where they come from.
        form: The name of its format.
        strict: Refuse bad rows at the end, in place of skipping them.
    """

    def __init__(self, source: Source, form: str, *, strict: bool = False) -> None:
        self._source, self._format, self._strict = source, form, strict
        self._lines: dict[str, int] = {}  # by job
        self._rows: list[Row] = []
        self._bad: list[BadRow] = []
        self._counts: dict[str, int] = {}
        self._remarks: list[str] = []

    def add(self, row: Row) -> None:
        """A job. Raises ``Wrong`` if there can be no such row beside the others."""
        if row.job_id in self._lines:
            raise Wrong(f"job_id is {row.job_id!r}: that is the job of line {self._lines[row.job_id]} already")
        if row.duration > LONGEST:
            raise Wrong(f"the job ran for {row.duration / 1000:,.0f} s: more than ten years")
        self._lines[row.job_id] = row.line
        self._rows.append(row)

    def bad(self, line: int, reason: str) -> None:
        """A line of which no job can be made."""
        self.leave_out(BAD)
        if len(self._bad) < self._source.options.bad_rows_kept:
            self._bad.append(BadRow(line, reason))

    def leave_out(self, why: str) -> None:
        """A line that is in order, but is no job that held GPUs (or says so of one that was read)."""
        self._counts[why] = self._counts.get(why, 0) + 1

    def remark(self, sentence: str) -> None:
        """What readers of figures should know beside the counts."""
        self._remarks.append(sentence)

    def trace(self, *, dated: bool = False) -> Trace:
        """All of it.

        Args:
            dated: Submissions are Unix times; the first one becomes the trace's zero.

        Raises:
            BadRows: There are some, and it was to be read strictly.
            TraceError: There is no job in it.
        """
        bad = self._counts.get(BAD, 0)
        if bad and self._strict:
            raise BadRows(str(self._source.path), self._bad, bad)
        if not self._rows:
            why = ", ".join(f"{count:,} {reason}" for reason, count in sorted(self._counts.items()))
            first = "".join(f"; line {each.line}: {each.reason}" for each in self._bad[:3])
            raise self._source.error(
                f"there is no job that ran on GPUs in it, read as {self._format} ({why or 'no lines'}{first})"
            )
        rows, epoch_s = sorted(self._rows, key=lambda row: row.submit), None
        if dated:
            zero = rows[0].submit
            rows, epoch_s = [row._replace(submit=Millis(row.submit - zero)) for row in rows], zero / 1000
        return Trace(
            name=self._source.name,
            format=self._format,
            rows=tuple(rows),
            skipped=tuple(self._bad),
            counts=MappingProxyType(dict(sorted(self._counts.items()))),
            epoch_s=epoch_s,
            remarks=tuple(self._remarks),
        )
