"""Several clusters under one service: whose workload goes where, ledgers of their own, and backends of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpufair.client.machines import NodeView
from gpufair.client.pools import PoolView
from gpufair.client.reading import read, read_list
from gpufair.client.reasons import Explanation
from gpufair.client.types import Budgets, Workload
from gpufair.clock import VirtualClock
from gpufair.core import events as ev
from gpufair.core.actions import Action, Start
from gpufair.core.model import Node
from gpufair.core.state import State
from gpufair.core.units import HOUR, Millis, NodeName, PoolName, WorkloadId
from gpufair.service.backends.clusters import Clusters
from gpufair.service.runtime.runtime import Runtime
from gpufair.service.settings.config import Config, parse_config
from gpufair.service.settings.node_options import NodeConfig
from gpufair.service.settings.pool_options import PoolConfig
from gpufair.service.settings.profile_options import DEFAULT_PROFILES, Profile
from gpufair.service.settings.tables import ConfigError
from gpufair.service.web.context import Context
from gpufair.service.workloads.turn import Turn
from tests.unit.service.rig import (
    LAUNCH,
    START,
    Remembering,
    bearer,
    cluster,
    quiet,
    runtime_at,
    service_at,
    spec,
    submit,
)

API = "/api/v1"
FAR, NEAR = PoolName("far"), PoolName("default")
NODES = (NodeConfig("n1", 2, "A"), NodeConfig("far-1", 2, "B", pool="far"))
PROFILES = (*DEFAULT_PROFILES, Profile("away", "Away", gpus=1, pools=("far",)))


async def join(it: Context | Runtime, *names: str, gpus: int = 2) -> None:
    """Nodes of the far cluster."""

    def step(turn: Turn) -> None:
        for name in names:
            turn.handle(ev.NodeJoined(turn.now, turn.cause(), Node(NodeName(name), gpus, "B", FAR)))

    await (it if isinstance(it, Runtime) else it.runtime).do(step)


async def test_a_workload_goes_where_it_asks_to_and_else_where_it_starts_first(tmp_path: Path) -> None:
    """Named by itself, by its profile, by its type; who names none is not left waiting beside a free cluster."""
    async with service_at(tmp_path, nodes=NODES, profiles=PROFILES) as (it, client):
        await join(it, "far-1")

        async def asked(**fields: Any) -> Workload:
            body = {"user": "ada", "allocation": "a", "launch": LAUNCH, "gpus": 1, "min_runtime_s": 600} | fields
            return read(Workload, (await client.post(f"{API}/workloads", json=body)).json())

        first = await asked(gpus=2)
        assert (first.pools, first.pool) == (("default", "far"), "default")
        second = await asked()
        assert (second.pools, second.pool) == (("far", "default"), "far")
        third = await asked(pools=["default"])
        assert (third.pools, third.pool, third.state) == (("default",), None, "queued")
        assert (await asked(gpus=None, profile="away")).pool == "far"
        # The far cluster is as full as the other, and more is wanted of that one.
        assert (await asked()).pools == ("far", "default")
        assert (await asked(gpu_type="B")).pools == ("far",)
        assert (await asked(gpus=0, min_runtime_s=0)).pool is not None
        why = read(Explanation, (await client.get(f"{API}/workloads/{third.id}/why")).json())
        assert why.pool == "default"
        for path, verb in ((f"{API}/workloads", "POST"), (f"{API}/workloads/{third.id}", "PATCH")):
            body: dict[str, Any] = {"pools": ["fat"]} | (
                {"gpus": 1, "launch": LAUNCH, "allocation": "a", "user": "ada"} if verb == "POST" else {}
            )
            wrong = await client.request(verb, path, json=body)
            assert (wrong.status_code, wrong.json()["error"]) == (404, "UnknownPool")
            assert "did you mean 'far'" in wrong.json()["detail"]
        # Who names none goes on accepting all that could hold what he asks for now; who named one has that one.
        free = await asked()
        amended = read(Workload, (await client.patch(f"{API}/workloads/{free.id}", json={"gpu_type": "B"})).json())
        assert (set(free.pools), amended.pools) == ({"default", "far"}, ("far",))
        assert (await client.patch(f"{API}/workloads/{third.id}", json={"gpu_type": "B"})).json()[
            "error"
        ] == "NeverFits"


async def test_what_is_scarce_in_one_is_not_paid_by_another(tmp_path: Path) -> None:
    """One tree, two ledgers: who had much of one cluster is not behind in the other, and figures are told for each."""
    async with service_at(tmp_path, nodes=NODES) as (it, client):
        await join(it, "far-1")
        clock = it.runtime._clock  # the rig's own
        assert isinstance(clock, VirtualClock)
        body = {"launch": LAUNCH, "gpus": 2, "min_runtime_s": 3600}
        await client.post(f"{API}/workloads", json=body | {"user": "ada", "allocation": "a", "pools": ["default"]})
        await clock.advance(Millis(HOUR // 2))
        await quiet(it.runtime)
        told = read(Budgets, (await client.get(f"{API}/budgets")).json())
        [mine] = [one for one in told.allocations if one.path == "a"]
        parts = {one.pool: one for one in mine.pools}
        assert (parts["default"].occupancy_gpu_s, parts["far"].occupancy_gpu_s) == (3600, 0)
        assert (parts["default"].gpus_held, parts["far"].gpus_held, mine.gpus_held) == (2, 0, 2)
        assert parts["default"].metric is not None
        assert parts["far"].metric in (None, 0)
        assert mine.budget_gpu_s == sum(one.budget_gpu_s for one in mine.pools)
        # Both wait for both: in the far cluster nobody has had anything, so that ids decide; here a's turn is over.
        state = await it.runtime.read(lambda state: state.copy())
        assert state.facts.shares(NEAR).standing(spec("a").allocation).metric > 0
        assert state.facts.shares(FAR).standing(spec("a").allocation).metric == 0


async def test_a_whole_pool_is_taken_out_of_service(tmp_path: Path) -> None:
    """All of its nodes or none; the other goes on. Operators only."""
    async with service_at(
        tmp_path, nodes=NODES, pools=(PoolConfig("default"), PoolConfig("far"), PoolConfig("new"))
    ) as (
        it,
        client,
    ):
        await join(it, "far-1", "far-2")
        ada = bearer(it.secrets.user_token("ada"))
        seen = read_list(PoolView, (await client.get(f"{API}/pools", headers=ada)).json(), "pools")
        assert [(one.name, one.nodes, one.gpus, one.gpu_types) for one in seen] == [
            ("default", 1, 2, ()),
            ("far", 2, 4, ("B",)),
            ("new", 0, 0, ()),
        ]
        for verb in ("cordon", "uncordon", "drain"):
            assert (await client.post(f"{API}/pools/far/{verb}", headers=ada)).status_code == 403
            assert (await client.post(f"{API}/pools/nowhere/{verb}")).json()["error"] == "UnknownPool"
        drained = read(PoolView, (await client.post(f"{API}/pools/far/drain", json={"within_s": 60})).json())
        assert (drained.cordoned, drained.free_gpus) == (2, 0)
        nodes = read_list(NodeView, (await client.get(f"{API}/nodes")).json(), "nodes")
        assert {one.name: one.drain and one.drain.deadline_s for one in nodes} == {
            "n1": None,
            "far-1": START / 1000 + 60,
            "far-2": START / 1000 + 60,
        }
        back = read(PoolView, (await client.post(f"{API}/pools/far/uncordon")).json())
        assert (back.cordoned, back.free_gpus) == (0, 4)


class Cluster(Remembering):
    """A backend that may break."""

    broken = False

    def perform(self, actions: Sequence[Action], state: State) -> None:
        super().perform(actions, state)
        if self.broken:
            raise RuntimeError("no route to the cluster")

    def told(self) -> list[tuple[str, str]]:
        """(kind, workload) of all it was told."""
        return [(type(one).__name__, one.workload) for one in self.actions]


async def test_each_backend_carries_out_what_is_decided_for_its_pool(tmp_path: Path) -> None:
    """After a restart as well; one that breaks keeps nobody else's work from being done."""
    clock = VirtualClock(START)
    near, far = Cluster(), Cluster()
    async with runtime_at(tmp_path, clock) as (runtime, _):
        runtime.backend = Clusters(near, {FAR: far})
        await cluster(runtime, gpus=1)
        await join(runtime, "far-1", gpus=1)
        far.broken = True
        await submit(runtime, "f", replace(spec(), pools=(FAR,)))
        await submit(runtime, "n", replace(spec(), pools=(NEAR,)))
        assert (near.told(), far.told()) == ([("Start", "n")], [("Start", "f")])
    near, far = Cluster(), Cluster()
    async with runtime_at(tmp_path, clock) as (runtime, _):
        runtime.backend = Clusters(near, {FAR: far})
        await runtime.do(lambda turn: turn.handle(ev.Cancelled(turn.now, turn.cause(), WorkloadId("f"))))
        assert (near.told(), [kind for kind, _ in far.told()]) == ([], ["Stop"])
        await runtime.do(lambda turn: turn.handle(ev.Released(turn.now, turn.cause(), WorkloadId("f"), 1)))
        # It has no place any more: whoever waited for it hears that it is over.
        assert [kind for kind, _ in near.told()] == ["End"]
        assert not [one for one in near.actions if isinstance(one, Start)]


