"""Every call of the backend, with every answer that it may get instead of the right one: it ends well, or the owner reads why."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from gpufair.core.model import Phase
from gpufair.core.units import Millis, WorkloadId
from gpufair.service.backends.kubernetes import placing
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


NOT_HIS_FAULT = (
    (403, 'pods "x" is forbidden: exceeded quota: gpus, requested: 4, used: 0, limited: 0', "exceeded quota"),
    (403, 'pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "n"', "grant"),
    (404, 'namespaces "n" not found', "not found"),
    (409, "the object is in the way", "in the way"),
)


@pytest.mark.parametrize(("status", "message", "told"), NOT_HIS_FAULT)
async def test_what_nobody_mends_in_time_does_not_hold_gpus(
    fake_cluster: Cluster, tmp_path: Path, status: int, message: str, told: str
) -> None:
    """They would be idle for as long as its protection says. It has not started, and the owner reads what was in the way."""
    fake = fake_cluster.fake
    assert fake is not None
    async with world(tmp_path, server_of(fake_cluster)) as it:
        backend = await it.begin(start_within=Millis(500))
        await backend.await_node(it.named("n1"), gpus=4)
        fault = fake.fail("POST", "/pods$", status=status, message=message, count=10_000)
        await backend.submit("w", gpus=4)
        ended = await backend.await_phase("w", Phase.ENDED, wait_s=60)
        assert ended.outcome == "failed"
        assert "could not be made within" in ended.reason
        assert told in ended.reason
        assert fault.hits
        fake.mend()
        await backend.submit("next", gpus=4)
        await backend.await_phase("next", Phase.RUNNING)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_cluster_that_is_away_fails_nobody(fake_cluster: Cluster, tmp_path: Path, status: int) -> None:
    """Nobody else could have the GPUs either, so whoever is to start there waits until it is back."""
    fake = fake_cluster.fake
    assert fake is not None
    async with world(tmp_path, server_of(fake_cluster)) as it:
        backend = await it.begin(start_within=Millis(500))
        await backend.await_node(it.named("n1"), gpus=4)
        fake.fail("POST", "/pods$", status=status, count=10_000)
        await backend.submit("w", gpus=4)
        await until("the owner to be told", lambda: str(status) in backend.remark("w"))
        fake.mend()
        assert (await backend.await_phase("w", Phase.RUNNING)).incarnation == 1


@pytest.mark.parametrize("step", ["_make", "_publish", "_confide", "_bind"])
@pytest.mark.parametrize("error", [OSError("no room"), ValueError("no number"), RuntimeError("no way")])
async def test_whatever_breaks_in_a_step_is_told_to_the_owner(
    fake_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    """An error that nobody thought of is not only in the log, it is tried again, and it does not last for ever."""
    real, broken = getattr(placing, step), True

    async def breaks(*args: object) -> object:
        if broken:
            raise error
        return await real(*args)

    async with world(tmp_path, server_of(fake_cluster)) as it:
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=4)
        monkeypatch.setattr(placing, step, breaks)
        await backend.submit("w", gpus=4)
        await until("the owner to be told", lambda: str(error) in backend.remark("w"))
        broken = False
        assert (await backend.await_phase("w", Phase.RUNNING)).incarnation == 1
        await backend.cancel("w")
        await backend.await_phase("w", Phase.ENDED)
        await until("no pod", it.no_pods)


async def test_a_certificate_that_is_removed_meanwhile(fake_cluster: Cluster, tmp_path: Path) -> None:
    """Pods are given what was in it; a service that never saw it says what is missing, and gives up in time."""
    ca = tmp_path / "ca.pem"
    ca.write_text("the first one")
    async with world(tmp_path, server_of(fake_cluster)) as it:
        backend = await it.begin(service_ca=ca)
        await backend.await_node(it.named("n1"), gpus=4)
        await backend.submit("seen", gpus=1)
        await backend.await_phase("seen", Phase.RUNNING)
        ca.unlink()
        await backend.submit("kept", gpus=1)
        await backend.await_phase("kept", Phase.RUNNING)
        await it.end()
        backend = await it.begin(service_ca=ca)
        await backend.submit("unseen", gpus=1)
        await until("the owner to be told", lambda: "ca.pem, cannot be read" in backend.remark("unseen"))
        ca.write_text("it is back")
        assert (await backend.await_phase("unseen", Phase.RUNNING)).incarnation == 1
        await it.end()
        ca.unlink()
        backend = await it.begin(service_ca=ca, start_within=Millis(500))
        await backend.submit("never", gpus=1)
        ended = await backend.await_phase("never", Phase.ENDED, wait_s=60)
        assert "ca.pem, cannot be read" in ended.reason


async def test_folders_that_cannot_be_made(fake_cluster: Cluster, tmp_path: Path) -> None:
    """The volume is not there, or is full: the owner reads it, and it starts when that is mended."""
    async with world(tmp_path, server_of(fake_cluster)) as it:
        backend = await it.begin(claim="state", claim_path=tmp_path)
        await backend.await_node(it.named("n1"), gpus=4)
        folder = backend.cluster.site.dispatcher.record_dir(WorkloadId("w"))
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.write_text("a file")
        await backend.submit("w", gpus=1)
        await until("the owner to be told", lambda: "cannot be made here" in backend.remark("w"))
        folder.unlink()
        assert (await backend.await_phase("w", Phase.RUNNING)).incarnation == 1
