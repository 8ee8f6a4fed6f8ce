"""How a trace is to be read: what its format leaves open, and how much of a file is still believed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """What readers of traces may be told.

    Args:
        max_bytes: Of a trace when unpacked.
        max_lines: Blank lines and comments count.
        max_line_bytes: Of a line, and of a job in JSON.
        bad_rows_kept: So many bad rows are kept with line and reason; all are counted.
        processors_per_gpu: Of a Standard Workload Format trace, which knows no GPUs: so many of its processors are one.
        sacct_fields: The ``--format`` of ``sacct`` output without a header (``--noheader``).
        pai_jobs: The job table that belongs to a PAI task table; None: the one beside it, if there is one.
    """

    max_bytes: int = 2 * 1024**3
    max_lines: int = 20_000_000
    max_line_bytes: int = 64 * 1024
    bad_rows_kept: int = 100
    processors_per_gpu: float = 1.0
    sacct_fields: tuple[str, ...] = ()
    pai_jobs: Path | None = None


USUAL = Options()
