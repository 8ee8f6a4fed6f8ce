"""A backend in this process, on whatever API server: a runtime, a hub, and pods that do nothing but speak the protocol.

The kubelet here starts and ends them as a node would; their agents are coroutines that speak with ``PodLines`` directly.
So hundreds of starts cost no processes, and each thing that can go wrong can be made to.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from gpufair.clock import SystemClock
from gpufair.core import events as ev
from gpufair.core.errors import GpufairError
from gpufair.core.model import Allocation, Kind, Phase, Policy, Shape, WorkloadSpec
from gpufair.core.record import Workload
from gpufair.core.units import HOUR, SECOND, AllocationPath, Millis, PoolName, WorkloadId
from gpufair.service.backends.clusters import Clusters
from gpufair.service.backends.kubernetes.api import MERGE_PATCH, Api
from gpufair.service.backends.kubernetes.cluster import KubernetesCluster, new_identity
from gpufair.service.backends.kubernetes.marks import JournalMarks
from gpufair.service.backends.kubernetes.names import MANAGED_BY, MANAGER
from gpufair.service.backends.kubernetes.problems import KubernetesProblem
from gpufair.service.backends.kubernetes.watch import Change, Object, Reflector
from gpufair.service.identity.secrets import Secrets
from gpufair.service.nodes.agents import AgentHub
from gpufair.service.nodes.dispatch import Dispatcher
from gpufair.service.nodes.pods import PodLines
from gpufair.service.runtime.runtime import Options, Runtime
from gpufair.service.settings.kubernetes_options import KubernetesOptions
from gpufair.service.settings.pod_template import PodTemplate
from gpufair.service.storage.journal import Journal
from gpufair.service.storage.store import sqlite_url
from gpufair.service.workloads.details import Pending
from gpufair.service.workloads.turn import Turn
from gpufair.wire import AgentHello, NodeInventory, Report
from tests.integration.kubernetes.conftest import Server

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
POOL, MARK = "kube", "gpufair.test/world"
POLICY = Policy(grace_session=Millis(5 * SECOND), grace_batch=Millis(3 * SECOND), debug_min_runtime=Millis(0), backoff=Millis(0))
TEAMS = (Allocation(AllocationPath("a")), Allocation(AllocationPath("b")))
WAIT_S = 60.0  # a loaded machine with two cores and an API server of its own for each worker took 20


async def until(what: str, probe: Callable[[], Any], wait_s: float = WAIT_S) -> Any:
    """What ``probe`` finds (it may be asynchronous); asked again until it finds something."""
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        found = probe()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"waited {wait_s:g} s in vain for {what}")


class Kubelets:
    """All nodes' kubelets: what is bound runs at once, and what is deleted ends as its agent wants, or by its grace.

    Attributes:
        deaf: Nodes whose kubelet does nothing, as one that is cut off.
    """

    def __init__(self, api: Api, namespace: str, lines: Callable[[], PodLines | None]) -> None:
        self.api, self.lines = api, lines
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self.deaf: set[str] = set()
        self.silent = False  # agents say nothing
        self.stubborn = False  # agents do not leave when they are told to
        self.told: dict[str, str] = {}  # MASTER_ADDR by pod
        self.heard: list[str] = []  # commands, by all agents
        self.seen: Callable[[], None] = lambda: None  # called after each change of a pod
        self.agents: dict[str, asyncio.Task[None]] = {}
        self.started: list[str] = []
        self._ending: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.pods = Reflector(api, self.path, changed=self._changed)

    def start(self) -> None:
        """Begin."""
        self._spawn(self.pods.run())

    async def close(self) -> None:
        """End."""
        tasks = [*self._tasks, *self.agents.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _changed(self, change: Change) -> None:
        self.seen()
        pod = change.object
        node, uid = pod["spec"].get("nodeName"), pod["metadata"]["uid"]
        if not node or node in self.deaf:
            return
        if change.kind == "deleted":
            if (agent := self.agents.pop(uid, None)) is not None:
                agent.cancel()
            return
        if "deletionTimestamp" in pod["metadata"]:
            if uid not in self._ending:
                self._ending.add(uid)
                self._spawn(self._end(pod))
        elif pod["status"].get("phase", "Pending") == "Pending" and uid not in self.agents:
            self.started.append(pod["metadata"]["name"])
            self.agents[uid] = asyncio.create_task(self._run(pod))

    async def _run(self, pod: Object) -> None:
        await self.status(pod, "Running", {"running": {}})
        agent = NoopAgent(self, pod)
        if not self.silent:
            code = await agent.run()
            await self.status(pod, "Succeeded" if code == 0 else "Failed", {"terminated": {"exitCode": code, "reason": "Completed"}})
        else:
            await asyncio.get_running_loop().create_future()

    async def _end(self, pod: Object) -> None:
        grace_s = float(pod["metadata"].get("deletionGracePeriodSeconds", 0))
        uid, end = pod["metadata"]["uid"], time.monotonic() + grace_s
        while time.monotonic() < end and (agent := self.agents.get(uid)) is not None and not agent.done():
            now = self.pods.by_uid(uid)
            if now is None:
                return
            grace_s = min(grace_s, float(now["metadata"].get("deletionGracePeriodSeconds", 0)))
            await asyncio.sleep(0.02)
        if (agent := self.agents.pop(uid, None)) is not None:
            agent.cancel()
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        await self._insist("DELETE", f"{self.path}/{pod['metadata']['name']}", body)

    async def look_again(self) -> None:
        """At all pods, as a kubelet does that has started again."""
        for pod in list(self.pods.objects.values()):
            self._changed(Change("modified", pod))

    async def stop(self, name: str) -> None:
        """End a pod for good, as if somebody had deleted it and nobody had looked."""
        (pod,) = [one for one in self.pods.objects.values() if one["metadata"]["name"] == name]
        self.agents.pop(pod["metadata"]["uid"]).cancel()
        await self._insist("DELETE", f"{self.path}/{name}", {"gracePeriodSeconds": 0})

    async def status_of(self, name: str, phase: str, state: dict[str, Any], **more: Any) -> None:
        """The same, by the pod's name; its agent is dead then."""
        (pod,) = [one for one in self.pods.objects.values() if one["metadata"]["name"] == name]
        self.agents.pop(pod["metadata"]["uid"]).cancel()
        await self.status(pod, phase, state, **more)

    async def status(self, pod: Object, phase: str, state: dict[str, Any], **more: Any) -> None:
        """Say how a pod is."""
        container = {"name": "workload", "image": "x", "imageID": "", "ready": phase == "Running", "restartCount": 0, "state": state}
        status = {"phase": phase, "podIP": "127.0.0.1", "containerStatuses": [container]} | more
        path = f"{self.path}/{pod['metadata']['name']}/status"
        await self._insist("PATCH", path, {"status": status})

    async def _insist(self, method: str, path: str, body: dict[str, Any]) -> None:
        while True:
            try:
                await self.api.call(method, path, body, content_type=MERGE_PATCH if method == "PATCH" else "application/json")
            except KubernetesProblem as problem:
                if problem.status in {404, 409}:
                    return
                await asyncio.sleep(0.1)
            else:
                return


