"""GPU × time and budgets over time: what happened is told as it was, to everybody alike, across restarts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufair.client.insight import BudgetsOverTime, Deliveries, GpuHistory, Stay
from gpufair.client.reading import read
from gpufair.core import events as ev
from gpufair.core.model import Outcome
from gpufair.core.units import NodeName, WorkloadId
from gpufair.service.insight.history import most_at_once
from gpufair.service.insight.lanes import lanes
from gpufair.service.storage import stays
from gpufair.service.storage.stays import STILL
from gpufair.service.web.context import Context
from tests.unit.service.rig import LAUNCH, START, bearer, service_at
from tests.unit.service.test_figures import pass_time

API = "/api/v1"
ZERO = START / 1000


async def ask(client: httpx.AsyncClient, query: str = "", **headers: Any) -> GpuHistory:
    """The answer as the client reads it."""
    answer = await client.get(f"{API}/history{query}", **headers)
    assert answer.status_code == 200, answer.text
    return read(GpuHistory, answer.json())


async def submit(client: httpx.AsyncClient, name: str, gpus: int = 1, **more: Any) -> None:
    """A workload of ada's in team a, with a name that is nobody else's business."""
    body = {"id": name, "gpus": gpus, "min_runtime_s": 600, "user": "ada", "allocation": "a", "name": "secret plan"}
    answer = await client.post(f"{API}/workloads", json=body | {"launch": LAUNCH} | more)
    assert answer.status_code == 201, answer.text


async def up(it: Context, name: str, *devices: str, incarnation: int = 1) -> None:
    """Its node says that it runs."""
    pairs = tuple((NodeName("n1"), device) for device in devices)
    await it.runtime.do(
        lambda turn: turn.handle(ev.Started(turn.now, turn.cause(), WorkloadId(name), incarnation, pairs))
    )


async def gone(it: Context, name: str, incarnation: int = 1) -> None:
    """Its GPUs are free."""
    await it.runtime.do(lambda turn: turn.handle(ev.Released(turn.now, turn.cause(), WorkloadId(name), incarnation)))


async def test_the_past_is_told_as_it_was_and_survives_a_restart(tmp_path: Path) -> None:
    """ada has both GPUs until bo preempts one of hers; where she ran and until when she was protected stays known."""
    async with service_at(tmp_path) as (it, client):
        await submit(client, "w1")
        await submit(client, "w2", min_runtime_s=0)
        await up(it, "w1", "virtual-1")
        await pass_time(it, 60)
        await submit(client, "w3", user="bo", allocation="b")
        await pass_time(it, 4)
        await gone(it, "w2")
        await pass_time(it, 6)
        [node] = (await ask(client)).nodes
        one, two, three = node.stays
        assert (node.name, node.gpus, node.devices) == ("n1", 2, ("virtual-0", "virtual-1"))
        assert (one.workload, one.user, one.allocation, one.rows) == ("w1", "ada", "a", (1,))
        assert (one.from_s, one.up_s, one.to_s, one.protected) == (ZERO, ZERO, None, ((ZERO, ZERO + 600),))
        assert (two.workload, two.rows, two.protected, two.up_s) == ("w2", (0,), (), None)
        assert (two.preempted_s, two.reason, two.to_s) == (ZERO + 60, "unallocated", ZERO + 64)
        assert (three.workload, three.rows, three.from_s, three.preempted_s) == ("w3", (0,), ZERO + 64, None)
    async with service_at(tmp_path) as (it, client):
        await pass_time(it, 200)
        assert (await ask(client, "?hours=2")).nodes[0].stays[:3] == (one, two, three)
        await it.runtime.do(lambda turn: turn.handle(ev.NodeLost(turn.now, turn.cause(), NodeName("n1"))))
        lost_s = it.runtime.now() / 1000
        await pass_time(it, 6)
        last = (await ask(client)).nodes[0].stays
        assert [(stay.to_s, stay.reason) for stay in last if stay.workload != "w2"] == [(lost_s, "node lost")] * 2
        assert (await ask(client, "?node=n7")).nodes == ()


async def test_everybody_sees_it_and_nobody_what_others_work_on(tmp_path: Path) -> None:
    """Who held what is no secret in a lab that shares; names of work are."""
    async with service_at(tmp_path) as (it, client):
        await submit(client, "w1", notebook="/home/p.ipynb")
        await submit(client, "w2", gpus=0)
        await pass_time(it, 10)
        for user in ("ada", "bo", "olga"):
            answer = await client.get(f"{API}/history", headers=bearer(it.secrets.user_token(user)))
            assert answer.status_code == 200
            assert "secret plan" not in answer.text
            assert "p.ipynb" not in answer.text
            assert [stay["workload"] for stay in answer.json()["nodes"][0]["stays"]] == ["w1"]
        for query in ("?hours=0", "?hours=169", "?hours=nan", "?node=../x"):
            assert (await client.get(f"{API}/history{query}")).status_code == 422, query
        # Asked again within seconds it is not worked out again.
        before = (await client.get(f"{API}/history?hours=1")).content
        await submit(client, "w4")
        assert (await client.get(f"{API}/history?hours=1")).content == before
        await pass_time(it, 6)
        assert b"w4" in (await client.get(f"{API}/history?hours=1")).content


async def test_an_extension_after_the_end_leaves_the_gap(tmp_path: Path) -> None:
    """Between the end of a protection and the next one it could have been preempted, and is shown so."""
    async with service_at(tmp_path) as (it, client):
        await submit(client, "w1", min_runtime_s=60)
        await up(it, "w1", "virtual-0")
        for wait_s in (30, 90):
            await pass_time(it, wait_s)
            answer = await client.post(f"{API}/workloads/w1/extend", json={"min_runtime_s": 60})
            assert answer.status_code == 202, answer.text
        [stay] = (await ask(client)).nodes[0].stays
        assert stay.protected == ((ZERO, ZERO + 90), (ZERO + 120, ZERO + 180))


async def test_too_much_is_cut_at_the_beginning_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five stays one after the other: of two at most there are the last two, and the answer begins behind the third."""
    monkeypatch.setattr(stays, "MOST", 2)
    async with service_at(tmp_path) as (it, client):
        for number in range(5):
            await submit(client, f"w{number}")
            await pass_time(it, 10)
            done = ev.Exited(it.runtime.now(), "x", WorkloadId(f"w{number}"), 1, Outcome.COMPLETED)  # type: ignore[arg-type]
            await it.runtime.do(lambda turn, done=done: turn.handle(replace(done, at=turn.now)))  # type: ignore[misc]
        seen = await ask(client)
        assert [stay.workload for stay in seen.nodes[0].stays] == ["w3", "w4"]
        assert seen.since_s == ZERO + 30


