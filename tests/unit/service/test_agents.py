"""The protocol with agents: what they are told, what their reports change, and what happens when either side restarts."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpufair.core.units import SECOND, Millis
from gpufair.service.backends.local import BACKOFF_S
from gpufair.service.settings.config import ServiceOptions
from gpufair.service.settings.node_options import NodeConfig
from gpufair.service.web.context import Context
from gpufair.wire import AgentHello, NodeInventory, StartArgs, from_json, hello_proof, to_json
from tests.unit.service.rig import LAUNCH, bearer, service_at

API = "/api/v1"
PORTS = {"ip": "127.0.0.1", "shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5}


class FakeAgent:
    """Says over HTTP what an agent of ``n1`` says."""

    def __init__(self, it: Context, client: httpx.AsyncClient, boot: str = "boot-1", node: str = "n1") -> None:
        self.client, self.boot, self.node = client, boot, node
        self.headers = bearer(it.secrets.agent_token(node))
        self.after = 0
        self.seq = 0

    async def hello(self, *running: tuple[str, int], **changes: Any) -> httpx.Response:
        """Say hello."""
        message = (
            to_json(AgentHello(1, self.boot, NodeInventory(self.node, ("virtual-0", "virtual-1")), running)) | changes
        )
        answer = await self.client.post(f"{API}/agents/{self.node}/hello", json=message, headers=self.headers)
        if answer.status_code == 200:
            self.after = answer.json()["after"]
        return answer

    async def commands(self, wait_s: float = 0.2) -> list[dict[str, Any]]:
        """Poll once."""
        params: dict[str, Any] = {"after": self.after, "boot": self.boot, "wait_s": wait_s}
        answer = await self.client.get(f"{API}/agents/{self.node}/commands", params=params, headers=self.headers)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["commands"]
        self.after = max([self.after, *(one["seq"] for one in found)])
        return found

    async def report(self, kind: str, workload: str, incarnation: int = 1, **body: Any) -> int:
        """Report one thing; what is acknowledged."""
        self.seq += 1
        report = {
            "seq": self.seq,
            "at_s": 1.0,
            "kind": kind,
            "workload": workload,
            "incarnation": incarnation,
            "body": body,
        }
        return await self.send([report])

    async def send(self, reports: list[dict[str, Any]]) -> int:
        """Send reports as they are."""
        answer = await self.client.post(
            f"{API}/agents/{self.node}/reports", json={"boot": self.boot, "reports": reports}, headers=self.headers
        )
        assert answer.status_code == 200, answer.text
        acked: int = answer.json()["acked"]
        return acked


async def session(client: httpx.AsyncClient, name: str = "w", **fields: Any) -> dict[str, Any]:
    """Submit a session of ada's."""
    body = {"id": name, "gpus": 1, "min_runtime_s": 60, "user": "ada", "launch": LAUNCH} | fields
    answer = await client.post(f"{API}/workloads", json=body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def view(client: httpx.AsyncClient, name: str = "w") -> dict[str, Any]:
    """The Workload object."""
    found: dict[str, Any] = (await client.get(f"{API}/workloads/{name}")).json()
    return found


async def test_the_whole_life_of_a_session(tmp_path: Path) -> None:
    """Start, serve, checkpoint, die, restart, restore, park, resume from the checkpoint."""
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        proof = hello_proof(it.secrets.agent_token("n1"), "boot-1")
        assert (await agent.hello()).json() == {"after": 0, "expected": [], "proof": proof, "epoch": 0}
        await session(client)
        (start,) = await agent.commands()
        args = from_json(StartArgs, start["args"])
        assert (start["kind"], start["workload"], start["incarnation"]) == ("start", "w", 1)
        assert (args.gpus, args.user, args.restore, args.next_sequence) == (1, "ada", None, 1)
        assert args.kernel_key == it.secrets.kernel_key("w")
        assert args.checkpoint_key == it.secrets.checkpoint_key("ada")
        assert args.checkpoint_dir == str(tmp_path / "checkpoints" / "ada" / "w")

        await agent.report("serving", "w", generation=1, connection=PORTS, devices=["virtual-1"])
        now = await view(client)
        assert (now["state"], now["serving"], now["devices"]) == ("running", True, [["n1", "virtual-1"]])
        assert (now["generation"], now["restore_offered"]) == (1, False)
        connection = (await client.get(f"{API}/workloads/w/connection")).json()
        assert connection == {
            "key": args.kernel_key,
            "incarnation": 1,
            "generation": 1,
            "serving": True,
            "connection": PORTS,
        }

        await agent.report("activity", "w", busy=True)
        assert (await view(client))["busy"] is True
        assert (await client.post(f"{API}/workloads/w/checkpoint")).status_code == 202
        (save,) = await agent.commands()
        assert save["kind"] == "save"
        assert (await client.post(f"{API}/workloads/w/preflight")).json()["preflight"] is None
        assert [one["kind"] for one in await agent.commands()] == ["preflight"]
        verdict = {"name": "gen", "kind": "generator", "state": "red", "size_bytes": 0, "seconds": 0.0, "reason": "…"}
        figures: dict[str, Any] = {"size_bytes": 10, "seconds": 0.1, "bytes_per_s": 1e8, "taken_s": 0.01, "left_out": 0}
        await agent.report("preflight", "w", parkable=False, measured=True, variables=[verdict], **figures)
        brief = (await view(client))["preflight"]
        assert (brief["parkable"], brief["size_bytes"], brief["variables"]) == (False, 10, None)
        full = (await client.get(f"{API}/workloads/w/preflight")).json()["preflight"]
        assert (full["variables"], full["measured"]) == ([verdict], True)
        await agent.report("progress", "w", step="checkpointing", fraction=0.5)
        assert (await view(client))["progress"] == {"step": "checkpointing", "fraction": 0.5}
        await agent.report("checkpoint_failed", "w", reason="the disk is full")
        now = await view(client)
        assert (now["not_saved"]["reason"], now["progress"], now["state"]) == ("the disk is full", None, "running")
        saved: dict[str, Any] = {
            "id": "0001-x",
            "sequence": 1,
            "at_s": 1_800_000_000.5,
            "size_bytes": 99,
            "duration_s": 0.25,
        }
        await agent.report("checkpointed", "w", **saved, lost=[["gen", "a generator"]])
        now = await view(client)
        assert now["checkpoint"] == saved | {"lost": [["gen", "a generator"]]}
        assert (now["progress"], now["not_saved"]) == (None, None)
        folder = tmp_path / "checkpoints" / "ada" / "w" / "0001-x"
        await asyncio.to_thread(folder.mkdir, parents=True)
        await asyncio.to_thread((folder / "manifest.json").touch)
        assert (await client.get(f"{API}/workloads/w/checkpoints")).json()["checkpoints"] == [now["checkpoint"]]

        await agent.report("kernel_died", "w", generation=1, code=-9)
        now = await view(client)
        assert (now["state"], now["kernel_died"], now["serving"], now["restore_offered"]) == (
            "running",
            True,
            False,
            True,
        )
        assert now["busy"] is False
        assert (await client.post(f"{API}/workloads/w/restart")).status_code == 202
        (restart,) = await agent.commands()
        assert (restart["kind"], restart["args"]) == ("restart", {"generation": 1})
        await agent.report("serving", "w", generation=2, connection=PORTS, devices=["virtual-1"])
        now = await view(client)
        assert (now["generation"], now["kernel_died"], now["restore_offered"]) == (2, False, True)
        # An agent that came back says it again: that is no new kernel.
        await agent.report("serving", "w", generation=2, connection=PORTS, devices=["virtual-1"])
        assert (await view(client))["restore_offered"] is True
        await client.post(f"{API}/workloads/w/restore")
        (restore,) = await agent.commands()
        assert restore["args"] == {"id": "0001-x"}
        gone = await client.post(f"{API}/workloads/w/restore", json={"checkpoint": "0000-x"})
        assert (gone.status_code, "no checkpoint '0000-x'" in gone.text) == (404, True), "only what is there"
        await agent.report("restore_failed", "w", reason="its signature is wrong")
        now = await view(client)
        assert now["remark"] == now["reason"] == "the checkpoint was not restored: its signature is wrong"
        assert now["restore_offered"] is True
        await agent.report("restored", "w", id="0001-x", lost=[["gen", "a generator"]])
        now = await view(client)
        assert "not restored" not in now["remark"] + now["reason"]
        assert (now["restore_offered"], now["lost"], now["state"]) == (False, [["gen", "a generator"]], "running")

        await client.post(f"{API}/workloads/w/park")
        (preempt,) = await agent.commands()
        assert preempt["kind"] == "preempt"
        assert preempt["args"]["deadline_s"] == (await view(client))["deadline_s"]
        # A late report about an older checkpoint, and one about another incarnation, change nothing.
        await agent.report("checkpointed", "w", **saved | {"size_bytes": 1})
        await agent.report("released", "w", incarnation=7, busy=False)
        assert (await view(client))["state"] == "checkpointing"
        await agent.report("checkpointed", "w", **saved | {"id": "0002-y", "sequence": 2})
        await agent.report("released", "w", busy=False, unsaved=[["cell [7]", "what it did is lost"]])
        now = await view(client)
        assert (now["state"], now["serving"], now["leases"], now["checkpoint"]["sequence"]) == ("parked", False, [], 2)
        assert (await client.get(f"{API}/workloads/w/connection")).json()["connection"] == {}
        await client.post(f"{API}/workloads/w/resume")
        (start,) = await agent.commands()
        args = from_json(StartArgs, start["args"])
        assert (start["incarnation"], args.restore, args.next_sequence) == (2, "0002-y", 3)
        await agent.report(
            "serving", "w", 2, generation=1, connection=PORTS, devices=["virtual-0"], lost=[["f", "a file"]]
        )
        now = await view(client)
        assert (now["state"], now["restore_offered"]) == ("running", False)
        assert now["lost"] == [["f", "a file"], ["cell [7]", "what it did is lost"]]
        await agent.report("exited", "w", 2, outcome="failed", code=1, reason="exit code 1")
        now = await view(client)
        assert (now["state"], now["outcome"], now["reason"]) == ("ended", "failed", "exit code 1")


async def parked(it: Context, client: httpx.AsyncClient) -> FakeAgent:
    """A session of one checkpoint, "c", that holds nothing; its node's agent."""
    agent = FakeAgent(it, client)
    await agent.hello()
    await session(client)
    await agent.report("serving", "w", generation=1, connection=PORTS, devices=[])
    await client.post(f"{API}/workloads/w/park")
    await agent.report("checkpointed", "w", id="c", sequence=1, at_s=1.0, size_bytes=1, duration_s=0.1)
    await agent.report("released", "w", busy=False)
    return agent


async def test_a_fresh_start_leaves_the_checkpoint_and_offers_it(tmp_path: Path) -> None:
    """``restart`` of a parked session starts a new kernel; what was saved is offered, not lost."""
    async with service_at(tmp_path) as (it, client):
        agent = await parked(it, client)
        await agent.commands()
        assert (await client.post(f"{API}/workloads/w/restart")).json()["state"] == "starting"
        (start,) = await agent.commands()
        assert (start["args"]["restore"], start["args"]["next_sequence"]) == (None, 2)
        await agent.report("serving", "w", 2, generation=1, connection=PORTS, devices=[])
        assert (await view(client))["restore_offered"] is True


async def test_a_restore_that_did_not_succeed_is_offered_again(tmp_path: Path) -> None:
    """The kernel died meanwhile, say; its owner gets an empty one, and what was saved is still there."""
    async with service_at(tmp_path) as (it, client):
        agent = await parked(it, client)
        await client.post(f"{API}/workloads/w/resume")
        lost = [["*", "the kernel died (signal 9)"]]
        await agent.report("serving", "w", 2, generation=2, connection=PORTS, devices=[], lost=lost, restored=False)
        now = await view(client)
        assert (now["state"], now["lost"], now["restore_offered"]) == ("running", lost, True)
        await agent.report("restored", "w", 2, id="c", lost=[])
        now = await view(client)
        assert (now["lost"], now["restore_offered"]) == ([], False)


async def test_a_restarted_service_repeats_what_is_due(tmp_path: Path) -> None:
    """Commands live in memory: the state says which are due, and a user's own is kept until it is answered."""
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        await session(client, "runs")
        await session(client, "starts")
        await session(client, "waits")
        await agent.report("serving", "runs", generation=1, connection=PORTS, devices=["virtual-0"])
        await client.post(f"{API}/workloads/runs/restart")  # never fetched
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client, boot="boot-2")
        known = await view(client, "runs")
        assert (known["state"], known["generation"]) == ("running", 1)
        answer = await agent.hello(("runs", 1), ("gone", 3))
        assert answer.json()["expected"] == [["runs", 1]]
        # What runs there and should not holds GPUs: nothing starts before it is gone.
        assert [(one["workload"], one["kind"]) for one in await agent.commands()] == [("runs", "restart")]
        await agent.report("released", "gone", 3, busy=False)
        assert [(one["workload"], one["kind"]) for one in await agent.commands()] == [("starts", "start")]
        await agent.report("serving", "runs", generation=2, connection=PORTS, devices=["virtual-0"])
        await client.post(f"{API}/workloads/runs/park")
        await client.delete(f"{API}/workloads/starts")
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client, boot="boot-2")
        await agent.hello(("runs", 1), ("starts", 1))
        assert [(one["workload"], one["kind"]) for one in await agent.commands()] == [
            ("runs", "preempt"),
            ("starts", "stop"),
        ]


