"""Figures over a period: what nodes measured, what was owed and what was delivered, in the units that their names say."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufair.client.insight import Deliveries, Pyramid
from gpufair.client.reading import read
from gpufair.client.types import Budgets, Workload
from gpufair.clock import VirtualClock
from gpufair.core import events as ev
from gpufair.core.model import DEFAULT_POOL, Node, Policy
from gpufair.core.units import SECOND, AllocationPath, Millis, NodeName
from gpufair.service.web.context import Context
from tests.unit.service.rig import LAUNCH, START, bearer, service_at

API = "/api/v1"


async def pass_time(it: Context, seconds: int) -> None:
    """Let the virtual clock run, and the scheduler see it."""
    clock = it.runtime._clock
    assert isinstance(clock, VirtualClock)
    await clock.advance(Millis(seconds * SECOND))
    await it.runtime.do(lambda turn: None)


async def test_where_gpu_time_went(tmp_path: Path) -> None:
    """One of two GPUs is held for an hour; what its node measured is told apart from what nobody knows."""
    async with service_at(tmp_path) as (it, client):
        agent = bearer(it.secrets.agent_token("n1"))
        body = {"id": "w1", "gpus": 1, "min_runtime_s": 7200, "user": "ada", "allocation": "a", "launch": LAUNCH}
        await client.post(f"{API}/workloads", json=body)
        node = {"name": "n1", "gpu_ids": ["virtual-0", "virtual-1"]}
        hello = {"api_version": 1, "boot": "b1", "node": node, "running": [["w1", 1]]}
        assert (await client.post(f"{API}/agents/n1/hello", json=hello, headers=agent)).status_code == 200

        async def reports(*told: tuple[int, str, dict[str, object]]) -> None:
            sent = [
                {"seq": seq, "at_s": 1.0, "kind": kind, "workload": "w1", "incarnation": 1, "body": body}
                for seq, kind, body in told
            ]
            answer = await client.post(f"{API}/agents/n1/reports", json={"boot": "b1", "reports": sent}, headers=agent)
            assert answer.status_code == 200

        unknown = read(Pyramid, (await client.get(f"{API}/pyramid?since_s={START / 1000 - 60}")).json()).pools[0]
        assert (unknown.utilization.ratio, unknown.utilization.of_gpu_s) == (None, 0)
        await pass_time(it, 1800)
        minute = {"span_s": 60.0, "gpus": [["GPU-a", 0.5]]}
        # Two minutes in one batch are two measurements; what is malformed is left out, and told twice counts once.
        await reports((1, "utilization", minute), (2, "utilization", {"span_s": 60.0, "gpus": [["GPU-a", 1.0]]}))
        await reports((2, "utilization", minute), (3, "utilization", {"span_s": 60, "gpus": [["GPU-a", 1.5]]}))
        await reports((4, "utilization", {"span_s": 0, "gpus": []}), (5, "utilization", {"gpus": [["GPU-a", True]]}))
        heard = it.runtime.broadcast.subscribe()
        owner, other = (it.secrets.user_token(user) for user in ("ada", "bo"))
        mine, his = [(await client.get(f"{API}/workloads/w1", headers=bearer(one))).json() for one in (owner, other)]
        assert mine["utilization"] == {"at_s": it.runtime.now() / 1000, "fraction": 1.0, "gpus": [["n1", "GPU-a", 1.0]]}
        assert his["utilization"] is None, "what somebody does with his GPUs is his own"
        await reports((6, "utilization", minute))
        assert not heard._line, "for those who ask: it is not told to everybody each minute"
        await pass_time(it, 240)
        assert (await client.get(f"{API}/workloads/w1", headers=bearer(owner))).json()["utilization"] is None, "long ago"
        await pass_time(it, 1560)
        answer = await client.get(f"{API}/pyramid?since_s={START / 1000}", headers=bearer(it.secrets.user_token("bo")))
        seen = read(Pyramid, answer.json()).pools[0]
        assert (seen.pool, seen.start_s, seen.end_s) == ("default", START / 1000, START / 1000 + 3600)
        assert (seen.availability.of_gpu_s, seen.availability.ratio) == (7200, 1.0)
        assert (seen.occupancy.kept_gpu_s, seen.occupancy.ratio) == (3600, 0.5)
        assert [(loss.cause, loss.gpu_s) for loss in seen.occupancy.losses if loss.gpu_s] == [("idle", 3600)]
        assert (seen.utilization.of_gpu_s, seen.utilization.kept_gpu_s, seen.utilization.ratio) == (180, 120, 120 / 180)
        assert seen.utilization.coverage == pytest.approx(180 / 3600)
        assert (seen.charged_gpu_s, seen.unallocated_gpu_s) == (3600, 0)
        got = read(Deliveries, (await client.get(f"{API}/budgets/delivered?since_s={START / 1000}")).json()).pools[0]
        assert (got.capped, got.uncapped, got.worst) == (1.0, 1.0, None)
        a, b = got.allocations
        assert (a.path, a.owed_gpu_s, a.charged_gpu_s, a.ratio) == ("a", 3600, 3600, 1.0)
        assert [(one.user, one.charged_gpu_s) for one in a.researchers] == [("ada", 3600)]
        assert (b.path, b.owed_gpu_s, b.ratio) == ("b", 0, None)
        events = [one["kind"] for one in (await client.get(f"{API}/timeline")).json()["records"]]
        assert events.count("UtilizationReported") == 3


async def test_a_period_has_to_be_one(tmp_path: Path) -> None:
    """What lies the wrong way round is a mistake, not an empty answer."""
    async with service_at(tmp_path) as (_, client):
        for path in ("/pyramid", "/budgets/delivered"):
            answer = await client.get(f"{API}{path}?since_s=10&until_s=5")
            assert (answer.status_code, answer.json()["error"]) == (400, "BadRequest")
            for bad in ("since_s=-1", "since_s=nan", "until_s=x", "since_s=1e300"):
                assert (await client.get(f"{API}{path}?{bad}")).status_code == 422, bad
            assert (await client.get(f"{API}{path}")).status_code == 200


async def test_figures_are_in_weighted_gpu_time(tmp_path: Path) -> None:
    """A GPU that costs one and a half counts so wherever budgets are meant, in GPU-seconds and not in what is counted."""
    async with service_at(tmp_path, policy=Policy(gpu_weights={"big": 1.5})) as (it, client):
        big = Node(NodeName("n2"), 4, "big")
        await it.runtime.do(lambda turn: turn.handle(ev.NodeJoined(turn.now, turn.cause(), big)))
        body = {"id": "w1", "gpus": 2, "gpu_type": "big", "min_runtime_s": 7200, "user": "ada", "allocation": "a"}
        await client.post(f"{API}/workloads", json=body | {"launch": LAUNCH})
        await pass_time(it, 1000)
        one = read(Workload, (await client.get(f"{API}/workloads/w1")).json())
        assert one.charged_gpu_s == 2 * 1.5 * 1000
        seen = read(Budgets, (await client.get(f"{API}/budgets")).json())
        a = seen.allocations[0]
        assert (a.occupancy_gpu_s, a.commitment_gpu_s) == (3000, 2 * 1.5 * 6200)
        assert a.metric is not None
        shares = await it.runtime.think(lambda state: state.facts.shares(DEFAULT_POOL).metric(AllocationPath("a")))
        assert a.metric == pytest.approx(shares, rel=1e-6)
        got = read(Deliveries, (await client.get(f"{API}/budgets/delivered")).json()).pools[0]
        assert got.allocations[0].charged_gpu_s == 3000
