"""One event loop in one thread per process, for everything that must go on when Jupyter's own loop is busy.

Relays and calls of the service live here. So they work the same under a Jupyter server, whose loop may stall for
seconds, and under a plain ``KernelManager`` (nbclient, papermill, jupyter console), which has no running loop between
its calls.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")


class IoThread:
    """A daemon thread that runs an event loop until the process ends."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpufair-io", daemon=True)
        self._thread.start()
        self._running.wait()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._running.set)
        self.loop.run_forever()

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begin ``work`` there. May be called from any thread but its own."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def inside(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.get_ident() == self._thread.ident


_lock = threading.Lock()
_threads: dict[int, IoThread] = {}


def io_thread() -> IoThread:
    """The thread of this process. A forked child gets its own: threads do not survive a fork."""
    with _lock:
        pid = os.getpid()
        if pid not in _threads:
            _threads.clear()
            _threads[pid] = IoThread()
        return _threads[pid]


async def on_io(work: Coroutine[Any, Any, Result]) -> Result:
    """Do ``work`` in the io thread and wait for it without blocking the caller's loop. Cancelling cancels it there."""
    thread = io_thread()
    if thread.inside():
        return await work
    return await asyncio.wrap_future(thread.submit(work))


def call_on_io(work: Coroutine[Any, Any, Result], timeout_s: float) -> Result:
    """Do ``work`` in the io thread and block until it is done; never from an event loop.

    Raises: TimeoutError: It took longer than ``timeout_s``; it is cancelled.
    """
    future = io_thread().submit(work)
    try:
        return future.result(timeout_s)
    except TimeoutError:
        future.cancel()
        raise
