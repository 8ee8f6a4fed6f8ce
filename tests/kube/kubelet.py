"""The kubelets of all fake nodes of a test, as tasks of one event loop: one watch, one heartbeat, one task per pod."""

from __future__ import annotations

import asyncio
import re
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.kube.checks import quantity
from tests.kube.client import MERGE_PATCH, Gone, KubeletClient, Refusal, path_of
from tests.kube.fake_pod import PodRun
from tests.kube.pod_processes import MARK, kill_marked
from tests.kube.store import stamp

LEASES = "kube-node-lease"
WATCH_S = 300
BOUND = "spec.nodeName!="
AT_ONCE = 16
"""Heartbeats and registrations on their way at the same time."""


@dataclass
class FakeNode:
    """``gpus``: count by resource name. ``alive`` is whether its kubelet does anything."""

    name: str
    gpus: Mapping[str, int]
    cpus: str
    memory: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, Any]]
    alive: bool = True

    def capacity(self) -> dict[str, str]:
        return {"cpu": self.cpus, "memory": self.memory, "pods": "110", "ephemeral-storage": "1Ti", **{k: str(v) for k, v in self.gpus.items()}}


@dataclass
class Kubelet:
    client: KubeletClient
    nodes: dict[str, FakeNode]
    folder: Path
    runs: bool
    heartbeat_s: float
    claims: Mapping[str, Path]
    environment: Mapping[str, str]
    images: Mapping[str, Sequence[str]]
    own_addresses: bool
    pods: dict[str, PodRun] = field(default_factory=dict)
    pull_errors: list[re.Pattern[str]] = field(default_factory=list)
    hanging_volumes: list[re.Pattern[str]] = field(default_factory=list)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _addresses: dict[str, str] = field(default_factory=dict)

    # ------------------------------------------------------------------ nodes

    async def run(self) -> None:
        await self._each(self.register)
        beat = asyncio.create_task(self._heartbeats())
        try:
            await self._watch()
        finally:
            beat.cancel()

    async def stop(self) -> None:
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for run in self.pods.values():
            run.sweep()
        await self.client.close()

    async def _each(self, act: Callable[[FakeNode], Coroutine[Any, Any, None]]) -> None:
        """For all living nodes, a few at a time."""
        left = [node for node in self.nodes.values() if node.alive]

        async def some() -> None:
            while left:
                await act(left.pop())

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(some())

    async def register(self, node: FakeNode) -> None:
        """Create the Node, or bring an old one of this name up to date; then say that it is ready."""
        obj = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name, "labels": {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux", **node.labels}},
            "spec": {"taints": [*node.taints]} if node.taints else {},
        }
        with suppress(Gone):
            await self.client.call("POST", path_of("nodes"), obj)
        await self._beat(node)
        await self.report(node, "True", "KubeletReady", "kubelet is posting ready status")

    async def report(self, node: FakeNode, ready: str, reason: str, message: str) -> None:
        """The node's status. "Unknown" is what the node controller says of a silent one."""
        now = stamp()
        good = {"True": "False", "False": "False"}.get(ready, "Unknown")
        conditions = [
            {"type": kind, "status": good, "lastHeartbeatTime": now, "lastTransitionTime": now, "reason": reason, "message": message}
            for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")
        ]
        conditions.append({"type": "Ready", "status": ready, "lastHeartbeatTime": now, "lastTransitionTime": now, "reason": reason, "message": message})
        status = {
            "capacity": node.capacity(),
            "allocatable": node.capacity(),
            "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": node.name}],
        }
        await self.client.call("PATCH", path_of("nodes", "", node.name, "status"), {"status": status}, content_type=MERGE_PATCH)

    async def _heartbeats(self) -> None:
        while True:
            began = time.monotonic()
            await self._each(self._beat)
            await asyncio.sleep(max(0.1, self.heartbeat_s - (time.monotonic() - began)))

    async def _beat(self, node: FakeNode) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": node.name, "leaseDurationSeconds": 40, "renewTime": now}
        with suppress(Gone, Refusal):
            try:
                await self.client.call("PATCH", path_of("leases", LEASES, node.name), {"spec": spec}, content_type=MERGE_PATCH)
            except Gone:
                lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node.name, "namespace": LEASES}, "spec": spec}
                await self.client.call("POST", path_of("leases", LEASES), lease)

    # ------------------------------------------------------------------ pods

    async def _watch(self) -> None:
        while True:
            listed = await self.client.call("GET", f"{path_of('pods')}?fieldSelector={BOUND}")
            there = set()
            for pod in listed["items"]:
                there.add(pod["metadata"]["uid"])
                self._take(pod)
            for uid in self.pods.keys() - there:
                self._drop(uid)
            self.ready.set()
            version = listed["metadata"]["resourceVersion"]
            query = {"watch": "1", "fieldSelector": BOUND, "resourceVersion": version, "timeoutSeconds": str(WATCH_S)}
            async for event in self.client.events(path_of("pods"), query):
                if event["type"] == "ERROR":
                    break
                if event["type"] == "DELETED":
                    self._drop(event["object"]["metadata"]["uid"])
                else:
                    self._take(event["object"])

    def _take(self, pod: dict[str, Any]) -> None:
        node = self.nodes.get(pod["spec"].get("nodeName", ""))
        if node is None or not node.alive:
            return
        uid = pod["metadata"]["uid"]
        run = self.pods.get(uid)
        if run is not None:
            run.take(pod)
            return
        run = PodRun(self, pod, self._free_gpus(node, pod))
        self.pods[uid] = run
        task = asyncio.create_task(self._live(run), name=f"pod {pod['metadata']['name']}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _live(self, run: PodRun) -> None:
        try:
            await run.live()
        except Refusal:
            # A fault of the ground that the test stands on: not to be missed.
            traceback.print_exc()
        finally:
            if self.pods.get(run.uid) is run:
                del self.pods[run.uid]
            self._addresses.pop(run.uid, None)

    def _drop(self, uid: str) -> None:
        if (run := self.pods.get(uid)) is not None:
            run.gone = True
            run.changed.set()

    def find(self, namespace: str, name: str) -> PodRun:
        found = [run for run in self.pods.values() if (run.namespace, run.name) == (namespace, name)]
        assert found, f"no pod {namespace}/{name} on the fake nodes {', '.join(self.nodes)}"
        return found[-1]

    # ------------------------------------------------------------------ what pods ask

    def node_of(self, pod: Mapping[str, Any]) -> str:
        node: str = pod["spec"]["nodeName"]
        return node

    def _on(self, node: str) -> list[PodRun]:
        return [run for run in self.pods.values() if self.node_of(run.pod) == node and run.pod["status"].get("phase") not in {"Succeeded", "Failed"}]

    def _free_gpus(self, node: FakeNode, pod: Mapping[str, Any]) -> list[int]:
        taken = {gpu for run in self._on(node.name) for gpu in run.gpus}
        count = sum(int(asked(pod, name)) for name in node.gpus)
        return [gpu for gpu in range(sum(node.gpus.values())) if gpu not in taken][:count]

    def refusal(self, run: PodRun) -> tuple[str, str] | None:
        """A kubelet takes no pod for which its node has no room, whoever bound it."""
        node = self.nodes[self.node_of(run.pod)]
        others = [other for other in self._on(node.name) if other is not run and other.running]
        for name, has in node.capacity().items():
            wanted = asked(run.pod, name)
            used = sum((asked(other.pod, name) for other in others), start=quantity(0))
            if wanted and used + wanted > quantity(has):
                return f"OutOf{name}", f"Node didn't have enough resource: {name}, requested: {wanted}, used: {used}, capacity: {has}"
        return None

    def pull_fails(self, pod: Mapping[str, Any], image: str) -> bool:
        return any(wanted.search(image) or wanted.search(pod["metadata"]["name"]) for wanted in self.pull_errors)

    def volume_hangs(self, pod: Mapping[str, Any]) -> bool:
        return any(wanted.search(pod["metadata"]["name"]) for wanted in self.hanging_volumes)

    def entrypoint(self, image: str) -> Sequence[str]:
        return next((command for pattern, command in self.images.items() if re.search(pattern, image)), [])

    def address(self, run: PodRun) -> str:
        if not self.own_addresses:
            return "127.0.0.1"
        if run.uid not in self._addresses:
            taken = set(self._addresses.values())
            place = next(n for n in range(2, 1 << 16) if f"127.77.{n >> 8}.{n & 255}" not in taken)
            self._addresses[run.uid] = f"127.77.{place >> 8}.{place & 255}"
        return self._addresses[run.uid]

    async def event(self, pod: Mapping[str, Any], reason: str, message: str) -> None:
        now = stamp()
        metadata = pod["metadata"]
        about = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name'][:50]}.", "namespace": metadata["namespace"]},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "type": "Warning",
            "source": {"component": "kubelet", "host": self.node_of(pod)},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        with suppress(Gone, Refusal):
            await self.client.call("POST", path_of("events", metadata["namespace"]), event)

    # ------------------------------------------------------------------ what befalls nodes

    async def die(self, name: str, *, told: bool, processes: bool) -> None:
        """Nothing more is heard of it. ``told``: the node controller has noticed; ``processes``: they end too."""
        node = self.nodes[name]
        node.alive = False
        for run in [run for run in self.pods.values() if self.node_of(run.pod) == name]:
            run.dead = True
            if processes:
                run.kill("")
                kill_marked(MARK, run.uid)
            run.changed.set()
            self.pods.pop(run.uid, None)
        if told:
            await self.report(node, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")

    async def revive(self, name: str) -> None:
        node = self.nodes[name]
        node.alive = True
        await self.register(node)
        for pod in (await self.client.call("GET", f"{path_of('pods')}?fieldSelector=spec.nodeName={name}"))["items"]:
            self._take(pod)


def asked(pod: Mapping[str, Any], name: str) -> Any:
    """What the pod's containers request of a resource, as a number."""
    if name == "pods":
        return quantity(1)
    found = [(spec.get("resources") or {}).get("requests") or {} for spec in pod["spec"]["containers"]]
    return sum((quantity(requests.get(name, 0)) for requests in found), start=quantity(0))
