"""Time as a dependency: the service asks a ``Clock``; tests and the simulator turn a ``VirtualClock`` by hand."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from gpufair.core.units import Instant, Millis


class Clock(Protocol):
    """Tells the time and waits."""

    def now(self) -> Instant:
        """Milliseconds since the Unix epoch."""

    async def sleep_until(self, instant: Instant) -> None:
        """Return when ``instant`` has come; at once if it has passed."""


class SystemClock:
    """Wall time."""

    def now(self) -> Instant:
        """Milliseconds since the Unix epoch."""
        return Instant(time.time_ns() // 1_000_000)

    async def sleep_until(self, instant: Instant) -> None:
        """Sleep until ``instant``. Looks again each minute, since wall time may be stepped."""
        while (left := instant - self.now()) > 0:
            await asyncio.sleep(min(left / 1000, 60.0))


class VirtualClock:
    """Time that moves only when told to."""

    def __init__(self, start: Instant = Instant(0)) -> None:
        self._now = start
        self._moved = asyncio.Condition()

    def now(self) -> Instant:
        """Milliseconds since the Unix epoch."""
        return self._now

    async def advance(self, span: Millis) -> None:
        """Move time forward by ``span`` >= 0 and wake every sleeper whose moment has come."""
        if span < 0:
            raise ValueError(f"time can't go backwards, but {span} ms was asked for")
        async with self._moved:
            self._now = Instant(self._now + span)
            self._moved.notify_all()

    async def sleep_until(self, instant: Instant) -> None:
        """Return when ``instant`` has come."""
        async with self._moved:
            await self._moved.wait_for(lambda: self._now >= instant)