async def test_a_journal_of_an_older_version_tells_from_its_upgrade_on(tmp_path: Path) -> None:
    """What is held is shown since its grant; of what was before nothing is claimed."""
    async with service_at(tmp_path) as (it, client):
        await submit(client, "w1")
        await submit(client, "w2")
        await pass_time(it, 60)
        # As a version left it that kept no stays while w2 ended: one is missing, one is open for ever.
        await it.journal.within(
            lambda connection: connection.exec_driver_sql("delete from stays where workload = 'w1'")
        )
        append = it.journal._store.append
        monkey: Any = it.journal._store
        monkey.append = lambda entries, details=None, letters=(), also=(): append(entries, details, letters)
        await gone(it, "w2")
    async with service_at(tmp_path) as (it, client):
        await pass_time(it, 100)
        seen = await ask(client)
        assert seen.since_s == ZERO + 60
        assert [(stay.workload, stay.from_s) for stay in seen.nodes[0].stays][:1] == [("w1", ZERO)]
        assert all(stay.from_s >= ZERO + 60 for stay in seen.nodes[0].stays[1:])


async def test_owed_and_charged_over_time_add_up(tmp_path: Path) -> None:
    """The bins are those hours that the figures of a period are made of, and an inner allocation has its children's."""
    async with service_at(tmp_path) as (it, client):
        await submit(client, "w1", min_runtime_s=7200)
        for _ in range(5):
            await pass_time(it, 1800)
        query = f"since_s={ZERO}"
        got = read(Deliveries, (await client.get(f"{API}/budgets/delivered?{query}")).json()).pools[0]
        hourly = read(BudgetsOverTime, (await client.get(f"{API}/budgets/over-time?{query}")).json()).pools[0]
        assert (hourly.start_s, hourly.end_s, hourly.bin_s) == (ZERO, ZERO + 9000, 3600)
        assert [one.path for one in hourly.allocations] == ["a", "b"]
        for whole, course in zip(got.allocations, hourly.allocations, strict=True):
            assert len(course.owed_gpu_s) == 3
            assert (sum(course.owed_gpu_s), sum(course.charged_gpu_s)) == (whole.owed_gpu_s, whole.charged_gpu_s)
        assert hourly.allocations[0].charged_gpu_s == (3600, 3600, 1800)
        query += "&allocation=a&bins=2"
        bo = bearer(it.secrets.user_token("bo"))
        coarse = read(BudgetsOverTime, (await client.get(f"{API}/budgets/over-time?{query}", headers=bo)).json()).pools[
            0
        ]
        assert (coarse.bin_s, [one.charged_gpu_s for one in coarse.allocations]) == (7200, [(7200, 1800)])
        missing = await client.get(f"{API}/budgets/over-time?allocation=aa")
        assert (missing.status_code, "there is no allocation 'aa'" in missing.json()["detail"]) == (404, True)
        for bad in ("bins=0", "bins=1001", "since_s=-1", "since_s=10&until_s=5"):
            assert (await client.get(f"{API}/budgets/over-time?{bad}")).status_code in (400, 422), bad