def test_who_lists_the_pools_has_listed_all() -> None:
    """A node or a profile of a cluster that there is not is a slip."""
    nodes = '[[node]]\nname = "a"\n[[node]]\nname = "b"\npool = "far"\n'
    config: Config = parse_config(f'{nodes}[[profile]]\nname = "p"\npools = ["far", "default"]\n', "f")
    assert (config.pools, config.profiles[0].pools) == ((), ("far", "default"))
    listed = parse_config(f'{nodes}[[pool]]\nname = "far"\n[[pool]]\nname = "default"\nbackend = "agents"\n', "f")
    assert listed.pools == (PoolConfig("far"), PoolConfig("default"))
    for text, said in (
        (f'{nodes}[[profile]]\nname = "p"\npools = ["fat"]\n', "did you mean 'far'"),
        (f'{nodes}[[profile]]\nname = "p"\npools = ["far", "far"]\n', "twice"),
        (f'{nodes}[[pool]]\nname = "default"\n', "no \\[\\[pool\\]\\] of this name"),
        (f'{nodes}[[pool]]\nname = "far"\n[[pool]]\nname = "far"\n', "already"),
        (f'{nodes}[[pool]]\nname = "far"\nbackend = "slurm"\n', "expected one of agents"),
        (f'{nodes}[[pool]]\nname = "far"\ngpus = 1\n', "unknown key"),
    ):
        with pytest.raises(ConfigError, match=said):
            parse_config(text, "f")