class NoopAgent:
    """The agent in a pod, whose workload does nothing until it is told to leave."""

    def __init__(self, kubelets: Kubelets, pod: Object) -> None:
        self._kubelets = kubelets
        self.name = pod["metadata"]["name"]
        notes = pod["metadata"]["annotations"]
        self.workload, self.incarnation = notes["gpufair.io/workload"], int(notes["gpufair.io/incarnation"])
        self._boot, self._seq, self._runs = f"boot-{pod['metadata']['uid']}", 0, False

    async def run(self) -> int:
        """Until it has said its last word. Returns the exit status."""
        while True:
            lines = self._kubelets.lines()
            if lines is None:
                await asyncio.sleep(0.05)
                continue
            with suppress(GpufairError):
                return await self._converse(lines)
            await asyncio.sleep(0.05)

    async def _converse(self, lines: PodLines) -> int:
        running = ((self.workload, self.incarnation),) if self._runs else ()
        hello = AgentHello(1, self._boot, NodeInventory(self.name), running)
        answer: dict[str, Any] = await lines.hello(self.name, hello)
        if self._runs and not answer["expected"]:
            return 0
        after = int(answer["after"])
        while True:
            for command in await lines.commands(self.name, after, self._boot, 5.0):
                after = command.seq
                self._kubelets.heard.append(command.kind)
                if command.kind == "start":
                    self._runs = True
                    if (address := command.args["launch"]["env"].get("MASTER_ADDR")) is not None:
                        self._kubelets.told[self.name] = address
                    await self._say(lines, "serving", generation=1, devices=["0"])
                elif command.kind in {"preempt", "stop"}:
                    while self._kubelets.stubborn:
                        await asyncio.sleep(0.05)
                    await self._say(lines, "released", busy=True)
                    return 0

    async def _say(self, lines: PodLines, kind: str, **body: Any) -> None:
        self._seq += 1
        report = Report(self._seq, time.time(), kind, self.workload, self.incarnation, body)
        await lines.reports(self.name, self._boot, [report])