async def test_what_a_node_has_lost_is_queued_again(tmp_path: Path) -> None:
    """After a hello, what should run there but doesn't, and is not reported as ended, is gone."""
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        await session(client, "w", kind="batch")
        await session(client, "x", kind="batch")
        await agent.commands()
        for name in ("w", "x"):
            await agent.report("serving", name, generation=1, connection={}, devices=[])
        agent = FakeAgent(it, client, boot="boot-2")
        await agent.hello()
        # It had ended by itself, and that report was still on its way.
        await agent.report("exited", "x", outcome="completed", code=0, reason="")
        await asyncio.sleep(0.2)
        assert (await view(client, "x"))["outcome"] == "completed"
        again = await view(client, "w")
        assert (again["state"], again["incarnation"]) == ("starting", 2)
        assert [(one["workload"], one["incarnation"]) for one in await agent.commands()] == [("w", 2)]


async def test_kernels_never_seem_to_be_of_the_past(tmp_path: Path) -> None:
    """(incarnation, generation), by which clients know what is news, only ever grows, through restarts and moves."""
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        seen: list[tuple[int, int]] = []

        async def look() -> None:
            now = await view(client)
            seen.append((now["incarnation"], now["generation"]))

        await session(client)
        await look()
        for incarnation in (1, 2):
            for generation in (1, 2, 3):
                await agent.report(
                    "serving", "w", incarnation, generation=generation, connection=PORTS, devices=["virtual-0"]
                )
                await look()
            await client.post(f"{API}/workloads/w/park")
            await look()
            await agent.report("released", "w", incarnation, busy=False)
            await look()
            await client.post(f"{API}/workloads/w/resume")
            await look()
        assert seen == sorted(seen)
        assert seen[-1] == (3, 0)


