"""Anybody's pods: bound under the budgets of their namespace, preempted by a graceful deletion, and never doubled or stuck."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from gpufair.core.model import Outcome, Phase
from gpufair.core.record import Workload
from gpufair.core.units import Millis
from gpufair.service.backends.kubernetes import names, rights
from gpufair.service.backends.kubernetes.api import MERGE_PATCH
from gpufair.service.backends.kubernetes.asked import asked
from gpufair.service.backends.kubernetes.foreign import ForeignPods
from gpufair.service.backends.kubernetes.foreign_wishes import LAUNCH, pods_of
from gpufair.service.backends.kubernetes.problems import Missing
from tests.integration.kubernetes.conftest import Server
from tests.integration.kubernetes.inside import MARK, Backend, World, until, world
from tests.integration.kubernetes.test_rights import ACCOUNT, grant, withdraw
from tests.kube.client import KubeClient
from tests.kube.cluster import make_cluster
from tests.kube.fake_node import FakeNodes
from tests.unit.deploy.read import DEPLOY, documents


class Others:
    """A cluster with nodes that have kubelets, and two namespaces of other people, of which one may use allocations."""

    def __init__(self, it: World, nodes: FakeNodes, namespace: str, elsewhere: str) -> None:
        self.it, self.nodes = it, nodes
        self.namespace, self.elsewhere = namespace, elsewhere

    async def begin(self, **options: Any) -> None:
        """Start a service (again)."""
        # A name of its own: other tests may use the same API server.
        backend = await self.it.begin(namespaces={self.namespace: ("a", "b")}, scheduler_name=self.scheduler, **options)
        for node in self.nodes.names:
            await backend.await_node(node, gpus=4, lost=False)

    @property
    def scheduler(self) -> str:
        """By which the pods of this test are for its service."""
        return f"gpufair-{self.namespace}"

    @property
    def backend(self) -> Backend:
        """The service that there is now."""
        assert self.it.backend is not None
        return self.it.backend

    async def make(
        self, name: str, gpus: int = 4, *, allocation: str = "a", namespace: str = "", grace_s: int = 2,
        tolerations: tuple[dict[str, str], ...] = (), **labels: str,
    ) -> str:  # fmt: skip
        """A pod that asks for our scheduler; returns its uid. Labels by the end of their name, ``min_runtime``."""
        known = {f"{names.DOMAIN}/{key.replace('_', '-')}": value for key, value in labels.items()}
        body = {
            "metadata": {"name": name, "labels": ({names.ALLOCATION: allocation} if allocation else {}) | known},
            "spec": {
                "schedulerName": self.scheduler,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": grace_s,
                "tolerations": list(tolerations),
                "containers": [
                    {
                        "name": "main",
                        "image": "train",
                        "resources": {"limits": {"nvidia.com/gpu": str(gpus), "cpu": "1"}, "requests": {"nvidia.com/gpu": str(gpus), "cpu": "1"}},
                    }
                ],
            },
        }
        made = await self.it.api.call("POST", f"/api/v1/namespaces/{namespace or self.namespace}/pods", body)
        return str(made["metadata"]["uid"])

    async def pod(self, name: str, namespace: str = "") -> dict[str, Any] | None:
        """As it is; None: it is not there."""
        try:
            return await self.it.api.call("GET", f"/api/v1/namespaces/{namespace or self.namespace}/pods/{name}")
        except Missing:
            return None

    async def delete(self, name: str) -> None:
        """By its owner."""
        await self.it.api.call("DELETE", f"/api/v1/namespaces/{self.namespace}/pods/{name}")

    async def running_on(self, name: str) -> str:
        """The node of a pod, as soon as it runs."""

        async def probe() -> str:
            pod = await self.pod(name)
            return str(pod["spec"].get("nodeName", "")) if pod and pod["status"].get("phase") == "Running" else ""

        return str(await until(f"{name} to run", probe))

    async def events(self, name: str, namespace: str = "") -> list[tuple[str, str]]:
        """Reason and message of what is told at a pod."""
        found = await self.it.api.call("GET", f"/api/v1/namespaces/{namespace or self.namespace}/events")
        return [(one["reason"], one["message"]) for one in found["items"] if one["involvedObject"]["name"] == name]

    async def told(self, name: str, reason: str, words: str, namespace: str = "") -> None:
        """Wait until a pod was told something."""

        async def probe() -> bool:
            return any(one == reason and words in text for one, text in await self.events(name, namespace))

        try:
            await until(f"{name} to be told {words!r}", probe)
        except AssertionError as err:
            raise AssertionError(f"{err}; it was told {await self.events(name, namespace)}") from None

    async def workloads(self) -> list[Workload]:
        """Those that are pods of others, as the core has them."""
        return await self.backend.runtime.read(
            lambda state: [state.workload(one.id) for one in state.facts.records.values() if one.spec.launch.get("type") == LAUNCH]
        )

    async def await_phase(self, uid: str, phase: Phase) -> Workload:
        """A pod's workload, as soon as it is there and in this phase."""

        async def there() -> str:
            return next((one.id for one in await self.workloads() if uid in {its for _, its in pods_of(one.spec)}), "")

        return await self.backend.await_phase(await until(f"a workload of {uid}", there), phase)

    async def await_end(self, uid: str) -> Workload:
        """How it ended."""
        return await self.await_phase(uid, Phase.ENDED)


    async def finish(self, name: str, code: int = 0) -> None:
        """End a pod from within."""
        await asyncio.to_thread(self.nodes.finish, self.namespace, name, code)


