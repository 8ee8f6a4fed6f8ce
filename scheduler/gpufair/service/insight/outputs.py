"""What a workload left on disk: recorded outputs and logs. Blocking; called in threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpufair.node.record import Record

MAX_PAGE_BYTES = 1 << 20  # of a log
KEPT = 8  # records, of at most 64 MiB of outputs each


class Outputs:
    """The recorded outputs of all workloads. A page asks again and again while a cell runs, so the last few are kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Path, tuple[threading.Lock, Record]] = OrderedDict()

    def of(self, record_dir: Path) -> list[dict[str, Any]]:
        """The recorded executions, oldest first; empty if nothing was recorded. Several threads may ask."""
        from gpufair.node.record import Record  # noqa: PLC0415  # nothing else here needs the node's side

        with self._lock:
            lock, record = self._known.setdefault(record_dir, (threading.Lock(), Record(record_dir)))
            self._known.move_to_end(record_dir)
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        with lock:
            return record.executions()


def log_of(record_dir: Path, rank: int, after: int, limit: int) -> dict[str, Any]:
    """A piece of what a command wrote: ``text``, ``after``, ``size_bytes`` and ``ranks`` of ``gpufair.node.logs.Page``."""
    from gpufair.node.logs import read_log  # noqa: PLC0415  # as above

    return asdict(read_log(record_dir, rank, after, limit))
