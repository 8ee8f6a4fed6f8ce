"""A cluster's worth of machines: kubelets of 200 nodes, and in each pod an agent whose workload does nothing.

``python -m tests.bench.kubernetes_crowd URL FOLDER KUBECONFIG NAMESPACE PER_S`` plays them in one process, submits 500
workloads at that rate and then 500 at once, and prints what it saw. The service is another process, as is the API server.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpufair.service.backends.kubernetes.api import MERGE_PATCH, RETRY_S, Api, Limits
from gpufair.service.backends.kubernetes.problems import Conflict, Missing
from gpufair.service.backends.kubernetes.watch import Change, Reflector
from gpufair.service.identity.secrets import Secrets
from gpufair.wire import API_VERSION, AgentHello, NodeInventory, to_json
from tests.bench.service_crowd import Line

NODES, GPUS_PER_NODE, WORKLOADS, GPUS = 200, 8, 500, 2
USER, SUBMITTERS = "u0", 8
LIMIT_S = 120.0
HEARTBEAT_S = 10.0  # as kubelets'
HEARTBEATS = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
COMMAND = {"type": "command", "argv": ["true"], "cwd": "/"}


class Crowd:
    """Everybody but the service and the API server."""

    def __init__(self, url: str, folder: Path, api: Api, namespace: str) -> None:
        self.url, self.api, self.namespace = url, api, namespace
        self.secrets = Secrets.load(folder)
        self.bound_s: dict[str, float] = {}  # Unix seconds, by workload: when its pod was seen to have a node
        self.serving_s: dict[str, float] = {}  # and when the service knew that it runs
        self.failed: list[str] = []
        self._pods = Reflector(api, f"/api/v1/namespaces/{namespace}/pods", changed=self._changed)
        self._agents: dict[str, asyncio.Task[None]] = {}  # by uid
        self._tasks = {asyncio.create_task(self._pods.run())}

    @property
    def pods(self) -> int:
        return len(self._pods.objects)

    async def close(self) -> None:
        tasks = [*self._tasks, *self._agents.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: Awaitable[Any]) -> asyncio.Task[None]:
        async def guarded() -> None:
            try:
                await work
            except Exception as err:
                self.failed.append(f"{type(err).__name__}: {err}")

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- nodes ----------------------------------------------------------------------------------------------------

    async def add_nodes(self) -> None:
        """All, ready, and heard of from then on."""
        await asyncio.gather(*(self._add(f"bench-{at:03}") for at in range(NODES)))
        self._spawn(self._heartbeats())

    async def _add(self, name: str) -> None:
        about = {"name": name, "labels": {"nvidia.com/gpu.product": "H100"}}
        with suppress(Conflict):  # of a run before
            await self.api.call("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": about}, retry_s=RETRY_S)
        with suppress(Conflict):
            await self.api.call("POST", HEARTBEATS, {"metadata": {"name": name}, "spec": self._beat(name)}, retry_s=RETRY_S)
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(GPUS_PER_NODE)}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
        ready |= dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        body = {"status": {"conditions": [ready], "capacity": amounts, "allocatable": amounts}}
        await self.api.call("PATCH", f"/api/v1/nodes/{name}/status", body, content_type=MERGE_PATCH, retry_s=RETRY_S)

    @staticmethod
    def _beat(name: str) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}

    async def _heartbeats(self) -> None:
        # As kubelets do it: by a Lease of their own; their Node object changes when they do.
        while True:
            for at in range(NODES):
                await asyncio.sleep(HEARTBEAT_S / NODES)
                name = f"bench-{at:03}"
                await self.api.call("PATCH", f"{HEARTBEATS}/{name}", {"spec": self._beat(name)}, content_type=MERGE_PATCH, retry_s=RETRY_S)

    async def remove_nodes(self) -> None:
        async def remove(name: str) -> None:
            for path in (f"/api/v1/nodes/{name}", f"{HEARTBEATS}/{name}"):
                with suppress(Missing):
                    await self.api.call("DELETE", path, retry_s=RETRY_S)

        await asyncio.gather(*(remove(f"bench-{at:03}") for at in range(NODES)))

    # -- pods -----------------------------------------------------------------------------------------------------

    def _changed(self, change: Change) -> None:
        pod, uid = change.object, change.object["metadata"]["uid"]
        if change.kind == "deleted":
            if (agent := self._agents.pop(uid, None)) is not None:
                agent.cancel()
        elif "deletionTimestamp" in pod["metadata"]:
            if (agent := self._agents.pop(uid, None)) is not None:
                agent.cancel()
                self._spawn(self._end(pod))
        elif pod["spec"].get("nodeName") and uid not in self._agents:
            self.bound_s[pod["metadata"]["annotations"]["gpufair.io/workload"]] = time.time()
            self._agents[uid] = self._spawn(self._run(pod))

    async def _end(self, pod: dict[str, Any]) -> None:
        with suppress(Missing, Conflict):
            body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
            await self.api.call("DELETE", self._path(pod), body, retry_s=RETRY_S)

    def _path(self, pod: dict[str, Any]) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"

    async def _run(self, pod: dict[str, Any]) -> None:
        """What a kubelet says of a pod, and what its agent says to the service."""
        container = {"name": "workload", "image": "x", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}}
        status = {"status": {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [container]}}
        with suppress(Missing):
            await self.api.call("PATCH", f"{self._path(pod)}/status", status, content_type=MERGE_PATCH, retry_s=RETRY_S)
        name, notes = pod["metadata"]["name"], pod["metadata"]["annotations"]
        workload, incarnation = notes["gpufair.io/workload"], int(notes["gpufair.io/incarnation"])
        line, boot = Line(self.url, self.secrets.pod_token(name)), pod["metadata"]["uid"]
        hello = AgentHello(API_VERSION, boot, NodeInventory(name, tuple(str(at) for at in range(GPUS))))
        after = int((await line.ask("POST", f"/pods/{name}/hello", to_json(hello)))["after"])
        seq = 0
        while True:
            found = await line.ask("GET", f"/pods/{name}/commands?after={after}&boot={boot}&wait_s=20")
            for command in found["commands"]:
                after = max(after, command["seq"])
                kind = {"start": "serving", "stop": "released", "preempt": "released"}.get(command["kind"])
                if kind is None:
                    continue
                seq += 1
                body = {"generation": 1, "connection": {}, "devices": [], "lost": []} if kind == "serving" else {"busy": True}
                report = {"seq": seq, "at_s": time.time(), "kind": kind, "body": body, "workload": workload, "incarnation": incarnation}
                await line.ask("POST", f"/pods/{name}/reports", {"boot": boot, "reports": [report]})
                if kind == "serving":
                    self.serving_s[workload] = time.time()
                else:
                    return

    # -- researchers ----------------------------------------------------------------------------------------------

    def line(self) -> Line:
        return Line(self.url, self.secrets.user_token(USER))

    async def submit(self, names: list[str], per_s: float) -> None:
        """Submit all of these at this rate; 0: as fast as it goes."""
        begun, waiting = time.perf_counter(), list(reversed(list(enumerate(names))))

        async def some() -> None:
            line = self.line()
            while waiting:
                number, name = waiting.pop()
                if per_s and (early := begun + number / per_s - time.perf_counter()) > 0:
                    await asyncio.sleep(early)
                body = {"id": name, "kind": "batch", "gpus": GPUS, "min_runtime_s": 3600, "allocation": "lab", "launch": COMMAND}
                await line.ask("POST", "/workloads", body)

        await asyncio.gather(*(some() for _ in range(SUBMITTERS)))

    async def cancel(self, names: list[str]) -> None:
        waiting = list(names)

        async def some() -> None:
            line = self.line()
            while waiting:
                await line.ask("DELETE", f"/workloads/{waiting.pop()}")

        await asyncio.gather(*(some() for _ in range(SUBMITTERS)))

    async def until(self, what: str, true: Callable[[], bool]) -> None:
        ends = time.monotonic() + LIMIT_S
        while not true():
            if time.monotonic() > ends or self.failed:
                raise RuntimeError(f"waited in vain for {what}: {self.failed[:3]}")
            await asyncio.sleep(0.02)

    async def measure(self, names: list[str], per_s: float) -> dict[str, float]:
        """Have them started; then end them."""
        await self.submit(names, per_s)
        await self.until(f"{len(names)} workloads to run", lambda: all(name in self.serving_s for name in names))
        line, decided = self.line(), {}
        for name in names:
            decided[name] = float((await line.ask("GET", f"/workloads/{name}"))["granted_s"])
        late = sorted(self.bound_s[name] - decided[name] for name in names)
        took = max(self.serving_s[name] for name in names) - min(decided.values())
        await self.cancel(names)
        await self.until("all pods to be gone", lambda: self.pods == 0)
        return {
            "per_s": len(names) / took,
            "bind_p50_ms": statistics.median(late) * 1000,
            "bind_p99_ms": late[int(len(late) * 0.99)] * 1000,
            "bind_max_ms": late[-1] * 1000,
        }


async def all_there(crowd: Crowd) -> None:
    """Until the service offers every GPU."""
    line = Line(crowd.url, crowd.secrets.operator_token())
    ends = time.monotonic() + LIMIT_S
    while True:
        nodes = [one for one in (await line.ask("GET", "/nodes"))["nodes"] if one["gpus"] and one["state"] == "ready"]
        if len(nodes) >= NODES:
            return
        if time.monotonic() > ends:
            raise RuntimeError(f"the service knows {len(nodes)} nodes of {NODES}")
        await asyncio.sleep(0.2)


async def play(url: str, folder: Path, kubeconfig: Path, namespace: str, per_s: float) -> dict[str, Any]:
    """All of it."""
    api = await Api.open(kubeconfig, limits=Limits(per_s=0))
    crowd = Crowd(url, folder, api, namespace)
    try:
        await crowd.add_nodes()
        await all_there(crowd)
        await crowd.measure([f"warm-{at}" for at in range(20)], 0)
        steady = await crowd.measure([f"steady-{at}" for at in range(WORKLOADS)], per_s)
        burst = await crowd.measure([f"burst-{at}" for at in range(WORKLOADS)], 0)
    finally:
        await crowd.close()
        await crowd.remove_nodes()
        await api.close()
    return {"steady": steady, "burst": burst, "failed": crowd.failed[:5]}


if __name__ == "__main__":
    _, url, folder, kubeconfig, namespace, per_s = sys.argv
    print(json.dumps(asyncio.run(play(url, Path(folder), Path(kubeconfig), namespace, float(per_s)))))
