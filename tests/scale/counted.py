"""What the service asks of an API server for each start and end, counted; and what a watch of all pods brings meanwhile."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import urllib3

from gpufair.core.model import Phase
from gpufair.core.units import HOUR, Millis
from gpufair.service.backends.kubernetes.api import Api
from gpufair.service.backends.kubernetes.asked import Request
from tests.integration.kubernetes.conftest import Server
from tests.integration.kubernetes.inside import Backend, World, until, world
from tests.kube.client import KubeClient
from tests.kube.kubeconfig import read_kubeconfig

SIZED = ("pods", "secrets")  # objects that a running workload has in etcd
PERIODIC = "leases"  # asked for by the clock, not for a workload


@dataclass
class Counts:
    """Requests by verb and resource since the last ``take``; thread-safe."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    now: Counter[str] = field(default_factory=Counter)

    def add(self, name: str) -> None:
        with self.lock:
            self.now[name] += 1

    def take(self) -> dict[str, int]:
        with self.lock:
            taken, self.now = self.now, Counter()
        return dict(sorted(taken.items()))


@dataclass
class Heard:
    """What a watch of all pods has brought."""

    events: int = 0
    size_bytes: int = 0


class Listener:
    """A watch of all pods of its own, as the service has one: how much it carries."""

    def __init__(self, kubeconfig: Path) -> None:
        access = read_kubeconfig(kubeconfig)
        self._http = httpx.Client(base_url=access.url, headers=access.headers, verify=access.context or True, timeout=None, trust_env=False)
        self.heard = Heard()
        begun = self._http.get("/api/v1/pods", params={"limit": 1}).json()["metadata"]["resourceVersion"]
        self._closing = False
        self._thread = threading.Thread(target=self._listen, args=(begun,), name="listener", daemon=True)
        self._thread.start()

    def _listen(self, begun: str) -> None:
        query: dict[str, str | int] = {"watch": "1", "resourceVersion": begun, "timeoutSeconds": 3600}
        try:
            with self._http.stream("GET", "/api/v1/pods", params=query) as answer:
                for line in answer.iter_lines():
                    self.heard.events += 1
                    self.heard.size_bytes += len(line) + 1
        except httpx.HTTPError:
            if not self._closing:
                raise

    def take(self) -> Heard:
        taken, self.heard = self.heard, Heard()
        return taken

    def close(self) -> None:
        self._closing = True
        self._http.close()


@asynccontextmanager
async def counted(folder: Path, server: Server, nodes: int, gpus: int) -> AsyncIterator[tuple[World, Backend, Counts, Listener]]:
    """A service at a server with so many fake nodes; what it asks is counted from here on."""
    counts = Counts()
    send = Api.send

    async with world(folder, server, gpus=0) as it:
        for number in range(nodes):
            await it.add_node(f"n{number:04}", gpus)
        kubelets = it.api

        def sent(api: Api, request: Request, timeout: urllib3.Timeout) -> urllib3.BaseHTTPResponse:
            if api is not kubelets:
                counts.add(f"{request.asked.verb} {request.asked.resource}")
            return send(api, request, timeout)

        with mock.patch.object(Api, "send", sent):
            backend = await it.begin(requests_per_s=10_000, burst=10_000)
            await backend.await_node(it.named(f"n{nodes - 1:04}"), gpus=gpus, lost=False)
            listener = Listener(server.kubeconfig)
            try:
                yield it, backend, counts, listener
            finally:
                listener.close()


async def all_in(backend: Backend, names: list[str], phase: Phase, within_s: float) -> None:
    """Wait until all of these are in this phase."""

    async def probe() -> bool:
        return await backend.runtime.read(lambda state: all(state.workload(name).phase is phase for name in names))  # type: ignore[arg-type]

    await until(f"{len(names)} workloads to be {phase.name.lower()}", probe, within_s)


async def measure(folder: Path, server: Server, *, nodes: int, gpus: int, workloads: int, idle_s: float, within_s: float) -> dict[str, Any]:
    """Starts, rest, preemptions and ends of so many workloads of one GPU (no more than there are GPUs)."""
    found: dict[str, Any] = {"nodes": nodes, "gpus": nodes * gpus, "workloads": workloads, "phases": {}}
    names = [f"w{number:05}" for number in range(workloads)]
    victims = names[: max(1, workloads // 4)]
    async with counted(folder, server, nodes, gpus) as (it, backend, counts, listener):

        def phase(name: str, of: int, began: float) -> None:
            heard, asked = listener.take(), counts.take()
            found["phases"][name] = {
                "of": of,
                "took_s": round(time.monotonic() - began, 2),
                "requests": asked,
                "per_workload": {what: round(count / max(1, of), 2) for what, count in asked.items() if PERIODIC not in what},
                "watch_events_per_workload": round(heard.events / max(1, of), 2),
                "watch_bytes_per_workload": round(heard.size_bytes / max(1, of)),
            }

        counts.take()
        began = time.monotonic()
        for name in names:
            await backend.submit(name, min_runtime=Millis(0) if name in victims else HOUR)
        await all_in(backend, names, Phase.RUNNING, within_s)
        phase("start", workloads, began)
        with KubeClient(server.kubeconfig) as client:
            for what in SIZED:
                items = client.list(what, server.namespace)
                ours = [one for one in items if one["metadata"]["name"].startswith("gpufair-w")]
                found[f"{what}_bytes"] = round(sum(len(json.dumps(one, separators=(",", ":"))) for one in ours) / max(1, len(ours)))
        began = time.monotonic()
        await until("a rest", lambda: time.monotonic() - began >= idle_s, idle_s + 10)
        phase("rest", 1, began)
        if workloads == nodes * gpus:  # else nobody has to make room
            began = time.monotonic()
            guests = [f"p{number:05}" for number in range(len(victims))]
            for name in guests:
                await backend.submit(name, allocation="b")
            await all_in(backend, guests, Phase.RUNNING, within_s)
            phase("preempt", len(victims), began)
            names = [*names, *guests]
        began = time.monotonic()
        for name in names:
            await backend.cancel(name)
        await until("the last pod to go", lambda: _none(it), within_s)
        phase("end", workloads, began)  # so many pods: as many as there were GPUs for
    return found


async def _none(it: World) -> bool:
    return not await it.pods()