async def test_only_the_latest_hello_says_what_is_lost(tmp_path: Path) -> None:
    """A session that was granted just before a hello, is started after it, and runs at the next one, is not lost."""
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        await session(client)
        await agent.hello()
        (start,) = await agent.commands()
        assert start["kind"] == "start"
        await agent.hello(("w", 1))
        await agent.report("serving", "w", generation=1, connection=PORTS, devices=["virtual-0"])
        await asyncio.sleep(4 * it.hub._settle_s)
        now = await view(client)
        assert (now["state"], now["incarnation"]) == ("running", 1)
        assert await agent.commands() == []


async def test_reports_may_come_twice(tmp_path: Path) -> None:
    """An answer that got lost makes an agent send again: nothing is counted twice."""
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        await session(client)
        reports = [
            {
                "seq": 1,
                "at_s": 1.0,
                "kind": "serving",
                "workload": "w",
                "incarnation": 1,
                "body": {"generation": 1, "devices": []},
            },
            {"seq": 2, "at_s": 1.0, "kind": "activity", "workload": "w", "incarnation": 1, "body": {"busy": True}},
        ]
        assert await agent.send(reports) == 2
        entries = it.journal.seq
        assert await agent.send(reports) == 2
        assert it.journal.seq == entries
        # And one that makes no sense is acknowledged and left out, or it would be sent for ever.
        bad = [
            {"seq": 3, "at_s": 1.0, "kind": "checkpointed", "workload": "w", "incarnation": 1, "body": {"id": "../x"}}
        ]
        assert await agent.send(bad) == 3
        assert (await view(client))["checkpoint"] is None
        later = {"seq": 4, "at_s": 1.0, "kind": "of-a-newer-agent", "workload": "w", "incarnation": 1}
        assert await agent.send([later]) == 4


