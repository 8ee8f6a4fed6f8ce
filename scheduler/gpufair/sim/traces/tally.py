"""What has been read of a trace so far: rows, and what was left out and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from gpufair.core.units import Millis
from gpufair.sim.traces.errors import BadRows
from gpufair.sim.traces.fields import Wrong
from gpufair.sim.traces.row import BAD, BadRow, Row, Trace
from gpufair.sim.traces.source import Source

T = TypeVar("T")
LONGEST: Final = Millis(10 * 366 * 86_400_000)
FIRST_DATE: Final = Millis(
    946_684_800_000
)  # 2000: what is given as an earlier date has been shifted to hide the real one


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

    def take(self, items: Iterable[tuple[int, T]], row_of: Callable[[int, T], Row | str | None]) -> None:
        """Make rows of items with their lines.

        ``row_of`` answers why an item is left out, if it is one of a job; None if it says nothing about one. It raises
        ``Wrong`` if it makes no sense.
        """
        for line, item in items:
            try:
                row = row_of(line, item)
                if isinstance(row, str):
                    self.leave_out(row)
                elif row is not None:
                    self.add(row)
            except Wrong as wrong:
                self.bad(line, str(wrong))

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

    def trace(self, *, dated: bool = False, epoch_s: float | None = None) -> Trace:
        """All of it.

        Args:
            dated: Submissions are Unix times, and the first one becomes the trace's zero. (So it does where they lie
                decades after a zero of their own.)
            epoch_s: Unix seconds of the trace's zero, where it is not dated.

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
        rows = sorted(self._rows, key=lambda row: row.submit)
        zero = rows[0].submit
        if dated or zero >= FIRST_DATE:
            rows = [row._replace(submit=Millis(row.submit - zero)) for row in rows]
            epoch_s = zero / 1000 if zero >= FIRST_DATE else None
        return Trace(
            name=self._source.name,
            format=self._format,
            rows=tuple(rows),
            skipped=tuple(self._bad),
            counts=dict(sorted(self._counts.items())),
            epoch_s=epoch_s,
            remarks=tuple(self._remarks),
        )