@asynccontextmanager
async def others(tmp_path: Path, server: Server, count: int = 1, **options: Any) -> AsyncIterator[Others]:
    of = server.cluster
    nodes = await asyncio.to_thread(lambda: of.nodes(count, gpus=4, runs=False, labels={MARK: server.namespace}))
    made = [make_cluster(of.kind, of.kubeconfig, tmp_path, fake=of.fake, plane=of.plane) for _ in range(2)]
    try:
        async with world(tmp_path, server, gpus=0) as it:
            found = Others(it, nodes, *(one.namespace for one in made))
            await found.begin(**options)
            yield found
    finally:
        for one in made:
            one.close()


async def test_a_pod_is_bound_and_ends(tmp_path: Path, server: Server) -> None:
    """Queued under its allocation, charged while it runs, over when it is; its GPUs are then the next one's."""
    async with others(tmp_path, server) as it:
        uid = await it.make("train", min_runtime="1h")
        assert await it.running_on("train") in it.nodes.names
        running = await it.await_phase(uid, Phase.RUNNING)
        assert (running.spec.allocation, running.spec.user, running.spec.name) == ("a", f"namespace:{it.namespace}", "train")
        await it.told("train", "GpufairQueued", f"queued as pod-{uid} under a; `gpufair why pod-{uid}` says")
        await it.told("train", "Scheduled", f"bound to {it.nodes.names[0]} by gpufair")
        second = await it.make("second", min_runtime="1h")
        await it.finish("train")
        ended = await it.await_end(uid)
        assert ended.outcome is Outcome.COMPLETED
        await it.await_phase(second, Phase.RUNNING)
        assert await it.running_on("second") in it.nodes.names


async def test_a_pod_that_fails_says_why(tmp_path: Path, server: Server) -> None:
    """Its own exit status; no other pod is made of it by us, and the failed one stays for its owner to look at."""
    async with others(tmp_path, server) as it:
        uid = await it.make("train")
        await it.running_on("train")
        await it.finish("train", 3)
        ended = await it.await_end(uid)
        assert ended.outcome is Outcome.FAILED
        assert ended.reason == "container 'main' of pod train ended with code 3"
        assert await it.pod("train") is not None