async def test_a_stranger_or_another_version_is_refused(tmp_path: Path) -> None:
    """An agent that speaks otherwise would do harm quietly."""
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        assert (await agent.hello(api_version=99)).status_code == 400
        assert (await agent.hello(node=to_json(NodeInventory("n2")))).status_code == 400
        assert (await agent.hello(extra=1)).status_code == 400
        assert (await agent.hello()).status_code == 200
        other = FakeAgent(it, client, boot="boot-2")
        await other.hello()
        params: dict[str, Any] = {"after": 0, "boot": "boot-1"}
        answer = await client.get(f"{API}/agents/n1/commands", params=params, headers=agent.headers)
        assert (answer.status_code, answer.json()["error"]) == (409, "HelloFirst")
        # A node that is no longer configured has nothing to do, and what it runs is not expected.
        gone = FakeAgent(it, client, node="old-node")
        assert (await gone.hello(("w", 1))).json()["expected"] == []


async def test_nobody_speaks_for_a_workload_of_another_node(tmp_path: Path) -> None:
    """An agent, or who took its token from a broken machine, tells of what it was given, and of nothing else."""
    async with service_at(tmp_path, nodes=(NodeConfig("far", 0, remote=True),)) as (it, client):
        agent, liar = FakeAgent(it, client), FakeAgent(it, client, node="far")
        await agent.hello()
        assert (await liar.hello()).status_code == 200
        await session(client, where={"rack": "r1"})
        assert [one["kind"] for one in await agent.commands()] == ["start"]
        await agent.report("serving", "w", generation=1, connection=PORTS, devices=["virtual-0"])
        before, key = await view(client), (await client.get(f"{API}/workloads/w/connection")).json()
        assert before["state"] == "running"
        elsewhere = PORTS | {"shell_port": 6666}
        lies: dict[str, dict[str, Any]] = {
            "serving": {"generation": 2, "connection": elsewhere, "devices": ["virtual-1"]},
            "activity": {"busy": True},
            "checkpointed": {"id": "0001-x", "sequence": 1, "size_bytes": 1},
            "kernel_died": {"reason": "so it says"},
            "released": {"busy": False},
            "exited": {"outcome": "completed", "reason": "so it says"},
        }
        for kind, body in lies.items():
            assert await liar.report(kind, "w", **body) == liar.seq, "it is acknowledged, so that it is not sent for ever"
            now = await view(client)
            assert now == before, kind
        assert (await client.get(f"{API}/workloads/w/connection")).json() == key
        # Nor by the words of another node's agent at this node's door.
        answer = await client.post(f"{API}/agents/n1/reports", json={"boot": "boot-1", "reports": []}, headers=liar.headers)
        assert answer.status_code == 401


