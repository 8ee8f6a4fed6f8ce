"""How many starts are under way at once, so that what is decided has its node a moment later, however many come together.

A burst is decided faster than an API server takes pods. Each start would then wait behind all others, for GPUs that are its own
already and idle. So whoever submits waits instead, before anything is decided: the decision is made later, of what is true then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from typing import Final
from weakref import WeakValueDictionary

LEAST: Final = 8  # may always be under way: an API server that is slow can be slow for several at once
MOST: Final = 24  # as many as calls can be made at a time
SOON_S: Final = 0.15  # from a decision to a node: quicker need nobody be
TIMES: Final = 2.0  # as long as the quickest may all others take
LATE_S: Final = 1.0  # for whatever takes longer something else is in the way, and waiting for it helps nobody
HOLD_S: Final = 5.0  # that somebody waits at the most
_LESS: Final = 0.9  # of the window, for each that took too long
_LOOK_S: Final = 0.05
_FORGOTTEN_S: Final = 600.0  # within which the quickest start counts as twice as slow


class Pace:
    """Of one cluster: a window that grows while starts have their nodes soon, and shrinks when they do not, as that of TCP."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._begun: dict[Hashable, float] = {}  # what is under way, the oldest first
        self._entering = 0
        self._window = float(LEAST)
        self._quickest, self._quickest_at = 0.0, now()  # of starts, as it was then
        # Of each one comes to the door at a time, so that they take turns; there who came first goes first.
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._door = asyncio.Lock()
        self._changed = asyncio.Event()

    def begun(self, start: Hashable) -> None:
        """It is decided, and has no node yet."""
        self._begun.setdefault(start, self._now())

    def bound(self, start: Hashable) -> None:
        """It has its node."""
        if (at := self._begun.pop(start, None)) is None:
            return
        now = self._now()
        took_s = now - at
        # A server may become slower for good; but what is slow in a crowd is no measure of it.
        so_far_s = self._quickest * 2.0 ** min(10.0, (now - self._quickest_at) / _FORGOTTEN_S) or took_s
        self._quickest, self._quickest_at = min(so_far_s, took_s), now
        if took_s <= max(SOON_S, TIMES * self._quickest):
            self._window = min(MOST, self._window + 1 / self._window)
        else:
            self._window = max(LEAST, self._window * _LESS)
        self._changed.set()

    def dropped(self, start: Hashable) -> None:
        """It gets none, or something is in its way that has to do with no crowd."""
        if self._begun.pop(start, None) is not None:
            self._changed.set()

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """Wait until one more may be decided, for ``HOLD_S`` at the most; decide within.

        Args:
            user: Whose it is: nobody waits behind all that another one has submitted.
        """
        ends = self._now() + HOLD_S
        async with self._lines.setdefault(user, asyncio.Lock()), self._door:
            while not self._room() and self._now() < ends:
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._changed.wait()
            self._entering += 1
        try:
            yield
        finally:
            self._entering -= 1
            self._changed.set()

    def _room(self) -> bool:
        now = self._now()
        while (oldest := next(iter(self._begun), None)) is not None and now - self._begun[oldest] >= LATE_S:
            del self._begun[oldest]
        return len(self._begun) + self._entering < self._window