class Backend:
    """One service's worth of it. Several after one another on the same folder are a service that was restarted."""

    def __init__(self, folder: Path, kubeconfig: Path, namespace: str, **options: Any) -> None:
        self.folder = folder
        self.options = KubernetesOptions(
            "gpufair/kernel", "http://127.0.0.1:9", namespace=namespace, kubeconfig=kubeconfig,
            gpus={"nvidia.com/gpu": ""}, node_selector={MARK: namespace}, node_silence=Millis(2 * SECOND), margin=Millis(SECOND),
            lease_for=Millis(5 * SECOND), **options,
        )  # fmt: skip
        self.deposed = asyncio.Event()

    async def start(self) -> None:
        """Come up."""
        self.journal = await Journal.open(sqlite_url(self.folder), "test")
        self.runtime = Runtime(self.journal, SystemClock(), Options(validate=True))
        secrets = Secrets.load(self.folder)
        dispatcher = Dispatcher(self.folder, secrets)
        self.hub = AgentHub(self.runtime, dispatcher, {}, Millis(30 * SECOND), settle_s=0.5, kept={POOL})
        self.lines = PodLines(self.runtime.now, wait_s=5.0)
        self.runtime.backend = Clusters(self.hub)
        await self.runtime.start()
        await self.runtime.do(self._budgets)
        await self.hub.start()
        self.cluster = await KubernetesCluster.open(
            POOL, self.options, runtime=self.runtime, hub=self.hub, dispatcher=dispatcher, lines=self.lines, key=secrets,
            template_of=lambda _: PodTemplate(), deposed=self.deposed.set,
            identity=new_identity(), marks=JournalMarks(self.journal, secrets, self.options.take_over),
        )  # fmt: skip
        self.lines.on_reports = self.cluster.heard
        self.cluster.start()

    async def close(self) -> None:
        """End in order."""
        self.lines.close()
        await self.cluster.close()
        await self.hub.close()
        await self.runtime.close()
        await self.journal.close()

    @staticmethod
    def _budgets(turn: Any) -> None:
        if not turn.state.tree.leaves or "a" not in turn.state.tree:
            turn.handle(ev.PolicyChanged(turn.now, turn.cause(), POLICY))
            turn.handle(ev.BudgetsApplied(turn.now, turn.cause(), TEAMS))

    # -- asking ---------------------------------------------------------------------------------------------------

    async def submit(self, name: str, gpus: int = 1, min_runtime: Millis = HOUR, *, allocation: str = "a", kind: Kind = Kind.BATCH, nodes: int = 1) -> None:
        """Something that wants to run here."""
        launch = {"type": "command" if kind is Kind.BATCH else "kernel", "argv": ["x"]}
        spec = WorkloadSpec(AllocationPath(allocation), "ada", kind, Shape(gpus, nodes), min_runtime, pools=(PoolName(POOL),), launch=launch)
        await self.runtime.do(lambda turn: turn.handle(ev.Submitted(turn.now, turn.cause(), WorkloadId(name), spec)))

    async def cancel(self, name: str) -> None:
        """End it."""
        await self.runtime.do(lambda turn: turn.handle(ev.Cancelled(turn.now, turn.cause(), WorkloadId(name))))

    async def ask_for(self, name: str, kind: str) -> None:
        """A user's command, as the API gives it: kept until it is answered."""

        def step(turn: Turn) -> None:
            workload = turn.state.workload(WorkloadId(name))
            detail = turn.detail(workload.id)
            pending = (*detail.pending, Pending(kind, workload.incarnation, {}))
            turn.set_detail(workload.id, replace(detail, pending=pending))
            turn.after(partial(self.hub.send, workload, kind))

        await self.runtime.do(step)

    async def get(self, name: str) -> Workload:
        """How it is."""
        return await self.runtime.read(lambda state: state.workload(WorkloadId(name)))

    async def await_phase(self, name: str, *phases: Phase, wait_s: float = WAIT_S) -> Workload:
        """How it is as soon as it is in one of these phases."""

        async def probe() -> Workload | None:
            found = await self.get(name)
            return found if found.phase in phases else None

        try:
            found: Workload = await until(f"{name} to be {phases}", probe, wait_s)
        except AssertionError as err:
            detail = self.runtime.detail(WorkloadId(name))
            raise AssertionError(f"{err}; it is {await self.get(name)}, {detail.remark!r}, {detail.parts}") from None
        return found

    async def await_incarnation(self, name: str, incarnation: int, phase: Phase = Phase.RUNNING) -> Workload:
        """How it is as soon as it has been started so often, and is in this phase."""

        async def probe() -> Workload | None:
            found = await self.get(name)
            return found if found.incarnation == incarnation and found.phase is phase else None

        try:
            found: Workload = await until(f"start {incarnation} of {name}", probe)
        except AssertionError as err:
            raise AssertionError(f"{err}; it is {await self.get(name)}, {self.remark(name)!r}") from None
        return found

    def remark(self, name: str) -> str:
        """What its owner is told of it."""
        return self.runtime.detail(WorkloadId(name)).remark

    async def node(self, name: str) -> Any:
        """A node of the core; None: it knows none."""
        found = await self.runtime.read(lambda state: [one for one in state.nodes() if one.node.name == name])
        return found[0] if found else None

    async def await_node(self, name: str, **facts: Any) -> Any:
        """A node of the core as soon as it is so: ``gpus``, and whatever a view of a node has."""

        async def probe() -> Any:
            one = await self.node(name)
            told = one and all((one.node.gpus if key == "gpus" else getattr(one, key)) == value for key, value in facts.items())
            return one if told else None

        return await until(f"node {name} to be {facts}", probe)