async def test_a_gang_is_up_when_all_are_and_gone_when_all_are(tmp_path: Path) -> None:
    """A command on two nodes; one part that fails takes the other with it, and only then are the GPUs free."""
    async with service_at(tmp_path) as (it, client):
        it.hub._expected["n2"] = NodeInventory("n2", ("virtual-0", "virtual-1"))
        await it.runtime.do(it.hub._join_configured)
        agents = [FakeAgent(it, client), FakeAgent(it, client, node="n2")]
        for agent in agents:
            await agent.hello()
        launch = LAUNCH | {"type": "command"}
        await session(client, "g", gpus=2, nodes=2, kind="batch", launch=launch)
        for rank, agent in enumerate(agents):
            (start,) = await agent.commands()
            told = start["args"]["launch"]["env"]
            assert (told["GPUFAIR_NODE_RANK"], told["GPUFAIR_NODES"]) == (str(rank), "2")
            assert (told["RANK"], told["WORLD_SIZE"], told["PET_NPROC_PER_NODE"]) == (str(rank), "2", "2")
        await agents[1].report("serving", "g", generation=1, connection={}, devices=["virtual-0", "virtual-1"])
        assert (await view(client, "g"))["state"] == "starting"
        await agents[0].report("serving", "g", generation=1, connection={}, devices=["virtual-0", "virtual-1"])
        now = await view(client, "g")
        assert now["state"] == "running"
        assert now["devices"] == [[node, f"virtual-{index}"] for node in ("n1", "n2") for index in (0, 1)]
        await agents[1].report("exited", "g", outcome="failed", code=3, reason="exit code 3")
        assert [one["kind"] for one in await agents[0].commands()] == ["stop"]
        assert (await view(client, "g"))["state"] == "running"
        await agents[0].report("released", "g", busy=True)
        now = await view(client, "g")
        assert (now["state"], now["outcome"], now["reason"]) == ("ended", "failed", "exit code 3")


