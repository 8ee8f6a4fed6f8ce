"""Checkpoints that nobody asks for: after cells, and at safe points of long ones, as long as they cost next to nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from gpufair.node.control import KernelGone
from gpufair.node.saving import MAX_WAIT_S, CheckpointFailed

SETTLE_S = 0.3  # "Run All" of many small cells is saved once, if it takes no longer than this between two of them
MAX_PAUSE_S = 5.0  # nobody's next cell waits longer for a checkpoint that was not asked for
LEAST_S = 0.2  # so long even the first one may take
_log = logging.getLogger(__name__)

Attempt = Callable[[float, float], Awaitable[dict[str, Any]]]


class Autosave:
    """Decides when to try. Lives on the supervisor's event loop.

    Saving may take ``share`` of the time since the last one: what took 2 s comes again after 40 s at the earliest, at 5 %.
    """

    def __init__(
        self, share: float, attempt: Attempt, busy: Callable[[], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """
        Args:
            share: From 0 (never) to 1.
            attempt: ``Saver.save_if_cheap`` of the present kernel, with (within_s, wait_s).
            busy: Whether a cell runs: then a safe point in it may be the next occasion.
        """
        self._share, self._attempt, self._busy, self._clock = share, attempt, busy, clock
        self._since = clock() - LEAST_S / share if share > 0 else 0.0
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def cell(self) -> None:
        """A cell began or ended."""
        if self._share <= 0:
            return
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="autosave")
        else:
            self._again = True

    def cancel(self) -> None:
        """No more, not even what is under way: its kernel may still answer, and then it counts."""
        self._share = 0.0
        if self._task is not None:
            self._task.cancel()

    def saved(self) -> None:
        """A checkpoint that was asked for has just been taken."""
        self._since = self._clock()

    async def _run(self) -> None:
        await asyncio.sleep(SETTLE_S)
        while True:
            self._again = False
            within_s = min(self._share * (self._clock() - self._since), MAX_PAUSE_S)
            try:
                content = await self._attempt(max(within_s, 1e-3), MAX_WAIT_S)
            except (CheckpointFailed, KernelGone) as err:
                _log.info("no checkpoint after a cell: %s", err)
                return
            saved = content["status"] == "ok"
            if saved:
                self._since = self._clock()
            cost_s = float(content.get("duration_s" if saved else "expected_s") or 0.0)
            later = not saved and within_s < cost_s <= MAX_PAUSE_S
            if not (self._again or later or self._busy()):
                return  # saved, or nothing has changed, or it will never be cheap
            await asyncio.sleep(max(self._since + cost_s / self._share - self._clock(), SETTLE_S))
