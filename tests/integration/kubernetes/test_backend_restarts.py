"""The service is restarted, and the API server goes away, at each step: nothing is lost, doubled or stuck."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gpufair.core.model import Phase
from gpufair.core.units import Millis
from tests.integration.kubernetes.conftest import Server
from tests.integration.kubernetes.inside import World, until, world
from tests.kube.cluster import Cluster
from tests.kube.fake_api import FakeApi


def only_fake(server: Server) -> FakeApi:
    """What can be told to fail."""
    if server.fake is None:
        pytest.skip("a server that others use is not made to fail")
    return server.fake


async def settled(it: World, *running: str) -> None:
    """Exactly these run, each in one pod, and nothing else is there."""

    async def right() -> bool:
        names = sorted(pod["metadata"]["annotations"]["gpufair.io/workload"] for pod in await it.pods())
        return names == sorted(running)

    await until(f"pods of {running} alone", right)
    assert len(it.kubelets.started) == len(set(it.kubelets.started))


@pytest.mark.parametrize("step", ["/pods$", "/secrets$", "/binding$"])
@pytest.mark.parametrize("carried_out", [False, True])
async def test_a_service_that_dies_while_it_starts_a_pod(
    tmp_path: Path, server: Server, step: str, carried_out: bool
) -> None:
    """Whether the call had gone through or not, the next service finds what there is and goes on from there."""
    fake = only_fake(server)
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=4)
        broken = fake.cut("POST", step, carried_out=carried_out, count=1000)
        await backend.submit("w", gpus=4)
        await until("the call", lambda: broken.hits)
        await it.end()
        fake.mend()
        backend = await it.begin()
        running = await backend.await_phase("w", Phase.RUNNING)
        assert running.incarnation == 1
        await settled(it, "w")
        await backend.cancel("w")
        await backend.await_phase("w", Phase.ENDED)
        await settled(it)


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.CHECKPOINTING, Phase.STOPPING])
async def test_a_service_that_dies_while_a_pod_runs_or_leaves(tmp_path: Path, server: Server, phase: Phase) -> None:
    """The next one adopts it by its labels, and what was due is due again."""
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        await backend.submit("v", gpus=4, min_runtime=Millis(0))
        await backend.await_phase("v", Phase.RUNNING)
        it.kubelets.stubborn = phase is not Phase.RUNNING
        if phase is Phase.CHECKPOINTING:
            await backend.submit("p", gpus=4, allocation="b")
        elif phase is Phase.STOPPING:
            await backend.cancel("v")
        await backend.await_phase("v", phase)
        await it.end()
        it.kubelets.stubborn = False
        backend = await it.begin()
        if phase is Phase.RUNNING:
            await asyncio.sleep(1.0)  # longer than what a node has to settle
            found = await backend.await_phase("v", Phase.RUNNING)
            assert found.incarnation == 1
            await settled(it, "v")
        elif phase is Phase.CHECKPOINTING:
            await backend.await_phase("p", Phase.RUNNING)
            assert (await backend.get("v")).phase is Phase.QUEUED
            await settled(it, "p")
        else:
            await backend.await_phase("v", Phase.ENDED)
            await settled(it)


async def test_what_was_asked_of_a_pod_before_the_service_died_is_asked_again(tmp_path: Path, server: Server) -> None:
    """A save that no pod had heard of yet: whoever asked for it was told that it will be done."""
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        await backend.submit("w", gpus=4)
        await backend.await_phase("w", Phase.RUNNING)
        await it.end()
        backend = await it.begin()
        await backend.ask_for("w", "save")
        await until("the pod to hear of it", lambda: "save" in it.kubelets.heard)
        await it.end()
        it.kubelets.heard.clear()
        backend = await it.begin()  # nobody has answered
        await until("the pod to hear of it again", lambda: "save" in it.kubelets.heard)


async def test_what_ended_while_nobody_looked(tmp_path: Path, server: Server) -> None:
    """A pod that was deleted meanwhile is queued again; one that nobody wants any more is removed."""
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        await backend.submit("gone", gpus=2)
        await backend.submit("over", gpus=2)
        for name in ("gone", "over"):
            await backend.await_phase(name, Phase.RUNNING)
        await it.end()
        it.kubelets.silent = True
        await it.kubelets.stop("gpufair-gone-1-0")
        await until("the pod to be gone", lambda: it.gone("gpufair-gone-1-0"))
        it.kubelets.silent = False
        backend = await it.begin()
        await backend.cancel("over")
        await backend.await_incarnation("gone", 2)
        await backend.await_phase("over", Phase.ENDED)
        await settled(it, "gone")


async def test_an_api_server_that_restarts_during_launches_and_preemptions(tmp_path: Path, server: Server) -> None:
    """All that was decided meanwhile is carried out when it is back, once."""
    if not server.cluster.restartable:
        pytest.skip("a server that others use is not restarted")
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        for name in ("v1", "v2"):
            await backend.submit(name, gpus=1, min_runtime=Millis(0))
            await backend.await_phase(name, Phase.RUNNING)
        away = asyncio.create_task(asyncio.to_thread(server.cluster.restart_api, 2.0))  # a real one by SIGKILL
        await asyncio.sleep(0.3)
        await backend.submit("p", gpus=4, allocation="b")  # takes both away
        await backend.submit("w", gpus=1)
        await away
        await backend.await_phase("p", Phase.RUNNING, wait_s=60)
        await settled(it, "p")
        for _ in range(3 if server.fake is not None else 1):
            await asyncio.to_thread(server.cluster.restart_api, 0.3)
            await asyncio.sleep(0.3)
        await backend.cancel("p")
        await backend.await_phase("p", Phase.ENDED, wait_s=60)
        for name in ("v1", "v2", "w"):
            await backend.await_phase(name, Phase.RUNNING, wait_s=60)
        await settled(it, "v1", "v2", "w")


async def test_a_second_service_takes_over_only_what_the_first_gives_up(tmp_path: Path, server: Server) -> None:
    """Who does not hold the Lease changes nothing; who has lost it steps down."""
    fake = only_fake(server)
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=4)
        await until("the Lease", lambda: backend.cluster.site.lease.held)
        path = f"/apis/coordination.k8s.io/v1/namespaces/{server.namespace}/leases/gpufair"
        lease = await it.api.call("GET", path)
        lease["spec"] |= {"holderIdentity": "somebody-else", "leaseDurationSeconds": 3600}
        await it.api.call("PUT", path, lease)
        await until("it to step down", backend.deposed.is_set)
        before = [one for one in fake.requests if one[0] != "GET" and "/pods" in one[1]]
        await backend.submit("w", gpus=4)
        await asyncio.sleep(1.0)
        assert [one for one in fake.requests if one[0] != "GET" and "/pods" in one[1]] == before
        await it.end()
        await it.api.call("DELETE", path)
        backend = await it.begin()
        await backend.await_phase("w", Phase.RUNNING)
        await settled(it, "w")


async def test_a_pod_that_comes_and_goes_while_the_watch_is_broken(tmp_path: Path, fake_cluster: Cluster) -> None:
    """No watch ever tells of it, neither that it was there nor that it is gone."""
    server = Server(fake_cluster.kubeconfig, fake_cluster.namespace, fake_cluster.fake, fake_cluster)
    fake = only_fake(server)
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=4)
        await asyncio.to_thread(fake.fail, "GET", r"/pods$", status=503, count=10_000)
        await asyncio.to_thread(fake.cut_watches)
        await backend.submit("w")

        def bound() -> str | None:
            names = [pod["metadata"]["name"] for pod in fake.objects("pods", server.namespace) if pod["spec"].get("nodeName")]
            return names[0] if names else None

        name = await until("the pod to be bound", bound)
        await backend.cancel("w")
        await until("it to be asked to go", lambda: it.deleted(name))
        await it.api.call("DELETE", f"{it.path}/{name}", {"gracePeriodSeconds": 0})
        await asyncio.to_thread(fake.forget_history)
        await asyncio.to_thread(fake.mend)
        await backend.await_phase("w", Phase.ENDED, wait_s=30)
