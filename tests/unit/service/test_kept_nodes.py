"""Nodes whose presence a backend tells: they come and go, others take parts of them, and their agents are in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpufair.client.machines import NodeView
from gpufair.client.reading import read
from gpufair.core.model import Capacity
from gpufair.core.units import SECOND, Millis
from gpufair.service.nodes.agents import AgentHub
from gpufair.service.nodes.inventory import SharedInventory
from gpufair.service.nodes.kept import CLOSED_BY, KeptNodes
from gpufair.service.problems import HelloFirst
from gpufair.service.settings.pool_options import PoolConfig
from gpufair.service.web.context import Context
from gpufair.wire import AgentHello, Command, NodeInventory, Report, WireError
from tests.unit.service.rig import LAUNCH, service_at

API = "/api/v1"
POOL = (PoolConfig("default"), PoolConfig("kept"))


def offer(gpus: int, **more: Any) -> NodeInventory:
    """What node k1 has for us."""
    return NodeInventory("k1", tuple(f"gpu-{n}" for n in range(gpus)), pool="kept", **more)


class Inside:
    """A virtual agent, as a backend has one for each node that it keeps."""

    def __init__(self, hub: AgentHub, boot: str = "boot-1") -> None:
        self.hub, self.boot, self.after, self.seq = hub, boot, 0, 0

    async def hello(self, *running: tuple[str, int], again: bool = True) -> list[list[Any]]:
        """Say hello; what is expected to run."""
        hello = AgentHello(1, self.boot, NodeInventory("k1"), running)
        answer: dict[str, Any] = await self.hub.hello("k1", hello, again=again)
        self.after = answer["after"]
        expected: list[list[Any]] = answer["expected"]
        return expected

    async def commands(self, wait_s: float = 0.1) -> list[Command]:
        """Poll once."""
        found = await self.hub.commands("k1", self.after, self.boot, wait_s)
        self.after = max([self.after, *(one.seq for one in found)])
        return found

    def word(self, kind: str, **body: Any) -> Report:
        """A report of w.1."""
        self.seq += 1
        return Report(self.seq, 1.0, kind, "w", 1, body)

    async def report(self, kind: str, **body: Any) -> None:
        """Report one thing of w.1."""
        await self.hub.reports("k1", self.boot, [self.word(kind, **body)])


async def node(client: httpx.AsyncClient) -> dict[str, Any]:
    """The node as the API shows it."""
    (found,) = [one for one in (await client.get(f"{API}/nodes")).json()["nodes"] if one["name"] == "k1"]
    return dict(found)


async def submit(client: httpx.AsyncClient, kind: str = "batch", **more: Any) -> None:
    """Workload w, which runs on kept nodes."""
    launch = LAUNCH if kind == "session" else {"type": "command", "argv": ["true"]}
    body = {"id": "w", "kind": kind, "gpus": 2, "min_runtime_s": 60, "user": "ada", "launch": launch, "pools": ["kept"]}
    answer = await client.post(f"{API}/workloads", json=body | more)
    assert answer.status_code == 201, answer.text


async def view(client: httpx.AsyncClient) -> dict[str, Any]:
    """Workload w."""
    found: dict[str, Any] = (await client.get(f"{API}/workloads/w")).json()
    return found


def kept(it: Context) -> AgentHub:
    """The hub, with pool ``kept`` in a backend's hands."""
    it.hub.kept = KeptNodes({"kept"})
    return it.hub


async def test_a_node_takes_work_once_its_agent_has_said_what_runs_there(tmp_path: Path) -> None:
    """Until then GPUs of what was left there could be given twice."""
    async with service_at(tmp_path, pools=POOL) as (it, client):
        hub = kept(it)
        await hub.present(offer(4))
        names = [one["name"] for one in (await client.get(f"{API}/nodes")).json()["nodes"]]
        assert names == ["n1"]
        await Inside(hub).hello()
        assert ((await node(client))["gpus"], (await node(client))["state"]) == (4, "ready")


