"""Pods that somebody has written on, and nodes that changed unseen: the others' pods go on, and no GPU is given twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpufair.core.model import Phase
from gpufair.core.units import Millis
from gpufair.service.backends.kubernetes import names, survey
from gpufair.service.backends.kubernetes.api import MERGE_PATCH
from tests.integration.kubernetes.conftest import Server
from tests.integration.kubernetes.inside import World, until, world
from tests.integration.kubernetes.test_foreign import others

NAMES = ("w1", "w2")


async def write_on(it: World, pod: str, **changes: dict[str, str | None]) -> None:
    """Change a pod's labels or annotations."""
    await it.api.call("PATCH", f"{it.path}/{pod}", {"metadata": changes}, content_type=MERGE_PATCH)


@pytest.mark.parametrize(
    "changes",
    [
        {"annotations": {names.INCARNATION: "1" * 5000}},
        {"annotations": {names.RANK: "９"}},
        {"labels": {names.WORKLOAD: "somebody-elses"}},
        {"labels": {names.MANAGED_BY: None}},
        {"labels": {names.POOL: "other"}},
    ],
)
async def test_a_pod_that_cannot_be_read_hides_no_other(tmp_path: Path, server: Server, changes: dict[str, Any]) -> None:
    """After a restart the healthy one goes on; the odd one keeps its GPUs, its node says so, and nothing is given twice."""
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        for name in NAMES:
            await backend.submit(name, gpus=2)
            await backend.await_phase(name, Phase.RUNNING)
        await it.end()
        await write_on(it, "gpufair-w1-1-0", **changes)
        backend = await it.begin()
        node = it.named("n1")
        await until("the problem", lambda: "gpufair-w1-1-0" in " ".join(backend.hub.health(node)["problems"]))
        await backend.await_phase("w1", Phase.QUEUED)  # nobody knows where it is, and there is no room for another
        healthy = await backend.get("w2")
        assert (healthy.phase, healthy.incarnation) == (Phase.RUNNING, 1)
        await backend.await_node(node, gpus=2, free=0)
        found = await it.api.call("GET", it.path)
        assert sorted(pod["metadata"]["name"] for pod in found["items"]) == ["gpufair-w1-1-0", "gpufair-w2-1-0"]
        await it.kubelets.stop("gpufair-w1-1-0")  # by an operator, who has read it
        await backend.await_incarnation("w1", 2)
        await until("no problem", lambda: not backend.hub.health(node)["problems"])
        assert (await backend.get("w2")).incarnation == 1


async def test_a_pod_that_loses_our_label_is_still_followed(tmp_path: Path, server: Server) -> None:
    """It is what it was: counted once, told of at its node, and over when it is gone."""
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        node = it.named("n1")
        await backend.submit("w", gpus=2)
        await backend.await_phase("w", Phase.RUNNING)
        await write_on(it, "gpufair-w-1-0", labels={names.MANAGED_BY: None})
        await until("the problem", lambda: "put that back" in " ".join(backend.hub.health(node)["problems"]))
        await backend.await_node(node, gpus=4, free=2)
        await write_on(it, "gpufair-w-1-0", labels={names.MANAGED_BY: names.MANAGER})
        await until("no problem", lambda: not backend.hub.health(node)["problems"])
        await write_on(it, "gpufair-w-1-0", labels={names.MANAGED_BY: None})
        await it.kubelets.stop("gpufair-w-1-0")
        await backend.await_incarnation("w", 2)
        await backend.await_node(node, gpus=4, free=2)


async def test_a_pod_of_anybody_stops_nobody(tmp_path: Path, server: Server) -> None:
    """Whatever it says; also from a namespace that may use nothing."""
    async with others(tmp_path, server) as it:
        for namespace in (it.namespace, it.elsewhere):
            uid = await it.make("odd", namespace=namespace)
            odd = {"annotations": {names.GANG: "x", names.GANG_SIZE: "1" * 5000}}
            await it.it.api.call("PATCH", f"/api/v1/namespaces/{namespace}/pods/odd", {"metadata": odd}, content_type=MERGE_PATCH)
            assert uid
        await it.told("odd", "GpufairRefused", "may use no allocation of gpufair", it.elsewhere)
        right = await it.make("right", min_runtime="1h", gpus=1)
        await it.await_phase(right, Phase.RUNNING)
        await it.it.cordon_named(it.nodes.names[0])
        await it.backend.await_node(it.nodes.names[0], cordoned=True)


async def test_a_cordon_of_while_nobody_looked_counts_before_what_waits(tmp_path: Path, server: Server) -> None:
    """The service starts again: it looks at the nodes before it starts pods there."""
    async with others(tmp_path, server) as it:
        node = it.nodes.names[0]
        await it.backend.await_node(node, gpus=4, lost=False)
        await it.it.end()
        await it.it.cordon_named(node)
        uid = await it.make("waiting", min_runtime="1h")
        await it.begin()
        await it.await_phase(uid, Phase.QUEUED)
        await it.backend.await_node(node, cordoned=True)
        found = await it.backend.get(f"pod-{uid}")
        assert (found.phase, found.incarnation) == (Phase.QUEUED, 0)
        await it.it.cordon_named(node, on=False)
        await it.await_phase(uid, Phase.RUNNING)


async def test_what_was_told_of_a_pod_before_a_restart_is_known_after_it(tmp_path: Path, server: Server) -> None:
    """Kubernetes says it once; the next service reads it when it finds the pod."""
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        await backend.submit("w", gpus=2)
        await backend.await_phase("w", Phase.RUNNING)
        await it.end()
        (pod,) = await it.pods()
        about = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")} | {"kind": "Pod", "apiVersion": "v1"}
        event = {
            "metadata": {"name": "told.1"}, "involvedObject": about, "reason": "FailedMount", "type": "Warning",
            "message": "told while nobody looked",
        }  # fmt: skip
        await it.api.call("POST", it.path.removesuffix("pods") + "events", event)
        backend = await it.begin()
        uid = pod["metadata"]["uid"]
        await until("it to be known", lambda: [one["message"] for one in backend.cluster.site.events.get(uid, ())] == ["told while nobody looked"])


async def test_nodes_that_are_gone_for_good_are_forgotten(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """An autoscaler makes new ones for ever. One that comes back is a node like any other."""
    monkeypatch.setattr(survey, "FORGET", Millis(3000))
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        name = it.named("n1")
        await backend.await_node(name, gpus=4)
        await it.api.call("DELETE", f"/api/v1/nodes/{name}")
        await backend.await_node(name, lost=True)
        await until("it to be forgotten", lambda: name not in backend.cluster.kept)
        assert name not in backend.hub.kept.names
        await it.add_node("n1")
        await backend.await_node(name, lost=False, cordoned=False)
        await backend.submit("w", gpus=4, min_runtime=Millis(0))
        await backend.await_phase("w", Phase.RUNNING)