@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_what_parts_of_a_gang_have_said_outlives_the_service(tmp_path: Path, outcome: str) -> None:
    """Acknowledged, it is not said again: a part is up, then gone, and each time the service is killed before the other's word."""

    nodes = tuple(NodeConfig(name, 0, remote=True) for name in ("far", "further"))

    async def both(boot: str, *running: tuple[tuple[str, int], ...]) -> list[FakeAgent]:
        agents = [FakeAgent(it, client, boot, node=name) for name in ("far", "further")]
        for agent, runs in zip(agents, running, strict=True):
            await agent.hello(*runs, node=to_json(NodeInventory(agent.node, ("a", "b", "c"))))
        return agents

    up: dict[str, Any] = {"generation": 1, "connection": {}, "devices": ["a", "b", "c"]}
    async with service_at(tmp_path, nodes=nodes) as (it, client):
        one, _ = await both("boot-1", (), ())
        await session(client, "g", gpus=3, nodes=2, kind="batch", launch=LAUNCH | {"type": "command"})
        await one.report("serving", "g", **up)
    async with service_at(tmp_path, nodes=nodes) as (it, client):
        one, other = await both("boot-2", (("g", 1),), (("g", 1),))
        assert (await view(client, "g"))["state"] == "starting"
        await other.report("serving", "g", **up)
        assert (await view(client, "g"))["state"] == "running"
        await one.report("exited", "g", outcome=outcome, code=0, reason="")
    async with service_at(tmp_path, nodes=nodes) as (it, client):
        one, other = await both("boot-3", (), (("g", 1),))
        await asyncio.sleep(0.2)  # far longer than it takes here to find out what a node has lost
        assert await one.commands() == []
        assert [told["kind"] for told in await other.commands()] == (["stop"] if outcome == "failed" else [])
        await other.report("exited", "g", outcome="completed", code=0, reason="")
        now = await view(client, "g")
        assert (now["state"], now["outcome"], now["starts"]) == ("ended", outcome, 1)


async def test_a_command_is_there_at_once(tmp_path: Path) -> None:
    """A polling agent gets the command within milliseconds of the commit, not at its next poll."""
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        polling = asyncio.create_task(agent.commands(wait_s=10.0))
        await asyncio.sleep(0.05)
        await session(client)
        committed = time.monotonic()
        (start,) = await polling
        assert start["kind"] == "start"
        # Measured at under 5 ms on an idle machine; the rest is for a busy one.
        assert time.monotonic() - committed < 0.25


async def test_a_silent_agent_loses_its_node(tmp_path: Path) -> None:
    """Its workloads are queued again; a hello brings the node back."""
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        await session(client, kind="batch")
        await agent.commands()
        clock = it.runtime._clock
        for _ in range(4):
            await clock.advance(Millis(10 * SECOND))  # type: ignore[attr-defined]  # a VirtualClock
            await asyncio.sleep(1.1)  # the watch looks once a second
            node = (await client.get(f"{API}/nodes")).json()["nodes"][0]
            if node["state"] == "lost":
                break
        assert node["state"] == "lost"
        assert (await view(client))["state"] == "queued"
        agent = FakeAgent(it, client, boot="boot-1")
        await agent.hello()
        assert [one["incarnation"] for one in await agent.commands()] == [2]


