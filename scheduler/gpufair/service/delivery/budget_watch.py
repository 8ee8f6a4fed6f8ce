"""Tells people when an allocation has used up its budget. No event says so: time alone moves the window."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from gpufair.clock import Clock
from gpufair.core.errors import GpufairError
from gpufair.core.figures import budgets
from gpufair.core.state import State
from gpufair.core.units import Millis, after
from gpufair.service.runtime.runtime import Runtime
from gpufair.service.storage.journal import Journal
from gpufair.service.workloads import notices
from gpufair.service.workloads.turn import Turn

LOOK = Millis(60_000)

_log = logging.getLogger(__name__)


class BudgetWatch:
    """Posts a notice when an allocation has used up its budget, and again when that happens after it had some left."""

    KEY = "budgets-used-up"  # in the journal's notes: paths, one a line

    def __init__(self, runtime: Runtime, journal: Journal, clock: Clock) -> None:
        self._runtime, self._journal, self._clock = runtime, journal, clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run(), name="budget-watch")

    async def close(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except GpufairError as err:
                _log.warning("budgets were not looked at: %s", err)
            await self._clock.sleep_until(after(self._clock.now(), LOOK))

    async def look(self) -> None:
        """Compare with what was known, post what is new, and only then note it: rather twice than never."""
        known = set((await self._journal.meta(self.KEY) or "").splitlines())
        used = await self._runtime.think(used_up)
        new = sorted(used.keys() - known)

        def step(turn: Turn) -> None:
            turn.post([one for path in new for one in notices.budget_used_up(turn.state, path, used[path], turn.now)])

        if new:
            await self._runtime.do(step)
        if used.keys() != known:
            await self._journal.set_meta(self.KEY, "\n".join(sorted(used)))


def used_up(state: State) -> dict[str, float]:
    """Leaf allocations that were charged and committed at least their budget, over all pools: how much of it."""
    sums: dict[str, tuple[int, int]] = {}
    for one in budgets(state.facts):
        if state.tree.is_leaf(one.path):
            used, given = sums.get(one.path, (0, 0))
            sums[one.path] = (used + one.occupancy + one.commitment, given + one.budget)
    return {path: used / given for path, (used, given) in sums.items() if 0 < given <= used}

