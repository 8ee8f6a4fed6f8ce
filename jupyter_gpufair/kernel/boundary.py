"""Work that may run only between cells, in the thread that runs the cells.

A checkpoint taken while a cell runs is torn, with no error raised. So jobs wait here for a cell boundary: they are
handed in from the control thread, which stays free to interrupt, and run in the main thread.
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Job:
    """A piece of work that either runs once or is withdrawn, never both."""

    def __init__(self, work: Callable[[], Any], done: Callable[[Any], None], *, inside: bool = False) -> None:
        """``work`` must not raise. ``done`` is called with its outcome in the main thread.

        Args:
            inside: It may also run inside a cell, at a point that the cell's author calls safe.
        """
        self._work, self._done = work, done
        self.inside = inside
        self._lock = threading.Lock()
        self._taken = False

    def take(self) -> bool:
        """True for the first caller only: who takes it runs or withdraws it."""
        with self._lock:
            taken, self._taken = self._taken, True
        return not taken

    def run(self) -> None:
        """Do the work. After ``take`` only."""
        self._done(self._work())


class Boundary:
    """Knows whether a cell runs, in the main shell or any subshell, and runs jobs when none does."""

    def __init__(self) -> None:
        self._gate = threading.Lock()  # held while a job runs, so that no subshell begins a cell meanwhile
        self._running = 0
        self._in_main = 0  # of those, in the main thread: 0 or 1
        self._jobs: deque[Job] = deque()

    @property
    def busy(self) -> bool:
        """Whether a cell is running. Any thread may ask."""
        return self._running > 0

    @property
    def waiting(self) -> bool:
        """Whether jobs are queued. Any thread may ask."""
        return bool(self._jobs)

    @contextmanager
    def cell(self) -> Iterator[None]:
        """Around the execution of a cell, in the thread that runs it. Waits for the end of a running job."""
        main = int(threading.current_thread() is threading.main_thread())
        with self._gate:
            self._running += 1
            self._in_main += main
        try:
            yield
        finally:
            with self._gate:
                self._running -= 1
                self._in_main -= main

    def submit(self, job: Job) -> None:
        """Queue a job; the caller makes the main thread call ``run_jobs``. Any thread may call."""
        self._jobs.append(job)

    def run_jobs(self) -> None:
        """Run what is queued, unless a cell is running. Main thread only."""
        with self._gate:
            if not self._running:
                self._run(list(self._jobs))

    def run_inside(self) -> None:
        """Run those of the queued jobs that may run at a safe point. By the cell that has reached one.

        Nothing happens in another thread than the main one, or while a subshell is in the middle of a cell.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        with self._gate:
            if self._running == self._in_main:
                self._run([job for job in self._jobs if job.inside])

    def _run(self, jobs: list[Job]) -> None:
        for job in jobs:
            self._jobs.remove(job)
            if job.take():
                with uninterrupted():
                    job.run()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore SIGINT, as ipykernel does whenever no cell runs: an interrupt is for a cell, not for a checkpoint."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before if before is not None else signal.SIG_IGN)
