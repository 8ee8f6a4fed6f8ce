"""Reports on their way to the service: numbered, in order, kept until it has them durably."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpufair.wire import Report, to_json

BATCH = 200  # reports; with at most 200 losses of 600 bytes each, far below MAX_BODY_BYTES for all real ones


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A report, and what to do when the service has acknowledged it."""

    report: Report
    on_acknowledged: Callable[[], None]


class Outbox:
    """A queue that forgets only what was acknowledged."""

    def __init__(self) -> None:
        self._pending: deque[Outgoing] = deque()
        self._numbers = itertools.count(1)
        self._filled = asyncio.Event()

    def add(
        self,
        workload: str,
        incarnation: int,
        kind: str,
        body: dict[str, Any],
        at_s: float,
        on_acknowledged: Callable[[], None] = lambda: None,
    ) -> None:
        """Queue a report."""
        report = Report(next(self._numbers), at_s, kind, workload, incarnation, body)
        self._pending.append(Outgoing(report, on_acknowledged))
        self._filled.set()

    async def wait(self, timeout_s: float) -> None:
        """Return when there is something to send, or after ``timeout_s``."""
        try:
            await asyncio.wait_for(self._filled.wait(), timeout_s)
        except TimeoutError:
            return

    def batch(self, limit: int = BATCH) -> list[dict[str, Any]]:
        """The oldest reports, as dicts. They stay here until acknowledged."""
        return [to_json(item.report) for item in itertools.islice(self._pending, limit)]

    def acknowledged(self, seq: int) -> None:
        """The service has all up to this one."""
        while self._pending and self._pending[0].report.seq <= seq:
            self._pending.popleft().on_acknowledged()
        if not self._pending:
            self._filled.clear()

    def workloads(self) -> set[tuple[str, int]]:
        """(workload, incarnation) of everything that waits here."""
        return {(item.report.workload, item.report.incarnation) for item in self._pending}
