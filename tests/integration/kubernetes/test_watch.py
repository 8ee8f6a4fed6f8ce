"""A copy of what whole servers hold, through restarts, cuts and forgotten history; on a real server too."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gpufair.service.backends.kubernetes.api import MERGE_PATCH, RETRY_S, Api, Pause
from gpufair.service.backends.kubernetes.problems import Conflict, Missing
from gpufair.service.backends.kubernetes.watch import Change, Reflector
from tests.integration.kubernetes.conftest import Server
from tests.kube.fake_api import FakeApi

NOT_ROOTS = "metadata.name!=kube-root-ca.crt"  # which a real cluster puts into each namespace


class Follower:
    def __init__(self, api: Api, path: str, **options: Any) -> None:
        self.api, self.path = api, path
        self.changes: list[Change] = []
        self.reflector = Reflector(api, path, changed=self.changes.append, pause=Pause(0.01, 0.1), **options)

    @property
    def told(self) -> list[str]:
        return [f"{one.kind} {one.object['metadata']['name']}" for one in self.changes]

    @property
    def names(self) -> set[str]:
        return {name for _, name in self.reflector.objects}

    async def until(self, true: Callable[[], bool], what: str = "") -> None:
        ends = time.monotonic() + 30
        while not true():
            assert time.monotonic() < ends, what or self.told
            await asyncio.sleep(0.005)

    async def until_same(self) -> None:
        """Until it holds what the server holds, version by version."""
        held = (await self.api.call("GET", self.path, query={"fieldSelector": NOT_ROOTS}, retry_s=RETRY_S))["items"]
        expected = {
            (one["metadata"]["namespace"], one["metadata"]["name"]): one["metadata"]["resourceVersion"] for one in held
        }

        def same() -> bool:
            return {key: one["metadata"]["resourceVersion"] for key, one in self.reflector.objects.items()} == expected

        await self.until(same, f"it should hold {expected}")


@asynccontextmanager
async def followed(kubeconfig: Path, namespace: str, **options: Any) -> AsyncIterator[Follower]:
    api = await Api.open(kubeconfig)
    one = Follower(api, f"/api/v1/namespaces/{namespace}/configmaps", **{"fields": NOT_ROOTS, **options})
    task = asyncio.create_task(one.reflector.run())
    try:
        async with asyncio.timeout(30):
            await one.reflector.synced()
        yield one
    finally:
        began = time.monotonic()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        took = time.monotonic() - began
        await api.close()
        assert took < 2, f"it took {took:.1f} s to end"
        for thread in threading.enumerate():
            if thread.name == "gpufair-kube-watch":
                thread.join(2)
                assert not thread.is_alive()


async def put(api: Api, path: str, name: str, **labels: str | None) -> None:
    """Make it, or change it."""
    body = {"metadata": {"name": name, "labels": labels}}
    try:
        await api.call("PATCH", f"{path}/{name}", body, content_type=MERGE_PATCH, retry_s=RETRY_S)
    except Missing:
        try:
            await api.call("POST", path, body, retry_s=RETRY_S)
        except Conflict as conflict:
            if conflict.kind != "exists":  # else the first try had gone through
                raise


async def drop(api: Api, path: str, name: str) -> None:
    with suppress(Missing):
        await api.call("DELETE", f"{path}/{name}", retry_s=RETRY_S)


async def test_it_follows_as_things_happen(server: Server) -> None:
    """Made, changed, deleted, made anew; and it ends at once though its stream is quiet (over TLS, on a real server)."""
    async with followed(server.kubeconfig, server.namespace) as one:
        await put(one.api, one.path, "a")
        await put(one.api, one.path, "b")
        await put(one.api, one.path, "a", x="1")
        await drop(one.api, one.path, "b")
        await put(one.api, one.path, "b")
        await one.until(lambda: len(one.changes) == 5)
        assert one.told == ["added a", "added b", "modified a", "deleted b", "added b"]
        assert all(change.told for change in one.changes)
        assert one.changes[1].object["metadata"]["uid"] != one.changes[4].object["metadata"]["uid"]
        assert one.reflector.stale_since is None
        await one.until_same()


async def test_what_a_selector_leaves_is_gone(server: Server) -> None:
    """The server says deleted; the object lives on elsewhere."""
    async with followed(server.kubeconfig, server.namespace, labels="team=a") as one:
        await put(one.api, one.path, "mine", team="a")
        await put(one.api, one.path, "theirs", team="b")
        await one.until(lambda: one.told == ["added mine"])
        await put(one.api, one.path, "mine", team="b")
        await put(one.api, one.path, "theirs", team="a")
        await one.until(lambda: len(one.changes) == 3)
        assert one.told == ["added mine", "deleted mine", "added theirs"]
        assert one.names == {"theirs"}


async def test_many_come_in_pages(server: Server) -> None:
    """The list is one moment of the server, whatever its pages."""
    api = await Api.open(server.kubeconfig)
    path = f"/api/v1/namespaces/{server.namespace}/configmaps"
    await asyncio.gather(*(put(api, path, f"c{n}") for n in range(25)))
    async with followed(server.kubeconfig, server.namespace, page=10) as one:
        assert one.names == {f"c{n}" for n in range(25)}
        await put(one.api, one.path, "late")
        await one.until(lambda: "late" in one.names)
    await api.close()


async def test_streams_that_the_server_ends_go_on(server: Server) -> None:
    """Each second here, each minute in life: nothing is missed in between and nothing is listed again."""
    async with followed(server.kubeconfig, server.namespace, watch_s=1.0) as one:
        for n in range(24):
            await put(one.api, one.path, f"c{n % 5}", n=str(n))
            await asyncio.sleep(0.1)
        await one.until_same()
        assert one.told[:5] == [f"added c{n}" for n in range(5)]
        assert len(one.changes) == 24
        if server.fake is not None:
            lists = [path for _, path, _ in server.fake.requests if "configmaps?" in path and "limit=" in path]
            assert len(lists) == 1


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_it_holds_in_the_end_what_the_server_holds(
    fake: FakeApi, tmp_path: Path, seed: int
) -> None:
    """Cuts, forgotten history, restarts, refusals and throttling, among changes."""
    draw = random.Random(seed)
    async with followed(fake.kubeconfig(tmp_path / "kubeconfig"), "default", page=2, watch_s=2.0) as one:
        for _ in range(60):
            name = f"c{draw.randrange(6)}"
            match draw.randrange(14):
                case 0:
                    fake.cut_watches()
                case 1:
                    fake.forget_history()
                    fake.cut_watches()
                case 2:
                    await asyncio.to_thread(fake.restart, draw.random() / 10)
                case 3:
                    fake.fail("GET", "/configmaps$", status=draw.choice([429, 500, 503]), count=draw.randrange(1, 4))
                case 4:
                    fake.cut("GET", "/configmaps$", carried_out=draw.random() < 0.5)
                case 5 | 6 | 7 | 8:
                    await drop(one.api, one.path, name)
                case _:
                    await put(one.api, one.path, name, n=str(draw.random()))
        fake.mend()
        await one.until_same()
        known: dict[str, Any] = {}
        for change in one.changes:
            name = change.object["metadata"]["name"]
            assert change.before is known.get(name)
            if change.kind == "deleted":
                del known[name]
            else:
                known[name] = change.object
        assert set(known) == one.names


async def test_a_server_that_is_away_is_known_to_be_so(fake: FakeApi, tmp_path: Path) -> None:
    """Objects stay as they were last seen, and since when is known; when it is back they are caught up with."""
    async with followed(fake.kubeconfig(tmp_path / "kubeconfig"), "default") as one:
        await put(one.api, one.path, "a")
        await put(one.api, one.path, "b")
        await one.until(lambda: one.names == {"a", "b"} and one.reflector.stale_since is None)
        began = time.monotonic()
        await asyncio.to_thread(fake.down)
        await one.until(lambda: one.reflector.stale_since is not None)
        since = one.reflector.stale_since
        assert since is not None
        assert since >= began
        await one.until(lambda: one.reflector.trouble is not None)
        assert one.names == {"a", "b"}
        assert one.reflector.stale_since == since  # it counts from the beginning, not from the last try
        await asyncio.to_thread(fake.up)
        await drop(one.api, one.path, "a")
        await one.until(lambda: one.names == {"b"})
        await one.until(lambda: one.reflector.stale_since is None)


async def test_it_may_begin_before_the_server(fake: FakeApi, tmp_path: Path) -> None:
    """A service that starts with its cluster."""
    await asyncio.to_thread(fake.down)
    api = await Api.open(fake.kubeconfig(tmp_path / "kubeconfig"))
    reflector = Reflector(api, "/api/v1/nodes", pause=Pause(0.01, 0.1))
    task = asyncio.create_task(reflector.run())
    await asyncio.sleep(0.2)
    assert reflector.stale_since is not None
    await asyncio.to_thread(fake.up)
    async with asyncio.timeout(30):
        await reflector.synced()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await api.close()