class World:
    """An API server with nodes, kubelets, and a backend that can be replaced."""

    def __init__(self, folder: Path, server: Server, api: Api) -> None:
        self.folder, self.server, self.api = folder, server, api
        self.kubeconfig = server.kubeconfig  # of the service
        self.path = f"/api/v1/namespaces/{server.namespace}/pods"
        self.backend: Backend | None = None
        self._nodes: list[str] = []
        self.kubelets = Kubelets(api, server.namespace, lambda: getattr(self.backend, "lines", None))

    async def begin(self, **options: Any) -> Backend:
        """Start a service (again)."""
        backend = Backend(self.folder, self.kubeconfig, self.server.namespace, **options)
        await backend.start()
        self.backend = backend
        return backend

    async def end(self) -> None:
        """End it."""
        if self.backend is not None:
            backend, self.backend = self.backend, None
            await backend.close()

    def named(self, node: str) -> str:
        """A node's name: of this test alone, though others may use the same server."""
        return f"{node}-{self.server.namespace}"

    async def add_node(self, node: str = "n1", gpus: int = 4, **status: Any) -> str:
        """A node that is ready; its name."""
        name = self.named(node)
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
        meta = {"name": name, "labels": {"nvidia.com/gpu.product": "H100", MARK: self.server.namespace}}
        await self.api.call("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": meta})
        self._nodes.append(name)
        await self.set_node(node, capacity=amounts, allocatable=amounts, **status)
        await self.ready(node)
        return name

    async def set_node(self, node: str, **status: Any) -> None:
        """Change a node's status."""
        path = f"/api/v1/nodes/{self.named(node)}"
        await self.api.call("PATCH", f"{path}/status", {"status": status}, content_type=MERGE_PATCH)

    async def cordon(self, node: str, *, on: bool = True) -> None:
        """As `kubectl cordon` does."""
        await self.cordon_named(self.named(node), on=on)

    async def cordon_named(self, name: str, *, on: bool = True) -> None:
        """The same, by its name in the cluster."""
        await self.api.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": on}}, content_type=MERGE_PATCH)

    async def ready(self, node: str, said: str = "True") -> None:
        """Its kubelet is heard (``True``), is not (``Unknown``), or says that it is not well (``False``)."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        condition = {"type": "Ready", "status": said, "lastHeartbeatTime": now, "lastTransitionTime": now, "reason": "Test", "message": "test"}
        await self.set_node(node, conditions=[condition])

    async def pods(self) -> list[Object]:
        """All of ours."""
        found = await self.api.call("GET", self.path, query={"labelSelector": f"{MANAGED_BY}={MANAGER}"})
        items: list[Object] = found["items"]
        return items

    async def no_pods(self) -> bool:
        """Whether all are gone."""
        return not await self.pods()

    async def deleted(self, name: str) -> Object | None:
        """A pod that somebody has asked to go; None: nobody has."""
        pod = await self.api.call("GET", f"{self.path}/{name}")
        return pod if "deletionTimestamp" in pod["metadata"] else None

    async def gone(self, name: str) -> bool:
        """Whether there is no such pod any more."""
        return name not in [pod["metadata"]["name"] for pod in await self.pods()]

    async def evict(self, name: str) -> None:
        """As `kubectl drain` does."""
        versions = await self.api.call("GET", "/apis/policy")
        known = {one["version"] for one in versions.get("versions", [])}
        body = {"apiVersion": f"policy/{'v1' if 'v1' in known else 'v1beta1'}", "kind": "Eviction"}
        await self.api.call("POST", f"{self.path}/{name}/eviction", body | {"metadata": {"name": name}})

    async def beat(self) -> None:
        """Renew all leases again and again, as kubelets do: a real node controller takes a node for lost after 40 s without."""
        made: set[str] = set()
        while True:
            for name in list(self._nodes):
                with suppress(KubernetesProblem):  # there may be no API server for a while
                    if name in made:
                        await self.api.call("PATCH", f"{LEASES}/{name}", _lease(name), content_type=MERGE_PATCH)
                    else:
                        await self.api.call("POST", LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **_lease(name)})
                        made.add(name)
            await asyncio.sleep(5)

    async def leave(self) -> None:
        """Take the nodes away."""
        for name in self._nodes:
            for path in (f"/api/v1/nodes/{name}", f"{LEASES}/{name}"):
                with suppress(KubernetesProblem):
                    await self.api.call("DELETE", path)


def _lease(node: str) -> Object:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"metadata": {"name": node}, "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now}}


@asynccontextmanager
async def world(folder: Path, server: Server, gpus: int = 4) -> AsyncIterator[World]:
    """An API server with one node (``n1``), and no service yet. ``gpus``: of the node; 0: there is none."""
    api = await Api.open(server.kubeconfig)
    it = World(folder, server, api)
    it.kubelets.start()
    # Nothing at the fake one wants it, and it would take the faults that tests have ready.
    beating = None if server.fake else asyncio.create_task(it.beat())
    try:
        if gpus:
            await it.add_node("n1", gpus)
        yield it
    finally:
        await it.end()
        await it.kubelets.close()
        if beating is not None:
            beating.cancel()
        await it.leave()
        await api.close()