async def test_hooks_of_a_kernel_that_cannot_be_saved_reach_the_node(tmp_path: Path) -> None:
    """And it is known as such: what it would lose counts, and it is not released for being idle."""
    hooks = {"on_preempt": "save.image()", "on_resume": ["Rscript", "back.R"]}
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        seen = await session(client, launch=LAUNCH | hooks, resumable=False)
        assert (seen["resumable"], seen["idle_release_s"]) == (False, None)
        (start,) = await agent.commands()
        launch = start["args"]["launch"]
        assert {name: launch[name] for name in hooks} == hooks
        refused = await client.post(f"{API}/workloads", json={"launch": LAUNCH | {"on_preempt": {"cell": "x"}}})
        assert refused.status_code == 422


async def test_another_machine_is_a_node_once_its_agent_has_said_what_it_has(tmp_path: Path) -> None:
    """The agent knows its GPUs, the configuration where it belongs. It may come back as another machine."""

    async def offered(*gpus: str) -> tuple[int, list[Any]]:
        inventory = NodeInventory("far", gpus, "H100", pool="elsewhere", host="far.lab")
        answer = await agent.hello(node=to_json(inventory))
        nodes = (await client.get(f"{API}/nodes")).json()["nodes"]
        return answer.status_code, [
            (one["name"], one["gpus"], one["gpu_type"], one["pool"], one["labels"]) for one in nodes if one["name"] != "n1"
        ]

    there = NodeConfig("far", 0, labels={"rack": "r9"}, remote=True)
    async with service_at(tmp_path, nodes=(there,)) as (it, client):
        agent = FakeAgent(it, client, node="far")
        assert [one["name"] for one in (await client.get(f"{API}/nodes")).json()["nodes"]] == ["n1"]
        assert await offered("a", "a") == (400, [])
        assert await offered(*map(str, range(2000))) == (400, [])
        assert await offered("a", "b") == (200, [("far", 2, "H100", "default", {"rack": "r9"})])
        assert await offered("a", "b", "c") == (200, [("far", 3, "H100", "default", {"rack": "r9"})])
        # Whoever is in no configuration is none, whatever it says.
        stranger = FakeAgent(it, client, node="stranger")
        await stranger.hello()
        assert "stranger" not in (await client.get(f"{API}/nodes")).text


async def test_gangs_meet_at_the_address_of_the_first_machine(tmp_path: Path) -> None:
    nodes = tuple(NodeConfig(name, 0, remote=True) for name in ("far", "further"))
    async with service_at(tmp_path, nodes=nodes) as (it, client):
        agents = [FakeAgent(it, client, node=name) for name in ("far", "further")]
        for agent in agents:
            inventory = NodeInventory(agent.node, ("a", "b", "c"), host=f"{agent.node}.lab")
            assert (await agent.hello(node=to_json(inventory))).status_code == 200
        await session(client, "g", gpus=3, nodes=2, kind="batch", launch=LAUNCH | {"type": "command"})
        starts = [(await agent.commands())[0]["args"]["launch"]["env"] for agent in agents]
        assert {env["MASTER_ADDR"] for env in starts} == {"far.lab"}
        assert [env["RANK"] for env in starts] == ["0", "1"]


def test_an_agent_that_dies_again_and_again_is_back_before_its_node_is_lost() -> None:
    """Else its work would be started elsewhere while it still runs here."""
    assert BACKOFF_S[1] * 1000 * 3 <= ServiceOptions().agent_silence


async def test_an_agent_says_how_its_machine_is(tmp_path: Path) -> None:
    """Problems, its clock and its version are in the node's view; an agent of an older version says nothing of them."""
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello(version="9.9")

        async def said() -> tuple[Any, ...]:
            (node,) = (await client.get(f"{API}/nodes")).json()["nodes"]
            return node["problems"], node["clock_skew_s"], node["agent_version"]

        async def beat(**more: Any) -> int:
            body = {"boot": "boot-1", "reports": []} | more
            return (await client.post(f"{API}/agents/n1/reports", json=body, headers=agent.headers)).status_code

        assert await said() == ([], None, "9.9")
        ahead = it.runtime.now() / 1000 + 60
        assert await beat(problems=["a full disk"], now_s=ahead) == 200
        assert await said() == (["a full disk"], 60.0, "9.9")
        assert await beat() == 200
        assert await said() == (["a full disk"], 60.0, "9.9")
        assert await beat(problems=[], now_s=ahead - 61) == 200
        assert await said() == ([], -1.0, "9.9")
        for wrong in ({"problems": ["x" * 501]}, {"problems": ["x"] * 101}, {"now_s": -1}, {"problems": "x"}):
            assert await beat(**wrong) == 422, wrong


