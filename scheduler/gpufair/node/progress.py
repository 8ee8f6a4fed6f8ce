"""How far a restore has come, asked from the kernel while it is at work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from gpufair.node.control import KernelGone
from gpufair.node.live_kernel import LiveKernel
from gpufair.node.reports import ReportLog

EVERY_S = 0.5
LEAST = 0.01  # a smaller step is no news


@asynccontextmanager
async def reported(kernel: LiveKernel, reports: ReportLog) -> AsyncIterator[None]:
    """While the body runs, report the progress of a restore. The kernel must know our messages."""
    task = asyncio.create_task(_follow(kernel, reports), name="progress")
    try:
        yield
    finally:
        task.cancel()


async def _follow(kernel: LiveKernel, reports: ReportLog) -> None:
    told = 0.0
    with suppress(KernelGone, ValueError):
        while True:
            await asyncio.sleep(EVERY_S)
            content = await kernel.control.ask("gpufair_progress_request", {})
            fraction = min(max(float(content.get("fraction") or 0.0), 0.0), 1.0)
            if fraction >= told + LEAST:
                told = fraction
                reports.add("progress", {"step": "restoring", "fraction": round(fraction, 3)})