async def test_preempted_it_is_deleted_gracefully_and_its_successor_is_new(tmp_path: Path, server: Server) -> None:
    """The victim has its grace and is then over; what a Job makes in its place is another workload, with its own id."""
    async with others(tmp_path, server) as it:
        victim = await it.make("victim-a")
        await it.running_on("victim-a")
        winner = await it.make("winner", allocation="b", min_runtime="1h")

        async def leaving() -> dict[str, Any] | None:
            found = await it.pod("victim-a")
            return None if found is not None and "deletionTimestamp" not in found["metadata"] else found or {"metadata": {}}

        gone = await until("the victim to leave", leaving)
        if server.fake is not None:  # of a real one the last deletion may be seen, which its kubelet makes without a grace
            assert gone["metadata"].get("deletionGracePeriodSeconds", 1) >= 1
        assert await it.running_on("winner") in it.nodes.names
        ended = await it.await_end(victim)
        assert ended.outcome is Outcome.CANCELLED
        assert ended.reason.endswith("if another pod is made in its place, that one is queued by itself")
        successor = await it.make("victim-b")
        await it.finish("winner")
        assert await it.running_on("victim-b") in it.nodes.names
        assert {one.id for one in await it.workloads()} == {f"pod-{uid}" for uid in (victim, winner, successor)}


async def test_a_gang_starts_together_on_nodes_of_its_own(tmp_path: Path, server: Server) -> None:
    """One of two waits and holds nothing; when one of them fails the other one ends as well."""
    async with others(tmp_path, server, count=2) as it:
        first = await it.make("g-0", gang="g", gang_size="2", min_runtime="1h")
        await it.told("g-0", "GpufairWaits", "gang 'g' has 1 of 2 pods; it is queued when all are there")
        assert await it.workloads() == []
        await it.make("g-1", gang="g", gang_size="2", min_runtime="1h")
        assert {await it.running_on("g-0"), await it.running_on("g-1")} == set(it.nodes.names)
        running = await it.await_phase(first, Phase.RUNNING)
        assert running.held is not None
        assert len(running.held.leases) == 2
        await it.finish("g-1", 7)
        ended = await it.await_end(first)
        assert ended.outcome is Outcome.FAILED
        assert ended.reason == "container 'main' of pod g-1 ended with code 7"
        await until("the other one to be gone", lambda: _none(it.pod("g-0")))


@pytest.mark.parametrize(
    ("labels", "elsewhere", "says"),
    [
        ({"allocation": ""}, False, "the label gpufair.io/allocation is missing; "),
        ({"allocation": "c"}, False, "may not use 'c'; it may use a, b"),
        ({"min_runtime": "99h"}, False, "ask for at most 28800 s"),
        ({}, True, "may use no allocation of gpufair"),
    ],
)
async def test_what_is_wrong_is_told_at_the_pod(tmp_path: Path, server: Server, labels: dict[str, Any], elsewhere: bool, says: str) -> None:
    """It stays pending, with an Event that says what would be right; once."""
    async with others(tmp_path, server) as it:
        namespace = it.elsewhere if elsewhere else it.namespace
        await it.make("wrong", namespace=namespace, **labels)
        await it.told("wrong", "GpufairRefused", says, namespace)
        right = await it.make("right", min_runtime="1h")
        await it.running_on("right")
        assert [one.id for one in await it.workloads()] == [f"pod-{right}"]
        pod = await it.pod("wrong", namespace)
        assert pod is not None
        assert "nodeName" not in pod["spec"]
        assert len(await it.events("wrong", namespace)) == 1


DEDICATED = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
TOLERATES = {"key": "dedicated", "operator": "Exists"}


async def taint(it: Others, node: str, *taints: dict[str, str]) -> None:
    """As an administrator."""
    await it.it.api.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": list(taints) or None}}, content_type=MERGE_PATCH)


async def test_a_pod_is_kept_off_nodes_whose_taints_it_does_not_tolerate(tmp_path: Path, server: Server) -> None:
    """The pool's own pods do, which says nothing of theirs; when the taint is off, it may have such a node as well."""
    async with others(tmp_path, server, count=2) as it:
        tainted, plain = it.nodes.names
        await it.it.end()
        await taint(it, tainted, DEDICATED)
        await it.begin(tolerations=(TOLERATES,))
        await it.make("first")
        assert await it.running_on("first") == plain
        second = await it.make("second")
        assert (await it.await_phase(second, Phase.QUEUED)).spec.shape.exclude == (tainted,)
        await it.make("third", tolerations=(TOLERATES,))
        assert await it.running_on("third") == tainted
        await taint(it, plain, DEDICATED)
        await taint(it, tainted)
        await until("that to be seen", lambda: _kept_off(it, plain))
        await it.finish("first")
        await it.finish("third")
        assert await it.running_on("second") == tainted