async def test_what_others_hold_or_have_closed_can_be_waited_for(tmp_path: Path) -> None:
    """Nothing starts on a node that is closed as it comes, or cannot be reached yet, and nothing is refused for that."""
    async with service_at(tmp_path, pools=POOL) as (it, client):
        hub, agent = kept(it), Inside(it.hub)
        await hub.present(NodeInventory("k0", ("gpu-0",), pool="kept"))
        small = AgentHello(1, "b", NodeInventory("k0"), ())
        await hub.hello("k0", small)
        await hub.away(offer(4))
        assert (await node(client))["state"] == "lost"
        await submit(client)
        await hub.present(offer(4), closed=True)
        await agent.hello()
        assert ((await node(client))["state"], (await view(client))["state"]) == ("cordoned", "queued")
        fields = {one: getattr(offer(1), one) for one in ("name", "gpu_ids", "pool")}
        await hub.present(SharedInventory(**fields, capacity=Capacity(4)))
        assert ((await node(client))["state"], (await view(client))["state"]) == ("ready", "queued")
        told = (await client.get(f"{API}/workloads/w/why")).json()
        assert "3 GPUs more on these nodes are held by others in the cluster" in str(told)
        await hub.present(offer(4))
        assert (await view(client))["state"] == "starting"


async def test_what_others_take_is_not_taken_from_who_runs(tmp_path: Path) -> None:
    """The node shrinks as far as nobody holds it, and by the rest as soon as that is free."""
    async with service_at(tmp_path, pools=POOL) as (it, client):
        hub, agent = kept(it), Inside(it.hub)
        await hub.present(offer(4, gpu_type="A"))
        await agent.hello()
        await submit(client)
        assert [one.kind for one in await agent.commands()] == ["start"]
        await agent.report("serving", generation=1, devices=[])
        await hub.present(offer(1, gpu_type="B"))
        assert ((await node(client))["gpus"], (await node(client))["free_gpus"]) == (2, 0)
        assert (await view(client))["state"] == "running"
        await agent.report("exited", outcome="completed")
        assert ((await node(client))["gpus"], (await node(client))["gpu_type"]) == (1, "B")


async def test_no_silence_loses_it_and_absence_does(tmp_path: Path) -> None:
    """Whether it is there is seen by who keeps it; when it is back it says what it runs, and only then takes work."""
    async with service_at(tmp_path, pools=POOL) as (it, client):
        hub, agent = kept(it), Inside(it.hub)
        await hub.present(offer(2))
        await agent.hello()
        await submit(client)
        await agent.commands()
        await agent.report("serving", generation=1, devices=[])
        await it.runtime._clock.advance(Millis(600 * SECOND))  # type: ignore[attr-defined]  # a virtual one
        await asyncio.sleep(1.2)
        assert (await node(client))["state"] == "ready"
        await hub.absent("k1")
        assert ((await node(client))["state"], (await view(client))["state"]) == ("lost", "queued")
        with pytest.raises(HelloFirst):
            await agent.report("exited", outcome="completed")
        await hub.present(offer(2))
        back = Inside(hub, "boot-2")
        assert await back.hello(("w", 1)) == []  # a stray: its incarnation is over
        assert (await node(client))["state"] == "lost"
        await back.report("released", busy=False)
        assert (await node(client))["state"] == "ready"
        assert [(one.kind, one.incarnation) for one in await back.commands()] == [("start", 2)]


async def test_a_start_is_repeated_to_who_cannot_know_of_it(tmp_path: Path) -> None:
    """A pod that is found after a restart may not have been told what to run."""
    async with service_at(tmp_path, pools=POOL) as (it, client):
        hub, agent = kept(it), Inside(it.hub)
        await hub.present(offer(2))
        await agent.hello()
        await submit(client)
        assert [one.kind for one in await agent.commands()] == ["start"]
        again = Inside(hub, "boot-2")
        assert await again.hello(("w", 1)) == [["w", 1]]
        assert [one.kind for one in await again.commands()] == ["start"]
        await again.report("serving", generation=1, devices=[])
        later = Inside(hub, "boot-3")
        assert await later.hello(("w", 1)) == [["w", 1]]
        assert await later.commands() == []


