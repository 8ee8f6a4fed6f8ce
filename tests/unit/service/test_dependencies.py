"""Work that waits for other work: queued when that has ended well, cancelled when it has not, and never forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from gpufair.clock import VirtualClock
from gpufair.core import events as ev
from gpufair.core.model import Kind, Outcome, Phase
from gpufair.core.units import SECOND, Millis, WorkloadId
from gpufair.service.runtime.runtime import Runtime
from gpufair.service.workloads import dependencies
from tests.unit.service.rig import LAUNCH, START, cluster, runtime_at, service_at, spec
from tests.unit.service.test_agents import API, FakeAgent, view


async def _batch(client: httpx.AsyncClient, name: str, **fields: Any) -> httpx.Response:
    launch = LAUNCH | {"type": "command"}
    body = {"id": name, "gpus": 1, "min_runtime_s": 60, "user": "ada", "kind": "batch", "launch": launch} | fields
    return await client.post(f"{API}/workloads", json=body)


async def _ends(agent: FakeAgent, name: str, outcome: str) -> None:
    await agent.report("exited", name, outcome=outcome, code=int(outcome != "completed"), reason="so it went")


async def _why(client: httpx.AsyncClient, name: str) -> str:
    sentence: str = (await client.get(f"{API}/workloads/{name}/why")).json()["sentence"]
    return sentence


async def test_it_is_queued_when_all_have_ended_well(tmp_path: Path) -> None:
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        for name in ("one", "two"):
            await _batch(client, name)
        assert (await _batch(client, "last", after=["one", "two", "one"])).status_code == 201
        assert {start["workload"] for start in await agent.commands()} == {"one", "two"}
        seen = await view(client, "last")
        assert (seen["state"], seen["after"], seen["position"]) == ("parked", ["one", "two"], None)
        assert await _why(client, "last") == (
            "It waits for ada's batch run one and ada's batch run two to end well; then it is queued."
        )
        clock = it.lifetime._clock
        assert isinstance(clock, VirtualClock)
        await clock.advance(Millis(10 * SECOND))
        await _ends(agent, "one", "completed")
        assert (await view(client, "last"))["after"] == ["two"]
        assert await agent.commands() == [], "a free GPU is no reason to start"
        await _ends(agent, "two", "completed")
        (start,) = await agent.commands()
        assert start["workload"] == "last"
        seen = await view(client, "last")
        assert (seen["state"], seen["after"], seen["waits_for"]) == ("starting", [], "")
        assert seen["submitted_s"] == START / 1000 + 10, "its place in the queue is not that of when it could not run"


@pytest.mark.parametrize("outcome", ["failed", "cancelled"])
async def test_it_ends_with_the_reason_when_one_did_not_end_well(tmp_path: Path, outcome: str) -> None:
    """And so does whoever waits for it; who waits for any end is queued."""
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        await _batch(client, "first")
        await _batch(client, "second", after=["first"])
        await _batch(client, "third", after=["second"])
        await _batch(client, "sweep-up", after_any=["first", "third"])
        assert len(await agent.commands()) == 1
        assert await _why(client, "sweep-up") == (
            "It waits for ada's batch run first and ada's batch run third to end; then it is queued."
        )
        if outcome == "cancelled":
            assert (await client.delete(f"{API}/workloads/first")).status_code == 200
            await agent.report("released", "first", busy=False)
        else:
            await _ends(agent, "first", "failed")
        second, third = await view(client, "second"), await view(client, "third")
        assert (second["state"], second["outcome"]) == (third["state"], third["outcome"]) == ("ended", "cancelled")
        how = "was cancelled" if outcome == "cancelled" else "has failed"
        expected = f"never started, as ada's batch run first, which was to end well before it, {how}"
        assert second["reason"] == expected
        assert "ada's batch run second" in third["reason"]
        assert (await view(client, "sweep-up"))["state"] == "starting"


async def test_what_has_ended_before_counts_at_once(tmp_path: Path) -> None:
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        for name, outcome in (("good", "completed"), ("bad", "failed")):
            await _batch(client, name)
            await _ends(agent, name, outcome)
        await agent.commands()
        assert (await _batch(client, "runs", after=["good"], after_any=["bad"])).json()["state"] == "starting"
        refused = (await _batch(client, "ends", after=["good", "bad"])).json()
        assert (refused["state"], refused["outcome"]) == ("ended", "cancelled")
        assert "ada's batch run bad" in refused["reason"]
        assert (await _batch(client, "ends", after=["good", "bad"])).status_code == 200, "the same submission again"


async def test_what_cannot_be_waited_for_is_refused(tmp_path: Path) -> None:
    """Only what exists can be named, so there are no cycles."""
    async with service_at(tmp_path) as (_it, client):
        for wrong in ({"after": ["nobody"]}, {"after_any": ["nobody"]}, {"after": ["x"]}):
            assert (await _batch(client, "x", **wrong)).status_code == 404
        await _batch(client, "y")
        answer = await _batch(client, "x", after=["y"], kind="session")
        assert answer.status_code == 422
        assert "cannot wait" in answer.text
        assert (await client.get(f"{API}/workloads/x")).status_code == 404


async def test_its_owner_cancels_it_or_lets_it_wait_no_longer(tmp_path: Path) -> None:
    async with service_at(tmp_path) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        await _batch(client, "first")
        for name in ("given-up", "hurried"):
            await _batch(client, name, after=["first"])
        assert (await client.delete(f"{API}/workloads/given-up")).json()["outcome"] == "cancelled"
        assert (await client.post(f"{API}/workloads/hurried/resume")).json()["state"] == "starting"
        await agent.commands()
        await _ends(agent, "first", "failed")
        assert (await view(client, "hurried"))["state"] == "starting"


async def _submitted(runtime: Runtime, name: str, *after: str) -> None:
    wanted = spec(kind=Kind.BATCH)
    await runtime.do(lambda turn: dependencies.submit(turn, WorkloadId(name), wanted, after))


async def _exited(runtime: Runtime, name: str, outcome: Outcome) -> None:
    await runtime.do(lambda turn: turn.handle(ev.Exited(turn.now, turn.cause(), WorkloadId(name), 1, outcome)))


async def _phase(runtime: Runtime, name: str) -> Phase:
    return await runtime.read(lambda state: state.workload(WorkloadId(name)).phase)


@pytest.mark.parametrize("every", [1, 1000])
async def test_it_waits_on_over_restarts(tmp_path: Path, every: int) -> None:
    """From a snapshot as from the journal alone."""
    clock = VirtualClock(START)
    async with runtime_at(tmp_path, clock, snapshot_every=every) as (runtime, _):
        await cluster(runtime, gpus=2)
        for name, *after in (("one",), ("two",), ("last", "one", "two")):
            await _submitted(runtime, name, *after)
    async with runtime_at(tmp_path, clock, snapshot_every=every) as (runtime, _):
        await _exited(runtime, "one", Outcome.COMPLETED)
        assert await _phase(runtime, "last") is Phase.PARKED
    async with runtime_at(tmp_path, clock, snapshot_every=every) as (runtime, backend):
        assert runtime.detail(WorkloadId("last")).after == ("two",)
        await _exited(runtime, "two", Outcome.COMPLETED)
        assert backend.started() == [("last", 1)]
    async with runtime_at(tmp_path, clock, snapshot_every=every) as (runtime, _):
        assert await _phase(runtime, "last") is Phase.STARTING
        assert runtime.detail(WorkloadId("last")).after == ()


async def test_a_long_chain_ends_at_once(tmp_path: Path) -> None:
    """Longer than Python's stack is deep."""
    async with runtime_at(tmp_path, VirtualClock(START)) as (runtime, _):
        runtime._state._validates = False  # it looks at everything after each of the events
        await cluster(runtime)
        names = [f"w{number}" for number in range(1500)]

        def chain(turn: Any) -> None:
            for at, name in enumerate(names):
                dependencies.submit(turn, WorkloadId(name), spec(kind=Kind.BATCH), names[max(at - 1, 0) : at])

        await runtime.do(chain)
        await _exited(runtime, "w0", Outcome.FAILED)
        assert await _phase(runtime, names[-1]) is Phase.ENDED
