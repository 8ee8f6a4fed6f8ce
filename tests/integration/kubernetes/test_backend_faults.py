"""Every call of the backend, with every answer that it may get instead of the right one: it ends well, or the owner reads why."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from gpufair.core.model import Phase
from gpufair.core.units import Millis
from tests.integration.kubernetes.conftest import Server
from tests.integration.kubernetes.inside import until, world
from tests.kube.cluster import Cluster

CALLS = (("POST", "/pods$"), ("POST", "/secrets$"), ("POST", "/binding$"), ("DELETE", "/pods/"))
PASSING = (401, 404, 409, 410, 429, 500, 503, 504)


def server_of(cluster: Cluster) -> Server:
    return Server(cluster.kubeconfig, cluster.namespace, cluster.fake, cluster)


@pytest.mark.parametrize("status", PASSING)
@pytest.mark.parametrize(("method", "path"), CALLS)
async def test_an_answer_that_is_wrong_twice(
    fake_cluster: Cluster, tmp_path: Path, method: str, path: str, status: int
) -> None:
    """The workload runs, a second one takes its place, and nothing is left: no pod twice, none too many."""
    fake = fake_cluster.fake
    assert fake is not None
    async with world(tmp_path, server_of(fake_cluster)) as it:
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=4)
        fault = fake.fail(method, path, status=status, count=2)
        await backend.submit("v", gpus=4, min_runtime=Millis(0))
        await backend.await_phase("v", Phase.RUNNING)
        await backend.submit("p", gpus=4, allocation="b")
        await backend.await_phase("p", Phase.RUNNING)
        await backend.cancel("v")
        await backend.cancel("p")
        await backend.await_phase("p", Phase.ENDED)
        await until("no pod", it.no_pods)
        assert fault.hits == 2
        assert len(it.kubelets.started) == len(set(it.kubelets.started))


@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize(("method", "path"), CALLS)
async def test_a_connection_that_breaks_twice(
    fake_cluster: Cluster, tmp_path: Path, method: str, path: str, carried_out: bool
) -> None:
    """Whether the call went through is not known: it is looked at, and never done twice."""
    fake = fake_cluster.fake
    assert fake is not None
    async with world(tmp_path, server_of(fake_cluster)) as it:
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=4)
        fault = fake.cut(method, path, carried_out=carried_out, count=2)
        for name in ("one", "two"):
            await backend.submit(name, gpus=2)
            await backend.await_phase(name, Phase.RUNNING)
        for name in ("one", "two"):
            await backend.cancel(name)
            await backend.await_phase(name, Phase.ENDED)
        await until("no pod", it.no_pods)
        assert fault.hits == 2
        assert sorted(it.kubelets.started) == ["gpufair-one-1-0", "gpufair-two-1-0"]


@pytest.mark.parametrize(
    ("status", "message", "told"),
    [
        (403, 'pods "x" is forbidden: exceeded quota: gpus, requested: 4, used: 0, limited: 0', "quota"),
        (403, 'pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "n"', "grant"),
        (404, 'namespaces "n" not found', "not found"),
    ],
)
async def test_what_somebody_has_to_mend_waits_and_says_so(
    fake_cluster: Cluster, tmp_path: Path, status: int, message: str, told: str
) -> None:
    """It keeps its place, its owner reads what is missing, and it starts as soon as that is there."""
    fake = fake_cluster.fake
    assert fake is not None
    async with world(tmp_path, server_of(fake_cluster)) as it:
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=4)
        fake.fail("POST", "/pods$", status=status, message=message, count=1000)
        await backend.submit("w", gpus=4)
        await until("the owner to be told", lambda: told in backend.remark("w"))
        assert (await backend.get("w")).phase is Phase.STARTING
        fake.mend()
        running = await backend.await_phase("w", Phase.RUNNING)
        assert (running.incarnation, backend.remark("w")) == (1, "")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (422, 'Pod "x" is invalid: spec.containers[0].image: Required value'),
        (403, 'pods "x" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false'),
        (400, 'admission webhook "policy.lab" denied the request: no notebooks on Sundays'),
    ],
)
async def test_what_will_never_be_taken_fails_and_says_so(
    fake_cluster: Cluster, tmp_path: Path, status: int, message: str
) -> None:
    """Repeating it is no use: it has failed, with what the cluster said."""
    fake = fake_cluster.fake
    assert fake is not None
    async with world(tmp_path, server_of(fake_cluster)) as it:
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=4)
        fake.fail("POST", "/pods$", status=status, message=message, count=1000)
        await backend.submit("w", gpus=4)
        failed = await backend.await_phase("w", Phase.ENDED)
        assert failed.outcome == "failed"
        assert message.rpartition(": ")[2][:30] in failed.reason
        fake.mend()
        await backend.submit("next", gpus=4)
        await backend.await_phase("next", Phase.RUNNING)


async def test_a_stop_overtakes_a_start(fake_cluster: Cluster, tmp_path: Path) -> None:
    """Cancelled while its pod is being made: whatever of it came to be is taken away, and it never runs."""
    fake = fake_cluster.fake
    assert fake is not None
    async with world(tmp_path, server_of(fake_cluster)) as it:
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=4)
        for step in ("/pods$", "/secrets$", "/binding$"):
            slow = fake.delay("POST", step, delay_s=0.5)
            name = f"w-{step.strip('/$')}"
            await backend.submit(name, gpus=4)
            await until("the call", partial(getattr, slow, "hits"))
            await backend.cancel(name)
            await backend.await_phase(name, Phase.ENDED)
        await until("no pod", it.no_pods)
        await backend.submit("next", gpus=4)
        await backend.await_phase("next", Phase.RUNNING)


async def test_somebody_elses_pod_of_our_name(fake_cluster: Cluster, tmp_path: Path) -> None:
    """It is not touched; the owner reads what stands in the way."""
    async with world(tmp_path, server_of(fake_cluster)) as it:
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=4)
        theirs = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gpufair-w-1-0"}}
        spec = {"containers": [{"name": "c", "image": "x"}]}
        await it.api.call("POST", it.path, theirs | {"spec": spec})
        await backend.submit("w", gpus=4)
        failed = await backend.await_phase("w", Phase.ENDED)
        assert "none of ours" in failed.reason
        assert await it.api.call("GET", f"{it.path}/gpufair-w-1-0")
