"""Which of several services on one PostgreSQL decides: one leader, others that stand by, never two.

The leader holds an advisory lock of the database and renews a row each second. One that is killed loses the lock with its
connections; of one that is stopped, or cut off, the row grows old, and whoever stands by has the server end its
connections. Neither makes it certain that the former leader does no more. The *epoch* does: it goes up with each leader,
every transaction of the journal checks it in itself (``fence``), and agents refuse what has an older one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

import sqlalchemy as sa

from gpufair.service.storage import schema
from gpufair.service.storage.database import LEADER_LOCK, Place, StoreError, StoreUnavailable, open_engine, translated
from gpufair.service.storage.schema import leaders

R = TypeVar("R")

RENEW_S: Final = 1.0
LEASE_S: Final = 6.0  # a leader that has not renewed for so long is replaced
WATCH_S: Final = 0.5  # between two looks of who stands by
_ROW: Final = 1
_log = logging.getLogger(__name__)

_NOW_MS: Final = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()) * 1000, sa.BigInteger)


class Deposed(StoreError):
    """Another service leads now; nothing was changed."""

    def __init__(self, epoch: int) -> None:
        super().__init__(epoch)
        self.epoch = epoch

    def __str__(self) -> str:
        return "another service leads now, so nothing was changed; ask again, there"


def fence(connection: sa.Connection, epoch: int) -> None:
    """See that ``epoch`` is still that of the leader, until the transaction ends.

    Raises:
        Deposed: It is not.
    """
    # FOR SHARE: a new leader waits for this transaction, and this one for a new leader's, before either goes on.
    found = connection.scalar(sa.select(leaders.c.epoch).where(leaders.c.id == _ROW).with_for_update(read=True))
    if found != epoch:
        raise Deposed(epoch)


def name_of(epoch: int) -> str:
    """How the connections of a leader are called at the server."""
    return f"gpufair leader {epoch}"


@dataclass(frozen=True, slots=True)
class _Seen:
    epoch: int
    age_s: float


class Leadership:
    """One service's part in it. ``win`` waits until this one leads; ``hold`` then renews until it does no more."""

    def __init__(self, place: Place) -> None:
        self._prepared = False
        self._shown = place.shown
        self._engine = open_engine(place)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="gpufair-leader")
        self.epoch = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Give it up: whoever stands by leads within a second."""
        await self._call(self._engine.dispose)
        self._thread.shutdown(wait=True)

    async def win(self) -> int:
        """Return the new epoch once this service leads. As long as the database is away it waits.

        Raises:
            StoreError: The database cannot be used.
        """
        said = ""
        while True:
            try:
                if epoch := await self._call(self._try):
                    self.epoch = epoch
                    return epoch
                said = ""
            except StoreUnavailable as err:
                if err.why != said:
                    said = err.why
                    _log.warning("nobody can lead while the database is away: %s", said)
            await asyncio.sleep(WATCH_S)

    async def hold(self, elsewhere: Callable[[], bool]) -> None:
        """Renew until another service leads.

        Args:
            elsewhere: Whether another one is known to lead; asked while the database is away. It must be quick.
        """
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                if not await self._call(self._renew):
                    return
            except StoreUnavailable as err:
                _log.warning("the leadership cannot be renewed: %s", err.why)
                if elsewhere():
                    return

    async def _call(self, function: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    # -- in the thread --------------------------------------------------------------------------------------------

    def _try(self) -> int:
        """The new epoch, or 0: another service leads, and is well."""
        if not self._prepared:
            with translated(self._shown):
                schema.prepare(self._engine, self._shown)
            self._prepared = True
        with translated(self._shown), self._engine.connect() as connection:
            seen = self._look(connection)
            if not self._lock(connection):
                if seen is not None and seen.age_s > LEASE_S:
                    _log.warning("the leader has not been heard for %.1f s: it is put out", seen.age_s)
                    _put_out(connection, seen.epoch)
                return 0
            row = {"holder": _me(), "renewed_ms": _NOW_MS}
            if seen is None:
                epoch = 1
                connection.execute(sa.insert(leaders).values(id=_ROW, epoch=epoch, **row))
            else:
                # Not by its number alone: a transaction of the former leader may be waiting to end.
                _put_out(connection, seen.epoch)
                epoch = seen.epoch + 1
                connection.execute(sa.update(leaders).where(leaders.c.id == _ROW).values(epoch=epoch, **row))
            connection.execute(sa.select(sa.func.set_config("application_name", name_of(epoch), False)))
            connection.commit()
            return epoch

    def _renew(self) -> bool:
        """Whether this service still leads."""
        with translated(self._shown), self._engine.begin() as connection:
            # Of a connection that was made anew: the lock went with the old one. Held already, it is held once more.
            name = connection.scalar(sa.select(sa.func.current_setting("application_name")))
            if name != name_of(self.epoch):
                if not self._lock(connection):
                    return False
                connection.execute(sa.select(sa.func.set_config("application_name", name_of(self.epoch), False)))
            mine = (leaders.c.id == _ROW) & (leaders.c.epoch == self.epoch)
            return connection.execute(sa.update(leaders).where(mine).values(renewed_ms=_NOW_MS)).rowcount == 1

    def _look(self, connection: sa.Connection) -> _Seen | None:
        age = (_NOW_MS - leaders.c.renewed_ms).label("age_ms")
        row = connection.execute(sa.select(leaders.c.epoch, age).where(leaders.c.id == _ROW)).first()
        return None if row is None else _Seen(row.epoch, row.age_ms / 1000)

    def _lock(self, connection: sa.Connection) -> bool:
        return bool(connection.scalar(sa.select(sa.func.pg_try_advisory_lock(LEADER_LOCK))))


def _put_out(connection: sa.Connection, epoch: int) -> None:
    """Have the server end the connections of a former leader."""
    activity: Any = sa.table("pg_stat_activity", sa.column("pid"), sa.column("datname"), sa.column("application_name"))
    theirs = (
        sa.select(sa.func.pg_terminate_backend(activity.c.pid))
        .where(activity.c.datname == sa.func.current_database(), activity.c.application_name == name_of(epoch))
        .where(activity.c.pid != sa.func.pg_backend_pid())
    )
    connection.execute(theirs)


def _me() -> str:
    return json.dumps({"host": socket.gethostname(), "pid": os.getpid()})
