"""Under random faults: no GPU is used twice, no workload runs twice, and nothing is stuck when the faults are over."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from gpufair.core.errors import GpufairError
from gpufair.core.model import HOLDING, Phase
from gpufair.core.state import State
from gpufair.core.units import HOUR, Millis
from gpufair.service.backends.kubernetes.problems import KubernetesProblem
from gpufair.service.backends.kubernetes.watch import Object
from tests.integration.kubernetes.conftest import Server
from tests.integration.kubernetes.inside import World, until, world
from tests.kube.cluster import Cluster

GPUS, STEPS = 4, 40
CALLS = ("POST", "DELETE", "GET", None)
STATUSES = (401, 403, 404, 409, 410, 422, 429, 500, 503)


class Judge:
    """Looks at all pods of the server whenever a kubelet sees one change. (A copy is old and new while it is listed anew.)"""

    def __init__(self, it: World) -> None:
        self.it, self.wrong = it, list[str]()
        it.kubelets.seen = self.look

    def look(self) -> None:
        """Note what must not be."""
        used, alive = Counter[str](), Counter[str]()
        assert self.it.server.fake is not None
        for pod in self.it.server.fake.objects("pods", self.it.server.namespace):
            node = pod["spec"].get("nodeName")
            if node and pod["status"].get("phase") not in {"Succeeded", "Failed"}:
                used[node] += gpus_of(pod)
                alive[pod["metadata"]["annotations"]["gpufair.io/workload"]] += 1
        self.wrong += [f"{node} is used with {count} of {GPUS} GPUs" for node, count in used.items() if count > GPUS]
        self.wrong += [f"{name} runs {count} times" for name, count in alive.items() if count > 1]


def gpus_of(pod: Object) -> int:
    """That it holds."""
    return sum(int((one.get("resources") or {}).get("limits", {}).get("nvidia.com/gpu", 0)) for one in pod["spec"]["containers"])


async def befall(it: World, chance: random.Random) -> None:
    """One thing that goes wrong."""
    fake = it.server.fake
    assert fake is not None
    match chance.randrange(7):
        case 0:
            await asyncio.to_thread(fake.cut, chance.choice(CALLS), "/", carried_out=chance.random() < 0.5, count=chance.randint(1, 4))
        case 1:
            path = chance.choice(("/pods", "/secrets", "/binding", "/nodes", "/leases"))
            # A refusal that stands is an answer; one that is over after a while must not have cost anybody anything.
            status = chance.choice(STATUSES if path != "/pods" else [one for one in STATUSES if one not in {403, 422}])
            await asyncio.to_thread(fake.fail, chance.choice(CALLS), path, status=status, count=chance.randint(1, 3))
        case 2:
            await asyncio.to_thread(fake.cut_watches)
        case 3:
            await asyncio.to_thread(fake.forget_history)
        case 4:
            await asyncio.to_thread(fake.restart, chance.random())
        case 5:
            await it.end()
            await it.begin()
        case 6:
            pods = list(it.kubelets.pods.objects.values())
            if pods:
                name = chance.choice(pods)["metadata"]["name"]
                try:
                    await it.api.call("DELETE", f"{it.path}/{name}", {"gracePeriodSeconds": 1})
                except KubernetesProblem:
                    return


@pytest.mark.parametrize("seed", range(3))
async def test_nothing_is_doubled_and_nothing_is_stuck(fake_cluster: Cluster, tmp_path: Path, seed: int) -> None:
    """Submissions, ends and preemptions, while calls fail, watches break, and both servers are restarted."""
    chance = random.Random(seed)
    server = Server(fake_cluster.kubeconfig, fake_cluster.namespace, fake_cluster.fake, fake_cluster)
    async with world(tmp_path, server, GPUS) as it:
        await it.add_node("n2", GPUS)
        judge = Judge(it)
        backend = await it.begin()
        for node in ("n1", "n2"):
            await backend.await_node(it.named(node), gpus=GPUS)
        names: list[str] = []
        for step in range(STEPS):
            assert it.backend is not None
            if chance.random() < 0.4:
                name = f"w{step}"
                protection = chance.choice((Millis(0), Millis(500), HOUR))
                await it.backend.submit(name, chance.randint(1, GPUS), protection, allocation=chance.choice("ab"))
                names.append(name)
            elif names and chance.random() < 0.3:
                try:
                    await it.backend.cancel(chance.choice(names))
                except GpufairError:  # it has ended
                    continue
            else:
                await befall(it, chance)
            await asyncio.sleep(chance.random() * 0.3)
            assert not judge.wrong
        assert it.server.fake is not None
        await asyncio.to_thread(it.server.fake.mend)
        last = it.backend
        assert last is not None
        # Each time that a node did not take a pod it is waited longer: 1, 2, 4, 8 and 16 s.
        await until("all that are placed to run", lambda: last.runtime.read(placed), 150)
        for name in names:
            try:
                await last.cancel(name)
            except GpufairError:
                continue
        await until("all to have ended", lambda: last.runtime.read(over), 60)
        await until("no pod", it.no_pods, 30)
        assert not judge.wrong
        assert len(it.kubelets.started) == len(set(it.kubelets.started))


def placed(state: State) -> bool:
    """Whether whoever holds GPUs runs."""
    return all(one.phase is Phase.RUNNING for one in state.workloads() if one.phase in HOLDING)


def over(state: State) -> bool:
    """Whether all have ended."""
    return all(one.phase is Phase.ENDED for one in state.workloads())
