"""One running kernel as its supervisor sees it: channels, whether a cell runs, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import zmq
import zmq.asyncio

from gpufair.node.child import Child
from gpufair.node.control import Control, KernelGone
from gpufair.node.processes import Proc, end_all, find, send
from gpufair.node.recorder import Cell, Recorder

Answer = TypeVar("Answer")
Told = TypeVar("Told")


class LiveKernel:
    """Connects at once; the kernel may listen later. Close it with ``end``, once."""

    def __init__(
        self, child: Child, key: str, record: Path, on_busy: Callable[[bool], None], on_ask: Callable[[str], None]
    ) -> None:
        """Both are called on the event loop; see ``Recorder``."""
        self.child = child
        self.busy = False
        self.ended_for = ""  # why we killed it, where its owner takes that for its death
        self._on_busy, self._on_ask = on_busy, on_ask
        self._loop = asyncio.get_running_loop()
        self._boundary = asyncio.Event()  # set whenever no cell runs, and also by one that ended a moment ago
        self._boundary.set()
        self.gone: asyncio.Future[int] = self._loop.create_future()  # its exit code
        self._context: zmq.Context[Any] = zmq.Context()
        address = f"tcp://{child.connection['ip']}"
        self.control = Control(zmq.asyncio.Context(self._context), f"{address}:{child.connection['control_port']}", key)
        self._recorder = Recorder(
            self._context,
            f"{address}:{child.connection['iopub_port']}",
            key,
            record,
            lambda busy: self._from_thread(self._set_busy, busy),
            lambda word: self._from_thread(self._on_ask, word),
        )
        self._watcher = asyncio.create_task(self._watch(), name="watch")
        self._ending: asyncio.Task[set[Proc]] | None = None

    @property
    def heard(self) -> bool:
        """Whether it has said anything yet."""
        return self._recorder.heard

    @property
    def cells(self) -> list[Cell]:
        """The newest cells that have begun, oldest first. Complete only once the kernel has been ended."""
        return list(self._recorder.cells)

    def _from_thread(self, call: Callable[[Told], None], told: Told) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know
            self._loop.call_soon_threadsafe(call, told)

    def _set_busy(self, busy: bool) -> None:
        self.busy = busy
        if busy:
            self._boundary.clear()
        else:
            self._boundary.set()
        self._on_busy(busy)

    async def boundary(self, timeout_s: float) -> bool:
        """Wait until no cell runs. A boundary between two queued cells counts, however short. False when time is up."""
        if not self.busy:
            return True
        # An Event wakes its waiters even if it is cleared again before they run: that is the latch wanted here.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._boundary.wait(), max(timeout_s, 0.0))
            return True
        return False

    async def answer(self, future: Awaitable[Answer], timeout_s: float) -> Answer:
        """The answer to a request. Raises ``TimeoutError``, or ``KernelGone``."""
        return await asyncio.wait_for(asyncio.shield(future), max(timeout_s, 0.0))

    async def interrupt(self, patience_s: float = 1.0) -> None:
        """Interrupt by message; by signal too if the kernel doesn't answer (its control thread may be starved)."""
        try:
            await self.answer(self.control.ask("interrupt_request", {}), patience_s)
        except TimeoutError:
            send(self.child.identity, signal.SIGINT)
        except KernelGone:
            return

    async def _watch(self) -> None:
        """Notice its end at once."""
        try:
            fd = os.pidfd_open(self.child.pid)
        except (OSError, AttributeError):
            while (code := self.child.popen.poll()) is None:
                await asyncio.sleep(0.2)
        else:
            ended = asyncio.Event()
            self._loop.add_reader(fd, ended.set)
            try:
                await ended.wait()
            finally:
                self._loop.remove_reader(fd)
                os.close(fd)
            code = self.child.popen.wait()
        self.gone.set_result(code)
        self.control.close(code)

    async def kill(self, tag: str, why: str) -> None:
        """Kill it with all its processes, as if it had died by itself."""
        self.ended_for = why
        # Those of this moment only: the next kernel, which may be started as soon as this one is gone, has the same tag.
        for process in await asyncio.to_thread(find, self.child.pid, tag):
            send(process, signal.SIGKILL)

    async def end(self, tag: str, *, patience_s: float) -> set[Proc]:
        """End it and all its processes (SIGTERM, then SIGKILL after ``patience_s``), and finish the record.

        It goes on even if the caller is cancelled; a second call waits for the first one.

        Returns: All processes that were there.
        """
        if self._ending is None:
            self.child.ending = True
            self._ending = asyncio.create_task(self._end(tag, patience_s), name="end-kernel")
        return await asyncio.shield(self._ending)

    async def _end(self, tag: str, patience_s: float) -> set[Proc]:
        processes = await asyncio.to_thread(end_all, self.child.pid, tag, patience_s=patience_s)
        if not self.gone.done():
            with contextlib.suppress(TimeoutError):
                await self.answer(self.gone, 5.0)
        self._watcher.cancel()
        self.control.close(self.gone.result() if self.gone.done() else None)
        await asyncio.to_thread(self._recorder.close)
        self._context.term()
        return processes | {self.child.identity}
