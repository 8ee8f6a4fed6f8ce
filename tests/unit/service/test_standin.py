"""A parked session opens on a CPU node at once, free of charge, and goes on from there when it has GPUs again."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from gpufair.core.units import SECOND, Millis, WorkloadId
from gpufair.wire import StartArgs, from_json
from tests.unit.service.rig import service_at
from tests.unit.service.test_agents import API, PORTS, FakeAgent, session, view


async def _checkpointed(agent: FakeAgent, workload: str, sequence: int, incarnation: int = 1) -> None:
    await agent.report(
        "checkpointed",
        workload,
        incarnation,
        id=f"{sequence:06d}-x",
        sequence=sequence,
        at_s=1.0,
        size_bytes=10,
        duration_s=0.1,
        lost=[],
    )


async def _serving(agent: FakeAgent, workload: str, incarnation: int = 1, port: int = 1) -> None:
    connection = PORTS | {"shell_port": port}
    await agent.report("serving", workload, incarnation, generation=1, connection=connection, devices=[], lost=[])


async def _post(client: httpx.AsyncClient, verb: str, name: str = "w", **body: Any) -> httpx.Response:
    return await client.post(f"{API}/workloads/{name}/{verb}", json=body or None)


def _generation(seen: dict[str, Any]) -> tuple[int, int]:
    return seen["incarnation"], seen["generation"]


async def _parked(agent: FakeAgent, client: httpx.AsyncClient) -> None:
    """Session ``w`` ran on a GPU, and rests with checkpoint 3."""
    await agent.hello()
    await session(client)
    await agent.commands()
    await _serving(agent, "w")
    await _checkpointed(agent, "w", 3)
    await _post(client, "park")
    await agent.commands()
    await agent.report("released", "w", busy=False)
    assert (await view(client))["state"] == "parked"


@asynccontextmanager
async def opened(folder: Path):
    """The service, an agent, and session ``w`` open on a CPU node; and the name of its stand-in."""
    async with service_at(folder) as (it, client):
        agent = FakeAgent(it, client)
        await _parked(agent, client)
        assert (await _post(client, "resume", on_cpu=True)).status_code == 202
        (start,) = await agent.commands()
        await _serving(agent, start["workload"], port=77)
        yield it, client, agent, start


async def _wait_for_gpus(client: httpx.AsyncClient, agent: FakeAgent) -> None:
    """Somebody else has all GPUs, and ``w`` queues."""
    await session(client, "other", gpus=2, min_runtime_s=3600)
    await agent.commands()
    await _serving(agent, "other")
    assert (await _post(client, "resume")).status_code == 202


async def test_it_opens_at_once_with_its_variables_and_is_charged_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as (it, client, _agent, start):
        args = from_json(StartArgs, start["args"])
        assert start["workload"].startswith("w.cpu-")
        assert (args.gpus, args.restore, args.next_sequence) == (0, "000003-x", 4)
        assert args.kernel_key == it.secrets.kernel_key("w")
        assert args.checkpoint_dir == str(tmp_path / "checkpoints" / "ada" / "w")
        assert args.record_dir != str(tmp_path / "records" / "w"), "its outputs must not overwrite the session's"
        seen = await view(client)
        assert (seen["state"], seen["on_cpu"], seen["serving"], seen["gpus"]) == ("running", True, True, 1)
        found = (await client.get(f"{API}/workloads/w/connection")).json()
        assert found["connection"]["shell_port"] == 77
        assert (found["incarnation"], found["generation"]) == _generation(seen)
        why = (await client.get(f"{API}/workloads/w/why")).json()
        assert why["sentence"].startswith("It is open on a CPU node, free of charge, until it has GPUs.")
        charged = seen["charged_gpu_s"]
        await it.lifetime._clock.advance(Millis(3600 * SECOND))
        assert (await view(client))["charged_gpu_s"] == charged


async def test_nobody_sees_the_stand_in(tmp_path: Path) -> None:
    """A server that re-attaches sessions would take it for a notebook of its own."""
    async with opened(tmp_path) as (_it, client, _agent, _start):
        listed = (await client.get(f"{API}/workloads")).json()["workloads"]
        assert [one["id"] for one in listed] == ["w"]


async def test_opened_twice_it_is_opened_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_it, client, agent, _start):
        assert (await _post(client, "resume", on_cpu=True)).status_code == 202
        assert await agent.commands() == []


async def test_what_is_asked_of_the_kernel_reaches_the_one_that_runs(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_it, client, agent, start):
        for verb, kind in [("checkpoint", "save"), ("interrupt", "interrupt"), ("preflight", "preflight")]:
            assert (await _post(client, verb)).status_code == 202, verb
            assert [(one["kind"], one["workload"]) for one in await agent.commands()] == [(kind, start["workload"])]
        await _checkpointed(agent, start["workload"], 4)
        assert (await view(client))["checkpoint"]["sequence"] == 4, "what it saves is the session's"
        assert (await _post(client, "restore")).status_code == 202
        (restore,) = await agent.commands()
        assert restore["args"]["id"] == "000004-x"


async def test_when_gpus_are_granted_it_saves_itself_and_the_session_goes_on_there(tmp_path: Path) -> None:
    """The start waits for the save, else the session would go on from an older state than its owner has seen."""
    async with opened(tmp_path) as (it, client, agent, start):
        stand_in, before = start["workload"], await view(client)
        await _wait_for_gpus(client, agent)
        waiting = await view(client)
        assert (waiting["state"], waiting["on_cpu"], waiting["position"]) == ("running", True, 1)
        assert waiting["submitted_s"] == before["submitted_s"]
        await agent.report("exited", "other", outcome="completed")
        (told,) = await agent.commands()
        assert (told["kind"], told["workload"]) == ("preempt", stand_in)
        assert "GPUs are granted" in told["args"]["text"]
        moving = await view(client)
        assert (moving["state"], moving["on_cpu"]) == ("checkpointing", True)
        await _checkpointed(agent, stand_in, 4)
        await agent.report("released", stand_in, busy=True, unsaved=[["cell [9]", "lost"]])
        (begun,) = await agent.commands()
        args = from_json(StartArgs, begun["args"])
        assert (begun["kind"], begun["workload"], begun["incarnation"]) == ("start", "w", 2)
        assert (args.gpus, args.restore, args.next_sequence) == (1, "000004-x", 5)
        await _serving(agent, "w", 2)
        there = await view(client)
        assert (there["state"], there["on_cpu"], there["leases"][0]["gpus"]) == ("running", False, 1)
        assert there["lost"] == [["cell [9]", "lost"]]
        assert _generation(before) <= _generation(waiting) <= _generation(moving) < _generation(there)
        live = await it.runtime.read(lambda state: state.workload(WorkloadId(stand_in)).phase)
        assert live == "ended"


async def test_a_save_that_fails_costs_what_was_done_since_the_last_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_it, client, agent, start):
        await _wait_for_gpus(client, agent)
        await agent.report("exited", "other", outcome="completed")
        await agent.commands()
        await agent.report("checkpoint_failed", start["workload"], reason="the disk is full")
        await agent.report("released", start["workload"], busy=False)
        (begun,) = await agent.commands()
        assert begun["args"]["restore"] == "000003-x"


async def test_parked_again_it_is_saved_and_closed(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_it, client, agent, start):
        before = _generation(await view(client))
        await _wait_for_gpus(client, agent)
        assert (await _post(client, "park")).status_code == 202
        assert [(one["kind"], one["workload"]) for one in await agent.commands()] == [("preempt", start["workload"])]
        await _checkpointed(agent, start["workload"], 4)
        await agent.report("released", start["workload"], busy=False)
        seen = await view(client)
        assert (seen["state"], seen["on_cpu"], seen["checkpoint"]["sequence"]) == ("parked", False, 4)
        assert _generation(seen) >= before, "a view of the past would be passed over"
        assert (await _post(client, "resume", on_cpu=True)).status_code == 202
        (again,) = await agent.commands()
        assert again["workload"] != start["workload"]
        assert again["args"]["restore"] == "000004-x"
        await _serving(agent, again["workload"])
        assert _generation(await view(client)) > before


async def test_ended_both_are_over(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_it, client, agent, start):
        await client.delete(f"{API}/workloads/w")
        assert [(one["kind"], one["workload"]) for one in await agent.commands()] == [("stop", start["workload"])]
        await agent.report("released", start["workload"], busy=False)
        assert (await view(client))["state"] == "ended"


async def test_a_restarted_service_still_waits_for_the_save(tmp_path: Path) -> None:
    """Killed between the grant and the save, it must not start the session from the older checkpoint."""
    async with opened(tmp_path) as (_it, client, agent, start):
        await _wait_for_gpus(client, agent)
        await agent.report("exited", "other", outcome="completed")
        await agent.commands()
        stand_in = start["workload"]
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client, boot="boot-1")
        await agent.hello((stand_in, 1))
        assert [(one["kind"], one["workload"]) for one in await agent.commands()] == [("preempt", stand_in)]
        assert (await view(client))["on_cpu"] is True
        await _checkpointed(agent, stand_in, 4)
        await agent.report("released", stand_in, busy=False)
        (begun,) = await agent.commands()
        assert (begun["workload"], begun["args"]["restore"]) == ("w", "000004-x")


async def test_what_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        await session(client)
        refused = await _post(client, "resume", on_cpu=True)
        assert (refused.status_code, "ask again when it runs" in refused.text) == (409, True), refused.text
        await _post(client, "park")
        await agent.commands()
        await agent.report("released", "w", busy=False)
        refused = await _post(client, "resume", on_cpu=True)
        assert (refused.status_code, "it has no variables" in refused.text) == (409, True), refused.text


async def test_its_owner_hears_of_its_memory(tmp_path: Path) -> None:
    """Near the limit and above it, as of a session's own kernel, until there is another one."""
    async with opened(tmp_path) as (_it, client, agent, start):
        stand_in, why_died = start["workload"], "over its memory limit: it used 5 GiB"

        async def sentence() -> str:
            return str((await client.get(f"{API}/workloads/w/why")).json()["sentence"])

        await agent.report("remark", stand_in, text="It uses 3 GiB of 4 GiB.")
        seen = await view(client)
        assert seen["reason"] == seen["remark"] == "It uses 3 GiB of 4 GiB."
        assert (await sentence()).startswith("It uses 3 GiB of 4 GiB. It is open")
        await agent.report("remark", stand_in, text="")
        assert (await view(client))["remark"] == ""
        await agent.report("kernel_died", stand_in, generation=1, code=-9, reason=why_died)
        seen = await view(client)
        assert (seen["kernel_died"], seen["reason"]) == (True, why_died)
        assert (await sentence()).startswith("Over its memory limit: it used 5 GiB. It is open")
        await agent.report("released", stand_in, busy=False)
        seen = await view(client)
        assert (seen["state"], seen["on_cpu"], seen["remark"]) == ("parked", False, why_died)
        assert (await _post(client, "resume", on_cpu=True)).status_code == 202
        await _serving(agent, (await agent.commands())[0]["workload"])
        assert (await view(client))["remark"] == ""
