"""Nodes of a cluster in the core: they come, shrink, are closed and opened, fall silent, and come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpufair.core import events as ev
from gpufair.core.model import Phase
from gpufair.core.units import SECOND, Millis, NodeName, WorkloadId
from gpufair.service.backends.kubernetes import survey
from gpufair.service.nodes.kept import taken_over
from tests.integration.kubernetes.conftest import Server
from tests.integration.kubernetes.inside import Backend, World, until, world


async def theirs(it: World, name: str, gpus: int, node: str = "n1") -> None:
    """Somebody's pod, which runs on a node already."""
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}}
    spec = {"nodeName": it.named(node), "containers": [{"name": "c", "image": "x", "resources": limits}]}
    await it.api.call("POST", it.path, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


async def test_what_others_hold_is_not_given_away(tmp_path: Path, server: Server) -> None:
    """Nor is what is held taken off when others come: it goes when it is free."""
    async with world(tmp_path, server) as it:
        await theirs(it, "first", 1)
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=3)
        await backend.submit("w", gpus=3)
        await backend.await_phase("w", Phase.RUNNING)
        await theirs(it, "second", 2)
        await backend.submit("next", gpus=1)
        await backend.submit("large", gpus=3)
        await until("it to be seen", lambda: len(backend.hub.gpu_ids(it.named("n1"))) == 1)
        await backend.await_node(it.named("n1"), gpus=3, free=0)
        await backend.cancel("w")
        await backend.await_phase("next", Phase.RUNNING)
        await backend.await_node(it.named("n1"), gpus=1, free=0)
        assert (await backend.get("large")).phase is Phase.QUEUED
        for name in ("first", "second"):
            await it.api.call("DELETE", f"{it.path}/{name}", {"gracePeriodSeconds": 0})
        await backend.await_phase("large", Phase.RUNNING)


async def test_what_others_hold_from_the_beginning_is_waited_for(tmp_path: Path, server: Server) -> None:
    """It is not said that it never fits; and it starts when they have gone."""
    async with world(tmp_path, server) as it:
        await theirs(it, "first", 3)
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=1)
        await backend.submit("large", gpus=4)
        told = await backend.runtime.read(lambda state: str(state.explain(WorkloadId("large"))))
        assert "3 GPUs more on these nodes are held by others in the cluster" in told
        await it.api.call("DELETE", f"{it.path}/first", {"gracePeriodSeconds": 0})
        await backend.await_phase("large", Phase.RUNNING)


async def test_a_node_that_was_never_heard_is_waited_for(tmp_path: Path, server: Server) -> None:
    """It was silent before the service began, and it may come back."""
    async with world(tmp_path, server) as it:
        await it.add_node("n2", gpus=2)
        await it.ready("n1", "Unknown")
        backend = await it.begin()
        await backend.await_node(it.named("n2"), gpus=2)
        await backend.await_node(it.named("n1"), lost=True)
        await backend.submit("large", gpus=4)
        assert (await backend.get("large")).phase is Phase.QUEUED
        await it.ready("n1")
        await backend.await_phase("large", Phase.RUNNING)


async def test_a_cordon_of_the_cluster_ends_with_it_and_an_operators_stays(tmp_path: Path, server: Server) -> None:
    """And why a node is closed stands beside it."""
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        name = it.named("n1")
        await backend.await_node(name, cordoned=False)
        await it.cordon("n1")
        await backend.await_node(name, cordoned=True)
        await until("the reason", lambda: "cordon" in " ".join(backend.hub.health(name)["problems"]).lower())
        await it.cordon("n1", on=False)
        await backend.await_node(name, cordoned=False)
        await until("no reason", lambda: not backend.hub.health(name)["problems"])

        def by_hand(turn: Any) -> None:
            taken_over(turn, NodeName(name))
            turn.handle(ev.NodeCordoned(turn.now, turn.cause(), NodeName(name)))

        await it.cordon("n1")
        await backend.await_node(name, cordoned=True)
        await backend.runtime.do(by_hand)
        await it.cordon("n1", on=False)
        await until("no reason", lambda: not backend.hub.health(name)["problems"])
        assert (await backend.node(name)).cordoned


async def test_a_drain_moves_what_runs(tmp_path: Path, server: Server) -> None:
    """`kubectl drain` closes the node and evicts its pods: they leave in order and start on another node."""
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        await backend.submit("w", gpus=4)
        await backend.await_phase("w", Phase.RUNNING)
        await it.add_node("n2")
        await it.cordon("n1")
        await backend.await_node(it.named("n1"), cordoned=True)
        name = "gpufair-w-1-0"
        await it.evict(name)
        again = await backend.await_incarnation("w", 2)
        assert again.held is not None
        assert [lease.node for lease in again.held.leases] == [it.named("n2")]


