"""The store from the event loop: every call runs in one dedicated thread, in the order in which it was made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, Self, TypeVar

import sqlalchemy as sa

from gpufair.service.storage.ended import Ended
from gpufair.service.storage.outbox import Letter
from gpufair.service.storage.stays import Writes
from gpufair.service.storage.store import Entry, Loaded, NewEntry, Place, Snapshot, Store

P = ParamSpec("P")
R = TypeVar("R")


class Journal:
    """A ``Store`` whose calls are awaited. Make one with ``Journal.open``."""

    def __init__(self, store: Store, thread: ThreadPoolExecutor) -> None:
        self._store, self._thread = store, thread

    @classmethod
    async def open(cls, place: Place | str, core: str, *, epoch: int = 0, upgrade: bool = False) -> Self:
        """Open the store there; arguments and errors as of ``Store``."""
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="gpufair-store")
        try:
            store = await asyncio.get_running_loop().run_in_executor(
                thread, partial(Store, place, core, epoch=epoch, upgrade=upgrade)
            )
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(store, thread)

    async def _call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        # Shielded: a caller that is cancelled must not leave it unknown whether something was committed.
        call = asyncio.get_running_loop().run_in_executor(self._thread, lambda: function(*args, **kwargs))
        return await asyncio.shield(call)

    @property
    def seq(self) -> int:
        """Number of the last entry."""
        return self._store.seq

    @property
    def end(self) -> tuple[int, str]:
        """``Store.end``."""
        return self._store.end

    async def digest(self, seq: int) -> str | None:
        """``Store.digest``."""
        return await self._call(self._store.digest, seq)

    @property
    def went_through(self) -> bool:
        """Whether the last load found an append in the journal that had seemed to fail."""
        return self._store.went_through

    async def remembered(self) -> Loaded:
        """``Store.remembered``."""
        return await self._call(self._store.remembered)

    async def append(
        self,
        entries: Sequence[NewEntry],
        details: Mapping[str, Mapping[str, Any] | None] | None = None,
        letters: Sequence[Letter] = (),
        also: Sequence[Writes] = (),
    ) -> list[int]:
        """``Store.append``."""
        return await self._call(self._store.append, entries, details, letters, also)

    async def within(self, work: Callable[[sa.Connection], R]) -> R:
        """``Store.within``."""
        return await self._call(self._store.within, work)

    async def load(self) -> Loaded:
        """``Store.load``."""
        return await self._call(self._store.load)

    async def put_away(self, seq: int, those: Sequence[Ended]) -> int:
        """``Store.put_away``."""
        return await self._call(self._store.put_away, seq, those)

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """``Store.save_snapshot``."""
        await self._call(self._store.save_snapshot, snapshot)

    async def entries(self, after: int = 0, limit: int = 10_000) -> tuple[Entry, ...]:
        """``Store.entries``."""
        return await self._call(self._store.entries, after, limit)

    async def before(self, at_ms: int) -> int:
        """``Store.before``."""
        return await self._call(self._store.before, at_ms)

    async def first(self) -> tuple[int, int] | None:
        """``Store.first``."""
        return await self._call(self._store.first)

    async def meta(self, key: str) -> str | None:
        """``Store.meta``."""
        return await self._call(self._store.meta, key)

    async def set_meta(self, key: str, value: str) -> None:
        """``Store.set_meta``."""
        await self._call(self._store.set_meta, key, value)

    async def close(self) -> None:
        """Finish what was asked, then give the database back."""
        await self._call(self._store.close)
        self._thread.shutdown(wait=True)
