"""Saving a kernel that is to go elsewhere only if nothing is lost by it: all of it is saved and it stands still, or it goes on.

A preemption frees its GPUs by its deadline, whatever can be saved. A move that the session's owner asks for has no such
need, so here a save that fails, a variable that cannot be saved and a cell that does not end all mean: it stays.
"""

from __future__ import annotations

import asyncio
import time

from gpufair.node.live_kernel import LiveKernel
from gpufair.node.saving import LIMIT_S, UNABLE, CheckpointFailed, Saver

PROBE_WAIT_S = 60.0
LEAST_WAIT_S = 5.0  # for a boundary that was seen a moment ago and is over: another cell was queued
_NAMED, _NAME, _REASON = 2, 40, 60  # how many of what was lost are told, and how much of each


async def hold(saver: Saver, kernel: LiveKernel, *, wait_s: float, hold_s: float) -> float:
    """Save the kernel when no cell runs, and have it begin none for ``hold_s`` after that.

    Args:
        wait_s: How long to wait for the end of a running cell; it is not interrupted.

    Returns: Until when no cell begins, in Unix seconds.

    Raises:
        CheckpointFailed: Not all of the session is in a checkpoint; it goes on as if nothing had been asked.
        KernelGone: It died meanwhile.
        TimeoutError: It does not answer.
    """
    until = time.monotonic() + wait_s
    if not await asyncio.wait_for(saver.probe(kernel), PROBE_WAIT_S):
        raise CheckpointFailed(UNABLE, final=True)
    while True:
        if not await kernel.boundary(until - time.monotonic()):
            raise CheckpointFailed(f"a cell ran for longer than {wait_s:g} s; ask again when it has ended, or interrupt it")
        begun, left = time.monotonic(), max(until - time.monotonic(), LEAST_WAIT_S)
        await saver.save(kernel, wait_s=left, limit_s=left + LIMIT_S, hold_s=hold_s)
        lost = saver.last["lost"] if saver.last is not None else []
        if not lost and not saver.inside:
            saver.still = kernel, begun + hold_s
            return time.time() + hold_s - (time.monotonic() - begun)
        await saver.probe(kernel)  # it goes on
        if lost:
            named = ", ".join(f"{name[:_NAME]} ({reason[:_REASON]})" for name, reason in lost[:_NAMED])
            more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
            raise CheckpointFailed(f"{named}{more} cannot be saved; delete that, or park it and open it without")