async def _kept_off(it: Others, *nodes: str) -> bool:
    return [one.spec.shape.exclude for one in await it.workloads() if one.phase is Phase.QUEUED] == [nodes]


async def test_a_pod_that_tolerates_no_node_waits_until_one_is_opened_to_it(tmp_path: Path, server: Server) -> None:
    """Whether the taint was there before it, or came while it waited for its turn."""
    async with others(tmp_path, server, tolerations=(TOLERATES,)) as it:
        (node,) = it.nodes.names
        await it.make("first")
        await it.running_on("first")
        second = await it.make("second")
        await it.await_phase(second, Phase.QUEUED)
        await taint(it, node, DEDICATED)
        await it.told("second", "GpufairWaits", f"it does not tolerate the taints of {node}; no other node could hold it")
        await it.make("third")
        await it.told("third", "GpufairRefused", f"it does not tolerate the taints of {node}")
        await it.finish("first")
        waiting = await it.await_phase(second, Phase.STARTING)
        told = "has the taint dedicated=ml:NoSchedule by now, which it does not tolerate"
        await until("the reason", lambda: told in it.backend.remark(waiting.id))
        assert not ((await it.pod("second")) or {})["spec"].get("nodeName")
        await taint(it, node)
        await it.running_on("second")
        await it.finish("second")
        await it.running_on("third")


async def test_one_that_is_deleted_while_it_waits_is_over(tmp_path: Path, server: Server) -> None:
    """Nothing is kept for a pod that is no more."""
    async with others(tmp_path, server) as it:
        await it.make("first", min_runtime="1h")
        await it.running_on("first")
        waiting = await it.make("waiting", min_runtime="1h")
        await it.told("waiting", "GpufairQueued", "queued as")
        await it.delete("waiting")
        ended = await it.await_end(waiting)
        assert ended.outcome is Outcome.CANCELLED
        assert ended.reason.startswith("its pod waiting was deleted")


async def test_what_is_left_of_a_gang_joins_its_next_set(tmp_path: Path, server: Server) -> None:
    """A pod that a controller made anew while the gang waited: the new set is queued in place of the old one."""
    async with others(tmp_path, server, count=2) as it:
        await it.make("first", min_runtime="1h")
        await it.running_on("first")
        for name in ("g-0", "g-1"):
            await it.make(name, gang="g", gang_size="2", min_runtime="1h")
        await it.told("g-0", "GpufairQueued", "queued as gang-")
        await it.delete("g-1")
        await it.told("g-0", "GpufairWaits", "gang 'g' has 1 of 2 pods")
        uid = await it.make("g-2", gang="g", gang_size="2", min_runtime="1h")
        await it.finish("first")
        await it.await_phase(uid, Phase.RUNNING)
        assert {await it.running_on("g-0"), await it.running_on("g-2")} == set(it.nodes.names)


async def test_one_that_an_operator_cancels_while_it_waits_is_deleted(tmp_path: Path, server: Server) -> None:
    """Else it would be submitted again at once."""
    async with others(tmp_path, server) as it:
        await it.make("first", min_runtime="1h")
        await it.running_on("first")
        uid = await it.make("waiting", min_runtime="1h")
        await it.await_phase(uid, Phase.QUEUED)
        await it.backend.cancel(f"pod-{uid}")
        await until("the pod to be gone", lambda: _none(it.pod("waiting")))
        assert len(await it.workloads()) == 2


async def test_one_that_its_owner_deletes_while_it_runs_is_over(tmp_path: Path, server: Server) -> None:
    """It is not queued again: there is no pod to start."""
    async with others(tmp_path, server) as it:
        uid = await it.make("train", min_runtime="1h")
        await it.running_on("train")
        await it.delete("train")
        ended = await it.await_end(uid)
        assert ended.outcome is Outcome.CANCELLED
        assert ended.reason.startswith("its pod train was deleted")
        assert ended.incarnation == 1


