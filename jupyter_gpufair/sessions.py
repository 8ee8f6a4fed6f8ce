"""The sessions of this process and the one event stream that feeds them. All of it lives in the io thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any

from gpufair.client import Announced, Disconnected, NotFound, Others, Synced, Unavailable, WorkloadEvent
from gpufair.core.errors import GpufairError
from jupyter_gpufair.io_thread import io_thread
from jupyter_gpufair.scheduler_link import SchedulerLink
from jupyter_gpufair.session import LONG_AGAIN_S, Listener, Session

log = logging.getLogger(__name__)


class Sessions:
    """All sessions of this process, fed by one event stream.

    Attributes:
        holder: Whether this is a Jupyter server, which keeps an embedded service alive.
        stopping: The server is going down: nothing may be ended or interrupted any more.
        following: Whether the event stream is connected.
        lab_changed: Called, in the io thread, after each change of any workload that this server may see.
        unstopped: Sessions that were ended here while the service did not answer: it is told when it does.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.link = SchedulerLink()
        self.holder = False
        self.stopping = False
        self.following = False
        self.lab_changed: Callable[[], object] = lambda: None
        self.unstopped: set[str] = set()
        self.listeners: tuple[tuple[asyncio.AbstractEventLoop, Listener], ...] = ()
        self._sessions: dict[str, Session] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._follower: asyncio.Task[None] | None = None

    def get(self, kernel_id: str) -> Session | None:
        """The session of a kernel of this process."""
        return self._sessions.get(kernel_id)

    def all(self) -> list[Session]:
        """All of them."""
        return list(self._sessions.values())

    async def open(self, kernel_id: str) -> Session:
        """The session of ``kernel_id``, with its relay; a new one is not submitted yet."""
        session = self._sessions.get(kernel_id)
        if session is None:
            session = self._sessions[kernel_id] = Session(self, kernel_id)
        self.follow()
        return session

    async def forget(self, session: Session) -> None:
        """Close the relay; leave the session to the service."""
        if self._sessions.get(session.kernel_id) is session:
            del self._sessions[session.kernel_id]
        session.close()

    def follow(self) -> None:
        """Begin to follow the service's events, if that has not begun."""
        if self._follower is None or self._follower.done():
            self._follower = self.loop.create_task(self._follow())

    def background(self, work: Any, what: str) -> None:
        """Do ``work``; a failure is logged, nobody waits for it."""

        async def run() -> None:
            try:
                await work
            except GpufairError as err:
                log.error("%s failed: %s", what, err)

        task = self.loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """The server stops: clients and service are let go, no session is touched."""
        self.stopping = True
        for session in self.all():
            await self.forget(session)
        for task in (self._follower, *self._tasks):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task
        self._follower = None
        await self.link.close()

    async def _follow(self) -> None:
        while True:
            try:
                await self._follow_once()
            except GpufairError as err:
                log.error("following the scheduler service failed: %s", err)
                self.following = False
                await asyncio.sleep(LONG_AGAIN_S)

    async def _follow_once(self) -> None:
        await self.link.ready()
        failures = 0
        # With 150 servers each would otherwise hear of everybody's changes.
        mine = self.link.user or (await self.link.client.status()).user or None
        async with aclosing(self.link.client.events(holder=self.holder, user=mine)) as stream:
            async for event in stream:
                if isinstance(event, WorkloadEvent):
                    failures, self.following, self.link.problem = 0, True, None
                    self.lab_changed()
                    session = self._sessions.get(event.workload.id)
                    if session is not None:
                        session.apply(event.workload)
                elif isinstance(event, Others | Announced):
                    self.lab_changed()
                elif isinstance(event, Synced):
                    failures, self.following, self.link.problem = 0, True, None
                    await self._look_for_missing(event.live)
                    await self._stop_unstopped()
                elif isinstance(event, Disconnected):
                    failures += 1
                    self.following = False
                    self.link.problem = event.reason
                    # Twice: a restarted service takes a moment. A dead embedded one is nobody's but ours to start.
                    if failures >= 2 and self.link.embedded:
                        with suppress(GpufairError):
                            await self.link.ready()

    async def _stop_unstopped(self) -> None:
        for kernel_id in tuple(self.unstopped):
            try:
                await self.link.client.stop(kernel_id)
            except Unavailable as err:
                log.info("session %s could not be ended yet: %s", kernel_id, err)
                continue
            except GpufairError as err:
                log.warning("session %s was not ended: %s", kernel_id, err)
            self.unstopped.discard(kernel_id)

    async def _look_for_missing(self, live: frozenset[str]) -> None:
        for session in self.all():
            workload = session.workload
            if workload is None or not workload.live or session.kernel_id in live:
                continue
            try:
                session.apply(await self.link.client.workload(session.kernel_id))
            except NotFound:
                session.vanished("the scheduler service does not know it any more")
            except Unavailable as err:
                log.info("session %s could not be looked up: %s", session.kernel_id, err)


_lock = threading.Lock()
_made: dict[int, Sessions] = {}


def sessions() -> Sessions:
    """The sessions of this process."""
    thread = io_thread()
    with _lock:
        if id(thread) not in _made:
            _made.clear()
            _made[id(thread)] = Sessions(thread.loop)
        return _made[id(thread)]