async def test_a_node_can_be_checked_before_it_has_an_agent(tmp_path: Path) -> None:
    """Each side proves that it knows the token; that is no hello, and no sign of life."""
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client, node="n7")
        seen = it.hub.last_seen("n7")
        answer = await client.get(f"{API}/agents/n7/check", params={"boot": "abc"}, headers=agent.headers)
        told = answer.json()
        assert told.pop("version")
        assert told == {
            "proof": hello_proof(it.secrets.agent_token("n7"), "abc"), "known": False, "heard": False,
            "api_version": 1, "now_s": it.runtime.now() / 1000,
        }  # fmt: skip
        assert it.hub.last_seen("n7") == seen
        other = FakeAgent(it, client, node="n8")
        assert (await client.get(f"{API}/agents/n7/check", params={"boot": "abc"}, headers=other.headers)).status_code == 401


async def test_who_waits_for_closed_nodes_hears_what_keeps_them_closed(tmp_path: Path) -> None:
    """In the words of who keeps them; a sentence that begins with a node's name leaves it as it is."""
    async with service_at(tmp_path) as (it, client):
        await client.post(f"{API}/nodes/n1/cordon")
        it.hub.told("n1", ["n1 is cordoned in Kubernetes; `kubectl uncordon n1` opens it"], None)
        await client.post(f"{API}/workloads", json={"id": "w", "allocation": "a", "gpus": 1, "user": "ada", "launch": LAUNCH})
        why = (await client.get(f"{API}/workloads/w/why")).json()
        assert "of 1 node none could take a part of it now; 1 is cordoned or lost." in why["sentence"]
        assert why["sentence"].endswith("Of these nodes is known: n1 is cordoned in Kubernetes; `kubectl uncordon n1` opens it.")
        assert "closed now" in why["start"]["because"]
        it.hub.told("n1", [], None)
        assert "is known" not in (await client.get(f"{API}/workloads/w/why")).json()["sentence"]
        await client.post(f"{API}/nodes/n1/uncordon")
        agent = FakeAgent(it, client)
        await agent.hello()
        await agent.commands()
        await agent.report("remark", "w", text="n1 is short of memory")
        said = (await client.get(f"{API}/workloads/w/why")).json()["sentence"]
        assert said.startswith("n1 is short of memory. It is starting on"), said
        await agent.report("remark", "w", text="its node is short of memory.")
        said = (await client.get(f"{API}/workloads/w/why")).json()["sentence"]
        assert said.startswith("Its node is short of memory. It is starting on"), said


async def test_how_a_node_was_lost_is_news_until_it_runs_again(tmp_path: Path) -> None:
    """It says that it is queued as long as it is, and nothing of it once the kernel is up."""
    why = "its node n1 did not take its pod after all: cpu (OutOfcpu)"
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        await client.post(f"{API}/workloads", json={"id": "w", "allocation": "a", "gpus": 1, "user": "ada", "launch": LAUNCH})
        await agent.commands()
        await client.post(f"{API}/nodes/n1/cordon")
        await agent.report("released", "w", busy=True, why=f"{why}; it is queued again")
        assert (await view(client))["remark"] == f"{why}; it is queued again"
        await client.post(f"{API}/nodes/n1/uncordon")
        now = await view(client)
        assert (now["state"], now["remark"]) == ("starting", why)
        await agent.report("serving", "w", incarnation=2, generation=1, connection=PORTS, devices=["virtual-0"])
        assert (await view(client))["remark"] == ""
        sentence = (await client.get(f"{API}/workloads/w/why")).json()["sentence"]
        assert sentence.startswith("It runs on"), sentence
        assert "did not take" not in sentence
