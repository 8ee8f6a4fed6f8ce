"""A running session moves to a CPU node with all it has, or stays where it is; a killed service loses neither."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpufair.service.web.context import Context
from gpufair.service.workloads.details import Detail, Move
from gpufair.wire import StartArgs, from_json
from tests.unit.service.rig import service_at
from tests.unit.service.test_agents import PORTS, FakeAgent, session, view
from tests.unit.service.test_standin import _checkpointed, _post, _serving


@asynccontextmanager
async def running(folder: Path, **fields: Any):
    """The service, an agent, and session ``w`` on a GPU."""
    async with service_at(folder) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        await session(client, **fields)
        await agent.commands()
        await _serving(agent, "w")
        yield it, client, agent


async def _asked(client: httpx.AsyncClient, agent: FakeAgent) -> dict[str, Any]:
    """The command that the wish made of it."""
    answer = await _post(client, "resume", on_cpu=True)
    assert answer.status_code == 202, answer.text
    (told,) = await agent.commands()
    assert (told["kind"], told["workload"]) == ("hold", "w")
    return told


async def _stands_still(it: Context, agent: FakeAgent, sequence: int = 1, left_s: float = 20.0) -> None:
    await _checkpointed(agent, "w", sequence)
    await agent.report("held", "w", until_s=it.runtime.now() / 1000 + left_s)


async def test_it_is_saved_parked_and_opened_there(tmp_path: Path) -> None:
    """Its GPUs are free, what it goes on from is what was saved while it stood still, and GPUs can be had again."""
    async with running(tmp_path) as (it, client, agent):
        told = await _asked(client, agent)
        assert told["args"] == {"wait_s": 10.0, "hold_s": 30.0}, "it waits for a cell as long as the grace"
        seen = await view(client)
        assert (seen["state"], seen["on_cpu"], seen["move"]["failed"]) == ("running", False, None)
        await _stands_still(it, agent)
        (leave,) = await agent.commands()
        assert (leave["kind"], leave["workload"]) == ("preempt", "w")
        await agent.report("released", "w", busy=False)
        (start,) = await agent.commands()
        args = from_json(StartArgs, start["args"])
        assert (start["kind"], args.gpus, args.restore) == ("start", 0, "000001-x")
        assert start["workload"].startswith("w.cpu-")
        await _serving(agent, start["workload"])
        seen = await view(client)
        assert (seen["state"], seen["on_cpu"], seen["move"], seen["preemptions"]) == ("running", True, None, 0)
        (node,) = (await client.get("/api/v1/nodes")).json()["nodes"]
        assert node["free_gpus"] == node["gpus"]
        assert (await _post(client, "resume")).status_code == 202
        (leave,) = await agent.commands()
        assert (leave["kind"], leave["workload"]) == ("preempt", start["workload"])


async def test_asked_twice_it_is_one_wish(tmp_path: Path) -> None:
    async with running(tmp_path) as (_it, client, agent):
        await _asked(client, agent)
        assert (await _post(client, "resume", on_cpu=True)).status_code == 202
        assert await agent.commands() == []


async def test_what_cannot_be_saved_stays_and_says_why(tmp_path: Path) -> None:
    """Nothing is lost: it runs on, on its GPUs, and may be asked again. Others do not read what it holds."""
    async with running(tmp_path) as (it, client, agent):
        await _asked(client, agent)
        await agent.report("not_held", "w", reason="gen (a generator) cannot be saved")
        seen = await view(client)
        assert (seen["state"], seen["leases"][0]["gpus"]) == ("running", 1)
        assert seen["move"]["failed"] == "gen (a generator) cannot be saved"
        assert await agent.commands() == []
        await _asked(client, agent)
        assert (await view(client))["move"]["failed"] is None
        await _stands_still(it, agent)
        assert [one["kind"] for one in await agent.commands()] == ["preempt"]


async def test_a_checkpoint_of_another_kind_moves_nothing(tmp_path: Path) -> None:
    """One that a cell or its owner asked for does not stand still after it: what comes next would be lost."""
    async with running(tmp_path) as (_it, client, agent):
        await _asked(client, agent)
        await _checkpointed(agent, "w", 1)
        await agent.report("checkpoint_failed", "w", reason="the disk is full")
        assert await agent.commands() == []
        assert (await view(client))["move"]["failed"] is None


async def test_a_hold_that_is_over_is_asked_for_again(tmp_path: Path) -> None:
    """The service was away while it stood still: cells may have run since."""
    async with running(tmp_path) as (it, client, agent):
        await _asked(client, agent)
        await _stands_still(it, agent, left_s=-1.0)
        assert [one["kind"] for one in await agent.commands()] == ["hold"]
        await _stands_still(it, agent, 2)
        assert [one["kind"] for one in await agent.commands()] == ["preempt"]


async def test_a_killed_service_moves_it_all_the_same(tmp_path: Path) -> None:
    """Killed after the wish, and again between the save and the release."""
    async with running(tmp_path) as (_it, client, agent):
        assert (await _post(client, "resume", on_cpu=True)).status_code == 202
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client, boot="boot-2")
        await agent.hello(("w", 1))
        assert [one["kind"] for one in await agent.commands()] == ["hold"]
        await _stands_still(it, agent)
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client, boot="boot-3")
        await agent.hello(("w", 1))
        assert [one["kind"] for one in await agent.commands()] == ["preempt"]
        await agent.report("released", "w", busy=False)
    async with service_at(tmp_path) as (it, client):
        seen = await view(client)
        assert (seen["state"], seen["on_cpu"], seen["move"]) == ("starting", True, None)
        agent = FakeAgent(it, client, boot="boot-4")
        await agent.hello()
        (start,) = await agent.commands()
        assert (start["kind"], start["args"]["restore"]) == ("start", "000001-x")


async def test_one_that_has_to_leave_meanwhile_is_opened_and_not_queued(tmp_path: Path) -> None:
    """It runs a cell, so it would wait for GPUs again; its owner wants none."""
    async with running(tmp_path, min_runtime_s=0) as (_it, client, agent):
        await agent.report("activity", "w", busy=True)
        await _asked(client, agent)
        await session(client, "other", gpus=2)
        assert [one["kind"] for one in await agent.commands()] == ["preempt"]
        await agent.report("not_held", "w", reason="it had to make room")
        await _checkpointed(agent, "w", 1)
        await agent.report("released", "w", busy=True)
        started = {one["workload"].split("-")[0]: one for one in await agent.commands()}
        assert sorted(started) == ["other", "w.cpu"]
        seen = await view(client)
        assert (seen["on_cpu"], seen["position"], seen["move"]) == (True, None, None)


async def test_a_restarted_kernel_is_not_moved(tmp_path: Path) -> None:
    """It has no variables to keep, and what it was asked went with the old one."""
    async with running(tmp_path) as (_it, client, agent):
        await _asked(client, agent)
        await agent.report("serving", "w", generation=2, connection=PORTS, devices=[], lost=[])
        assert "restarted" in (await view(client))["move"]["failed"]
        await agent.hello(("w", 1))
        assert await agent.commands() == [], "nor is it held when its agent comes back"


@pytest.mark.parametrize("verb", ["park", "resume"])
async def test_who_changes_his_mind_is_obeyed(tmp_path: Path, verb: str) -> None:
    async with running(tmp_path) as (it, client, agent):
        await _asked(client, agent)
        assert (await _post(client, verb)).json()["move"] is None
        await agent.commands()
        await _stands_still(it, agent)
        if verb == "park":
            await agent.report("released", "w", busy=False)
            seen = await view(client)
            assert (seen["state"], seen["on_cpu"]) == ("parked", False)
        assert await agent.commands() == []


async def test_refusals_say_what_to_do(tmp_path: Path) -> None:
    async with running(tmp_path) as (_it, client, agent):
        await session(client, "fresh")
        await session(client, "cpu", gpus=0)
        await session(client, "batch", kind="batch", gpus=0)
        await agent.report("kernel_died", "w", generation=1, code=-9)
        for name, said in {
            "w": "restart it first, or park it",
            "fresh": "ask again when it runs, or park it",
            "cpu": "it has no GPUs",
            "batch": "only sessions can be",
        }.items():
            refused = await _post(client, "resume", name, on_cpu=True)
            assert (refused.status_code, said in refused.text) == (409, True), (name, refused.text)
    async with running(tmp_path / "other", resumable=False) as (_it, client, _agent):
        refused = await _post(client, "resume", on_cpu=True)
        assert (refused.status_code, "cannot save its variables" in refused.text) == (409, True), refused.text


def test_the_wish_is_read_as_it_was_written() -> None:
    wish = Detail(move=Move(1_000, ("default", "cpu"), "why"))
    assert Detail.from_dict(wish.to_dict()) == wish
