"""One service writes into a PostgreSQL at a time, whatever the others believe."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from gpufair.service.storage import schema
from gpufair.service.storage.database import Place, StoreError, open_engine
from gpufair.service.storage.leadership import Deposed, Leadership
from gpufair.service.storage.store import Snapshot, Store, StoreUnavailable
from tests.postgres import Postgres, postgres, run
from tests.unit.service.test_schema import version_1
from tests.unit.service.test_store import entry


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as server:
        yield server


async def test_one_leads_and_the_next_one_only_after_it(server: Postgres) -> None:
    """The epoch goes up, and what the former leader would write is refused, in every kind of transaction."""
    url = server.database()
    async with Leadership(Place(url)) as first, Leadership(Place(url)) as second:
        assert await first.win() == 1
        old = Store(url, "1", epoch=1)
        assert old.append([entry(1)]) == [1]
        assert await second._call(second._try) == 0
        assert await first._call(first._renew)
        # Stopped for long: its row grows old. The first look puts it out, a next one leads.
        run(url, "UPDATE leaders SET renewed_ms = renewed_ms - 60000")
        assert await asyncio.wait_for(second.win(), 30) == 2
        new = Store(url, "1", epoch=2)
        assert new.append([entry(2)]) == [2]
        with pytest.raises((Deposed, StoreUnavailable)):  # the server has ended its connection
            old.append([entry(2)])
        for write in (
            lambda: old.append([entry(2)]),
            lambda: old.save_snapshot(Snapshot(1, 1, "s")),
            lambda: old.set_meta("k", "v"),
            lambda: old.within(lambda connection: connection.exec_driver_sql("DELETE FROM journal")),
        ):
            with pytest.raises(Deposed, match="another service leads"):
                write()
        await asyncio.wait_for(first.hold(lambda: False), 30)  # it learns of it
        assert [one.event for one in new.load().tail] == [entry(1).event, entry(2).event]
        assert new.meta("k") is None
        old.close()
        new.close()


async def test_a_leader_outlives_a_restart_of_the_server(server: Postgres) -> None:
    """The lock goes with the connections; the leader takes it again, unless another one was quicker."""
    url = server.database()
    async with Leadership(Place(url)) as first, Leadership(Place(url)) as second:
        assert await first.win() == 1
        server.kill()
        with pytest.raises(StoreUnavailable):
            await first._call(first._renew)
        server.start()
        assert await first._call(first._renew)
        assert await second._call(second._try) == 0


async def test_nothing_is_upgraded_under_a_service(server: Postgres) -> None:
    """An older service that still runs would read what it does not understand."""
    url = server.database()
    async with Leadership(Place(url)) as leader:
        await leader.win()
        run(url, "UPDATE meta SET value = '1' WHERE key = 'schema'")
        engine = open_engine(Place(url))
        with pytest.raises(StoreError, match="a service is using"):
            schema.upgrade(engine, "the database")
        engine.dispose()
    old = server.database()
    version_1(old, True)
    async with Leadership(Place(old)) as leader:
        with pytest.raises(StoreError, match="gpufair db upgrade"):
            await leader.win()
