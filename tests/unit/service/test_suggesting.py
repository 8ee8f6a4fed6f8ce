"""A session that holds GPUs and does not touch them is told so, once that is known for long enough; its owner decides."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gpufair.core.units import HOUR, MINUTE, Instant, Millis
from gpufair.service.settings.config import parse_config
from tests.unit.service.rig import bearer, service_at
from tests.unit.service.test_agents import API, FakeAgent, session, view
from tests.unit.service.test_moving import running
from tests.unit.service.test_standin import _post, _serving

TWO_HOURS = "This notebook has not used its GPU for 2 h: move it to a CPU node, and keep all variables?"


def _s(instant: Instant, minus: Millis = Millis(0)) -> float:
    return (instant - minus) / 1000


async def test_it_comes_after_two_hours_and_goes_with_the_first_use(tmp_path: Path) -> None:
    """On the object, in the reason, and for whoever listens; until then, and of what is not known, not a word."""
    async with running(tmp_path, idle_release_s=0) as (it, client, agent):
        assert (await view(client))["suggestion"] is None
        since = it.runtime.now()
        await agent.report("gpu_use", "w", unused_since_s=_s(since))
        await it.lifetime._clock.advance(Millis(2 * HOUR - MINUTE))
        await agent.report("gpu_use", "w", unused_since_s=_s(since))
        assert (await view(client))["suggestion"] is None
        await it.lifetime._clock.advance(MINUTE)
        heard = it.runtime.broadcast.subscribe()
        await agent.report("gpu_use", "w", unused_since_s=_s(since))
        assert (await view(client))["suggestion"] == {"kind": "move_to_cpu", "since_s": _s(since), "text": TWO_HOURS}
        told = await asyncio.wait_for(heard.get(), 30)
        assert told is not None
        assert told.view["suggestion"]["text"] == TWO_HOURS
        why = (await client.get(f"{API}/workloads/w/why")).json()["sentence"]
        assert why.endswith(f"{TWO_HOURS} (gpufair sessions resume w --on-cpu)")
        await it.lifetime._clock.advance(Millis(90 * MINUTE))
        assert "for 3 h:" in (await view(client))["suggestion"]["text"]
        await agent.report("gpu_use", "w", unused_since_s=None)
        assert (await view(client))["suggestion"] is None


async def test_not_now_is_for_as_long_as_it_has_these_gpus(tmp_path: Path) -> None:
    """Remembered by a killed service, forgotten at the next start."""
    async with running(tmp_path) as (it, client, agent):
        since = _s(it.runtime.now(), Millis(3 * HOUR))
        await agent.report("gpu_use", "w", unused_since_s=since)
        assert (await view(client))["suggestion"] is not None
        assert (await _post(client, "dismiss")).json()["suggestion"] is None
    async with service_at(tmp_path) as (_it, client):
        agent = FakeAgent(_it, client, boot="boot-2")
        await agent.hello(("w", 1))
        await agent.report("gpu_use", "w", unused_since_s=since)
        assert (await view(client))["suggestion"] is None
        await _post(client, "park")
        await agent.report("released", "w", busy=False)
        await _post(client, "resume")
        await _serving(agent, "w", 2)
        assert (await view(client))["suggestion"] is None, "what the last stay did with its GPUs says nothing of this one"
        await agent.report("gpu_use", "w", 2, unused_since_s=since)
        assert (await view(client))["suggestion"] is not None


async def test_it_is_for_its_owner_and_for_what_can_be_moved(tmp_path: Path) -> None:
    async with running(tmp_path) as (it, client, agent):
        since = _s(it.runtime.now(), Millis(3 * HOUR))
        await agent.report("gpu_use", "w", unused_since_s=since)
        other = await client.get(f"{API}/workloads/w", headers=bearer(it.secrets.user_token("bo")))
        assert (other.status_code, other.json()["suggestion"]) == (200, None)
        told = await client.get(f"{API}/workloads/w/why", headers=bearer(it.secrets.user_token("bo")))
        assert "has not used" not in told.json()["sentence"]
        await _post(client, "resume", on_cpu=True)
        assert (await view(client))["suggestion"] is None, "it moves already"
        await session(client, "plain", resumable=False)
        await agent.commands()
        await _serving(agent, "plain")
        await agent.report("gpu_use", "plain", unused_since_s=since)
        assert (await view(client, "plain"))["suggestion"] is None


async def test_where_it_is_off_nothing_is_suggested(tmp_path: Path) -> None:
    off = parse_config('[sessions]\nsuggest_cpu_after = "off"\n', "x").suggest_cpu_after
    async with service_at(tmp_path, suggest_cpu_after=off) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        await session(client)
        await agent.commands()
        await _serving(agent, "w")
        await agent.report("gpu_use", "w", unused_since_s=1.0)
        assert (await view(client))["suggestion"] is None
