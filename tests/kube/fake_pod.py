"""One pod's life on a fake node, from its binding to its final deletion."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.kube.client import MERGE_PATCH, Gone, path_of
from tests.kube.pod_files import Container, NotYet, base_environment, container, volume_folders
from tests.kube.pod_processes import MARK, Running, kill_marked, send, started
from tests.kube.store import stamp

if TYPE_CHECKING:
    from tests.kube.kubelet import Kubelet

LOOK_AGAIN_S = 0.2
FORCED_GRACE_S = 2.0
RESTART_AFTER_S = 0.5


@dataclass
class PodRun:
    """``pod`` is the newest known state. ``changed`` is set with each."""

    kubelet: Kubelet
    pod: dict[str, Any]
    gpus: list[int]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    running: list[Running] = field(default_factory=list)
    # Set from outside: how a no-op pod ends; what a kill is called.
    told_exit: int | None = None
    told_reason: str = ""
    evicted: str = ""
    gone: bool = False
    dead: bool = False

    @property
    def uid(self) -> str:
        uid: str = self.pod["metadata"]["uid"]
        return uid

    @property
    def namespace(self) -> str:
        namespace: str = self.pod["metadata"]["namespace"]
        return namespace

    @property
    def name(self) -> str:
        name: str = self.pod["metadata"]["name"]
        return name

    @property
    def folder(self) -> Path:
        return self.kubelet.folder / "pods" / self.uid

    @property
    def deleting(self) -> bool:
        return self.gone or "deletionTimestamp" in self.pod["metadata"]

    def take(self, pod: dict[str, Any]) -> None:
        self.pod = pod
        self.changed.set()

    # ------------------------------------------------------------------ its life

    async def live(self) -> None:
        try:
            if self.pod["status"].get("phase") not in {"Succeeded", "Failed"} and (refusal := self.kubelet.refusal(self)):
                await self._status("Failed", reason=refusal[0], message=refusal[1])
            elif self.pod["status"].get("phase") in {"Running", "Unknown"}:
                # We are a kubelet that has started again, and its processes are gone.
                await self._lost()
            elif self.pod["status"].get("phase") not in {"Succeeded", "Failed"} and await self._started():
                await self._run()
            await self._leave()
        except Gone:
            # Another object of this name by now, or none.
            await self._end(FORCED_GRACE_S)
        finally:
            if not self.dead:
                self.sweep()
                shutil.rmtree(self.folder / "volumes", ignore_errors=True)

    async def _lost(self) -> None:
        spec = self.pod["spec"]["containers"][0]
        lost = Running(Container(spec["name"], [], {}, self.folder), None, stamp(), 137, "ContainerStatusUnknown", stamp())
        self.running = [lost]
        await self._status("Failed", containers=[self._container_status(lost)])

    async def _started(self) -> bool:
        """False where the pod is to go before it ran."""
        said = ""
        while not self.deleting and not self.evicted:
            try:
                containers = await self._containers()
                await self._start(containers)
                return True
            except NotYet as wait:
                if wait.message != said:
                    said = wait.message
                    pulling = wait.reason in {"ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError", "RunContainerError"}
                    state = {"waiting": {"reason": wait.reason if pulling else "ContainerCreating", "message": wait.message}}
                    await self._status("Pending", containers=[self._waiting(spec, state) for spec in self.pod["spec"]["containers"]])
                    await self.kubelet.event(self.pod, "Failed" if pulling else wait.reason, wait.message)
            await self._something(LOOK_AGAIN_S)
        if self.evicted:
            await self._status("Failed", reason="Evicted", message=self.evicted)
        return False

    async def _containers(self) -> list[Container]:
        for spec in self.pod["spec"]["containers"]:
            if self.kubelet.pull_fails(self.pod, spec["image"]):
                raise NotYet("ErrImagePull", f'rpc error: code = Unknown desc = failed to pull image "{spec["image"]}": not found')
        if self.kubelet.volume_hangs(self.pod):
            raise NotYet("FailedAttachVolume", "Unable to attach or mount volumes: timed out waiting for the condition")
        if not self.kubelet.runs:
            return []
        folders = await volume_folders(self.kubelet.client, self.pod, self.folder, self.kubelet.claims)
        # Known before the first process runs, as the status of a real pod is.
        address = {**self.pod, "status": {**self.pod["status"], "podIP": self.kubelet.address(self), "hostIP": "127.0.0.1"}}
        ready: list[Container] = []
        for spec in self.pod["spec"]["containers"]:
            home = self.folder / spec["name"]
            home.mkdir(parents=True, exist_ok=True)
            environment = base_environment({
                "HOME": str(home),
                MARK: self.uid,
                "NVIDIA_VISIBLE_DEVICES": ",".join(f"GPU-{self.kubelet.node_of(self.pod)}-{gpu}" for gpu in self.gpus) or "none",
                **self.kubelet.environment,
            })  # fmt: skip
            entrypoint = self.kubelet.entrypoint(spec["image"])
            one = await container(
                self.kubelet.client, address, spec, folders=folders, folder=home, environment=environment, entrypoint=entrypoint
            )
            if not one.command:
                raise NotYet("RunContainerError", f"no command is given, and the fake node knows none of the image {spec['image']}")
            ready.append(one)
        return ready

    async def _start(self, containers: list[Container]) -> None:
        if not self.kubelet.runs:
            names = [spec["name"] for spec in self.pod["spec"]["containers"]]
            self.running = [Running(Container(name, [], {}, self.folder), None, stamp()) for name in names]
        for one in containers:
            self.running.append(await started(one, self.folder / f"{one.name}.log"))
        await self._status("Running", containers=[self._container_status(one) for one in self.running])

    async def _run(self) -> None:
        """Until every container has ended for good."""
        while True:
            waits = [asyncio.create_task(self._ended(one)) for one in self.running if one.exit_code is None]
            if not waits:
                break
            heed = asyncio.create_task(self.changed.wait())
            await asyncio.wait([*waits, heed], return_when=asyncio.FIRST_COMPLETED)
            for task in (*waits, heed):
                if not task.done():
                    task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            self.changed.clear()
            if self.dead:
                return
            if self.deleting or self.evicted:
                await self._end(FORCED_GRACE_S if self.gone or self.evicted else None)
                break
            await self._restart()
        if self.gone or self.dead:
            return
        failed = any(one.exit_code != 0 for one in self.running)
        if self.evicted:
            await self._status("Failed", reason="Evicted", message=self.evicted)
        elif self.kubelet.runs or not self.deleting:
            await self._status("Failed" if failed else "Succeeded", containers=[self._container_status(one) for one in self.running])

    async def _ended(self, one: Running) -> None:
        if one.process is not None:
            code = await one.process.wait()
            self.sweep()
        else:
            while self.told_exit is None:
                await self._something(3600.0, clear=False)
            code = self.told_exit
        one.exit_code = code if code >= 0 else 128 - code
        one.finished = stamp()
        one.reason = one.reason or self.told_reason

    async def _restart(self) -> None:
        policy = self.pod["spec"].get("restartPolicy", "Always")
        for place, one in enumerate(self.running):
            if one.exit_code is None or one.process is None or policy == "Never" or (policy == "OnFailure" and one.exit_code == 0):
                continue
            await asyncio.sleep(RESTART_AFTER_S)
            again = await started(one.container, self.folder / f"{one.container.name}.log")
            again.restarts = one.restarts + 1
            self.running[place] = again
            await self._status("Running", containers=[self._container_status(each) for each in self.running])

    # ------------------------------------------------------------------ its end

    async def _end(self, grace_s: float | None) -> None:
        """SIGTERM, and SIGKILL when the grace is over: that of the deletion, which may be shortened meanwhile."""
        began = time.monotonic()
        there = [one for one in self.running if one.process is not None and one.exit_code is None]
        for one in there:
            send(one, signal.SIGTERM)
        waits = [asyncio.create_task(self._ended(one)) for one in there]
        while waits and not all(task.done() for task in waits):
            left = began + (self._grace_s() if grace_s is None else grace_s) - time.monotonic()
            if self.gone:
                left = min(left, FORCED_GRACE_S)
            if left <= 0:
                for one in there:
                    send(one, signal.SIGKILL)
                await asyncio.wait(waits)
                break
            heed = asyncio.create_task(self.changed.wait())
            await asyncio.wait([*waits, heed], timeout=left, return_when=asyncio.FIRST_COMPLETED)
            heed.cancel()
            self.changed.clear()
        for one in self.running:
            if one.exit_code is None:
                one.exit_code, one.finished = 0, stamp()

    def _grace_s(self) -> float:
        return float(self.pod["metadata"].get("deletionGracePeriodSeconds", self.pod["spec"].get("terminationGracePeriodSeconds", 30)))

    async def _leave(self) -> None:
        """Wait for the deletion of a pod that has ended, and carry it out."""
        while not self.gone and not self.dead:
            if "deletionTimestamp" in self.pod["metadata"]:
                options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
                await self.kubelet.client.call("DELETE", path_of("pods", self.namespace, self.name), options)
                return
            await self._something(3600.0)

    def kill(self, reason: str) -> None:
        """The node's memory is full, or the power is out."""
        self.told_reason, self.told_exit = reason, 137
        for one in self.running:
            if one.exit_code is None:
                one.reason = reason
                send(one, signal.SIGKILL)
        self.changed.set()

    def sweep(self) -> None:
        """Kill what the container's first process has left behind."""
        if self.kubelet.runs:
            kill_marked(MARK, self.uid)

    # ------------------------------------------------------------------ what it says

    async def _something(self, timeout_s: float, *, clear: bool = True) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self.changed.wait()
        except TimeoutError:
            return
        if clear:
            self.changed.clear()
        else:
            # The one who waits for all of the pod clears it.
            await asyncio.sleep(0.01)

    async def _status(self, phase: str, *, containers: list[dict[str, Any]] | None = None, reason: str = "", message: str = "") -> None:
        if self.dead:
            return
        now, ready = stamp(), "True" if phase == "Running" else "False"
        conditions = [c for c in self.pod["status"].get("conditions") or [] if c["type"] == "PodScheduled"]
        conditions += [{"type": "Initialized", "status": "True", "lastTransitionTime": now, "lastProbeTime": None}]
        conditions += [{"type": kind, "status": ready, "lastTransitionTime": now, "lastProbeTime": None} for kind in ("Ready", "ContainersReady")]
        status: dict[str, Any] = {
            "phase": phase,
            "conditions": conditions,
            "hostIP": "127.0.0.1",
            "startTime": self.pod["status"].get("startTime") or now,
            "reason": reason or None,
            "message": message or None,
        }
        if phase == "Running":
            status["podIP"] = self.kubelet.address(self)
            status["podIPs"] = [{"ip": status["podIP"]}]
        if containers is not None:
            status["containerStatuses"] = containers
        patch = {"metadata": {"uid": self.uid}, "status": status}
        newest = await self.kubelet.client.call("PATCH", path_of("pods", self.namespace, self.name, "status"), patch, content_type=MERGE_PATCH)
        if int(newest["metadata"]["resourceVersion"]) > int(self.pod["metadata"]["resourceVersion"]):
            self.pod = newest

    def _waiting(self, spec: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        return {"name": spec["name"], "image": spec["image"], "imageID": "", "ready": False, "started": False, "restartCount": 0, "lastState": {}, "state": state}

    def _container_status(self, one: Running) -> dict[str, Any]:
        spec = next(spec for spec in self.pod["spec"]["containers"] if spec["name"] == one.container.name)
        runs = one.exit_code is None
        return {**self._waiting(spec, one.state()), "ready": runs, "started": runs, "restartCount": one.restarts, "imageID": f"fake://{spec['image']}", "containerID": f"fake://{self.uid}/{spec['name']}"}  # fmt: skip
