"""The Kubernetes backend, with pods that do nothing: each step of a start, an end and a preemption, and every restart between."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gpufair.core.model import Kind, Outcome, Phase
from gpufair.core.units import Millis
from gpufair.service.backends.kubernetes.pools import KubernetesPools
from gpufair.service.nodes.pods import PodLines
from gpufair.service.settings.config import Config
from gpufair.service.settings.pool_options import PoolConfig
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


async def test_a_gang_has_a_pod_on_each_node_and_meets_at_the_first(tmp_path: Path, server: Server) -> None:
    """Each is told the address of the first, which is known once that runs; the gang starts and stops whole."""
    async with world(tmp_path, server) as it:
        await it.add_node("n2")
        backend = await it.begin()
        for node in ("n1", "n2"):
            await backend.await_node(it.named(node), gpus=4)
        await backend.submit("g", gpus=4, nodes=2)
        running = await backend.await_phase("g", Phase.RUNNING)
        assert {node for node, _ in running.devices} == {it.named("n1"), it.named("n2")}
        assert sorted(it.kubelets.started) == ["gpufair-g-1-0", "gpufair-g-1-1"]
        # On the test's kubelets each pod has this address.
        assert it.kubelets.told == {"gpufair-g-1-0": "127.0.0.1", "gpufair-g-1-1": "127.0.0.1"}
        await backend.cancel("g")
        await backend.await_phase("g", Phase.ENDED)
        await until("no pod", it.no_pods)


async def test_a_kernel_on_several_nodes_is_not_begun(tmp_path: Path, server: Server) -> None:
    """One that an older service has let in: on its other nodes no pod would claim what it holds, and anybody could have it."""
    async with world(tmp_path, server) as it:
        await it.add_node("n2")
        backend = await it.begin()
        for node in ("n1", "n2"):
            await backend.await_node(it.named(node), gpus=4)
        await backend.submit("k", gpus=4, nodes=2, kind=Kind.SESSION)
        ended = await backend.await_phase("k", Phase.ENDED)
        assert ended.outcome is Outcome.FAILED
        assert "a kernel is one pod on one node" in ended.reason
        assert it.kubelets.started == []
        await backend.submit("w", gpus=4, nodes=2)
        await backend.await_phase("w", Phase.RUNNING)


async def test_a_pod_that_somebody_deletes_is_queued_again(tmp_path: Path, server: Server) -> None:
    """`kubectl delete pod` is a notice like any other: its agent leaves in order, and the workload starts again."""
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        await backend.submit("w", gpus=2)
        await backend.await_phase("w", Phase.RUNNING)
        await it.api.call("DELETE", f"{it.path}/gpufair-w-1-0")
        again = await backend.await_incarnation("w", 2)
        assert (again.phase, it.kubelets.started[-1]) == (Phase.RUNNING, "gpufair-w-2-0")


async def test_an_end_without_a_word_is_explained_to_the_owner(tmp_path: Path, server: Server) -> None:
    """A pod whose agent was killed for memory has failed; one that was evicted goes on elsewhere; both say why."""
    async with world(tmp_path, server) as it:
        it.kubelets.silent = True
        backend = await it.begin()
        await backend.submit("oom", gpus=1)
        await until("a pod", lambda: "gpufair-oom-1-0" in it.kubelets.started)
        ended = {"exitCode": 137, "reason": "OOMKilled", "startedAt": None, "finishedAt": None}
        await it.kubelets.status_of("gpufair-oom-1-0", "Failed", {"terminated": ended})
        failed = await backend.await_phase("oom", Phase.ENDED)
        assert "memory" in failed.reason
        await backend.submit("put-out", gpus=1)
        await until("a pod", lambda: "gpufair-put-out-1-0" in it.kubelets.started)
        await it.cordon("n1")  # so that it waits
        await backend.await_node(it.named("n1"), cordoned=True)
        await it.kubelets.status_of(
            "gpufair-put-out-1-0", "Failed", {"terminated": ended | {"reason": "Error"}}, reason="Evicted", message="disk"
        )
        await backend.await_phase("put-out", Phase.QUEUED)
        assert "evicted" in backend.remark("put-out")
        await until("the old pod to be gone", lambda: "gpufair-put-out-1-0" not in backend.cluster.lives)
        it.kubelets.silent = False
        await it.cordon("n1", on=False)
        await backend.await_incarnation("put-out", 2)
        assert backend.remark("put-out") == "", "what kept it from running is no news of one that runs"


async def test_two_pools_of_one_service_share_a_lease(
    tmp_path: Path, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Parts of one cluster, by a label of their nodes: neither keeps the other from writing."""
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        await until("the Lease", lambda: backend.cluster.site.lease.held)
        site = backend.cluster.site
        options = replace(backend.options, lease="shared", claim="")
        config = Config(pools=tuple(PoolConfig(name, "kubernetes", options) for name in ("one", "two")))
        pools = await KubernetesPools.open(
            config, site.runtime, site.hub, site.dispatcher, PodLines(), site.secrets, backend.journal, backend.deposed.set
        )
        assert "pool two: its pods share no folder with this service" in caplog.text
        pools.start()
        try:
            for _ in range(3):
                await until("both", lambda: all(one.site.lease.held for one in pools.clusters))
                await asyncio.sleep(options.lease_for / 3000)
            assert not backend.deposed.is_set()
        finally:
            await pools.close()