async def test_one_that_an_operator_cancels_is_deleted(tmp_path: Path, server: Server) -> None:
    """Its GPUs are free when it is gone, not before."""
    async with others(tmp_path, server) as it:
        uid = await it.make("train", min_runtime="1h")
        await it.running_on("train")
        await it.await_phase(uid, Phase.RUNNING)
        await it.backend.cancel(f"pod-{uid}")
        ended = await it.await_end(uid)
        assert ended.outcome is Outcome.CANCELLED
        assert await it.pod("train") is None


async def test_one_that_ignores_its_notice_has_no_endless_grace(tmp_path: Path, server: Server) -> None:
    """An operator who ends it does not wait for a day because its owner wrote so."""
    async with others(tmp_path, server) as it:
        uid = await it.make("train", min_runtime="1h", grace_s=100_000)
        await it.running_on("train")
        await it.await_phase(uid, Phase.RUNNING)
        graces = []

        async def leaving() -> bool:
            found = await it.pod("train")
            graces.append(3600 if found is None else found["metadata"].get("deletionGracePeriodSeconds", 0))
            return bool(graces[-1])

        await it.backend.cancel(f"pod-{uid}")
        await until("the pod to leave", leaving)
        assert 0 < graces[-1] <= 3600


async def test_a_restarted_service_finds_them_all_again(tmp_path: Path, server: Server) -> None:
    """What runs goes on, what waits still waits, and no pod is submitted twice; what ended meanwhile is found to have."""
    async with others(tmp_path, server, count=2) as it:
        one, two = await it.make("one", min_runtime="1h"), await it.make("two", min_runtime="1h")
        waiting = await it.make("waiting", min_runtime="1h")
        nodes = {name: await it.running_on(name) for name in ("one", "two")}
        for uid in (one, two):
            await it.await_phase(uid, Phase.RUNNING)
        await it.it.end()
        await it.finish("two")
        await it.begin()
        assert (await it.await_end(two)).outcome is Outcome.COMPLETED
        await it.await_phase(waiting, Phase.RUNNING)
        assert await it.running_on("waiting") == nodes["two"]
        going_on = await it.backend.get(f"pod-{one}")
        assert (going_on.phase, going_on.incarnation) == (Phase.RUNNING, 1)
        assert {found.id for found in await it.workloads()} == {f"pod-{uid}" for uid in (one, two, waiting)}


async def test_a_lost_node_ends_what_ran_there(tmp_path: Path, server: Server) -> None:
    """A pod cannot move: its workload is over, not queued for a pod that has its node for good."""
    async with others(tmp_path, server, count=2) as it:
        uid = await it.make("train", min_runtime="1h")
        where = await it.running_on("train")
        await asyncio.to_thread(it.nodes.die, where)
        ended = await it.await_end(uid)
        assert ended.outcome is Outcome.CANCELLED
        assert "its pod train" in ended.reason
        again = await it.make("again", min_runtime="1h")
        assert await it.running_on("again") != where
        assert again


