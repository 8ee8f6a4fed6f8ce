"""From the click to the first answer of a cell: our kernel, with GPUs free, beside a plain one of the same server.

Through everything: Jupyter server, websocket, relay, service, journal, agent, supervisor.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from tests.bench.result import Result
from tests.integration.jupyter.real import real_service
from tests.integration.jupyter.server import Server, Tab

STARTS = 7
LIMIT_MS = 300.0


def start(server: Server, name: str, kernel_name: str) -> float:
    """Seconds until the first cell of a new notebook was answered; the kernel is gone afterwards."""
    begun = time.perf_counter()
    kernel = server.new(name, kernel_name)
    with Tab(server, kernel, timeout_s=60) as tab:
        reply = tab.reply(tab.run("1"), 60)
        taken = time.perf_counter() - begun
    assert reply["status"] == "ok", reply
    assert server.call("DELETE", f"/api/kernels/{kernel}")[0] == 204
    return taken


def kernel_start() -> Result:
    """Medians of seven starts each, taken in turn; one of each before them is not counted."""
    taken: dict[str, list[float]] = {"python3": [], "gpufair-digits": []}
    with tempfile.TemporaryDirectory(prefix="gpufair-bench-") as folder, real_service(Path(folder)) as (server, _):
        for number in range(STARTS + 1):
            for name, times in taken.items():
                seconds = start(server, f"{name}-{number}.ipynb", name)
                if number:
                    times.append(seconds)
    plain, ours = (statistics.median(times) * 1000 for times in taken.values())
    return Result(
        ours - plain,
        "ms more than a plain kernel",
        LIMIT_MS,
        notes={"plain_ms": plain, "gpufair_ms": ours, "starts": STARTS, "spread_ms": (max(taken["gpufair-digits"]) - min(taken["gpufair-digits"])) * 1000},
    )


CASES = {"kernel_start": kernel_start}
