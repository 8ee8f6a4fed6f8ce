"""The Kubernetes backend, with pods that do nothing: each step of a start, an end and a preemption, and every restart between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gpufair.core.model import Phase
from gpufair.core.units import Millis
from tests.integration.kubernetes.inside import World, until, world
from tests.kube.fake_api import FakeApi


@pytest.fixture
def fake() -> Iterator[FakeApi]:
    with FakeApi() as api:
        yield api


@asynccontextmanager
async def cluster(tmp_path: Path, fake: FakeApi) -> AsyncIterator[World]:
    async with world(tmp_path, fake.kubeconfig(tmp_path / "kubeconfig")) as it:
        await it.add_node()
        yield it


async def test_a_start_and_an_end(tmp_path: Path, fake: FakeApi) -> None:
    """Made, given its secret, bound, running; stopped, gone; and its GPU is free for the next one."""
    async with cluster(tmp_path, fake) as it:
        backend = await it.begin()
        await backend.await_node("gpu-01", gpus=4, lost=False)
        await backend.submit("w", gpus=4)
        running = await backend.await_phase("w", Phase.RUNNING)
        assert running.devices == (("gpu-01", "0"),)
        (pod,) = await it.pods()
        assert (pod["metadata"]["name"], pod["spec"]["nodeName"]) == ("gpufair-w-1-0", "gpu-01")
        await backend.submit("next", gpus=4)
        await backend.cancel("w")
        await backend.await_phase("next", Phase.RUNNING)
        assert (await backend.get("w")).phase is Phase.ENDED
        assert it.kubelets.started == ["gpufair-w-1-0", "gpufair-next-1-0"]


async def test_a_preemption_moves_and_leaves_nothing(tmp_path: Path, fake: FakeApi) -> None:
    """The victim's GPUs are free when its pod is gone, not before; it starts again as another pod."""
    async with cluster(tmp_path, fake) as it:
        backend = await it.begin()
        await backend.await_node("gpu-01", gpus=4)
        await backend.submit("v", gpus=4, min_runtime=Millis(0))
        await backend.await_phase("v", Phase.RUNNING)
        await backend.submit("p", gpus=4, allocation="b")
        await backend.await_phase("p", Phase.RUNNING)
        assert (await backend.get("v")).phase is Phase.QUEUED
        names = [pod["metadata"]["name"] for pod in await it.pods()]
        assert names == ["gpufair-p-1-0"]
        await backend.cancel("p")
        await backend.await_phase("v", Phase.RUNNING, wait_s=90)
        await until("nothing of p", lambda: "gpufair-p-1-0" not in backend.cluster.lives)
