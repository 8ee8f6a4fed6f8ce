"""Work that failed is started again, later each time; what its owner stopped is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpufair.clock import VirtualClock
from gpufair.core import events as ev
from gpufair.core.model import Kind, Outcome, Phase
from gpufair.core.units import SECOND, Millis, WorkloadId
from gpufair.service.runtime.runtime import Runtime
from gpufair.service.workloads import retries
from tests.unit.service.rig import START, cluster, quiet, runtime_at, service_at, spec, submit
from tests.unit.service.test_agents import API, FakeAgent, session, view
from tests.unit.service.test_time_limit import COMMAND, _pass, _up


async def _fails(agent: FakeAgent, incarnation: int) -> None:
    await agent.report("exited", "w", incarnation, outcome="failed", code=3, reason="exit code 3")


async def test_it_is_started_again_after_longer_and_longer_pauses(tmp_path: Path) -> None:
    async with service_at(tmp_path) as (it, client):
        clock, agent = it.lifetime._clock, FakeAgent(it, client)
        await agent.hello()
        await session(client, "w", kind="batch", launch=COMMAND, retries=2)
        env = (await _up(agent))["launch"]["env"]
        assert (env["GPUFAIR_ATTEMPT"], env["GPUFAIR_ATTEMPTS"]) == ("1", "3")
        for attempt, pause_s in ((1, 30), (2, 60)):
            await _fails(agent, attempt)
            seen = await view(client, "w")
            assert (seen["state"], seen["attempt"], seen["retries"]) == ("parked", attempt, 2)
            assert seen["retry_at_s"] == it.runtime.now() / 1000 + pause_s
            why = (await client.get(f"{API}/workloads/w/why")).json()["sentence"]
            assert why.startswith(f"Exit code 3; it is started again. It waits for its attempt {attempt + 1} of 3, at ")
            await _pass(clock, pause_s - 1)
            await quiet(it.runtime)
            assert await agent.commands() == []
            await _pass(clock, 1)
            await quiet(it.runtime)
            assert (await _up(agent, attempt + 1))["launch"]["env"]["GPUFAIR_ATTEMPT"] == str(attempt + 1)
            assert (await view(client, "w"))["attempt"] == attempt + 1
        await _fails(agent, 3)
        seen = await view(client, "w")
        assert (seen["state"], seen["outcome"], seen["attempt"]) == ("ended", "failed", 3)
        assert (seen["reason"], seen["retry_at_s"]) == ("exit code 3", None)


def test_the_pauses_double_up_to_ten_minutes() -> None:
    def pauses(**launch: Any) -> list[float]:
        wanted = spec(kind=Kind.BATCH)
        object.__setattr__(wanted, "launch", launch)
        return [retries.pause(wanted, failures) / SECOND for failures in (1, 2, 5, 6, 100)]

    assert pauses() == [30, 60, 480, 600, 600]
    assert pauses(retry_after_s=0.5) == [0.5, 1, 8, 16, 600]
    assert pauses(retry_after_s=3600) == [3600] * 5


@pytest.mark.parametrize("how", ["completed", "timed out", "cancelled", "preempted"])
async def test_only_a_failure_is_an_attempt(tmp_path: Path, how: str) -> None:
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        await session(client, "w", kind="batch", launch=COMMAND, retries=2, timeout_s=100)
        await _up(agent)
        if how == "cancelled":
            await client.delete(f"{API}/workloads/w")
            await _fails(agent, 1)
        elif how == "preempted":
            await agent.report("released", "w", busy=True)
            assert (await view(client, "w"))["attempt"] == 1
            return
        else:
            await agent.report("exited", "w", outcome=how, code=0, reason="")
        seen = await view(client, "w")
        assert (seen["state"], seen["outcome"], seen["attempt"]) == ("ended", how, 1)


async def test_nodes_that_cannot_start_it_are_a_failure_too(tmp_path: Path) -> None:
    """After as many tries at once as any workload has."""
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        await session(client, "w", kind="batch", launch=COMMAND, retries=1)
        for incarnation in range(1, 5):
            assert len(await agent.commands()) == 1
            await agent.report("start_failed", "w", incarnation, reason="no such folder")
        seen = await view(client, "w")
        assert (seen["state"], seen["retry_at_s"] is not None) == ("parked", True)
        assert seen["reason"] == "it could not be started: no such folder; it is started again"


async def test_while_it_rests_its_owner_decides(tmp_path: Path) -> None:
    async with service_at(tmp_path) as (it, client):
        clock, agent = it.lifetime._clock, FakeAgent(it, client)
        await agent.hello()
        await session(client, "w", kind="batch", launch=COMMAND, retries=5)
        await _up(agent)
        await _fails(agent, 1)
        await client.post(f"{API}/workloads/w/resume")
        await _up(agent, 2)
        await _pass(clock, 31)
        await quiet(it.runtime)
        assert await agent.commands() == [], "the pause that it did not wait for is forgotten"
        await _fails(agent, 2)
        assert (await client.delete(f"{API}/workloads/w")).json()["outcome"] == "cancelled"
        await _pass(clock, 61)
        await quiet(it.runtime)
        assert (await view(client, "w"))["state"] == "ended"


async def test_a_kernel_is_not_tried_again(tmp_path: Path) -> None:
    async with service_at(tmp_path) as (_it, client):
        body = {"id": "k", "user": "ada", "retries": 1, "launch": COMMAND | {"type": "kernel"}}
        assert (await client.post(f"{API}/workloads", json=body)).status_code == 400


async def _failed(runtime: Runtime, incarnation: int) -> None:
    def step(turn: Any) -> None:
        event = ev.Exited(turn.now, turn.cause(), WorkloadId("w"), incarnation, Outcome.FAILED, "exit code 3")
        retries.end(turn, turn.state.workload(WorkloadId("w")), event)

    await runtime.do(step)


@pytest.mark.parametrize("every", [1, 1000])
async def test_the_pause_outlives_the_service(tmp_path: Path, every: int) -> None:
    """From a snapshot as from the journal alone; and one that ended meanwhile is over."""
    clock = VirtualClock(START)
    wanted = spec(kind=Kind.BATCH)
    object.__setattr__(wanted, "launch", {"type": "command", "retries": 1})
    async with runtime_at(tmp_path, clock, snapshot_every=every) as (runtime, _):
        await cluster(runtime)
        await submit(runtime, "w", wanted)
        await _failed(runtime, 1)
    await clock.advance(Millis(29 * SECOND))
    async with runtime_at(tmp_path, clock, snapshot_every=every) as (runtime, backend):
        await quiet(runtime)
        assert backend.started() == []
    await clock.advance(Millis(5 * SECOND))
    async with runtime_at(tmp_path, clock, snapshot_every=every) as (runtime, backend):
        await quiet(runtime)
        assert backend.started() == [("w", 2)]
        await _failed(runtime, 2)
        assert await runtime.read(lambda state: state.workload(WorkloadId("w")).phase) is Phase.ENDED
