"""What a session left on disk: recorded outputs and checkpoints. Blocking; called in threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
MAX_PAGE_BYTES = 1 << 20  # of a log


def outputs_of(record_dir: Path) -> list[dict[str, Any]]:
    """The recorded executions, oldest first; empty if nothing was recorded."""
    from gpufair.node.record import executions  # noqa: PLC0415  # nothing else here needs the node's side

    return list(executions(record_dir)) if record_dir.is_dir() else []


def log_of(record_dir: Path, rank: int, after: int, limit: int) -> dict[str, Any]:
    """A piece of what a command wrote: ``text``, ``after``, ``size_bytes`` and ``ranks`` of ``gpufair.node.logs.Page``."""
    from gpufair.node.logs import read_log  # noqa: PLC0415  # as above

    return asdict(read_log(record_dir, rank, after, limit))


def present(folder: Path, kept: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of ``kept`` whose manifest is still there, newest first."""
    return [checkpoint for checkpoint in reversed(kept) if (folder / str(checkpoint["id"]) / MANIFEST).is_file()]
