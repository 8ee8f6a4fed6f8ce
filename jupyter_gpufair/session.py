"""One kernel's session with the scheduler: what the service says of it, and where its relay points.

It lives in the io thread; other loops get told by callbacks, and read attributes that are replaced as a whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpufair.client import AsyncClient, NotFound, Refused, Workload
from gpufair.core.errors import GpufairError
from jupyter_gpufair.passage import Passage
from jupyter_gpufair.relay import Relay

if TYPE_CHECKING:
    from gpufair.client.types import Connection
    from jupyter_gpufair.sessions import Sessions

log = logging.getLogger(__name__)

Generation = tuple[int, int]  # (incarnation, generation): names one kernel process of a session
Listener = Callable[["Session"], None]

SERVES = frozenset({"running", "checkpointing"})  # a kernel is there and may still answer
AGAIN_S = 0.1
LONG_AGAIN_S = 2.0
LOOK_S = 2.0  # a page waits for it


class SessionGone(GpufairError):
    """The scheduler knows no such session, or it is over."""

    def __init__(self, kernel_id: str, why: str) -> None:
        super().__init__(kernel_id, why)
        self.kernel_id, self.why = kernel_id, why

    def __str__(self) -> str:
        return f"session {self.kernel_id} is over ({self.why or 'it was ended'}); start a new kernel"


class Session:
    """One kernel's session with the scheduler.

    Attributes:
        workload: What the service said last; None before the submission was answered.
        attached: Which kernel the relay reaches now; None while it holds connections.
        key: The kernel's session key, the same for its whole life; empty before it is known.
    """

    def __init__(self, sessions: Sessions, kernel_id: str) -> None:
        self.kernel_id = kernel_id
        self.workload: Workload | None = None
        self.attached: Generation | None = None
        self.key = ""
        self.relay = Relay(sessions.loop)
        self.relay.start()
        self._sessions = sessions
        self._listeners: list[tuple[asyncio.AbstractEventLoop, Listener]] = []
        self._attaching: asyncio.Task[None] | None = None
        self._passage: Passage | None = None  # to a kernel on another machine
        self._outdated: Generation | None = None  # a kernel that is being replaced on our own request
        self._fresh = False  # a restart was asked for in a state that cannot do it at once

    # ------------------------------------------------------------------ what others ask
    @property
    def state(self) -> str:
        """The workload's state; "queued" before the service has answered."""
        return self.workload.state if self.workload is not None else "queued"

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.workload is not None and not self.workload.live

    @property
    def serving(self) -> bool:
        """Whether cells may be sent to the kernel now."""
        return self.state == "running" and self.attached is not None

    @property
    def kernel_died(self) -> bool:
        """Whether the kernel process died and waits for a restart (and not for one that is under way)."""
        workload = self.workload
        if workload is None or workload.state != "running":  # elsewhere its successor is on its way already
            return False
        return workload.kernel_died and _of(workload) != self._outdated

    def listen(self, listener: Listener, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """Have ``listener`` called on ``loop`` after each change; returns what ends that."""
        entry = (loop, listener)
        self._listeners = [*self._listeners, entry]

        def end() -> None:
            self._listeners = [other for other in self._listeners if other is not entry]

        return end

    # ------------------------------------------------------------------ in the io thread
    def apply(self, workload: Workload) -> None:
        """The service said this."""
        known = self.workload
        if known is not None and (_of(workload) < _of(known) or (not known.live and workload.live)):
            return  # overtaken on the way
        if known is not None and workload.utilization is None and workload.state == known.state:
            workload = replace(workload, utilization=known.utilization)
        self.workload = workload
        generation = _of(workload)
        if self._outdated is not None and generation > self._outdated:
            self._outdated = None
        self._point_relay(workload, generation)
        if self._fresh:
            self._start_afresh(workload)
        self.notify()

    async def look(self) -> None:
        """Learn how busy its GPUs are, which no event tells. What cannot be had now stays as it was known."""
        known = self.workload
        if known is None or known.state != "running" or not known.total_gpus:
            return
        try:
            async with asyncio.timeout(LOOK_S):
                found = await self._sessions.link.client.workload(self.kernel_id)
        except (GpufairError, TimeoutError):
            return
        if self.workload is not None and _of(found) == _of(self.workload):
            self.workload = replace(self.workload, utilization=found.utilization)

    def vanished(self, why: str) -> None:
        """The service does not know it any more."""
        workload = self.workload
        if workload is not None and workload.live:
            self.apply(replace(workload, state="ended", outcome="failed", reason=why, serving=False))

    def notify(self) -> None:
        """Tell all who listen."""
        for loop, listener in (*self._listeners, *self._sessions.listeners):
            with suppress(RuntimeError):  # a loop that was closed hears no more
                loop.call_soon_threadsafe(listener, self)

    def _point_relay(self, workload: Workload, generation: Generation) -> None:
        there = workload.state in SERVES and not workload.kernel_died and generation != self._outdated
        if not there or generation != self.attached:
            self.detach()
        if there and workload.serving and generation != self.attached and self._attaching is None:
            self._attaching = self._sessions.loop.create_task(self._attach(generation))

    def detach(self) -> None:
        """Hold clients from now on."""
        if self._attaching is not None:
            self._attaching.cancel()
            self._attaching = None
        if self.attached is not None:
            log.info("session %s: kernel %d.%d is gone; clients are held", self.kernel_id, *self.attached)
        self.attached = None
        self.relay.detach()
        if self._passage is not None:
            self._passage.close()
            self._passage = None

    async def _attach(self, generation: Generation) -> None:
        pause = AGAIN_S
        while True:
            try:
                found = await self._sessions.link.client.connection(self.kernel_id)
                if found.serving and found.connection:
                    break
            except Refused as err:
                log.warning("session %s: its kernel's address was refused: %s", self.kernel_id, err)
            except GpufairError as err:
                log.info("session %s: its kernel's address is not known yet: %s", self.kernel_id, err)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONG_AGAIN_S)
        connection = await self._led_here(found)
        self._attaching = None
        self.relay.attach(connection, generation)
        self.attached = generation
        log.info("session %s: kernel %d.%d is reached", self.kernel_id, *generation)
        self.notify()

    async def _led_here(self, found: Connection) -> Mapping[str, Any]:
        """Where on this machine the kernel is reached."""
        via = found.connection.get("via")
        if not via:
            return found.connection
        self._passage = Passage(self.kernel_id, found.key, via)
        return await self._passage.open()

    # ------------------------------------------------------------------ requests to the service, in the io thread
    async def submit(self, launch: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        """Ask for it, or find it if it exists, and learn its key.

        Raises: GpufairError: It was refused, or there is no service.
        """
        link = self._sessions.link
        workload = await link.call(lambda client: client.submit(launch, id=self.kernel_id, **spec))
        await self._known(workload)

    async def adopt(self) -> None:
        """Take up a session that exists.

        Raises: GpufairError: It does not, or there is no service.
        """
        workload = await self._sessions.link.call(lambda client: client.workload(self.kernel_id))
        await self._known(workload)

    async def _known(self, workload: Workload) -> None:
        if not workload.live:
            raise SessionGone(self.kernel_id, workload.reason)
        if not self.key:
            self.key = (await self._sessions.link.call(lambda client: client.connection(self.kernel_id))).key
        if self.workload is None:  # else the event stream knows better
            self.apply(workload)

    async def resume(self, *, from_checkpoint: bool = True) -> None:
        """Queue a parked session again."""
        await self.ask(lambda client, kernel_id: client.resume(kernel_id, from_checkpoint=from_checkpoint))

    async def restart(self) -> None:
        """A fresh kernel: at once where one runs, else as soon as the state allows. Never waits for it.

        Raises: SessionGone: It is over.
        """
        workload = self.workload
        if workload is None or not workload.live:
            raise SessionGone(self.kernel_id, workload.reason if workload else "it was never submitted")
        if workload.state == "running":
            self._outdated = _of(workload)
            self.detach()
            self.notify()
            try:
                await self._sessions.link.call(lambda client: client.restart(self.kernel_id))
            except Refused:
                # It left that state in this moment; what comes next decides.
                self._outdated = None
                self._fresh = True
                self._point_relay(workload, _of(workload))
            except GpufairError:
                self._outdated = None
                self._point_relay(workload, _of(workload))
                raise
        elif workload.state == "parked":
            await self.resume(from_checkpoint=False)
        elif workload.state == "starting" or (workload.state == "queued" and workload.checkpoint is None):
            pass  # what comes is fresh anyhow
        else:
            self._fresh = True

    def _start_afresh(self, workload: Workload) -> None:
        if workload.state == "parked":
            self._fresh = False
            self._sessions.background(self.resume(from_checkpoint=False), f"restarting session {self.kernel_id}")
        elif workload.state == "running" and workload.serving:
            self._fresh = False
            self._sessions.background(self.restart(), f"restarting session {self.kernel_id}")

    async def stop(self) -> None:
        """End it. A session that the service does not know is over already.

        Raises: GpufairError: There is no service to tell.
        """
        with suppress(NotFound):
            await self._sessions.link.call(lambda client: client.stop(self.kernel_id))

    async def ask(self, verb: Callable[[AsyncClient, str], Any]) -> Any:
        """Any other request about it."""
        before = self.workload
        answer = await self._sessions.link.call(lambda client: verb(client, self.kernel_id))
        if isinstance(answer, Workload) and self.workload is before:
            # Known before the request is answered: a cell that follows it must meet the session as it is now. Had an
            # event come meanwhile, the next one would say the same.
            self.apply(answer)
        return answer

    def close(self) -> None:
        """Forget it here; the session itself goes on."""
        self.detach()
        self.relay.close()
        self._listeners = []


def _of(workload: Workload) -> Generation:
    return workload.incarnation, workload.generation
