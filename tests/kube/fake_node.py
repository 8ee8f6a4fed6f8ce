"""Nodes without a cluster: registered with an API server, fake or real, over HTTP; bound pods become local processes.

    with FakeNodes(kubeconfig, tmp_path, names=["gpu-a", "gpu-b"], gpus=8) as nodes:
        ...
        nodes.die("gpu-a")

Or as a program of its own, until Ctrl-C: `python -m tests.kube.fake_node --kubeconfig FILE --count 2 --gpus 8`.

Known limits: init containers, probes and projected volumes are not carried out; all pods share the network of this
machine, and its file system, in which the paths of mounts are rewritten (command, arguments, environment).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.kube.client import KubeletClient
from tests.kube.kubelet import FakeNode, Kubelet

Value = TypeVar("Value")

GPU = "nvidia.com/gpu"
PRODUCT_LABEL = "nvidia.com/gpu.product"
ANSWERS_WITHIN_S = 60.0


class FakeNodes:
    """Ready when made. Its methods may be called from any thread.

    Args:
        gpus: Of each node, of the resource ``gpu_resource``; or a mapping with the count of several.
        product: The label by which a GPU's type is known.
        runs: Whether pods become processes. Otherwise they just run until deleted or told to ``finish``: for scale.
        claims: Folders that stand for PersistentVolumeClaims, by name. Others stay pending.
        environment: Added to that of each container, as an image would.
        images: Entry points by a regular expression of the image, for containers without a command.
        own_addresses: Each pod has an address 127.77.x.y, so that two may use the same port. Else 127.0.0.1.
    """

    def __init__(
        self,
        kubeconfig: Path,
        folder: Path,
        *,
        names: Sequence[str],
        gpus: int | Mapping[str, int] = 8,
        gpu_resource: str = GPU,
        product: str | None = "NVIDIA-H100-80GB-HBM3",
        cpus: str = "64",
        memory: str = "512Gi",
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, Any]] = (),
        runs: bool = True,
        heartbeat_s: float = 5.0,
        claims: Mapping[str, Path] | None = None,
        environment: Mapping[str, str] | None = None,
        images: Mapping[str, Sequence[str]] | None = None,
        own_addresses: bool = False,
    ) -> None:
        counts = {gpu_resource: gpus} if isinstance(gpus, int) else dict(gpus)
        counts = {name: count for name, count in counts.items() if count}
        marks = {**({PRODUCT_LABEL: product} if product and counts else {}), **(labels or {})}
        nodes = {name: FakeNode(name, counts, cpus, memory, marks, taints) for name in names}
        self.folder = folder

        def kubelet() -> Kubelet:
            return Kubelet(
                KubeletClient(kubeconfig), nodes, folder, runs, heartbeat_s, claims or {}, environment or {}, images or {}, own_addresses
            )

        self._make = kubelet
        self._ready = threading.Event()
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="fake-nodes", daemon=True)
        self._thread.start()
        assert self._ready.wait(ANSWERS_WITHIN_S), "the fake nodes did not get ready"
        if self._trouble is not None:
            raise self._trouble

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes; the objects stay. May be called twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._watching.cancel)
            self._thread.join(ANSWERS_WITHIN_S)
            assert not self._thread.is_alive(), "the fake nodes did not end"

    # ------------------------------------------------------------------ looking

    @property
    def names(self) -> list[str]:
        return [*self._kubelet.nodes]

    def pods(self) -> list[tuple[str, str]]:
        """(namespace, name) of those that the nodes know."""
        return self._call(lambda: [(run.namespace, run.name) for run in self._kubelet.pods.values()])

    def pid(self, namespace: str, name: str) -> int:
        """The process id of the pod's first container."""

        def find() -> int:
            process = self._kubelet.find(namespace, name).running[0].process
            assert process is not None, f"{namespace}/{name} has no process"
            return process.pid

        return self._call(find)

    def log(self, namespace: str, name: str, container: str | None = None) -> str:
        """What the pod's containers (or one) have written so far. Only as long as the nodes know the pod."""
        folder = self._call(lambda: self._kubelet.find(namespace, name).folder)
        logs = sorted(folder.glob(f"{container or '*'}.log"))
        return "".join(path.read_text(errors="replace") for path in logs)

    def logs(self) -> str:
        """All that any pod has written, ended ones too: for a test that fails."""
        paths = sorted(self.folder.glob("pods/*/*.log"))
        return "\n".join(f"--- {path.parent.name} {path.stem}\n{path.read_text(errors='replace')}" for path in paths)

    # ------------------------------------------------------------------ what befalls pods

    def finish(self, namespace: str, name: str, exit_code: int = 0) -> None:
        """End a pod that has no process."""

        def act() -> None:
            run = self._kubelet.find(namespace, name)
            run.told_exit = exit_code
            run.changed.set()

        self._call(act)

    def oom(self, namespace: str, name: str) -> None:
        """It is killed for want of memory."""
        self._call(lambda: self._kubelet.find(namespace, name).kill("OOMKilled"))

    def evict(self, namespace: str, name: str, message: str = "The node was low on resource: memory.") -> None:
        """The kubelet puts it out; its object stays, Failed. (Eviction by the API is the API server's.)"""

        def act() -> None:
            run = self._kubelet.find(namespace, name)
            run.evicted = message
            run.changed.set()

        self._call(act)

    def fail_pulls(self, pattern: str) -> None:
        """The images of pods whose image or name matches can't be had."""
        self._call(lambda: self._kubelet.pull_errors.append(re.compile(pattern)))

    def hang_volumes(self, pattern: str) -> None:
        """Pods whose name matches wait for their volumes."""
        self._call(lambda: self._kubelet.hanging_volumes.append(re.compile(pattern)))

    def mend(self) -> None:
        """Images and volumes can be had again."""

        def act() -> None:
            self._kubelet.pull_errors.clear()
            self._kubelet.hanging_volumes.clear()

        self._call(act)

    # ------------------------------------------------------------------ what befalls nodes

    def die(self, name: str, *, told: bool = True, processes: bool = True) -> None:
        """A power cut: no heartbeats, no processes. ``told=False`` leaves it to a node controller to notice."""
        self._await(lambda: self._kubelet.die(name, told=told, processes=processes))

    def revive(self, name: str) -> None:
        """It is back, and says what became of its pods."""
        self._await(lambda: self._kubelet.revive(name))

    # ------------------------------------------------------------------ its thread

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as trouble:
            self._trouble = trouble
        self._ready.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._kubelet = self._make()
        self._watching = asyncio.create_task(self._kubelet.run())
        told = asyncio.create_task(self._kubelet.ready.wait())
        try:
            await asyncio.wait([self._watching, told], return_when=asyncio.FIRST_COMPLETED)
            if told.done():
                self._ready.set()
            await self._watching
        except asyncio.CancelledError:
            pass
        finally:
            told.cancel()
            await self._kubelet.stop()

    def _call(self, act: Callable[[], Value]) -> Value:
        async def run() -> Value:
            return act()

        return self._await(run)

    def _await(self, act: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
        assert self._thread.is_alive(), f"the fake nodes have ended: {self._trouble!r}"
        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(ANSWERS_WITHIN_S)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kube.fake_node", description="Nodes whose pods are processes of this machine.")
    parser.add_argument("--kubeconfig", type=Path, default=Path(os.environ.get("GPUFAIR_TEST_KUBECONFIG", "")), help="default: $GPUFAIR_TEST_KUBECONFIG")
    parser.add_argument("--count", type=int, default=2, help="nodes (default: 2)")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of each (default: 8)")
    parser.add_argument("--prefix", default="fake", help="names are PREFIX-0, PREFIX-1, … (default: fake)")
    parser.add_argument("--no-processes", action="store_true", help="pods just run, for scale")
    parser.add_argument("--claim", action="append", default=[], metavar="NAME=FOLDER", help="a folder that stands for a PersistentVolumeClaim")
    options = parser.parse_args()
    if not options.kubeconfig.is_file():
        parser.error("give --kubeconfig FILE, or set GPUFAIR_TEST_KUBECONFIG (`make kube-up` prints one)")
    claims = {name: Path(folder) for name, _, folder in (claim.partition("=") for claim in options.claim)}
    names = [f"{options.prefix}-{place}" for place in range(options.count)]
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with (
        tempfile.TemporaryDirectory(prefix="fake-nodes-") as folder,
        FakeNodes(options.kubeconfig, Path(folder), names=names, gpus=options.gpus, runs=not options.no_processes, claims=claims),
    ):
        print(f"{options.count} nodes of {options.gpus} GPUs are ready: {', '.join(names[:4])}{' …' if len(names) > 4 else ''}", flush=True)
        stop.wait()


if __name__ == "__main__":
    main()
