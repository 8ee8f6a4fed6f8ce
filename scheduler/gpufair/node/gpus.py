"""The GPUs of a node: which there are, which a workload sees, and whether it has really let go of them.

Real GPUs are asked through NVML (package ``nvidia-ml-py``, module ``pynvml``); virtual ones are names only, so that
the whole flow works on a laptop. The NVML part is tested against a stand-in for ``pynvml``: it has not been run on a
machine with a GPU, and MIG slices are not handled.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

VIRTUAL = "virtual-"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. ``id`` is its NVML UUID."""

    id: str
    type: str
    memory_bytes: int


def virtual(count: int) -> tuple[str, ...]:
    """Ids of ``count`` virtual GPUs."""
    return tuple(f"{VIRTUAL}{index}" for index in range(count))


def is_virtual(gpu_id: str) -> bool:
    """Whether this is the name of a virtual GPU."""
    return gpu_id.startswith(VIRTUAL)


@contextmanager
def nvml() -> Iterator[Any]:
    """NVML, ready to be asked; None without the package, the driver or a permission to use it."""
    try:
        import pynvml  # noqa: PLC0415  # optional, and no node without a GPU should pay for it
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value  # old versions of the package answer bytes


def inventory() -> tuple[Gpu, ...]:
    """The real GPUs of this machine in NVML's order; empty where there are none."""
    with nvml() as asked:
        if asked is None:
            return ()
        handles = [asked.nvmlDeviceGetHandleByIndex(index) for index in range(asked.nvmlDeviceGetCount())]
        return tuple(
            Gpu(
                _text(asked.nvmlDeviceGetUUID(handle)),
                _text(asked.nvmlDeviceGetName(handle)),
                int(asked.nvmlDeviceGetMemoryInfo(handle).total),
            )
            for handle in handles
        )


def visible_devices(chosen: Sequence[str]) -> str:
    """``CUDA_VISIBLE_DEVICES`` for these ids: UUIDs of real GPUs, indices of virtual ones, "" for none.

    An empty string hides all GPUs from a workload that has none; leaving the variable out would show it all of them.
    """
    return ",".join(re.sub(rf"^{VIRTUAL}", "", gpu_id) for gpu_id in chosen)


def allot(inventory_ids: Sequence[str], taken: Iterable[str], count: int) -> tuple[str, ...] | None:
    """The first ``count`` free ids in the inventory's order, or None if fewer are free."""
    held = set(taken)
    free = [gpu_id for gpu_id in inventory_ids if gpu_id not in held]
    return tuple(free[:count]) if len(free) >= count else None


def holders(gpu_ids: Sequence[str], pids: Iterable[int]) -> list[tuple[str, int]]:
    """(GPU, process) for each of these processes that still has a context on one of these GPUs.

    Processes of others don't count: a shared machine may run what we did not start. Virtual GPUs are held by nobody.
    """
    real = [gpu_id for gpu_id in gpu_ids if not is_virtual(gpu_id)]
    ours = set(pids)
    if not real or not ours:
        return []
    with nvml() as asked:
        if asked is None:
            return []
        held: list[tuple[str, int]] = []
        for gpu_id in real:
            try:
                running = asked.nvmlDeviceGetComputeRunningProcesses(asked.nvmlDeviceGetHandleByUUID(gpu_id))
            except asked.NVMLError:
                continue  # a GPU that fell off the bus holds no context; the node's health is another check
            held += [(gpu_id, process.pid) for process in running if process.pid in ours]
        return held


def utilization(gpu_ids: Iterable[str]) -> dict[str, float]:
    """How busy each of these GPUs is, from 0 to 1: the part of NVML's last sample period (at most a second) in which a
    kernel ran on it. Those about which nothing can be known, virtual ones among them, are left out.
    """
    real = [gpu_id for gpu_id in gpu_ids if not is_virtual(gpu_id)]
    if not real:
        return {}
    found: dict[str, float] = {}
    with nvml() as asked:
        for gpu_id in real if asked is not None else ():
            try:
                rates = asked.nvmlDeviceGetUtilizationRates(asked.nvmlDeviceGetHandleByUUID(gpu_id))
            except asked.NVMLError:
                continue  # not every GPU can be asked this
            found[gpu_id] = min(max(float(rates.gpu), 0.0), 100.0) / 100
    return found


def computing(gpu_ids: Iterable[str]) -> dict[str, bool]:
    """Whether each of these GPUs is computed on: some process has a context there, or a kernel ran in the last sample
    period. Those that cannot be asked are left out, virtual ones among them.

    "No" is certain only where processes of other containers are seen: see ``processes.sees_all``.
    """
    real = [gpu_id for gpu_id in gpu_ids if not is_virtual(gpu_id)]
    if not real:
        return {}
    found: dict[str, bool] = {}
    with nvml() as asked:
        for gpu_id in real if asked is not None else ():
            with suppress(asked.NVMLError):
                handle = asked.nvmlDeviceGetHandleByUUID(gpu_id)
                contexts = asked.nvmlDeviceGetComputeRunningProcesses(handle)
                found[gpu_id] = bool(contexts) or asked.nvmlDeviceGetUtilizationRates(handle).gpu > 0
    return found


def used_bytes(gpu_ids: Iterable[str]) -> dict[str, int]:
    """How much memory of each of these GPUs is in use, by whomever. Those that cannot be asked are left out."""
    found: dict[str, int] = {}
    with nvml() as asked:
        for gpu_id in gpu_ids if asked is not None else ():
            with suppress(asked.NVMLError):
                found[gpu_id] = int(asked.nvmlDeviceGetMemoryInfo(asked.nvmlDeviceGetHandleByUUID(gpu_id)).used)
    return found


def await_release(
    gpu_ids: Sequence[str], pids: Iterable[int], *, timeout_s: float = 10.0, pause_s: float = 0.05
) -> list[tuple[str, int]]:
    """Wait until none of these processes holds a context on these GPUs. Blocks for at most ``timeout_s``.

    The driver frees a context a moment after its process is gone; a GPU handed on earlier starts out of memory.

    Returns: What is still held when the time is over; empty when all is free.
    """
    pids = list(pids)
    deadline = time.monotonic() + timeout_s
    while (held := holders(gpu_ids, pids)) and time.monotonic() < deadline:
        time.sleep(pause_s)
    return held