async def test_the_roles_that_are_shipped_are_enough(tmp_path: Path, server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Queued, bound, preempted and told of it with the rights of ``deploy/kubernetes/others`` and no others."""
    async with others(tmp_path, server) as it:
        await it.it.end()
        it.it.kubeconfig = server.account(tmp_path / "account", ACCOUNT)
        grant(server)
        grant_at_others(server, it.namespace)
        await it.begin()
        victim = await it.make("victim")
        await it.running_on("victim")
        await it.told("victim", "Scheduled", "bound to")
        await it.make("winner", allocation="b", min_runtime="1h")
        await it.running_on("winner")
        await it.await_end(victim)
        await it.it.end()
        withdraw(server)
    assert "grant the service's role" not in caplog.text
    if server.fake is None:
        return
    theirs = [(method, path) for method, path, user in server.fake.requests if user.endswith(f":{ACCOUNT}") and f"/{it.namespace}/" in path]
    assert theirs
    for method, path in theirs:
        call = asked(method, urlsplit(path).path, dict(parse_qsl(urlsplit(path).query)))
        assert any(right.covers(call) for right in rights.OTHERS), call


async def test_bindings_that_fail_are_tried_again(tmp_path: Path, server: Server) -> None:
    """Refused, or done and not answered: bound once, in the end."""
    async with others(tmp_path, server) as it:
        if server.fake is None:
            pytest.skip("a real API server does not fail on command")
        server.fake.fail("POST", r"/pods/train/binding$", status=503, count=2)
        uid = await it.make("train", min_runtime="1h")
        assert await it.running_on("train") in it.nodes.names
        await it.await_phase(uid, Phase.RUNNING)


async def test_an_api_server_that_is_restarted_doubles_and_loses_nothing(tmp_path: Path, server: Server) -> None:
    """In the middle of a start, and of a preemption."""
    if not server.cluster.restartable:
        pytest.skip("this API server is not ours to restart")
    async with others(tmp_path, server) as it:
        victim = await it.make("victim")
        await asyncio.to_thread(server.cluster.restart_api, 0.5)
        await it.await_phase(victim, Phase.RUNNING)
        winner = await it.make("winner", allocation="b", min_runtime="1h")
        await asyncio.to_thread(server.cluster.restart_api, 0.5)
        await it.await_phase(winner, Phase.RUNNING)
        assert (await it.await_end(victim)).incarnation == 1
        assert {one.id for one in await it.workloads()} == {f"pod-{uid}" for uid in (victim, winner)}


async def test_their_gpus_are_counted_once(tmp_path: Path, server: Server) -> None:
    """As held, in the core's books; not once more as somebody else's, which would take them off the node."""
    async with others(tmp_path, server) as it:
        uid = await it.make("train", 1, min_runtime="1h")
        await it.running_on("train")
        await it.await_phase(uid, Phase.RUNNING)
        other = await it.make("other", 3, min_runtime="1h")
        await it.await_phase(other, Phase.RUNNING)
        node = await it.backend.await_node(it.nodes.names[0], gpus=4)
        assert node.node.cpus == 64


async def test_one_that_starts_while_the_cluster_is_looked_at_goes_on(tmp_path: Path, server: Server) -> None:
    """What was read of it is old by then: that its pod has a node is no sign that it can never start."""
    async with others(tmp_path, server) as it:
        await it.make("first", min_runtime="1h")
        await it.running_on("first")
        uid = await it.make("second", min_runtime="1h")
        await it.await_phase(uid, Phase.QUEUED)
        cluster = it.backend.cluster
        known = await cluster.foreign.known()
        await it.finish("first")
        await it.running_on("second")
        bound = await it.pod("second")
        assert bound is not None
        await until("the service to see that", lambda: _named(cluster.foreign, uid))
        await cluster.foreign.look(known, {("", "second"): bound})
        assert (await it.await_phase(uid, Phase.RUNNING)).outcome is None


async def test_an_unallocated_pod_gives_way_to_our_own_work(tmp_path: Path, server: Server) -> None:
    """One budget for both: sessions, batch work and others' pods are rivals by the same rules."""
    async with others(tmp_path, server) as it:
        uid = await it.make("train")
        await it.running_on("train")
        began = time.monotonic()
        await it.backend.submit("mine", gpus=4, allocation="b", min_runtime=Millis(3_600_000))
        await it.await_end(uid)
        await until("our pod to be bound", lambda: _bound(it))
        assert time.monotonic() - began < 60


def grant_at_others(server: Server, namespace: str) -> None:
    """What ``deploy/kubernetes/others/role.yaml`` grants, in a namespace of others."""
    with KubeClient(server.kubeconfig) as admin:
        for one in documents(DEPLOY / "kubernetes" / "others" / "role.yaml"):
            if "roleRef" in one:
                one["subjects"] = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": server.namespace}]
            plural = f"{one['kind'].lower()}s"
            admin.ok("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{plural}", one)


async def _bound(it: Others) -> bool:
    return any(pod["spec"].get("nodeName") for pod in await it.it.pods())


def _named(foreign: ForeignPods, uid: str) -> bool:
    return any(life.pod.uid == uid and life.made.bound and life.seen["spec"].get("nodeName") for life in foreign.lives.values() if life.seen)


async def _none(asked: Any) -> bool:
    return await asked is None
