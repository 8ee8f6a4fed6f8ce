"""The Kubernetes backend, with pods that do nothing: each step of a start, an end and a preemption, and every restart between."""

from __future__ import annotations

from pathlib import Path

from gpufair.core.model import Phase
from gpufair.core.units import Millis
from tests.integration.kubernetes.conftest import Server
from tests.integration.kubernetes.inside import until, world


async def test_a_start_and_an_end(tmp_path: Path, server: Server) -> None:
    """Made, given its secret, bound, running; stopped, gone; and its GPU is free for the next one."""
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=4, lost=False)
        await backend.submit("w", gpus=4)
        running = await backend.await_phase("w", Phase.RUNNING)
        assert running.devices == ((it.named("n1"), "0"),)
        (pod,) = await it.pods()
        assert (pod["metadata"]["name"], pod["spec"]["nodeName"]) == ("gpufair-w-1-0", it.named("n1"))
        await backend.submit("next", gpus=4)
        await backend.cancel("w")
        await backend.await_phase("next", Phase.RUNNING)
        assert (await backend.get("w")).phase is Phase.ENDED
        assert it.kubelets.started == ["gpufair-w-1-0", "gpufair-next-1-0"]


async def test_a_preemption_moves_and_leaves_nothing(tmp_path: Path, server: Server) -> None:
    """The victim's GPUs are free when its pod is gone, not before; it starts again as another pod."""
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=4)
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
