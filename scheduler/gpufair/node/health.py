"""What is wrong with this machine, in sentences for its operator: GPUs that fail, disks that are full or cannot be written."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from gpufair.node.gpus import is_virtual, nvml

LOOK_S: Final = 30.0
LEAST_FREE_BYTES: Final = 1 << 30  # checkpoints and outputs go there
MOST: Final = 20  # problems that are told


def problems(gpu_ids: Iterable[str], folders: Iterable[Path]) -> list[str]:
    """What is wrong now; blocks.

    Args:
        gpu_ids: The GPUs that this node offers.
        folders: Where it has to be able to write.
    """
    found = [text for _, text in sick_gpus(gpu_ids)]
    for folder in folders:
        found += _disk(folder)
    return found[:MOST]


def sick_gpus(gpu_ids: Iterable[str]) -> list[tuple[str, str]]:
    """(GPU, what is wrong with it) of those that do not answer any more, or have failed."""
    real = [gpu_id for gpu_id in gpu_ids if not is_virtual(gpu_id)]
    if not real:
        return []
    found = []
    with nvml() as asked:
        if asked is None:
            return [(gpu_id, f"GPU {gpu_id} cannot be asked: NVML does not work; look at `nvidia-smi`") for gpu_id in real]
        for gpu_id in real:
            try:
                handle = asked.nvmlDeviceGetHandleByUUID(gpu_id)
                asked.nvmlDeviceGetMemoryInfo(handle)
            except asked.NVMLError as err:
                said = f"GPU {gpu_id} does not answer ({err}); look for Xid errors in the kernel's log, and reset it or restart"
                found.append((gpu_id, said))
                continue
            if said := _memory_errors(asked, handle, gpu_id):
                found.append((gpu_id, said))
    return found


def _memory_errors(asked: object, handle: object, gpu_id: str) -> str:
    rows = getattr(asked, "nvmlDeviceGetRemappedRows", None)  # since driver 450, and for some GPUs only
    try:
        if rows is None:
            return ""
        _, _, pending, failed = rows(handle)
    except Exception:  # noqa: BLE001  # NVMLError is a class of the object; whoever cannot say has none that we know of
        return ""
    if failed:
        return f"GPU {gpu_id} has memory that fails and cannot be replaced by spare rows; have it exchanged"
    if pending:
        return f"GPU {gpu_id} has memory that fails, which a reset replaces by spare rows; drain the node and reset it"
    return ""


def _disk(folder: Path) -> list[str]:
    try:
        free = shutil.disk_usage(folder).free
        # Not asked by access(): root may write everywhere, but not to a disk that is read-only.
        read_only = bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    except OSError as err:
        return [f"{folder} cannot be looked at: {err.strerror}"]
    if read_only:
        return [f"{folder} is on a disk that is read-only now; look at the kernel's log"]
    if free < LEAST_FREE_BYTES:
        return [f"only {free / (1 << 30):.1f} GiB are free at {folder}: make room, else checkpoints and outputs are lost"]
    return []


async def look_after(gpu_ids: Sequence[str], folders: Sequence[Path], tell: Callable[[list[str]], None]) -> None:
    """Look, and ``tell`` what is wrong, for ever."""
    while True:
        tell(await asyncio.to_thread(problems, gpu_ids, folders))
        await asyncio.sleep(LOOK_S)
