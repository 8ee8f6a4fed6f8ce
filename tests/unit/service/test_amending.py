"""`PATCH /workloads/{id}`: who may, what it takes, and that the change that `why` names can be made with it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from gpufair.client.reading import read
from gpufair.client.reasons import Explanation
from gpufair.client.types import Workload
from gpufair.clock import VirtualClock
from gpufair.core.change import Change
from gpufair.core.model import Allocation, Node, Shape, WorkloadSpec
from gpufair.core.state import State
from gpufair.core.units import AllocationPath, Millis, NodeName, WorkloadId
from gpufair.service.settings.pool_options import KUBERNETES, PoolConfig
from gpufair.service.workloads.amending import change_view
from tests.unit.service.rig import LAUNCH, START, bearer, runtime_at, service_at
from tests.world import World

API = "/api/v1"


async def test_the_change_that_is_named_is_made_with_one_request(tmp_path: Path) -> None:
    """Exactly its ``amend``; made again it changes nothing, though by then it runs."""
    async with service_at(tmp_path) as (it, client):

        async def submit(name: str, gpus: int, **more: Any) -> None:
            body = {"id": name, "gpus": gpus, "min_runtime_s": 3600, "launch": LAUNCH, "user": "ada"}
            assert (await client.post(f"{API}/workloads", json=body | more)).status_code == 201

        await submit("first", 1)
        await submit("second", 2, kind="session")
        path = f"{API}/workloads/second"
        change = read(Explanation, (await client.get(f"{path}/why")).json()).change
        assert change is not None
        assert (change.text, change.amend) == ("1 GPU instead of 2 GPUs would start now", {"gpus": 1, "priority": 0})
        assert change.at_s == START / 1000
        assert change.costs == ("it gives up its landing, which starts it by 2027-01-15 16:00:20Z at the latest",)
        for who, status in (("bo", 403), ("ada", 200)):
            answer = await client.patch(path, json=change.amend, headers=bearer(it.secrets.user_token(who)))
            assert answer.status_code == status, answer.text
        seen = read(Workload, answer.json())
        assert (seen.state, seen.gpus, seen.submitted_s) == ("starting", 1, START / 1000)
        length = it.journal.seq
        again = await client.patch(path, json=change.amend)
        assert (again.status_code, again.json()) == (200, answer.json())
        assert it.journal.seq == length, "nothing was written down"
        assert (await client.get(f"{path}/why")).json()["change"] is None


async def test_a_shorter_protection_is_asked_for_alone(tmp_path: Path) -> None:
    """Before a maintenance; what stays as it is is not named."""
    async with service_at(tmp_path) as (_, client):
        await client.post(f"{API}/maintenance", json={"nodes": ["n1"], "at_s": START / 1000 + 600})
        body = {"id": "p", "gpus": 1, "min_runtime_s": 7200, "launch": LAUNCH, "user": "ada"}
        await client.post(f"{API}/workloads", json=body)
        change = read(Explanation, (await client.get(f"{API}/workloads/p/why")).json()).change
        assert change is not None
        assert (change.amend, change.costs) == ({"min_runtime_s": 600.0, "priority": 0}, ())
        seen = read(Workload, (await client.patch(f"{API}/workloads/p", json=change.amend)).json())
        assert (seen.state, seen.min_runtime_s) == ("starting", 600)


def test_what_it_costs_to_be_unallocated_is_said_before() -> None:
    """Without protection anybody may have its GPUs."""
    world = World().set_up([Allocation(AllocationPath("a"))], [Node(NodeName("n"), 1)])
    world.submit("v", "a")
    world.submit("p", "a", min_runtime=5_000)
    change = Change(Shape(1), Millis(0), "unallocated would start now", world.now)
    view = change_view(world.state, WorkloadId("p"), change)
    assert view is not None
    assert view["amend"] == {"min_runtime_s": 0.0, "priority": 0}
    assert view["costs"] == ["unallocated it is free of charge, and whoever is allocated may have its GPUs at any time"]


async def test_what_cannot_be_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    """In the words of a submission; what runs is left alone."""
    async with service_at(tmp_path) as (it, client):
        body = {"gpus": 2, "min_runtime_s": 3600, "launch": LAUNCH, "user": "ada", "allocation": "a"}
        for name in ("runs", "waits"):
            await client.post(f"{API}/workloads", json=body | {"id": name})
        path, length = f"{API}/workloads/waits", it.journal.seq
        before = (await client.get(path)).json()
        for bad, status, error in (
            ({}, 400, "BadRequest"),
            ({"gpus": -1}, 422, "InvalidRequest"),
            ({"user": "bo"}, 422, "InvalidRequest"),
            ({"launch": LAUNCH}, 422, "InvalidRequest"),
            ({"gpus": 900}, 422, "NeverFits"),
            ({"min_runtime_s": 864_000}, 422, "MinRuntimeTooLong"),
            ({"allocation": "nowhere"}, 422, "UnknownAllocation"),
        ):
            answer = await client.patch(path, json=bad)
            assert (answer.status_code, answer.json()["error"]) == (status, error), bad
        running = await client.patch(f"{API}/workloads/runs", json={"gpus": 1})
        assert (running.status_code, running.json()["error"]) == (409, "WrongPhase")
        assert "cannot amend workload 'runs': it is starting" in running.json()["detail"]
        assert (await client.patch(f"{API}/workloads/nothing", json={"gpus": 1})).status_code == 404
        assert (await client.get(path)).json() == before
        assert it.journal.seq == length


def spec_of(state: State, name: str) -> WorkloadSpec:
    return state.workload(WorkloadId(name)).spec


async def test_a_kernel_is_not_amended_to_several_nodes_of_a_cluster(tmp_path: Path) -> None:
    """As it is not submitted so; what else it asks for may change."""
    pools = (PoolConfig("default"), PoolConfig("kube", backend=KUBERNETES))
    async with service_at(tmp_path, pools=pools) as (_, client):
        body = {"id": "k", "gpus": 1, "min_runtime_s": 3600, "launch": LAUNCH, "user": "ada", "pools": ["kube"]}
        await client.post(f"{API}/workloads", json=body)
        path = f"{API}/workloads/k"
        refused = await client.patch(path, json={"nodes": 2})
        assert (refused.status_code, refused.json()["error"]) == (422, "OneNodeOnly")
        assert (await client.patch(path, json={"gpus": 2})).json()["gpus"] == 2


async def test_what_follows_from_the_wish_follows_anew(tmp_path: Path) -> None:
    """A debug run comes first in its allocation, as if it had been submitted as one; a priority of one's own stays."""
    async with service_at(tmp_path) as (it, client):
        body = {"gpus": 2, "min_runtime_s": 3600, "launch": LAUNCH, "user": "ada", "allocation": "a"}
        for name, more in (("runs", {}), ("usual", {}), ("own", {"priority": 3})):
            await client.post(f"{API}/workloads", json=body | {"id": name} | more)
        for name, priority in (("usual", 10), ("own", 3)):
            await client.patch(f"{API}/workloads/{name}", json={"min_runtime_s": 600})
            spec = await it.runtime.read(partial(spec_of, name=name))
            assert (spec.priority, spec.min_runtime) == (priority, 600_000)


async def test_an_amendment_that_was_answered_survives(tmp_path: Path) -> None:
    """The next process reads it from the journal."""
    async with service_at(tmp_path) as (_, client):
        body = {"gpus": 2, "min_runtime_s": 3600, "launch": LAUNCH, "user": "ada", "allocation": "a"}
        for name in ("runs", "waits"):
            await client.post(f"{API}/workloads", json=body | {"id": name})
        await client.patch(f"{API}/workloads/waits", json={"allocation": "b", "min_runtime_s": 60, "memory_bytes": 0})
    async with runtime_at(tmp_path, VirtualClock(START)) as (runtime, _):
        spec = await runtime.read(lambda state: state.workload(WorkloadId("waits")).spec)
        assert (spec.allocation, spec.min_runtime) == ("b", 60_000)
