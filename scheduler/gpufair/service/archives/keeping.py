"""``[store] keep``: the service moves old entries of its journal to the archive by itself, a few at a time."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpufair.clock import Clock
from gpufair.core.units import Millis
from gpufair.service.archives.archiving import Archiver
from gpufair.service.storage.database import Place, StoreError, StoreUnavailable
from gpufair.service.storage.journal import Journal

ROUND_S: Final = 3600.0
PAUSE_S: Final = 0.5  # between two steps: whoever submits meanwhile waits for one deletion at most
_log = logging.getLogger(__name__)


class Keeper:
    """Archives at the start and each hour. Reading and writing the file take a thread, deleting its turn as a commit."""

    def __init__(self, journal: Journal, place: Place, folder: Path, clock: Clock, keep: Millis) -> None:
        self._journal, self._clock, self._keep = journal, clock, keep
        self._archiver = Archiver(place, folder)
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._said = ""

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="keeper")

    async def close(self) -> None:
        """End after the step in progress."""
        self._ending.set()
        if self._task is not None:
            await self._task

    async def round(self) -> int:
        """Move all that is old enough. Returns how many entries.

        Raises:
            StoreError: They cannot be moved; the text says why. What was not moved is still in the database.
            StoreUnavailable: The database can't be read or written.
        """
        count = 0
        last = await asyncio.to_thread(self._archiver.last, self._clock.now() - self._keep)
        while last and not self._ending.is_set():
            moved = await asyncio.to_thread(self._archiver.step, last)
            if moved is None:
                break
            try:
                await self._journal.within(moved.delete)
            finally:
                moved.close()
            count += moved.entries
            await self._rest(PAUSE_S)
        return count

    async def _run(self) -> None:
        while not self._ending.is_set():
            try:
                if count := await self.round():
                    _log.info("%d old entries of the journal were archived", count)
                self._said = ""
            except (StoreError, StoreUnavailable) as err:
                if str(err) != self._said:
                    self._said = str(err)
                    _log.warning("old entries stay in the journal: %s", err)
            except Exception:  # noqa: BLE001  # a bug here must not keep it from being tried again
                _log.exception("old entries could not be archived")
            await self._rest(ROUND_S)

    async def _rest(self, span_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), span_s)
