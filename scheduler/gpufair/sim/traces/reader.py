"""Reading a trace of any format that is known here: which one it is, is seen by its content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from gpufair.sim.traces.csv_reader import NEEDED, read_csv
from gpufair.sim.traces.csv_table import column_names
from gpufair.sim.traces.errors import TraceError
from gpufair.sim.traces.options import USUAL, Options
from gpufair.sim.traces.row import Trace
from gpufair.sim.traces.source import Progress, Source

FORMATS: Final[dict[str, tuple[Callable[..., Trace], str]]] = {
    "csv": (read_csv, "CSV with the columns job_id,submit_s,duration_s,gpus"),
}


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
        path: The file.
        fmt: One of ``FORMATS``, or "auto": by its content.
        strict: Refuse a file with bad rows, in place of skipping and counting them.
        progress: Told now and then how many bytes of how many were read.
        options: What the format leaves open, and limits.

    Raises:
        TraceError: It can't be read, or it is of no known format (``UnknownFormat``), exceeds a limit
            (``TraceTooLarge``), or is to be read strictly and has bad rows (``BadRows``).
    """
    source = Source(Path(path), options, progress)
    if fmt != "auto" and fmt not in FORMATS:
        raise UnknownFormat(str(path), f"the format {fmt!r} is not known; {_known()}")
    found = _format_of(source) if fmt == "auto" else fmt
    return FORMATS[found][0](source, strict=strict)


def _known() -> str:
    return "known formats: " + "; ".join(f"{name} ({about})" for name, (_, about) in FORMATS.items())


def _format_of(source: Source) -> str:
    head = source.head().decode(errors="replace").removeprefix("\ufeff")
    first = next((line for line in head.splitlines() if line.strip()), "")
    columns = set(column_names(first))
    if columns.issuperset(NEEDED):
        return "csv"
    raise UnknownFormat(str(source.path), f"its format is not known; {_known()}")
