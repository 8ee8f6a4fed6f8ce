"""How long an embedded service stays when nobody holds it any more.

It is held by each Jupyter server that listens on the event stream with ``holder=1``. When the last one has gone, it
lingers, so that a restarted server finds its running cells; then it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from gpufair.clock import Clock
from gpufair.core.units import Instant, Millis, after

# A server that has just started the service connects within seconds; a shorter linger must not cut it off.
FIRST_HOLDER = Millis(60_000)
IDLE_POLL = Millis(2_000)


class Lifetime:
    """Counts holders and says when the service is to end.

    Args:
        clock: The time.
        linger: How long to stay after the last holder; None: until nothing is busy.
        busy: Whether a session works or waits; asked only for ``linger`` None.
    """

    def __init__(self, clock: Clock, linger: Millis | None, busy: Callable[[], Awaitable[bool]]) -> None:
        self._clock, self._linger, self._busy = clock, linger, busy
        self._holders = 0
        self._changed = asyncio.Event()
        first = FIRST_HOLDER if linger is None else Millis(max(FIRST_HOLDER, linger))
        self._until: Instant = after(clock.now(), first)
        self.ending = asyncio.Event()  # set when the service begins to end, whatever the reason

    @property
    def holders(self) -> int:
        """Jupyter servers that are connected."""
        return self._holders

    @property
    def linger(self) -> Millis | None:
        """As configured."""
        return self._linger

    @property
    def until(self) -> Instant | None:
        """When it ends if nobody comes; None while it is held."""
        return self._until if self._holders == 0 else None

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Hold the service inside this block."""
        self._holders += 1
        self._changed.set()
        try:
            yield
        finally:
            self._holders -= 1
            if self._holders == 0:
                self._until = after(self._clock.now(), self._linger if self._linger is not None else IDLE_POLL)
            self._changed.set()

    async def wait_over(self) -> None:
        """Return when nobody has held it for the linger time."""
        while True:
            self._changed.clear()
            if self._holders:
                await self._changed.wait()
                continue
            if self._clock.now() < self._until:
                await self._sleep_or_change(self._until)
                continue
            if self._linger is not None or not await self._busy():
                return
            self._until = after(self._clock.now(), IDLE_POLL)

    async def _sleep_or_change(self, until: Instant) -> None:
        tasks = [asyncio.create_task(self._clock.sleep_until(until)), asyncio.create_task(self._changed.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
