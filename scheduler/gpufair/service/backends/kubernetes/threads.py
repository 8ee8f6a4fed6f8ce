"""A bounded number of daemon threads for calls that block: an API server that hangs holds up no loop and no end of a process."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

R = TypeVar("R")

_Job = tuple["Future[Any]", Callable[[], Any]]


class ThreadsClosed(Exception):
    """Nothing is begun any more."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Threads:
    """At most ``most`` threads, started as they are needed. (A ThreadPoolExecutor would be waited for at exit.)"""

    def __init__(self, most: int, name: str) -> None:
        self._most: Final = most
        self._name: Final = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0
        self._closed = False

    async def run(self, function: Callable[[], R]) -> R:
        """What ``function`` returns or raises in a thread. Cancelled, it may run on; what it gives is dropped.

        Raises:
            ThreadsClosed: They are; this may come while a call waits for a thread.
        """
        if self._closed:
            raise ThreadsClosed(self._name)
        future: Future[R] = Future()
        self._jobs.put((future, function))
        if not self._idle.acquire(blocking=False) and self._started < self._most:
            self._started += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Begin nothing more. What runs ends by itself, and nobody waits for it."""
        self._closed = True
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is not None and job[0].set_running_or_notify_cancel():
                job[0].set_exception(ThreadsClosed(self._name))
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as err:  # noqa: BLE001
                    # It belongs to who asked.
                    future.set_exception(err)
            del job, future, function
            self._idle.release()
