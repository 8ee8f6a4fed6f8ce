"""A node that takes no pod, and a Secret that somebody deletes: no storm of starts, and nobody is failed for a passing trouble."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gpufair.core.model import Phase
from gpufair.service.backends.kubernetes import pod_life
from gpufair.service.backends.kubernetes.refusals import MOST, Refusals
from gpufair.service.backends.kubernetes.watch import Object
from tests.integration.kubernetes.conftest import Server
from tests.integration.kubernetes.inside import Kubelets, until, world

STORM_S = 6.0


class Refusing:
    """Kubelets that end each pod before it begins, as long as ``on``."""

    def __init__(self, kubelets: Kubelets, status: dict[str, Any] | None) -> None:
        self.kubelets, self.status, self.on = kubelets, status, True
        self.pods: set[str] = set()
        self._run = kubelets._run
        kubelets._run = self.run  # type: ignore[method-assign]

    async def run(self, pod: Object) -> None:
        if not self.on:
            return await self._run(pod)
        self.pods.add(pod["metadata"]["uid"])
        path = f"{self.kubelets.path}/{pod['metadata']['name']}"
        if self.status is None:
            await self.kubelets.api.call("DELETE", path, {"gracePeriodSeconds": 0})
        else:
            body = {"status": {"phase": "Failed"} | self.status}
            await self.kubelets.api.call("PATCH", f"{path}/status", body, content_type="application/merge-patch+json")
        return None


@pytest.mark.parametrize(
    "status",
    [
        {"reason": "UnexpectedAdmissionError", "message": "Allocate failed"},
        {"reason": "OutOfnvidia.com/gpu", "message": "Node didn't have enough resource"},
        {"reason": "SomethingNew", "message": "who knows"},
        {"reason": "Evicted", "message": "The node was low on resource: memory."},
        None,  # somebody deletes it
    ],
)
async def test_a_pod_that_never_begins_is_not_made_again_at_once(
    tmp_path: Path, server: Server, status: dict[str, Any] | None
) -> None:
    """Twice as long a pause each time; its owner reads why; and when the node is well again it starts."""
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=4)
        refusing = Refusing(it.kubelets, status)
        await backend.submit("w", gpus=4)
        await until("a second try", lambda: len(refusing.pods) >= 2)
        await asyncio.sleep(STORM_S)
        assert len(refusing.pods) <= 4  # after 0, 1, 3 and 7 s
        assert backend.remark("w").startswith(("its node ", "its pod "))  # why; that it is queued again is dropped at the next try
        refusing.on = False
        await backend.await_phase("w", Phase.RUNNING)


async def test_a_node_that_never_takes_it_is_the_end_after_a_while(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of that workload, with the reason; and one that is ended by its owner meanwhile does not come back."""

    def quick(self: Refusals, workload: str, node: str) -> tuple[int, float]:
        count, _ = real(self, workload, node)
        return count, 0.0

    real = Refusals.note
    monkeypatch.setattr(Refusals, "note", quick)
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=4)
        refusing = Refusing(it.kubelets, {"reason": "UnexpectedAdmissionError", "message": "Allocate failed"})
        await backend.submit("w", gpus=4)
        ended = await backend.await_phase("w", Phase.ENDED)
        assert ended.outcome == "failed"
        assert "times in a row" in ended.reason
        assert "Allocate failed" in ended.reason
        assert MOST <= len(refusing.pods) <= 2 * MOST
        monkeypatch.setattr(Refusals, "note", real)
        await backend.submit("x", gpus=4)
        await until("its first pod", lambda: "in 1 s" in backend.remark("x"))
        await backend.cancel("x")
        await backend.await_phase("x", Phase.ENDED)
        await until("no pod", it.no_pods)


def test_pauses_grow_and_are_forgotten() -> None:
    """Of each workload at each node; after an hour it is as if nothing had been."""
    now = 0.0
    refusals = Refusals(lambda: now)
    assert [refusals.note("w", "n1")[1] for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert refusals.note("w", "n2") == (1, 1.0)
    assert refusals.note("v", "n1") == (1, 1.0)
    refusals.forget("w", "n1")
    assert refusals.note("w", "n1") == (1, 1.0)
    now = 4000.0
    assert refusals.note("v", "n1") == (1, 1.0)


async def test_our_secret_is_made_again(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody deleted it before it was mounted, so the kubelet waits for it, and says so in an event."""
    monkeypatch.setattr(pod_life, "LOOK_S", 0.1)
    monkeypatch.setattr(pod_life, "CONFIDE_S", 0.5)
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=4)
        it.kubelets.deaf.add(it.named("n1"))
        await backend.submit("w", gpus=4)
        secret = f"/api/v1/namespaces/{server.namespace}/secrets/gpufair-w-1-0"

        async def bound() -> Object | None:
            return next((pod for pod in await it.pods() if pod["spec"].get("nodeName")), None)

        pod = await until("its pod to be bound", bound)
        first = (await it.api.call("GET", secret))["metadata"]["uid"]
        await it.api.call("DELETE", secret)
        meta = pod["metadata"]
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "w.1", "namespace": server.namespace},
            "involvedObject": {"kind": "Pod", "name": meta["name"], "namespace": server.namespace, "uid": meta["uid"]},
            "reason": "FailedMount",
            "message": 'MountVolume.SetUp failed for volume "gpufair" : secret "gpufair-w-1-0" not found',
            "type": "Warning",
            "lastTimestamp": "2027-01-15T08:00:00Z",
        }
        await it.api.call("POST", f"/api/v1/namespaces/{server.namespace}/events", event)

        async def again() -> bool:
            found = await it.api.call("GET", f"/api/v1/namespaces/{server.namespace}/secrets")
            (mine,) = [one for one in found["items"] if one["metadata"]["name"] == "gpufair-w-1-0"] or [None]
            return mine is not None and mine["metadata"]["uid"] != first

        await until("the Secret", again)
        it.kubelets.deaf.clear()
        await it.kubelets.look_again()
        assert (await backend.await_phase("w", Phase.RUNNING)).incarnation == 1