async def test_the_final_word_counts_and_frees_nothing_by_itself(tmp_path: Path) -> None:
    """A pod holds its GPUs a little longer than its processes; what they said is what is told in the end."""
    async with service_at(tmp_path, pools=POOL) as (it, client):
        hub, agent = kept(it), Inside(it.hub)
        await hub.present(offer(2))
        await agent.hello()
        await submit(client)
        await agent.commands()
        await agent.report("serving", generation=1, devices=[])
        with pytest.raises(WireError):
            await hub.final_word("k1", agent.boot, agent.word("serving", generation=1))
        await hub.final_word("k1", agent.boot, agent.word("exited", outcome="failed", reason="it said why"))
        await hub.final_word("k1", agent.boot, agent.word("released", busy=True))
        assert ((await view(client))["state"], (await node(client))["free_gpus"]) == ("running", 0)
        # Whoever keeps the pods may have been restarted meanwhile, and only sees that it is gone.
        again = Inside(hub, "boot-2")
        await again.hello()
        ended = await view(client)
        assert (ended["state"], ended["outcome"]) == ("ended", "failed")
        assert "it said why" in ended["reason"]
        assert (await node(client))["free_gpus"] == 2


async def test_who_left_no_word_was_let_go(tmp_path: Path) -> None:
    """It is queued again, as after the loss of its node."""
    async with service_at(tmp_path, pools=POOL) as (it, client):
        hub, agent = kept(it), Inside(it.hub)
        await hub.present(offer(2))
        await agent.hello()
        await submit(client)
        await agent.commands()
        await agent.report("serving", generation=1, devices=[])
        await hub.gone("k1", agent.boot, "w", 2)
        assert (await view(client))["state"] == "running"
        await hub.gone("k1", agent.boot, "w", 1)
        assert [(one.kind, one.incarnation) for one in await agent.commands()] == [("start", 2)]


async def test_what_its_cluster_closed_its_cluster_opens(tmp_path: Path) -> None:
    """And what an operator closed stays closed, whichever of them was first."""
    async with service_at(tmp_path, pools=POOL) as (it, client):
        hub, agent = kept(it), Inside(it.hub)
        await hub.present(offer(2), closed=True)
        await agent.hello()
        assert ((await node(client))["state"], (await node(client))["labels"]) == ("cordoned", {CLOSED_BY: "cluster"})
        await client.post(f"{API}/nodes/k1/uncordon")
        await hub.present(offer(2), closed=True)  # it is closed there as ever
        assert (await node(client))["state"] == "cordoned"
        await hub.present(offer(2))
        assert ((await node(client))["state"], (await node(client))["labels"]) == ("ready", {})

        for first in ("operator", "cluster"):
            await hub.present(offer(2), closed=first == "cluster")
            await client.post(f"{API}/nodes/k1/cordon")
            await hub.present(offer(2), closed=True)
            await hub.present(offer(2))
            assert (await node(client))["state"] == "cordoned", first
            await client.post(f"{API}/nodes/k1/uncordon")
            assert (await node(client))["state"] == "ready"


async def test_a_lost_node_is_removed_by_hand_unless_its_cluster_has_it(tmp_path: Path) -> None:
    """Nobody would find it on the list again a moment later; what is there is not removed at all."""
    async with service_at(tmp_path, pools=POOL) as (it, client):
        hub, agent = kept(it), Inside(it.hub)
        await hub.present(offer(4))
        hub.kept.saw("kept", ["k1"])
        await agent.hello()
        there = await client.delete(f"{API}/nodes/k1")
        assert (there.status_code, there.json()["error"]) == (409, "NodeNotLost")
        assert there.json()["detail"].startswith("node 'k1' cannot be removed: it is there; drain it, switch it off")
        await hub.absent("k1")
        silent = await client.delete(f"{API}/nodes/k1")
        assert (silent.status_code, silent.json()["error"]) == (409, "Conflict")
        assert "Kubernetes has it yet; delete it there (`kubectl delete node`)" in silent.json()["detail"]
        hub.kept.saw("kept", [])
        seen = read(NodeView, (await client.delete(f"{API}/nodes/k1")).json())
        assert (seen.name, seen.state, seen.gpus) == ("k1", "lost", 4)
        assert [one["name"] for one in (await client.get(f"{API}/nodes")).json()["nodes"]] == ["n1"]
        assert (await client.delete(f"{API}/nodes/k1")).status_code == 404
        # Back as new; who has spoken for the old one is not heard.
        with pytest.raises(HelloFirst):
            await hub.reports("k1", agent.boot, [])
        await hub.present(offer(2))
        await agent.hello()
        assert ((await node(client))["state"], (await node(client))["gpus"]) == ("ready", 2)
        records = (await client.get(f"{API}/timeline")).json()["records"]
        assert [one["node"] for one in records if one["kind"] == "NodeRemoved"] == ["k1"]
