"""What it costs to submit many runs at once."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.core_world import cpu_scale
from tests.bench.result import Result
from tests.integration.service.rig import Rig

RUNS, LIMIT_S = 500, 5.0


def batch_sweep() -> Result:
    """`gpufair submit --array seed=0-499`: from the command to its end, durable, with the start of Python in it."""
    with tempfile.TemporaryDirectory(prefix="gpufair-bench-") as folder:
        rig = Rig(Path(folder))
        try:
            rig.start()
            rig.submit("first", "sleep 600")  # holds the GPU, so that all others wait
            asked = ["--state-dir", str(rig.state), "--array", f"seed=0-{RUNS - 1}", "--json"]
            before, begun = cpu_scale(), time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "gpufair.cli", "submit", *asked, "--", "true"],
                check=True, capture_output=True, cwd=folder,
            )  # fmt: skip
            taken = time.perf_counter() - begun
            waiting = len(rig.ask("GET", "/queue")["workloads"])
            assert waiting == RUNS, f"{waiting} wait"
        finally:
            rig.clean()
    scale = (before + cpu_scale()) / 2
    return Result(taken, f"s for {RUNS} runs", LIMIT_S * scale, notes={"limit_unscaled": LIMIT_S, "cpu_scale": scale})


CASES = {"batch_sweep": batch_sweep}
