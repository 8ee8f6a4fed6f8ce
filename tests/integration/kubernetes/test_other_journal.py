"""A service whose journal is not that of who wrote to the cluster before it ends nobody's pods, and says so."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from gpufair.core.model import Phase
from gpufair.service.backends.kubernetes.marks import ANNOTATION
from gpufair.service.backends.kubernetes.watch import Object
from tests.integration.kubernetes.conftest import Server
from tests.integration.kubernetes.inside import World, until, world

LOOKS_S = 1.5  # several looks at the cluster


def lease_of(server: Server) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{server.namespace}/leases/gpufair"


async def refused_mark(it: World, server: Server) -> str:
    """The mark of the journal that the service refuses to follow, once it has looked on without touching a pod."""
    assert it.backend is not None
    lease = it.backend.cluster.site.lease
    await until("it to refuse", lambda: lease.refused)
    before = {pod["metadata"]["uid"] for pod in await it.pods()}
    await asyncio.sleep(LOOKS_S)
    assert not lease.held
    assert {pod["metadata"]["uid"] for pod in await it.pods() if "deletionTimestamp" not in pod["metadata"]} == before
    mark = str((await it.api.call("GET", lease_of(server)))["metadata"]["annotations"][ANNOTATION])
    assert f'take_over = "{mark}"' in lease.refused
    return mark


async def test_an_empty_state_folder_ends_nobodys_pods(
    tmp_path: Path, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Its nodes are closed with the reason; it takes over only when told to, and who had the journal goes on."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    async with world(first, server) as it:
        backend = await it.begin()
        await backend.submit("w", gpus=2)
        await backend.await_phase("w", Phase.RUNNING)
        await it.end()

        it.folder = second
        backend = await it.begin()
        await refused_mark(it, server)
        empty = await it.add_node("n2")
        await backend.await_node(empty, cordoned=True)
        problems = backend.hub.health(empty)["problems"]
        assert any("another journal" in one for one in problems), problems
        assert "is of a service with another journal" in caplog.text
        await it.end()

        it.folder = first
        backend = await it.begin()
        await until("the Lease", lambda: backend.cluster.site.lease.held)
        assert (await backend.get("w")).incarnation == 1
        await backend.await_phase("w", Phase.RUNNING)
        await it.end()

        it.folder = second
        mark = str((await it.api.call("GET", lease_of(server)))["metadata"]["annotations"][ANNOTATION])
        await it.begin(take_over=mark)
        await until("the unknown pods to end", it.no_pods)


async def test_an_older_backup_ends_nothing_that_began_after_it(tmp_path: Path, server: Server) -> None:
    """The same journal, but without what was decided since."""
    now, old = tmp_path / "now", tmp_path / "old"
    now.mkdir()
    async with world(now, server) as it:
        backend = await it.begin()
        await backend.submit("before", gpus=1)
        await backend.await_phase("before", Phase.RUNNING)
        await it.end()
        shutil.copytree(now, old)
        backend = await it.begin()
        await backend.submit("after", gpus=1)
        await backend.await_phase("after", Phase.RUNNING)
        await it.end()

        it.folder = old
        await it.begin()
        await refused_mark(it, server)
        await it.end()

        it.folder = now
        backend = await it.begin()
        for name in ("before", "after"):
            assert (await backend.await_phase(name, Phase.RUNNING)).incarnation == 1


async def test_pods_of_another_state_folder_are_left_alone_without_a_lease(tmp_path: Path, server: Server) -> None:
    """It was deleted, or the other service has one of another name: their GPUs are taken, and the node says whose they are."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    async with world(first, server) as it:
        backend = await it.begin()
        await backend.submit("w", gpus=3)
        await backend.await_phase("w", Phase.RUNNING)
        await it.end()
        await it.api.call("DELETE", lease_of(server))

        it.folder = second
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=1)
        await until("the Lease", lambda: backend.cluster.site.lease.held)
        await backend.submit("x", gpus=1)
        await backend.await_phase("x", Phase.RUNNING)
        await asyncio.sleep(LOOKS_S)
        problems = backend.hub.health(it.named("n1"))["problems"]
        assert any("another state folder" in one for one in problems), problems
        assert sorted(pod["metadata"]["name"] for pod in await it.pods()) == ["gpufair-w-1-0", "gpufair-x-1-0"]
        await backend.submit("w", gpus=1)  # of the same name
        await backend.cancel("x")
        ended = await backend.await_phase("w", Phase.ENDED)
        assert "is none of ours" in ended.reason
        (left,) = await until("theirs alone", lambda: alone(it))
        assert left["metadata"]["name"] == "gpufair-w-1-0"
        assert "deletionTimestamp" not in left["metadata"]


async def alone(it: World) -> list[Object] | None:
    found = await it.pods()
    return found if len(found) == 1 else None
