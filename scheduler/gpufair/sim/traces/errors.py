"""Why a trace could not be read."""

from __future__ import annotations

from collections.abc import Sequence

from gpufair.core.errors import GpufairError
from gpufair.sim.traces.row import BadRow


class TraceError(GpufairError):
    """A trace cannot be read at all. ``line`` is where, if that is known."""

    def __init__(self, path: str, problem: str, line: int | None = None) -> None:
        super().__init__(path, problem, line)
        self.path, self.problem, self.line = path, problem, line

    def __str__(self) -> str:
        where = f", line {self.line}" if self.line is not None else ""
        return f"the trace {self.path}{where}: {self.problem}"


class TraceTooLarge(TraceError):
    """A trace exceeds a limit. ``option`` is the field of ``Options`` that raises it."""

    def __init__(self, path: str, what: str, limit: int, option: str, line: int | None = None) -> None:
        super().__init__(
            path,
            f"{what} than {limit:,}; if that is meant, read it with Options({option}=…), else cut it to the days you need",
            line,
        )
        self.limit, self.option = limit, option


class BadRows(TraceError):
    """A trace that was to be read strictly has bad rows: ``total``, of which ``first`` are named."""

    def __init__(self, path: str, first: Sequence[BadRow], total: int) -> None:
        lines = "; ".join(f"line {each.line}: {each.reason}" for each in first[:10])
        more = f"; and {total - 10:,} more" if total > 10 else ""
        super().__init__(
            path,
            f"{total:,} bad row{'' if total == 1 else 's'}: {lines}{more}; mend them, or read it without strict to skip them",
        )
        self.first, self.total = tuple(first), total
