"""A database server that is killed under a running service: changes are refused, questions answered, nothing is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gpufair.clock import SystemClock
from gpufair.core.state import State
from gpufair.core.units import WorkloadId
from gpufair.service.runtime.runtime import Options, Runtime
from gpufair.service.storage.journal import Journal
from gpufair.service.storage.store import StoreUnavailable, sqlite_url
from tests.postgres import Postgres, postgres
from tests.unit.service.rig import Remembering, cluster, spec, submit


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as server:
        yield server


async def known(runtime: Runtime) -> set[str]:
    def names(state: State) -> set[str]:
        return set(state.facts.records)

    return await runtime.read(names)


async def started(url: str) -> tuple[Journal, Runtime, Remembering]:
    journal = await Journal.open(url, "test")
    runtime = Runtime(journal, SystemClock(), Options(validate=True, snapshot_every=7))
    backend = Remembering()
    runtime.backend = backend
    await runtime.start()
    return journal, runtime, backend


async def test_a_server_that_is_killed_and_comes_back(server: Postgres) -> None:
    """Three times, amid submissions: all that were acknowledged are there once, and it went on by itself."""
    journal, runtime, backend = await started(server.database())
    await cluster(runtime, gpus=200)
    acknowledged: set[str] = set()
    in_doubt: set[str] = set()
    try:
        for outage in range(3):
            enough = asyncio.Event()

            async def busy(outage: int = outage, enough: asyncio.Event = enough) -> None:
                number = 0
                while not enough.is_set():
                    name = f"w{outage}-{(number := number + 1)}"
                    try:
                        await submit(runtime, name, spec())
                    except StoreUnavailable as err:
                        if err.in_doubt:
                            in_doubt.add(name)
                        await asyncio.sleep(0.01)
                    else:
                        acknowledged.add(name)

            work = asyncio.create_task(busy())
            before = len(acknowledged)
            await until(lambda: len(acknowledged) > before + 5)  # noqa: B023
            await asyncio.to_thread(server.kill)
            with pytest.raises(StoreUnavailable):
                await submit(runtime, f"refused-{outage}", spec())
            assert acknowledged <= await known(runtime)  # read while it is away
            assert f"refused-{outage}" not in await known(runtime)
            server.start()  # not in a thread: the server ends with the thread that started it
            before = len(acknowledged)
            await until(lambda: len(acknowledged) > before + 5)  # noqa: B023
            enough.set()
            await work
        found = await known(runtime)
        assert acknowledged <= found <= acknowledged | in_doubt
        starts = backend.started()
        assert len(starts) == len(set(starts))
        assert {workload for workload, _ in starts} == found  # decided and committed, so carried out
    finally:
        await runtime.close()
        await journal.close()
    journal, runtime, _ = await started(str(journal_url(journal)))
    assert await known(runtime) == found
    await runtime.close()
    await journal.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_commit_whose_answer_is_lost(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Whoever asked is told that it is not known; it was decided, so it is carried out, once."""
    url = sqlite_url(tmp_path) if kind == "sqlite" else request.getfixturevalue("server").database()
    journal, runtime, backend = await started(url)
    try:
        await cluster(runtime, gpus=2)
        dialect: Any = journal._store._engine.dialect
        commit = dialect.do_commit

        def lost(connection: Any) -> None:
            commit(connection)
            dialect.do_commit = commit
            raise sa.exc.OperationalError("COMMIT", {}, OSError("gone"), connection_invalidated=True)

        dialect.do_commit = lost
        with pytest.raises(StoreUnavailable, match="not known"):
            await submit(runtime, "w", spec())
        assert await known(runtime) == {"w"}
        await until(lambda: backend.started() == [(WorkloadId("w"), 1)])
        await submit(runtime, "v", spec())
        assert backend.started() == [("w", 1), ("v", 1)]
    finally:
        await runtime.close()
        await journal.close()


async def until(condition: Any) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def journal_url(journal: Journal) -> str:
    return journal._store._engine.url.render_as_string(hide_password=False)
