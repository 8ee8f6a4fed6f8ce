"""How often an API server is asked: a bucket of calls that fills at a steady rate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


class Bucket:
    """Args:
    per_s: Calls a second in the long run; 0: any number.
    burst: Calls that may come together after a while of quiet.
    """

    def __init__(
        self,
        per_s: float,
        burst: int,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._per_s, self._burst, self._now, self._sleep = per_s, max(1, burst), now, sleep
        self._left, self._since = float(self._burst), now()

    async def take(self) -> None:
        """Return when one more call may be made; who asked first goes first."""
        if not self._per_s:
            return
        now = self._now()
        self._left = min(self._burst, self._left + (now - self._since) * self._per_s) - 1
        self._since = now
        # A debt is a place in the queue: whoever comes next owes more and waits longer.
        if self._left < 0:
            await self._sleep(-self._left / self._per_s)
