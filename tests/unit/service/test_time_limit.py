"""How long a command may run: over all of its starts, waits not counted, and known to the node that runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from gpufair.clock import Clock, VirtualClock
from gpufair.core.units import SECOND, Millis
from gpufair.wire import NodeInventory
from tests.unit.service.rig import LAUNCH, service_at
from tests.unit.service.test_agents import API, FakeAgent, session, view

COMMAND = LAUNCH | {"type": "command"}


async def _pass(clock: Clock, span_s: float) -> None:
    assert isinstance(clock, VirtualClock)
    await clock.advance(Millis(int(span_s * SECOND)))


async def _run(client: httpx.AsyncClient, name: str, **fields: Any) -> None:
    await session(client, name, kind="batch", launch=COMMAND, **fields)


async def _up(agent: FakeAgent, incarnation: int = 1, name: str = "w") -> dict[str, Any]:
    """Takes the start that is due; its arguments."""
    (start,) = await agent.commands()
    assert (start["kind"], start["workload"], start["incarnation"]) == ("start", name, incarnation)
    await agent.report("serving", name, incarnation, generation=1, connection={}, devices=[], lost=[])
    args: dict[str, Any] = start["args"]
    return args


async def test_each_start_has_what_is_left(tmp_path: Path) -> None:
    """What it waits for costs nothing, and neither does a start that never came up."""
    async with service_at(tmp_path) as (it, client):
        clock, agent = it.lifetime._clock, FakeAgent(it, client)
        await agent.hello()
        await _run(client, "w", timeout_s=100)
        (start,) = await agent.commands()
        assert (start["args"]["run_limit_s"], start["args"]["grace_s"]) == (100.0, 5.0)
        await _pass(clock, 7)
        await agent.report("start_failed", "w", 1, reason="no such folder")
        assert (await _up(agent, 2))["run_limit_s"] == 100.0
        await _pass(clock, 30)
        await agent.report("released", "w", 2, busy=True)
        assert (await _up(agent, 3))["run_limit_s"] == 70.0
        await _pass(clock, 20)
        await agent.report("exited", "w", 3, outcome="timed out", code=0, reason="its time is over")
        seen = await view(client, "w")
        assert (seen["state"], seen["outcome"], seen["timeout_s"]) == ("ended", "timed out", 100.0)
        assert seen["reason"] == "it ran for the 100 s that its owner gave it"


async def test_one_whose_time_is_over_is_not_queued_again(tmp_path: Path) -> None:
    """It was preempted in its last moment."""
    async with service_at(tmp_path) as (it, client):
        clock, agent = it.lifetime._clock, FakeAgent(it, client)
        await agent.hello()
        await _run(client, "w", timeout_s=100)
        await _up(agent)
        await _pass(clock, 101)
        await agent.report("released", "w", busy=True)
        assert (await view(client, "w"))["outcome"] == "timed out"


async def test_its_owner_may_still_cancel_it(tmp_path: Path) -> None:
    async with service_at(tmp_path) as (it, client):
        clock, agent = it.lifetime._clock, FakeAgent(it, client)
        await agent.hello()
        await _run(client, "w", timeout_s=100)
        await _up(agent)
        await _pass(clock, 99)
        await client.delete(f"{API}/workloads/w")
        await _pass(clock, 2)
        await agent.report("exited", "w", outcome="timed out", code=-9, reason="its time is over")
        assert (await view(client, "w"))["outcome"] == "cancelled"


async def test_without_a_limit_there_is_none(tmp_path: Path) -> None:
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        await _run(client, "w")
        assert (await _up(agent))["run_limit_s"] is None
        for wrong in ({"timeout_s": 0}, {"timeout_s": 5, "launch": LAUNCH}):
            answer = await client.post(f"{API}/workloads", json={"id": "x", "user": "ada", "launch": COMMAND} | wrong)
            assert answer.status_code in (400, 422)


async def test_the_parts_of_a_gang_save_side_by_side(tmp_path: Path) -> None:
    """The first that is done does not cut the grace of the others short."""
    async with service_at(tmp_path) as (it, client):
        it.hub._expected["n2"] = NodeInventory("n2", ("virtual-0",))
        await it.runtime.do(it.hub._join_configured)
        agents = [FakeAgent(it, client), FakeAgent(it, client, node="n2")]
        for agent in agents:
            await agent.hello()
        await _run(client, "w", nodes=2, timeout_s=100)
        for agent in agents:
            await _up(agent)
        await agents[0].report("exited", "w", outcome="timed out", code=0, reason="its time is over")
        assert await agents[1].commands() == []
        await agents[1].report("exited", "w", outcome="failed", code=1, reason="exit code 1")
        assert (await view(client, "w"))["outcome"] == "timed out"