def stay(begin: int, end: int, gpus: int = 1, devices: tuple[str, ...] = ()) -> stays.Stay:
    return stays.Stay(f"w{begin}-{end}", 1, "n", gpus, "u", "a", begin, None, (), devices, None, "", end)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9), st.integers(1, 3)), max_size=25))
def test_nobody_is_drawn_over_somebody_else(wanted: list[tuple[int, int, int]]) -> None:
    """Whatever fits on a node at each moment gets rows of its own, as many as it has GPUs."""
    found = [stay(begin, begin + length, gpus) for begin, length, gpus in sorted(wanted)]
    gpus = most_at_once(found)
    drawn = lanes(gpus, (), found)
    taken: set[tuple[int, int]] = set()
    for one, rows in zip(found, drawn, strict=True):
        assert len(rows) == len(set(rows)) == one.gpus
        assert max(rows) < gpus
        here = {(row, at) for row in rows for at in range(one.granted_ms, one.freed_ms)}
        assert not here & taken
        taken |= here


def test_a_stay_is_where_its_node_said() -> None:
    """The GPU that a node named is the row; who has not said yet gets what is left."""
    found = [stay(0, 10), stay(0, STILL, devices=("y",)), stay(10, STILL, 1, ("x",))]
    assert lanes(2, ("x", "y"), found) == ((0,), (1,), (0,))
    # A GPU that the node no longer has is no row of it.
    assert lanes(1, ("x",), [stay(0, 5, devices=("z",))]) == ((0,),)
    assert lanes(0, (), []) == ()


def test_an_older_client_and_a_newer_service_understand_each_other() -> None:
    """Fields that one of them does not know change nothing for the other."""
    plain = json.loads('{"now_s": 5, "nodes": [{"name": "n", "stays": [{"workload": "w", "rows": [0], "new": 1}]}]}')
    [node] = read(GpuHistory, plain).nodes
    assert node.stays == (Stay("w", rows=(0,)),)