async def test_a_silent_node_is_lost_and_its_pods_go_when_it_is_back(tmp_path: Path, server: Server) -> None:
    """What ran there starts elsewhere; the node takes nothing until its old pods are gone, and they are told to stop."""
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        await backend.submit("w", gpus=4)
        await backend.await_phase("w", Phase.RUNNING)
        await it.add_node("n2")
        await backend.await_node(it.named("n2"), gpus=4)
        it.kubelets.deaf.add(it.named("n1"))
        await it.ready("n1", "Unknown")
        await backend.await_node(it.named("n1"), lost=True)
        again = await backend.await_incarnation("w", 2)
        assert again.held is not None
        assert [lease.node for lease in again.held.leases] == [it.named("n2")]
        old = await until("the old pod to be deleted", lambda: it.deleted("gpufair-w-1-0"))
        assert old["spec"]["nodeName"] == it.named("n1")  # it is not forgotten by force: it may run there yet
        await it.ready("n1")
        it.kubelets.deaf.clear()
        await it.kubelets.look_again()
        await until("the old pod to be gone", lambda: it.gone("gpufair-w-1-0"))
        await backend.await_node(it.named("n1"), lost=False, free=4)
        assert (await backend.get("w")).incarnation == 2


async def test_an_api_server_that_is_away_loses_no_node(tmp_path: Path, server: Server) -> None:
    """Nobody can say how they are; they are as they were."""
    if server.fake is None:
        return  # a server that others use is not stopped
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        await backend.submit("w", gpus=4)
        await backend.await_phase("w", Phase.RUNNING)
        name = it.named("n1")
        server.fake.down()
        try:
            await until("the problem to be told", lambda: backend.hub.health(name)["problems"], 30)
        finally:
            server.fake.up()
        await until("it to be over", lambda: not backend.hub.health(name)["problems"], 30)
        assert not (await backend.node(name)).lost
        assert not backend.deposed.is_set()  # the Lease could not be renewed, but nobody else has it
        running = await backend.get("w")
        assert (running.phase, running.incarnation) == (Phase.RUNNING, 1)


async def test_a_node_that_is_removed_is_lost_after_a_while(tmp_path: Path, server: Server) -> None:
    """Until then it takes nothing new: a kubelet that registers anew is back at once."""
    async with world(tmp_path, server) as it:
        backend = await it.begin()
        name = it.named("n1")
        await backend.await_node(name, gpus=4)
        await it.api.call("DELETE", f"/api/v1/nodes/{name}")
        await backend.await_node(name, cordoned=True, lost=False)
        await backend.await_node(name, lost=True)
        await it.add_node("n1")
        await backend.await_node(name, lost=False, cordoned=False)
        await backend.submit("w", gpus=4, min_runtime=Millis(0))
        await backend.await_phase("w", Phase.RUNNING)


async def test_a_node_that_is_deleted_for_good_is_removed(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is lost and what ran there is settled; one of its name is a new one. An autoscaler makes others for ever."""
    monkeypatch.setattr(survey, "FORGET", Millis(3 * SECOND))
    async with world(tmp_path, server) as it:
        await it.add_node("n2")
        backend = await it.begin()
        n1, n2 = it.named("n1"), it.named("n2")
        await backend.await_node(n2, gpus=4)
        await it.ready("n2", "Unknown")  # silent, and the cluster has it yet
        await backend.await_node(n2, lost=True)
        await backend.submit("w", gpus=4)
        await backend.await_phase("w", Phase.RUNNING)
        await backend.runtime.do(lambda turn: turn.handle(ev.NodeCordoned(turn.now, turn.cause(), NodeName(n1))))
        await it.api.call("DELETE", f"/api/v1/nodes/{n1}")
        await until("it to be removed", lambda: _gone(backend, n1))
        assert (await backend.get("w")).phase is Phase.QUEUED
        assert (await backend.node(n2)).lost
        await until("its pod to be gone", lambda: _none(it))
        await it.add_node("n1")
        await backend.await_node(n1, lost=False, cordoned=False)
        await backend.await_phase("w", Phase.RUNNING)
        assert (await backend.get("w")).incarnation == 2


async def test_a_node_that_was_lost_before_a_restart_is_removed(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next service looks as well for those that are lost; the cluster has none of them."""
    async with world(tmp_path, server) as it:
        await it.add_node("n2")
        backend = await it.begin()
        await backend.await_node(it.named("n2"), gpus=4)
        await it.api.call("DELETE", f"/api/v1/nodes/{it.named('n1')}")
        await backend.await_node(it.named("n1"), lost=True)
        await it.end()
        monkeypatch.setattr(survey, "FORGET", Millis(SECOND))
        backend = await it.begin()
        await until("it to be removed", lambda: _gone(backend, it.named("n1")))
        assert not (await backend.node(it.named("n2"))).lost


async def _gone(backend: Backend, node: str) -> bool:
    return await backend.runtime.read(lambda state: NodeName(node) not in state.facts.nodes)


async def _none(it: World) -> bool:
    return not await it.pods()
